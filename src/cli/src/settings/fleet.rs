//! Settings of the commands about an aggregator's fleet: `nodes`, `types`, `availability`, `node` and `watch`.

use std::num::NonZeroUsize;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args, ValueEnum};
use octavo_fleet::fleet::{NodeState, Sharing};
use octavo_planner::reconcile::ApplyState;

use super::server::ServerSettings;
use super::{Headers, headers};

pub(super) const NODES_EXAMPLES: &str = "\
Examples:
  # Every node, what it has and how it is
  octavo nodes

  # Where is something free? The nodes with most free devices first
  octavo nodes --sort-by free

  # H100s and H200s that want attention
  octavo nodes --type nvidia-h100-80gb --type nvidia-h200-141gb --state degraded

  # By what the nodes say of themselves in labels
  octavo nodes -l 'octavo.dev/sharing in (mig,mixed),octavo.dev/vendor=nvidia'

  # Names for a script
  octavo nodes --state stale -o name";

pub(super) const TYPES_EXAMPLES: &str = "\
Examples:
  # What does the fleet have, how much of it is free, and on which nodes?
  octavo types

  # Only one type
  octavo types --type nvidia-h200-141gb

  # For a program
  octavo types -o json

The devices of nodes that are stale count as unknown: what they were is not what they are.";

pub(super) const NODE_EXAMPLES: &str = "\
Examples:
  # What the node said last: the same as `octavo inspect` prints on the node
  octavo node gpu-node-7

  # With PCI addresses, UUIDs and links
  octavo node gpu-node-7 -o wide

  # Its labels
  octavo node gpu-node-7 -o json | jq .labels";

pub(super) const WATCH_EXAMPLES: &str = "\
Examples:
  # A table that follows the fleet; Ctrl-C ends it
  octavo watch

  # A line for each change, also of what is piped elsewhere
  octavo watch --state degraded | tee changes.log

  # A JSON object for each event
  octavo watch -o json | jq -r 'select(.kind == \"node\").node.name'

A connection that breaks is made anew, and standard error says so.";

pub(super) const AVAILABILITY_EXAMPLES: &str = "\
Examples:
  # What is to be had now, in a line for each type, then in figures
  octavo availability

  # Why is the rest not, how long is the wait, and what could idle devices become?
  octavo availability -o wide

  # Types of which two devices are free
  octavo availability --resource nvidia.com/gpu --min-free 2 -o name

  # For a program
  octavo availability --type nvidia-h200-141gb -o json | jq '.items[].free'

Free is what the scheduler would place: as many more pods that ask for one unit and nothing else.";

/// Settings of `octavo nodes`.
#[derive(Debug, Clone, Args)]
pub struct NodesSettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Order of the rows; those alike are ordered by name
    #[arg(long, value_name = "COLUMN", default_value = "name")]
    pub sort_by: SortBy,

    /// Tables of nodes that have the same, with a line about each; other formats are not grouped
    #[arg(long, value_name = "WHAT", conflicts_with = "watch")]
    pub group_by: Option<GroupBy>,

    /// No more than this many nodes
    #[arg(long, value_name = "N", conflicts_with = "watch")]
    pub limit: Option<NonZeroUsize>,

    /// Stay and follow what changes, as `octavo watch` does
    #[arg(short, long)]
    pub watch: bool,

    /// Filter.
    #[command(flatten)]
    pub filter: NodeFilter,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

impl From<&NodesSettings> for WatchSettings {
    fn from(nodes: &NodesSettings) -> Self {
        Self {
            output: nodes.output,
            sort_by: nodes.sort_by,
            filter: nodes.filter.clone(),
            server: nodes.server.clone(),
        }
    }
}

