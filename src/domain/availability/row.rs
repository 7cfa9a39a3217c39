//! What is counted of one type, resource and shape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::kind::{Kind, Source};
use super::shape::Shape;
use super::standing::Why;
use crate::domain::quantity::Mebibytes;

/// What rows are told apart by, in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The type.
    pub kind: Kind,
    /// The resource that pods ask for.
    pub resource: String,
    /// What one unit of it is.
    pub shape: Shape,
}

/// Units of one type, resource and shape: `taken`, `free` and `unusable` add up to `capacity`, or `taken` alone is more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Of what.
    pub key: Key,
    /// Memory of one unit; the least, should they differ.
    pub memory: Option<Mebibytes>,
    /// Nodes that have some.
    pub nodes: u32,
    /// All there are.
    pub capacity: u64,
    /// What pods may have of them.
    pub allocatable: u64,
    /// What pods have asked for and hold; without a cluster, what is seen in use.
    pub taken: u64,
    /// How many more pods that ask for one would be placed.
    pub free: u64,
    /// What is neither taken nor free.
    pub unusable: BTreeMap<Why, Unusable>,
    /// Who waits for some.
    pub pending: Pending,
    /// How many more there would be if idle devices were given this shape.
    pub could_become: u64,
    /// How long until one is free.
    pub wait: Wait,
    /// Whose word the type is.
    pub sources: BTreeSet<Source>,
    /// Where they are, node by node.
    pub by_node: Vec<OnNode>,
}

/// What one node has of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnNode {
    /// Its name.
    pub node: Arc<str>,
    /// All there are.
    pub capacity: u64,
    /// How many more pods that ask for one would be placed there.
    pub free: u64,
    /// How many more there would be if idle devices were given this shape.
    pub could_become: u64,
}

/// Units of no use for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unusable {
    /// How many.
    pub count: u64,
    /// On how many nodes.
    pub nodes: u32,
}

/// Pods that wait for units. One that would take any of several types is counted with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pending {
    /// How many pods.
    pub pods: u64,
    /// What they ask for together.
    pub units: u64,
}

/// How long until a unit is free, from evidence alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// One is.
    Now,
    /// Pods that hold some say when they end at the latest: the first and the last of them, in seconds since 1970.
    Between {
        /// When the first ends.
        earliest: i64,
        /// When the last ends of those who say.
        latest: i64,
        /// How many say so.
        of: u32,
        /// How many hold some.
        holders: u32,
    },
    /// Nobody can tell.
    Unknown(Unknown),
}

/// Why nobody can tell how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The cluster is not looked at.
    NoCluster,
    /// No pod holds one where another could have it afterwards.
    NobodyHolds,
    /// Those who hold some do not say when they end.
    NoDeadline,
}

impl Row {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            memory: None,
            nodes: 0,
            capacity: 0,
            allocatable: 0,
            taken: 0,
            free: 0,
            unusable: BTreeMap::new(),
            pending: Pending::default(),
            could_become: 0,
            wait: Wait::Unknown(Unknown::NobodyHolds),
            sources: BTreeSet::new(),
            by_node: Vec::new(),
        }
    }

    /// With so many more of a node. Nodes are counted one after the other.
    pub(super) fn is_had_by(&mut self, more: OnNode) {
        match self.by_node.last_mut() {
            Some(last) if last.node == more.node => {
                last.capacity = last.capacity.saturating_add(more.capacity);
                last.free = last.free.saturating_add(more.free);
                last.could_become = last.could_become.saturating_add(more.could_become);
            }
            Some(_) | None => self.by_node.push(more),
        }
    }

    /// With so many more that are of no use, on one more node.
    pub(super) fn is_of_no_use(&mut self, why: Why, count: u64) {
        if count > 0 {
            let all = self.unusable.entry(why).or_default();
            all.count = all.count.saturating_add(count);
            all.nodes = all.nodes.saturating_add(1);
        }
    }

    pub(super) fn has_memory(&mut self, memory: Option<Mebibytes>) {
        self.memory = match (self.memory, memory) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// All that are of no use.
    pub fn unusable_units(&self) -> u64 {
        let counts = self.unusable.values().map(|one| one.count);
        counts.fold(0, u64::saturating_add)
    }
}

impl OnNode {
    pub(super) fn has(node: &Arc<str>, capacity: u64, free: u64) -> Self {
        Self {
            node: Arc::clone(node),
            capacity,
            free,
            could_become: 0,
        }
    }
}

impl Unknown {
    /// In words for a person.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoCluster => "the cluster is not followed, so nobody knows which pods hold them",
            Self::NobodyHolds => "no pod holds one that another could have afterwards",
            Self::NoDeadline => "no pod that holds one says when it ends",
        }
    }
}
