//! Index of a chunk of nodes: filters, states and totals by type without a visit of each node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use octavo_fleet::summary::{NodeState, Sharing};
use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;

use super::type_totals::TotalsByType;
use super::{Fleet, Node};
use crate::clock::Moment;
use crate::persistent_map::{Chunk, ChunkIndex};

/// Index of a chunk of nodes.
#[derive(Debug)]
pub struct NodeIndex {
    /// Classes of the nodes. Few, because many nodes have the same; one that no node has any more is removed before the next is added.
    classes: Vec<Arc<NodeClass>>,
    records: Vec<NodeRecord>,
    /// Time in milliseconds up to which no node becomes stale, except those that the writer found stale. Confirmations postpone it, and a
    /// reader after this time calculates it again.
    fresh_until_ms: AtomicU64,
    /// Totals by type of the nodes that the writer did not find stale, as these report them.
    reported: TotalsByType,
}

/// Properties that many nodes have in common and that queries filter by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodeClass {
    /// Distinct types of the devices; `None` stands for devices of unknown type.
    pub(crate) types: Vec<Option<TypeName>>,
    /// Sharing mode of the devices.
    pub(crate) sharing: Sharing,
    /// State while the node reports.
    pub(crate) state: NodeState,
    /// Name of the desired layout.
    pub(crate) layout: Option<String>,
    /// State of the layout.
    pub(crate) layout_state: Option<Reported<Reason>>,
    /// Whether the writer found the node stale.
    found_stale: bool,
}

/// Properties of one node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeRecord {
    /// Address of the labels, which equal nodes share. Only compared.
    pub(crate) labels: usize,
    /// Total memory of the devices.
    pub(crate) memory: Mebibytes,
    /// Number of devices.
    pub(crate) devices: u32,
    /// Number of free devices while the node reports.
    pub(crate) free: u32,
    /// Position in the classes of the chunk.
    class: u16,
}

/// Node with its properties.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexedNode<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) record: &'a NodeRecord,
    pub(crate) class: &'a NodeClass,
    /// Whether the node is known to be fresh.
    is_fresh: bool,
}

impl Fleet {
    /// Totals by type at `now`.
    pub(super) fn totals_by_type(&self, now: Moment) -> TotalsByType {
        let mut all = TotalsByType::default();
        for chunk in self.nodes.chunks() {
            chunk.add_types(&mut all, now);
        }
        all
    }
}

impl Chunk<Node> {
    /// Classes of the nodes. Not all of them need to have nodes.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &NodeClass> {
        self.index().classes.iter().map(AsRef::as_ref)
    }

    /// Nodes in order, at `now`.
    pub(crate) fn nodes(&self, now: Moment) -> impl Iterator<Item = IndexedNode<'_>> {
        self.indexed(self.is_fresh(now))
    }

    fn indexed(&self, is_fresh: bool) -> impl Iterator<Item = IndexedNode<'_>> {
        let NodeIndex { classes, records, .. } = self.index();
        self.entries().iter().zip(records).filter_map(move |(node, record)| {
            let class = classes.get(record.class())?;
            Some(IndexedNode { node, record, class, is_fresh: is_fresh && !class.found_stale })
        })
    }

    /// Adds the devices of all nodes at `now`.
    fn add_types(&self, all: &mut TotalsByType, now: Moment) {
        let is_fresh = self.is_fresh(now);
        if is_fresh {
            all.add_all(&self.index().reported);
        }
        if !is_fresh || self.classes().any(|class| class.found_stale) {
            let others = self.indexed(is_fresh).filter(|one| !one.is_fresh);
            others.for_each(|one| all.add_node(one.node, now));
        }
    }

    /// Returns whether no node is stale at `now`, except those that the writer found stale.
    fn is_fresh(&self, now: Moment) -> bool {
        let known = &self.index().fresh_until_ms;
        let is_before = |millis: u64| now <= Moment::from_millis(millis);
        if is_before(known.load(Ordering::Relaxed)) {
            return true;
        }
        let nodes = self.entries().iter().filter(|node| !node.freshness.found_stale());
        let until = nodes.map(|node| node.freshness.fresh_until_ms()).min().unwrap_or(u64::MAX);
        // Confirmations only postpone the time, so that each calculated value is a lower bound.
        known.fetch_max(until, Ordering::Relaxed);
        is_before(until)
    }
}

impl NodeRecord {
    /// Position in the classes of the chunk.
    pub(crate) fn class(self) -> usize {
        usize::from(self.class)
    }
}

