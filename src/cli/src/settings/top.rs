//! Settings of `octavo top`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use octavo_settings::duration;

use super::server::ServerSettings;
use super::{Headers, headers};

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

/// Settings of `octavo top`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct TopSettings {
    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: TopFormat,

    /// Print the rows of the table and nothing else
    #[arg(long = "no-headers", action = ArgAction::SetTrue, value_parser = headers())]
    pub headers: Headers,

    /// Order of the rows
    #[arg(long, value_name = "COLUMN", default_value = "memory")]
    pub sort_by: TopOrder,

    /// Print one table and end, as it is done where standard output is no terminal
    #[arg(long)]
    pub once: bool,

    /// How often the table is made anew
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        value_parser = duration::positive
    )]
    pub interval: Duration,

    /// No more than this many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<NonZeroUsize>,

    /// This node, as its agent says it, without an aggregator
    #[arg(long, conflicts_with = "node")]
    pub here: bool,

    /// With --here: where the agent's socket is
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        default_value = "/var/lib/octavo"
    )]
    pub state_dir: PathBuf,

    /// Only this node
    #[arg(long, value_name = "NAME", help_heading = "Filter")]
    pub node: Option<String>,

    /// Only pods of this namespace
    #[arg(short, long, value_name = "NAME", help_heading = "Filter")]
    pub namespace: Option<String>,

    /// Only the pod of this name
    #[arg(long, value_name = "NAME", help_heading = "Filter")]
    pub pod: Option<String>,

    /// Only those who use more than their share
    #[arg(long, help_heading = "Filter")]
    pub over: bool,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

impl TopSettings {
    /// Returns whether only one table is printed.
    pub fn is_once(&self) -> bool {
        self.once || matches!(self.format, TopFormat::Json | TopFormat::Yaml)
    }

    /// Returns the maximum number of rows; `None` for all.
    pub fn limit(&self) -> Option<usize> {
        self.limit.map(NonZeroUsize::get)
    }

    /// Returns the source's name for users.
    pub fn source_name(&self) -> String {
        if self.here {
            "this node".to_owned()
        } else {
            self.server.server.to_string()
        }
    }
}
