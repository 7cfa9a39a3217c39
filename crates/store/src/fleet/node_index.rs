//! Index of a chunk of nodes: filters, states and totals by type without a visit of each node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use octavo_fleet::summary::{NodeState, Sharing};
use octavo_model::id::TypeName;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;

use super::type_totals::{TotalsByType, TypeTotals};
use super::{Fleet, Node};
use crate::clock::Moment;
use crate::persistent_map::{Chunk, ChunkIndex};

/// Index of a chunk of nodes.
#[derive(Debug)]
pub struct NodeIndex {
    /// Classes of the nodes. Few, because many nodes have the same; one that no node has any more is removed before the next is added.
    classes: Vec<Arc<NodeClass>>,
    /// Class of each node, as a position in `classes`.
    class_of: Vec<u16>,
    /// Time in milliseconds up to which no node becomes stale, except those that the writer found stale. Confirmations postpone it, and a
    /// reader after this time calculates it again.
    fresh_until_ms: AtomicU64,
    /// Totals by type of the nodes that the writer did not find stale, while all of these are fresh. Calculated by the first reader after a
    /// change of the chunk.
    fresh_types: OnceLock<Vec<TypeTotals>>,
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

/// Node with the position of its class in the chunk.
pub(crate) struct ClassifiedNode<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) class: usize,
    /// Whether the node cannot be stale.
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
    pub(crate) fn nodes(&self, now: Moment) -> impl Iterator<Item = ClassifiedNode<'_>> {
        let is_fresh = self.is_fresh(now);
        let class_of = self.index().class_of.iter().map(|class| usize::from(*class));
        self.entries().iter().zip(class_of).map(move |(node, class)| {
            let class_is_fresh =
                || self.index().classes.get(class).is_some_and(|class| !class.found_stale);
            ClassifiedNode { node, class, is_fresh: is_fresh && class_is_fresh() }
        })
    }

    /// Adds the devices of all nodes at `now`.
    fn add_types(&self, all: &mut TotalsByType, now: Moment) {
        if !self.is_fresh(now) {
            self.entries().iter().for_each(|node| all.add_node(node, now));
            return;
        }
        let fresh = self.index().fresh_types.get_or_init(|| {
            let mut fresh = TotalsByType::default();
            let nodes = self.entries().iter().filter(|node| !node.freshness.found_stale());
            nodes.for_each(|node| fresh.add_node(node, now));
            fresh.into_list()
        });
        fresh.iter().for_each(|totals| all.add(totals));
        if self.classes().any(|class| class.found_stale) {
            let stale = self.entries().iter().filter(|node| node.freshness.found_stale());
            stale.for_each(|node| all.add_node(node, now));
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

impl ClassifiedNode<'_> {
    /// Returns whether the node is stale at `now`, the time that the nodes were requested for.
    pub(crate) fn is_stale(&self, now: Moment) -> bool {
        !self.is_fresh && self.node.freshness.is_stale(now)
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
        // A chunk has at most as many classes as nodes, and a few hundred nodes.
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    fn remove_unused_classes(&mut self) {
        let mut used: Vec<Arc<NodeClass>> = Vec::new();
        for at in &mut self.class_of {
            let Some(class) = self.classes.get(usize::from(*at)) else { continue };
            let known = used.iter().position(|one| Arc::ptr_eq(one, class));
            let position = known.unwrap_or_else(|| {
                used.push(Arc::clone(class));
                used.len().saturating_sub(1)
            });
            *at = u16::try_from(position).unwrap_or(u16::MAX);
        }
        self.classes = used;
    }
}

impl ChunkIndex<Node> for NodeIndex {
    fn insert(&mut self, at: usize, node: &Node) {
        let class = self.class(node);
        self.class_of.insert(at, class);
        if !node.freshness.found_stale() {
            self.fresh_until_ms.fetch_min(node.freshness.fresh_until_ms(), Ordering::Relaxed);
        }
        self.fresh_types.take();
    }

    fn remove(&mut self, at: usize) {
        self.class_of.remove(at);
        self.fresh_types.take();
    }

    fn split_off(&mut self, at: usize) -> Self {
        self.fresh_types.take();
        let class_of = self.class_of.split_off(at);
        Self { class_of, ..self.clone() }
    }
}

impl Default for NodeIndex {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            class_of: Vec::new(),
            fresh_until_ms: AtomicU64::new(u64::MAX),
            fresh_types: OnceLock::new(),
        }
    }
}

impl Clone for NodeIndex {
    /// Copies the index for a change, which makes the totals by type outdated.
    fn clone(&self) -> Self {
        Self {
            classes: self.classes.clone(),
            class_of: self.class_of.clone(),
            fresh_until_ms: AtomicU64::new(self.fresh_until_ms.load(Ordering::Relaxed)),
            fresh_types: OnceLock::new(),
        }
    }
}