impl IndexedNode<'_> {
    /// Returns whether the node is stale at `now`, the time that the nodes were requested for.
    pub(crate) fn is_stale(&self, now: Moment) -> bool {
        !self.is_fresh && self.node.freshness.is_stale(now)
    }

    /// State of the node at `now`, the time that the nodes were requested for.
    pub(crate) fn state(&self, now: Moment) -> NodeState {
        if self.is_stale(now) { NodeState::Stale } else { self.class.state }
    }
}

impl NodeClass {
    fn new(node: &Node) -> Self {
        let layout = node.summary.layout.as_ref();
        Self {
            types: node.summary.types.iter().map(|one| one.type_name.clone()).collect(),
            sharing: node.summary.sharing,
            state: node.summary.state,
            layout: layout.and_then(|layout| layout.name.clone()),
            layout_state: layout.and_then(|layout| layout.state.clone()),
            found_stale: node.freshness.found_stale(),
        }
    }

    /// Returns whether this is the class of `node`. Nothing is allocated, because each report of a node is compared.
    fn contains(&self, node: &Node) -> bool {
        // Every field is named, so that a new one does not compile until it is compared.
        let Self { types, sharing, state, layout, layout_state, found_stale } = self;
        let of_node = node.summary.layout.as_ref();
        *sharing == node.summary.sharing
            && *state == node.summary.state
            && *found_stale == node.freshness.found_stale()
            && layout.as_ref() == of_node.and_then(|layout| layout.name.as_ref())
            && layout_state.as_ref() == of_node.and_then(|layout| layout.state.as_ref())
            && types.iter().eq(node.summary.types.iter().map(|one| &one.type_name))
    }
}

impl NodeIndex {
    /// Position of the class of `node`, which is added if it is new.
    fn class(&mut self, node: &Node) -> u16 {
        let known = self.classes.iter().position(|class| class.contains(node));
        let at = known.unwrap_or_else(|| {
            self.remove_unused_classes();
            self.classes.push(Arc::new(NodeClass::new(node)));
            self.classes.len().saturating_sub(1)
        });
        class_number(at)
    }

    fn remove_unused_classes(&mut self) {
        let mut used: Vec<Arc<NodeClass>> = Vec::new();
        for record in &mut self.records {
            let Some(class) = self.classes.get(record.class()) else { continue };
            let known = used.iter().position(|one| Arc::ptr_eq(one, class));
            let at = known.unwrap_or_else(|| {
                used.push(Arc::clone(class));
                used.len().saturating_sub(1)
            });
            record.class = class_number(at);
        }
        self.classes = used;
    }

    fn record(&mut self, node: &Node) -> NodeRecord {
        if !node.freshness.found_stale() {
            self.fresh_until_ms.fetch_min(node.freshness.fresh_until_ms(), Ordering::Relaxed);
        }
        let counts = node.summary.counts();
        NodeRecord {
            labels: Arc::as_ptr(&node.labels).addr(),
            memory: node.summary.memory,
            devices: counts.total,
            free: counts.free,
            class: self.class(node),
        }
    }

    fn add_totals(&mut self, node: &Node) {
        if !node.freshness.found_stale() {
            self.reported.add_reported(node);
        }
    }

    fn remove_totals(&mut self, node: &Node) {
        if !node.freshness.found_stale() {
            self.reported.remove_reported(node);
        }
    }
}

/// Number of the class at this position: a chunk has a few hundred nodes, and at most one class more.
fn class_number(position: usize) -> u16 {
    u16::try_from(position).unwrap_or(u16::MAX)
}

impl ChunkIndex<Node> for NodeIndex {
    fn insert(&mut self, at: usize, node: &Node) {
        let record = self.record(node);
        self.records.insert(at, record);
        self.add_totals(node);
    }

    fn replace(&mut self, at: usize, old: &Node, new: &Node) {
        let record = self.record(new);
        if let Some(place) = self.records.get_mut(at) {
            *place = record;
        }
        let is_same = old.freshness.found_stale() == new.freshness.found_stale()
            && old.has_agent() == new.has_agent()
            && old.summary.types == new.summary.types;
        if !is_same {
            self.remove_totals(old);
            self.add_totals(new);
        }
    }

    fn remove(&mut self, at: usize, old: &Node) {
        self.records.remove(at);
        self.remove_totals(old);
    }
}

impl Default for NodeIndex {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            records: Vec::new(),
            fresh_until_ms: AtomicU64::new(u64::MAX),
            reported: TotalsByType::default(),
        }
    }
}

impl Clone for NodeIndex {
    fn clone(&self) -> Self {
        Self {
            classes: self.classes.clone(),
            records: self.records.clone(),
            fresh_until_ms: AtomicU64::new(self.fresh_until_ms.load(Ordering::Relaxed)),
            reported: self.reported.clone(),
        }
    }
}
