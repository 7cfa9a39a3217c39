//! Grouping of the matching nodes by type.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::summary::{DeviceCounts, NodeGroup};

use super::{Filter, Query, RankedNode, order};
use crate::clock::Moment;
use crate::fleet::{Fleet, Node};

/// Nodes of one group.
#[derive(Debug, Clone)]
pub struct GroupedNodes {
    /// The group.
    pub group: NodeGroup,
    /// Number of matching nodes.
    pub total: usize,
    /// Their devices.
    pub counts: DeviceCounts,
    /// Memory of all nodes in MiB.
    pub memory_mib: u64,
    /// The first nodes, in the query's order.
    pub items: Vec<Arc<Node>>,
}

/// Groups all nodes of `fleet` that match `query`, with at most `query.limit` nodes per group and `most` in total.
/// Ignores the position of the page.
pub fn group_nodes(fleet: &Fleet, query: &Query, most: usize, now: Moment) -> Vec<GroupedNodes> {
    let mut all: BTreeMap<NodeGroup, (GroupedNodes, Vec<RankedNode<'_>>)> = BTreeMap::new();
    Filter::new(query, now).visit(fleet, |position, one| {
        let node = one.node;
        let types = node.summary.types.iter();
        let group = NodeGroup::from_types(types.map(|one| one.type_name.as_ref()));
        let (grouped, placed) = all.entry(group.clone()).or_insert_with(|| {
            let empty = GroupedNodes {
                group,
                total: 0,
                counts: DeviceCounts::default(),
                memory_mib: 0,
                items: Vec::new(),
            };
            (empty, Vec::new())
        });
        grouped.total = grouped.total.saturating_add(1);
        grouped.counts = grouped.counts.plus(node.counts(now));
        let memory = node.summary.memory.get();
        grouped.memory_mib = grouped.memory_mib.saturating_add(memory);
        placed.push(RankedNode::new((position, one), query.sort.key, now));
    });
    let mut left = most;
    let groups = all.into_values().map(|(grouped, mut placed)| {
        let limit = query.limit.min(left);
        let query = Query { limit, ..query.clone() };
        order(&mut placed, &query);
        left = left.saturating_sub(placed.len());
        let items = placed.into_iter().map(|one| Arc::clone(one.node));
        GroupedNodes { items: items.collect(), ..grouped }
    });
    groups.collect()
}
