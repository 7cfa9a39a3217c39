//! Devices by type in many nodes.

use std::collections::BTreeMap;

use octavo_fleet::summary::TypeCounts;
use octavo_model::id::TypeName;

use super::Node;
use crate::clock::Moment;

/// Devices of one type in the whole fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeTotals {
    /// Device counts.
    pub counts: TypeCounts,
    /// Number of nodes with at least one device of the type.
    pub nodes: u32,
    /// Number of these nodes without an agent.
    pub without_agent: u32,
}

/// Totals of each type; a tree, because peers choose the type names: invented names must not slow this down.
#[derive(Debug, Default)]
pub(super) struct TotalsByType(BTreeMap<Option<TypeName>, TypeTotals>);

impl TotalsByType {
    /// Adds the devices of a node, as known at `now`.
    pub(super) fn add_node(&mut self, node: &Node, now: Moment) {
        let without_agent = u32::from(!node.has_agent());
        for counts in node.types(now) {
            if let Some(known) = self.0.get_mut(&counts.type_name) {
                known.add(&counts, 1, without_agent);
            } else {
                let counts = counts.into_owned();
                self.insert(TypeTotals { counts, nodes: 1, without_agent });
            }
        }
    }

    /// Adds the totals of further nodes.
    pub(super) fn add(&mut self, more: &TypeTotals) {
        match self.0.get_mut(&more.counts.type_name) {
            Some(known) => known.add(&more.counts, more.nodes, more.without_agent),
            None => self.insert(more.clone()),
        }
    }

    /// Totals ordered by the type's name, untyped devices last.
    pub(super) fn into_list(mut self) -> Vec<TypeTotals> {
        let nameless = self.0.remove(&None);
        self.0.into_values().chain(nameless).collect()
    }

    fn insert(&mut self, totals: TypeTotals) {
        self.0.insert(totals.counts.type_name.clone(), totals);
    }
}

impl TypeTotals {
    fn add(&mut self, counts: &TypeCounts, nodes: u32, without_agent: u32) {
        self.counts.merge(counts);
        self.nodes = self.nodes.saturating_add(nodes);
        self.without_agent = self.without_agent.saturating_add(without_agent);
    }
}
