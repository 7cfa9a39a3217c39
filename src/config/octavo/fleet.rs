//! Settings of the commands that ask an aggregator about the fleet: `nodes`, `types`, `availability`, `node` and `watch`.

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

/// Which nodes, and in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    filter: FilterArgs,
    sort_by: SortBy,
}

/// What `octavo nodes` and `octavo watch` run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodesSettings {
    server: ServerSettings,
    printed: Printed,
    filter: Filter,
    limit: Option<NonZeroUsize>,
    group_by: Option<GroupBy>,
}

/// What `octavo types` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypesSettings {
    server: ServerSettings,
    printed: Printed,
    types: Vec<String>,
}

/// What `octavo node` runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    server: ServerSettings,
    printed: Printed,
    name: String,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printed {
    /// In which form.
    pub format: FleetFormat,
    /// With what around it.
    pub headers: Headers,
}

impl Printed {
    /// Whether there is more than the rows of tables.
    pub fn with_headers(self) -> bool {
        self.headers == Headers::Shown
    }
}

impl Filter {
    /// Names and values of the aggregator's parameters. Where any of several values may hold, each is a parameter.
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

    /// Whether there is nothing to filter.
    pub fn lets_all_through(&self) -> bool {
        self.parameters().iter().all(|(name, _)| *name == "sort")
    }

    /// The part of a name.
    pub fn search(&self) -> Option<&str> {
        self.filter.search.as_deref()
    }
}

impl SortBy {
    /// In the aggregator's words, where a minus turns the order round.
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
    /// The aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// How the answer is printed.
    pub fn printed(&self) -> Printed {
        self.printed
    }

    /// Which nodes.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// By what they are taken together, in tables.
    pub fn group_by(&self) -> Option<GroupBy> {
        self.group_by
    }

    /// How many at most; `None` for all.
    pub fn limit(&self) -> Option<usize> {
        self.limit.map(NonZeroUsize::get)
    }
}

impl TypesSettings {
    /// The aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// How the answer is printed.
    pub fn printed(&self) -> Printed {
        self.printed
    }

    /// Which types; empty for all.
    pub fn types(&self) -> &[String] {
        &self.types
    }
}

impl NodeSettings {
    /// The aggregator.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// How the answer is printed.
    pub fn printed(&self) -> Printed {
        self.printed
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
