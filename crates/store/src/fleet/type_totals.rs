//! Devices by type in many nodes.

use std::collections::BTreeMap;

use octavo_fleet::summary::{DeviceCounts, PartitionCounts, TypeCounts};
use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;

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

/// Totals by type, from which nodes can be subtracted again: a minimum of memory cannot be, so each memory has totals of its own. A tree,
/// because peers choose the type names: invented names must not slow this down.
#[derive(Debug, Clone, Default)]
pub(super) struct TotalsByType(BTreeMap<Key, TypeTotals>);

/// Untyped devices come last.
type Key = (bool, Option<TypeName>, Option<Mebibytes>);

impl TotalsByType {
    /// Adds the devices of a node, as known at `now`.
    pub(super) fn add_node(&mut self, node: &Node, now: Moment) {
        node.types(now).for_each(|counts| self.add(&TypeTotals::new(&counts, node)));
    }

    /// Adds the devices of a node, as it reports them.
    pub(super) fn add_reported(&mut self, node: &Node) {
        node.summary.types.iter().for_each(|counts| self.add(&TypeTotals::new(counts, node)));
    }

    /// Subtracts the devices of a node that was added as it reports them.
    pub(super) fn remove_reported(&mut self, node: &Node) {
        for counts in &node.summary.types {
            let key = key(counts);
            let Some(known) = self.0.get_mut(&key) else { continue };
            known.subtract(&TypeTotals::new(counts, node));
            if known.nodes == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Adds the totals of other nodes.
    pub(super) fn add_all(&mut self, others: &Self) {
        others.0.values().for_each(|one| self.add(one));
    }

    /// Totals ordered by the type's name, untyped devices last.
    pub(super) fn into_list(self) -> Vec<TypeTotals> {
        let mut list: Vec<TypeTotals> = Vec::new();
        for one in self.0.into_values() {
            match list.last_mut().filter(|last| last.counts.type_name == one.counts.type_name) {
                Some(previous) => previous.add(&one),
                None => list.push(one),
            }
        }
        list
    }

    fn add(&mut self, one: &TypeTotals) {
        let known = self.0.entry(key(&one.counts));
        known.and_modify(|known| known.add(one)).or_insert_with(|| one.clone());
    }
}

impl TypeTotals {
    fn new(counts: &TypeCounts, node: &Node) -> Self {
        Self { counts: counts.clone(), nodes: 1, without_agent: u32::from(!node.has_agent()) }
    }

    fn add(&mut self, more: &Self) {
        self.counts.merge(&more.counts);
        self.nodes = self.nodes.saturating_add(more.nodes);
        self.without_agent = self.without_agent.saturating_add(more.without_agent);
    }

    /// Subtracts a part of the totals, of the same type and memory.
    fn subtract(&mut self, part: &Self) {
        self.counts.manual = self.counts.manual.saturating_sub(part.counts.manual);
        self.counts.counts = difference(self.counts.counts, part.counts.counts);
        self.nodes = self.nodes.saturating_sub(part.nodes);
        self.without_agent = self.without_agent.saturating_sub(part.without_agent);
    }
}

fn key(counts: &TypeCounts) -> Key {
    (counts.type_name.is_none(), counts.type_name.clone(), counts.memory)
}

/// Counts without those of a part.
fn difference(all: DeviceCounts, part: DeviceCounts) -> DeviceCounts {
    let DeviceCounts {
        total,
        free,
        in_use,
        partitioned,
        unavailable,
        passthrough,
        unknown,
        partitions,
    } = part;
    DeviceCounts {
        total: all.total.saturating_sub(total),
        free: all.free.saturating_sub(free),
        in_use: all.in_use.saturating_sub(in_use),
        partitioned: all.partitioned.saturating_sub(partitioned),
        unavailable: all.unavailable.saturating_sub(unavailable),
        passthrough: all.passthrough.saturating_sub(passthrough),
        unknown: all.unknown.saturating_sub(unknown),
        partitions: PartitionCounts {
            total: all.partitions.total.saturating_sub(partitions.total),
            free: all.partitions.free.saturating_sub(partitions.free),
            in_use: all.partitions.in_use.saturating_sub(partitions.in_use),
        },
    }
}
