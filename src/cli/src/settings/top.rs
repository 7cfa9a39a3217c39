//! Settings of `octavo top`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use octavo_settings::duration;

use super::Headers;
use super::server::{ServerArgs, ServerSettings};

const EXAMPLES: &str = "\
Examples:
  # Who uses most of the fleet's accelerators? A table that follows; q or Ctrl-C ends it
  octavo top

  # Who uses more than their share, once, for a script
  octavo top --over --once

  # One node, or one team
  octavo top --node gpu-07
  octavo top --namespace team-a

  # This node, through its agent and without an aggregator
  octavo top --here

  # Rows as JSON
  octavo top -o json | jq -r '.items[] | select(.over) | .namespace + \"/\" + .pod'

Agents tell who uses what where they run with --usage-interval. SHARE is memory of the fair share: memory of the device or
partition divided by all that share it, times the replicas that the container has. Nobody enforces it; `over` says who is above.";

/// How the rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopFormat {
    /// A table
    Table,
    /// The same with more columns
    Wide,
    /// The rows as JSON, once
    Json,
    /// The same as YAML
    Yaml,
}

/// What rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopOrder {
    /// Who uses most memory first
    Memory,
    /// Node, then device
    Node,
}

/// Raw arguments.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag, and they are given in any combination"
)]
pub(super) struct TopArgs {
    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: TopFormat,

    /// Print the rows of the table and nothing else
    #[arg(long)]
    no_headers: bool,

    /// Order of the rows
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "memory")]
    sort_by: TopOrder,

    /// Print one table and end, as it is done where standard output is no terminal
    #[arg(long)]
    once: bool,

    /// How often the table is made anew
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        value_parser = duration::positive
    )]
    interval: Duration,

    /// No more than this many rows
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,

    /// This node, as its agent says it, without an aggregator
    #[arg(long, conflicts_with = "node")]
    here: bool,

    /// With --here: where the agent's socket is
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        hide_env_values = true,
        default_value = "/var/lib/octavo"
    )]
    state_dir: PathBuf,

    /// Only this node
    #[arg(long, value_name = "NAME", help_heading = "Filter")]
    node: Option<String>,

    /// Only pods of this namespace
    #[arg(short, long, value_name = "NAME", help_heading = "Filter")]
    namespace: Option<String>,

    /// Only the pod of this name
    #[arg(long, value_name = "NAME", help_heading = "Filter")]
    pod: Option<String>,

    /// Only those who use more than their share
    #[arg(long, help_heading = "Filter")]
    over: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Settings of `octavo top`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopSettings {
    source: TopSource,
    format: TopFormat,
    headers: Headers,
    order: TopOrder,
    once: bool,
    interval: Duration,
    limit: Option<NonZeroUsize>,
    namespace: Option<String>,
    pod: Option<String>,
    over: bool,
}

/// Source of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopSource {
    /// The agent whose socket is in this directory.
    Node(PathBuf),
    /// An aggregator.
    Fleet {
        /// Its settings.
        server: ServerSettings,
        /// Restricts the rows to this node.
        node: Option<String>,
    },
}

impl From<TopArgs> for TopSettings {
    fn from(args: TopArgs) -> Self {
        let source = if args.here {
            TopSource::Node(args.state_dir)
        } else {
            TopSource::Fleet {
                server: args.server.into(),
                node: args.node,
            }
        };
        Self {
            source,
            format: args.output,
            headers: Headers::hidden_if(args.no_headers),
            order: args.sort_by,
            once: args.once,
            interval: args.interval,
            limit: args.limit,
            namespace: args.namespace,
            pod: args.pod,
            over: args.over,
        }
    }
}

impl TopSettings {
    /// Returns the source of the rows.
    pub fn source(&self) -> &TopSource {
        &self.source
    }

    /// Returns the output format.
    pub fn format(&self) -> TopFormat {
        self.format
    }

    /// Returns whether headers are printed.
    pub fn headers(&self) -> Headers {
        self.headers
    }

    /// Returns the order of the rows.
    pub fn order(&self) -> TopOrder {
        self.order
    }

    /// Returns whether only one table is printed.
    pub fn once(&self) -> bool {
        self.once || matches!(self.format, TopFormat::Json | TopFormat::Yaml)
    }

    /// Returns the interval of updates.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the maximum number of rows; `None` for all.
    pub fn limit(&self) -> Option<usize> {
        self.limit.map(NonZeroUsize::get)
    }

    /// Returns the only namespace to show.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the name of the only pod to show.
    pub fn pod(&self) -> Option<&str> {
        self.pod.as_deref()
    }

    /// Returns whether only pods that exceed their share are shown.
    pub fn over(&self) -> bool {
        self.over
    }
}

impl TopSource {
    /// Returns the source's name for users.
    pub fn name(&self) -> String {
        match self {
            Self::Node(_) => "this node".to_owned(),
            Self::Fleet { server, .. } => server.server().to_string(),
        }
    }
}
