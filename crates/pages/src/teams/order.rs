//! Order of the rows of the page of teams.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_model::id::TypeName;
use octavo_node::workload::{HoldingCounts, TeamUsage, TeamUsages};

use crate::address::encoded;
use crate::rows::ColumnHeading;

/// Order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum TeamOrder {
    /// The namespace that leaves the most idle first, with its rows together.
    #[default]
    Idle,
    /// By namespace and type.
    Namespace,
}

/// Row: namespace, type and usage.
pub(super) type TeamEntry<'a> = (&'a str, Option<&'a TypeName>, &'a TeamUsage);

impl TeamOrder {
    const ALL: [Self; 2] = [Self::Idle, Self::Namespace];

    /// Parses the parameter `sort`. The error is a message.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|order| order.as_str() == text);
        known.ok_or_else(|| {
            let start: String = text.chars().take(64).collect();
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("invalid value {start:?} for parameter sort: must be {words}")
        })
    }

    /// Value of the parameter: descending order has a minus sign, as in the list of nodes.
    fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "-idle",
            Self::Namespace => "namespace",
        }
    }

    /// Value that the form retains; empty for the default order.
    pub(super) fn retained(self) -> &'static str {
        if self == Self::default() { "" } else { self.as_str() }
    }

    /// Address of the page in this order, of one namespace or of all.
    pub(super) fn link(self, namespace: Option<&str>) -> String {
        let namespace = namespace.map(|name| format!("namespace={}", encoded(name)));
        let sort = Some(self.retained()).filter(|sort| !sort.is_empty());
        let sort = sort.map(|sort| format!("sort={sort}"));
        let query: Vec<String> = namespace.into_iter().chain(sort).collect();
        if query.is_empty() { "/teams".to_owned() } else { format!("/teams?{}", query.join("&")) }
    }

    /// Sortable heading of the column `word`, which is in this order if `current` is.
    pub(super) fn heading(
        self,
        word: &'static str,
        current: Self,
        namespace: Option<&str>,
    ) -> ColumnHeading {
        let namespace = namespace.map(|name| format!("namespace={}", encoded(name)));
        let sort = format!("sort={}", self.as_str());
        let query: Vec<String> = namespace.into_iter().chain([sort]).collect();
        let direction = match self {
            Self::Idle => "descending",
            Self::Namespace => "ascending",
        };
        ColumnHeading {
            word,
            key: self.as_str().trim_start_matches('-'),
            class: "",
            href: Some(format!("/teams?{}", query.join("&"))),
            sorted: (self == current).then_some(direction),
        }
    }

    /// Rows in this order, given the sums over the types of each namespace.
    pub(super) fn rows<'a>(
        self,
        teams: &'a TeamUsages,
        sums: &BTreeMap<&str, TeamUsage>,
    ) -> Vec<TeamEntry<'a>> {
        let rows = teams.iter();
        let mut rows: Vec<TeamEntry<'a>> =
            rows.map(|((name, kind), usage)| (name.as_str(), kind.as_ref(), usage)).collect();
        if self == Self::Idle {
            rows.sort_by_key(|(name, _, usage)| {
                let sum = sums.get(name).map(|sum| rank(sum.idle)).unwrap_or_default();
                (Reverse(sum), *name, Reverse(rank(usage.idle)))
            });
        }
        rows
    }
}

/// Sums over the types of each namespace. A pod with several types counts for each.
pub(super) fn by_namespace(teams: &TeamUsages) -> BTreeMap<&str, TeamUsage> {
    let mut sums: BTreeMap<&str, TeamUsage> = BTreeMap::new();
    for ((name, _), usage) in teams {
        sums.entry(name).or_default().add_all(usage);
    }
    sums
}

/// The namespace that leaves the most idle, unless nothing is idle.
pub(super) fn most_idle<'a>(sums: &BTreeMap<&'a str, TeamUsage>) -> Option<(&'a str, TeamUsage)> {
    let idle = sums.iter().filter(|(_, usage)| usage.idle.units() > 0);
    // The first of equal ones, as in the table.
    let most = idle.min_by_key(|(name, usage)| (Reverse(rank(usage.idle)), **name));
    most.map(|(name, usage)| (*name, *usage))
}

/// Comparison by whole devices, then by partitions, which are smaller, then by time slices.
fn rank(idle: HoldingCounts) -> (u64, u64, u64) {
    (idle.devices, idle.partitions, idle.replicas)
}
