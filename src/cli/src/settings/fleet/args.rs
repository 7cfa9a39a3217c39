//! Command-line arguments of the commands about the fleet.

use std::num::NonZeroUsize;

use clap::Args;
use clap::builder::PossibleValuesParser;
use octavo_fleet::fleet::{NodeState, Sharing};
use octavo_planner::reconcile::ApplyState;

use super::{
    Filter, FleetFormat, GroupBy, NodeSettings, NodesSettings, OutputOptions, SortBy, TypesSettings,
};
use crate::settings::Headers;
use crate::settings::server::ServerArgs;

pub(in crate::settings) const NODES_EXAMPLES: &str = "\
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

pub(in crate::settings) const TYPES_EXAMPLES: &str = "\
Examples:
  # What does the fleet have, how much of it is free, and on which nodes?
  octavo types

  # Only one type
  octavo types --type nvidia-h200-141gb

  # For a program
  octavo types -o json

The devices of nodes that are stale count as unknown: what they were is not what they are.";

pub(in crate::settings) const NODE_EXAMPLES: &str = "\
Examples:
  # What the node said last: the same as `octavo inspect` prints on the node
  octavo node gpu-node-7

  # With PCI addresses, UUIDs and links
  octavo node gpu-node-7 -o wide

  # Its labels
  octavo node gpu-node-7 -o json | jq .labels";

pub(in crate::settings) const WATCH_EXAMPLES: &str = "\
Examples:
  # A table that follows the fleet; Ctrl-C ends it
  octavo watch

  # A line for each change, also of what is piped elsewhere
  octavo watch --state degraded | tee changes.log

  # A JSON object for each event
  octavo watch -o json | jq -r 'select(.kind == \"node\").node.name'

A connection that breaks is made anew, and standard error says so.";

/// Raw arguments of `octavo nodes`.
#[derive(Debug, Clone, Args)]
pub(in crate::settings) struct NodesArgs {
    #[command(flatten)]
    output: OutputArgs,

    /// Order of the rows; those alike are ordered by name
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "name")]
    sort_by: SortBy,

    /// Tables of nodes that have the same, with a line about each; other formats are not grouped
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "watch")]
    group_by: Option<GroupBy>,

    /// No more than this many nodes
    #[arg(long, value_name = "N", conflicts_with = "watch")]
    limit: Option<NonZeroUsize>,

    /// Stay and follow what changes, as `octavo watch` does
    #[arg(short, long)]
    watch: bool,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    server: ServerArgs,
}

/// Raw arguments of `octavo types`.
#[derive(Debug, Clone, Args)]
pub(in crate::settings) struct TypesArgs {
    #[command(flatten)]
    output: OutputArgs,

    /// Only this type; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Raw arguments of `octavo node`.
#[derive(Debug, Clone, Args)]
pub(in crate::settings) struct NodeArgs {
    /// The node's name
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

/// Raw arguments of `octavo watch`.
#[derive(Debug, Clone, Args)]
pub(in crate::settings) struct WatchArgs {
    #[command(flatten)]
    output: OutputArgs,

    /// Order of the rows; those alike are ordered by name
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "name")]
    sort_by: SortBy,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    server: ServerArgs,
}

/// How an answer of an aggregator is printed.
#[derive(Debug, Clone, Args)]
pub(in crate::settings) struct OutputArgs {
    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: FleetFormat,

    /// Print the rows of the table and nothing else
    #[arg(long)]
    no_headers: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Which nodes")]
pub(super) struct FilterArgs {
    /// Nodes that have a device of this type; repeat for any of several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub(super) types: Vec<String>,

    /// Nodes in this state; repeat for any of several
    #[arg(
        long = "state",
        value_name = "STATE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(NodeState::ALL.map(NodeState::as_str))
    )]
    pub(super) states: Vec<String>,

    /// Nodes whose devices are given out like this; repeat for any of several
    #[arg(
        long,
        value_name = "HOW",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(Sharing::ALL.map(Sharing::as_str))
    )]
    pub(super) sharing: Vec<String>,

    /// Nodes that shall have this layout; repeat for any of several
    #[arg(long = "layout", value_name = "NAME", value_delimiter = ',')]
    pub(super) layouts: Vec<String>,

    /// Nodes that stand so with regard to their layout; `none` where no layout asks anything; repeat for any of several
    #[arg(
        long = "layout-state",
        value_name = "STATE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(["none"].into_iter().chain(ApplyState::WORDS))
    )]
    pub(super) layout_states: Vec<String>,

    /// Nodes whose labels match, in the words of kubectl: a=b, a!=b, a in (b,c), a, !a
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(super) selector: Option<String>,

    /// Nodes with this in their name
    #[arg(long, value_name = "TEXT")]
    pub(super) search: Option<String>,
}

impl From<OutputArgs> for OutputOptions {
    fn from(args: OutputArgs) -> Self {
        Self {
            format: args.output,
            headers: Headers::hidden_if(args.no_headers),
        }
    }
}

impl NodesArgs {
    /// Resolves the settings, and whether to watch for changes.
    pub(in crate::settings) fn resolve(self) -> (NodesSettings, bool) {
        let settings = NodesSettings {
            server: self.server.into(),
            printed: self.output.into(),
            filter: Filter {
                filter: self.filter,
                sort_by: self.sort_by,
            },
            limit: self.limit,
            group_by: self.group_by,
        };
        (settings, self.watch)
    }
}

impl From<WatchArgs> for NodesSettings {
    fn from(args: WatchArgs) -> Self {
        Self {
            server: args.server.into(),
            printed: args.output.into(),
            filter: Filter {
                filter: args.filter,
                sort_by: args.sort_by,
            },
            limit: None,
            group_by: None,
        }
    }
}

impl From<TypesArgs> for TypesSettings {
    fn from(args: TypesArgs) -> Self {
        Self {
            server: args.server.into(),
            printed: args.output.into(),
            types: args.types,
        }
    }
}

impl From<NodeArgs> for NodeSettings {
    fn from(args: NodeArgs) -> Self {
        Self {
            server: args.server.into(),
            printed: args.output.into(),
            name: args.name,
        }
    }
}
