//! Settings of the commands about an aggregator's fleet: `nodes`, `types`, `availability`, `demand`, `node` and `watch`.

use std::num::NonZeroUsize;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args, ValueEnum};
use octavo_client::ServerSettings;
use octavo_fleet::summary::{NodeState, Sharing};
use octavo_model::reason::Reason;
use octavo_planner::reconcile::ApplyState;
use octavo_toolkit::choice::{Choice, choice};

use super::{Headers, headers};

/// Columns that nodes can be ordered by, each with the aggregator's sort key; a minus reverses the order.
const SORT_KEYS: &[Choice<&str>] = &[
    ("name", "Name", "name"),
    ("state", "Most severe state first", "-state"),
    ("devices", "Most devices first", "-devices"),
    ("free", "Most free devices first", "-free"),
    ("memory", "Most memory first", "-memory"),
    ("age", "Oldest report first", "-age"),
    ("type", "First type of the node", "type"),
    ("sharing", "Sharing mode", "sharing"),
];

/// Settings of `octavo nodes`.
#[derive(Debug, Clone, Args)]
pub struct NodesSettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Order of the rows.
    #[command(flatten)]
    pub order: NodeOrder,

    /// Print one table per group, with a summary line; applies only to tables
    #[arg(long, value_name = "FIELD", conflicts_with = "watch")]
    pub group_by: Option<GroupBy>,

    /// Maximum number of nodes
    #[arg(long, value_name = "N", conflicts_with = "watch")]
    pub limit: Option<NonZeroUsize>,

    /// Keep watching for changes, like `octavo watch`
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
            order: nodes.order,
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

    /// Show only this type; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo node`.
#[derive(Debug, Clone, Args)]
pub struct NodeSettings {
    /// Name of the node
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Print the latest changes of the node instead of its state
    #[arg(long)]
    pub changes: bool,

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

    /// Order of the rows.
    #[command(flatten)]
    pub order: NodeOrder,

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
    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: FleetFormat,

    /// Print only the rows of the table
    #[arg(long = "no-headers", action = ArgAction::SetTrue, value_parser = headers())]
    pub headers: Headers,
}

impl OutputOptions {
    /// Returns whether more than the rows of tables is printed.
    pub fn with_headers(self) -> bool {
        self.headers == Headers::Shown
    }

    /// Returns whether the output is a table.
    pub fn is_table(self) -> bool {
        matches!(self.format, FleetFormat::Table | FleetFormat::Wide)
    }

    /// Returns whether the output is a table with all columns.
    pub fn is_wide(self) -> bool {
        self.format == FleetFormat::Wide
    }
}

/// Filter of nodes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Filter")]
pub struct NodeFilter {
    /// Nodes with a device of this type; repeat to match any of several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Nodes in this state; repeat to match any of several
    #[arg(
        long = "state",
        value_name = "STATE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(NodeState::ALL.map(NodeState::as_str))
    )]
    pub states: Vec<String>,

    /// Nodes with this problem, such as `needs-reset` or `blocked`; repeat to match any of several
    #[arg(long = "problem", value_name = "WORD", value_delimiter = ',')]
    pub problems: Vec<String>,

    /// Nodes with this sharing mode; repeat to match any of several
    #[arg(
        long,
        value_name = "MODE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(Sharing::ALL.map(Sharing::as_str))
    )]
    pub sharing: Vec<String>,

    /// Nodes with this desired layout; repeat to match any of several
    #[arg(long = "layout", value_name = "NAME", value_delimiter = ',')]
    pub layouts: Vec<String>,

    /// Nodes with this layout state, or `none` for nodes that no layout applies to; repeat to match any of several
    #[arg(
        long = "layout-state",
        value_name = "STATE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(
            ["none"].into_iter().chain(ApplyState::REASONS.map(Reason::as_str))
        )
    )]
    pub layout_states: Vec<String>,

    /// Nodes whose labels match; same syntax as kubectl: a=b, a!=b, a in (b,c), a, !a
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// Nodes whose name contains this text
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
            ("problem", &self.problems),
            ("sharing", &self.sharing),
            ("layout", &self.layouts),
            ("layoutState", &self.layout_states),
        ];
        let several = several
            .into_iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name, value.as_str())));
        let one = [("selector", &self.selector), ("search", &self.search)];
        let one = one.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        several.chain(one).collect()
    }
}

/// Settings of `octavo availability`.
#[derive(Debug, Clone, Args)]
pub struct AvailabilitySettings {
    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Show only this type; `unknown` for unidentified devices; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Show only this resource, such as nvidia.com/gpu; repeat for several
    #[arg(long = "resource", value_name = "RESOURCE", value_delimiter = ',')]
    pub resources: Vec<String>,

    /// Show only rows with at least this many free
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

/// Settings of `octavo demand`.
#[derive(Debug, Clone, Args)]
pub struct DemandSettings {
    /// Pod whose details are shown: NAME or NAMESPACE/NAME
    #[arg(value_name = "POD")]
    pub pod: Option<String>,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// How an answer about the fleet is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FleetFormat {
    /// Table
    Table,
    /// Table with more columns
    Wide,
    /// JSON, as returned by the aggregator
    Json,
    /// YAML
    Yaml,
    /// Names only
    Name,
}

/// Order of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct NodeOrder {
    /// Sort order of the rows; equal rows are sorted by name
    #[arg(long, value_name = "COLUMN", default_value = "name", value_parser = choice(SORT_KEYS))]
    pub sort_by: &'static str,

    /// Reverse the sort order
    #[arg(long)]
    pub reverse: bool,
}

/// By what nodes are taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// Type of the devices; nodes with several types form a separate group
    Type,
}

impl NodeOrder {
    /// Returns the aggregator's sort key; a minus reverses the order.
    pub fn parameter(self) -> String {
        match (self.sort_by.strip_prefix('-'), self.reverse) {
            (Some(key), true) => key.to_owned(),
            (None, true) => format!("-{}", self.sort_by),
            (_, false) => self.sort_by.to_owned(),
        }
    }
}
