//! What is counted of one type, resource and shape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::history::FEWEST_ENDS;
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
    /// By how long others held theirs, and by when those say that they end at the latest who say so. Times are seconds since 1970.
    Likely {
        /// When one is free as likely as not.
        from: i64,
        /// When one is free nine times in ten; `None` where not so much can be said.
        to: Option<i64>,
        /// How many have ended, by which it is said.
        samples: u32,
        /// From when on those who ended are known.
        since: i64,
        /// How many of those who hold some say when they end.
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
    /// Those who hold some do not say when they end, and nobody has watched how long others did.
    NoDeadline,
    /// They do not say, and too few others have ended.
    TooFew {
        /// How many have.
        ended: u32,
        /// Since when, in seconds since 1970.
        since: i64,
    },
    /// They do not say, and have held theirs longer than others of whom it is known.
    Longer {
        /// How many others have ended.
        samples: u32,
        /// Since when, in seconds since 1970.
        since: i64,
    },
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

    /// Whether the same cluster comes to something else later: how likely an end is depends on how long somebody has held.
    pub(super) fn depends_on_time(&self) -> bool {
        match self.wait {
            Wait::Likely { .. }
            | Wait::Unknown(Unknown::Longer { .. } | Unknown::TooFew { .. }) => true,
            Wait::Now
            | Wait::Between { .. }
            | Wait::Unknown(Unknown::NoCluster | Unknown::NobodyHolds | Unknown::NoDeadline) => {
                false
            }
        }
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

impl Wait {
    /// What it means, in words for a person, beside the times; `None` where one is free.
    pub fn words(self) -> Option<String> {
        match self {
            Self::Now => None,
            Self::Between { of, holders, .. } => {
                Some(format!("{of} of {holders} pods say when they end"))
            }
            Self::Likely {
                to,
                samples,
                of,
                holders,
                ..
            } => {
                let second = match to {
                    Some(_) => " and nine times in ten by the second",
                    None => "",
                };
                let also = match of {
                    0 => String::new(),
                    _ => format!(", and {of} of {holders} pods say when they end"),
                };
                Some(format!(
                    "as likely as not by the first time{second}, by how long {samples} others held theirs{also}"
                ))
            }
            Self::Unknown(why) => Some(why.words()),
        }
    }
}

impl Unknown {
    /// In words for a person.
    pub fn words(self) -> String {
        match self {
            Self::NoCluster => {
                "the cluster is not followed, so nobody knows which pods hold them".to_owned()
            }
            Self::NobodyHolds => "no pod holds one that another could have afterwards".to_owned(),
            Self::NoDeadline => "no pod that holds one says when it ends".to_owned(),
            Self::TooFew { ended, .. } => format!(
                "no pod that holds one says when it ends, and {ended} have ended since it is watched how long they last, of {FEWEST_ENDS} that are needed"
            ),
            Self::Longer { samples, .. } => format!(
                "no pod that holds one says when it ends, and how long these may still last cannot be told by the {samples} that have ended"
            ),
        }
    }

    /// How many have ended by which it might have been said, and since when that is watched, in seconds since 1970.
    pub fn watched(self) -> Option<(u32, i64)> {
        match self {
            Self::NoCluster | Self::NobodyHolds | Self::NoDeadline => None,
            Self::TooFew {
                ended: samples,
                since,
            }
            | Self::Longer { samples, since } => Some((samples, since)),
        }
    }
}
