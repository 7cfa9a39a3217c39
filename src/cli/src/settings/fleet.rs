//! Settings of the commands about an aggregator's fleet: `nodes`, `types`, `availability`, `node` and `watch`.

mod args;
mod availability;

use std::num::NonZeroUsize;

use clap::ValueEnum;

use self::args::FilterArgs;
pub(super) use self::args::{
    NODE_EXAMPLES, NODES_EXAMPLES, NodeArgs, NodesArgs, OutputArgs, TYPES_EXAMPLES, TypesArgs,
    WATCH_EXAMPLES, WatchArgs,
};
pub use self::availability::AvailabilitySettings;
pub(super) use self::availability::{AVAILABILITY_EXAMPLES, AvailabilityArgs};
use super::Headers;
use super::server::ServerSettings;

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

/// Filter and order of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    filter: FilterArgs,
    sort_by: SortBy,
}

/// Settings of `octavo nodes` and `octavo watch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodesSettings {
    server: ServerSettings,
    printed: OutputOptions,
    filter: Filter,
    limit: Option<NonZeroUsize>,
    group_by: Option<GroupBy>,
}

/// Settings of `octavo types`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypesSettings {
    server: ServerSettings,
    printed: OutputOptions,
    types: Vec<String>,
}

/// Settings of `octavo node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    server: ServerSettings,
    printed: OutputOptions,
    name: String,
}

/// Output format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputOptions {
    /// The format.
    pub format: FleetFormat,
    /// Whether headers are printed.
    pub headers: Headers,
}

impl OutputOptions {
    /// Returns whether more than the rows of tables is printed.
    pub fn with_headers(self) -> bool {
        self.headers == Headers::Shown
    }
}

impl Filter {
    /// Returns the names and values of the aggregator's parameters. Alternative values are separate parameters of the
    /// same name.
    pub fn parameters(&self) -> Vec<(&'static str, &str)> {
        let FilterArgs {
            types,
            states,
            sharing,
            layouts,
            layout_states,
            selector,
            search,
        } = &self.filter;
        let several = [
            ("type", types),
            ("state", states),
            ("sharing", sharing),
            ("layout", layouts),
            ("layoutState", layout_states),
        ];
        let several = several
            .into_iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name, value.as_str())));
        let one = [("selector", selector), ("search", search)];
        let one = one
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)));
        several
            .chain(one)
            .chain([("sort", self.sort_by.parameter())])
            .collect()
    }

    /// Returns whether there is nothing to filter.
    pub fn is_empty(&self) -> bool {
        self.parameters().iter().all(|(name, _)| *name == "sort")
    }

    /// Returns the searched part of a name.
    pub fn search(&self) -> Option<&str> {
        self.filter.search.as_deref()
    }
}

impl SortBy {
    /// Returns the aggregator's sort key; a minus reverses the order.
    fn parameter(self) -> &'static str {
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

impl NodesSettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the output format.
    pub fn printed(&self) -> OutputOptions {
        self.printed
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the grouping of tables.
    pub fn group_by(&self) -> Option<GroupBy> {
        self.group_by
    }

    /// Returns the maximum number of nodes; `None` for all.
    pub fn limit(&self) -> Option<usize> {
        self.limit.map(NonZeroUsize::get)
    }
}

impl TypesSettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the output format.
    pub fn printed(&self) -> OutputOptions {
        self.printed
    }

    /// Returns the selected types; empty for all.
    pub fn types(&self) -> &[String] {
        &self.types
    }
}

impl NodeSettings {
    /// Returns the aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Returns the output format.
    pub fn printed(&self) -> OutputOptions {
        self.printed
    }

    /// Returns the node's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