/// Settings of `octavo types`.
#[derive(Debug, Clone, Args)]
pub struct TypesSettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Only this type; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo node`.
#[derive(Debug, Clone, Args)]
pub struct NodeSettings {
    /// The node's name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchSettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Order of the rows; those alike are ordered by name
    #[arg(long, value_name = "COLUMN", default_value = "name")]
    pub sort_by: SortBy,

    /// Filter.
    #[command(flatten)]
    pub filter: NodeFilter,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Output format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct OutputOptions {
    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: FleetFormat,

    /// Print the rows of the table and nothing else
    #[arg(long = "no-headers", action = ArgAction::SetTrue, value_parser = headers())]
    pub headers: Headers,
}

impl OutputOptions {
    /// Returns whether more than the rows of tables is printed.
    pub fn with_headers(self) -> bool {
        self.headers == Headers::Shown
    }
}

/// Filter of nodes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which nodes")]
pub struct NodeFilter {
    /// Nodes that have a device of this type; repeat for any of several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Nodes in this state; repeat for any of several
    #[arg(
        long = "state",
        value_name = "STATE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(NodeState::ALL.map(NodeState::as_str))
    )]
    pub states: Vec<String>,

    /// Nodes whose devices are given out like this; repeat for any of several
    #[arg(
        long,
        value_name = "HOW",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(Sharing::ALL.map(Sharing::as_str))
    )]
    pub sharing: Vec<String>,

    /// Nodes that shall have this layout; repeat for any of several
    #[arg(long = "layout", value_name = "NAME", value_delimiter = ',')]
    pub layouts: Vec<String>,

    /// Nodes that stand so with regard to their layout; `none` where no layout asks anything; repeat for any of several
    #[arg(
        long = "layout-state",
        value_name = "STATE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(["none"].into_iter().chain(ApplyState::WORDS))
    )]
    pub layout_states: Vec<String>,

    /// Nodes whose labels match, in the words of kubectl: a=b, a!=b, a in (b,c), a, !a
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// Nodes with this in their name
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
}

impl NodeFilter {
    /// Returns the names and values of the aggregator's parameters. Alternative values are separate parameters of the
    /// same name.
    pub fn parameters(&self) -> Vec<(&'static str, &str)> {
        let several = [
            ("type", &self.types),
            ("state", &self.states),
            ("sharing", &self.sharing),
            ("layout", &self.layouts),
            ("layoutState", &self.layout_states),
        ];
        let several = several
            .into_iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name, value.as_str())));
        let one = [("selector", &self.selector), ("search", &self.search)];
        let one = one
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)));
        several.chain(one).collect()
    }
}

/// Settings of `octavo availability`.
#[derive(Debug, Clone, Args)]
pub struct AvailabilitySettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Only this type; `unknown` for what nobody knows; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Only this resource, such as nvidia.com/gpu; repeat for several
    #[arg(long = "resource", value_name = "RESOURCE", value_delimiter = ',')]
    pub resources: Vec<String>,

    /// Only what has at least so many free
    #[arg(long, value_name = "N")]
    pub min_free: Option<u64>,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

impl AvailabilitySettings {
    /// Returns the names and values of the aggregator's parameters.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let several = [("type", &self.types), ("resource", &self.resources)];
        let several = several
            .into_iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name, value.clone())));
        let least = self.min_free.map(|least| ("minFree", least.to_string()));
        several.chain(least).collect()
    }
}

/// How an answer about the fleet is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FleetFormat {
    /// A table
    Table,
    /// The same with more columns
    Wide,
    /// The aggregator's answer as JSON
    Json,
    /// The same as YAML
    Yaml,
    /// Names and nothing else
    Name,
}

/// What nodes are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// Name
    Name,
    /// The gravest state first
    State,
    /// Most devices first
    Devices,
    /// Most free devices first
    Free,
    /// Most memory first
    Memory,
    /// Longest unheard of first
    Age,
    /// The first of its types
    Type,
    /// How its devices are given out
    Sharing,
}

/// By what nodes are taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// The type of their devices; nodes with several types are a group of their own
    Type,
}

impl SortBy {
    /// Returns the aggregator's sort key; a minus reverses the order.
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "-state",
            Self::Devices => "-devices",
            Self::Free => "-free",
            Self::Memory => "-memory",
            Self::Age => "-age",
            Self::Type => "type",
            Self::Sharing => "sharing",
        }
    }
}
