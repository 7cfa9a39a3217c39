//! Who waits for what, and how long those who hold some still may.

use std::collections::{BTreeMap, BTreeSet};

use super::kind::{Kind, typed};
use super::row::{Key, Pending, Row, Unknown, Wait};
use super::shape::{Shape, is_accelerator};
use crate::domain::cluster::{ClusterNode, ClusterPod, Sights, Wants};

/// Different wishes that are held against nodes; pods beyond them count with every type that has what they ask for.
const MOST_WISHES: usize = 256;

/// Of which rows each node is, by the node's name.
pub(super) type Members<'a> = BTreeMap<Key, Vec<&'a ClusterNode>>;

/// Rows for what no node has. Whoever may make a pod may name whatever he likes in it.
const MOST_WISHED: usize = 256;

/// Adds to each row the pods that wait for it, and rows for what nobody has. Returns how many of these are left out.
pub(super) fn add(rows: &mut BTreeMap<Key, Row>, members: &Members<'_>, sights: &Sights) -> usize {
    let (mut wished_rows, mut left_out) = (0_usize, 0_usize);
    let mut wishes: BTreeMap<&Wants, u64> = BTreeMap::new();
    let waiting = sights.pods.values().filter(|pod| pod.is_pending());
    for pod in waiting.filter(|pod| wants_some(pod)) {
        let count = wishes.entry(&pod.wants).or_default();
        *count = count.saturating_add(1);
    }
    for (place, (wants, pods)) in wishes.into_iter().enumerate() {
        let asked = wants.amounts.devices();
        for (resource, each) in asked.filter(|(name, each)| is_accelerator(name) && *each > 0) {
            let one = Pending {
                pods,
                units: pods.saturating_mul(each),
            };
            let those = members.iter().filter(|(key, _)| key.resource == resource);
            let mut reached: Vec<Key> = those
                .filter(|(_, nodes)| {
                    place >= MOST_WISHES || nodes.iter().any(|node| selects(wants, node))
                })
                .map(|(key, _)| key.clone())
                .collect();
            if reached.is_empty() {
                reached.push(wished(wants, resource));
            }
            for key in reached {
                if !rows.contains_key(&key) {
                    if wished_rows >= MOST_WISHED {
                        left_out = left_out.saturating_add(1);
                        continue;
                    }
                    wished_rows = wished_rows.saturating_add(1);
                }
                let row = rows.entry(key.clone()).or_insert_with(|| Row::new(key));
                row.pending.pods = row.pending.pods.saturating_add(one.pods);
                row.pending.units = row.pending.units.saturating_add(one.units);
            }
        }
    }
    left_out
}

fn wants_some(pod: &ClusterPod) -> bool {
    let mut all = pod.wants.amounts.devices();
    all.any(|(name, count)| is_accelerator(name) && count > 0)
}

/// Whether it asks for nodes like this one, whatever keeps it away from there now.
fn selects(wants: &Wants, node: &ClusterNode) -> bool {
    let mut selector = wants.selector.iter();
    let affinity = wants.affinity.as_ref();
    selector.all(|(key, value)| node.label(key) == Some(value))
        && affinity.is_none_or(|affinity| affinity.fits(&node.name, &node.labels))
}

/// What no node has, of the type that is asked for, where one is.
fn wished(wants: &Wants, resource: &str) -> Key {
    let named = wants.selector.get(TYPE);
    let kind = named.and_then(|value| typed(value));
    Key {
        kind: kind.map_or(Kind::Unknown, Kind::Known),
        resource: resource.to_owned(),
        shape: Shape::of(resource, None),
    }
}

/// The label that people select a type by.
const TYPE: &str = "octavo.dev/type";

/// When those end who hold some of a resource on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ends {
    holders: u32,
    /// How many say when, the first and the last of them.
    told: Option<(u32, i64, i64)>,
}

/// By node and resource.
pub(super) type EndsByNode<'a> = BTreeMap<(&'a str, &'a str), Ends>;

/// When pods end that hold something.
pub(super) fn ends(sights: &Sights) -> EndsByNode<'_> {
    let mut all = EndsByNode::new();
    for pod in sights.pods.values() {
        let Some(node) = pod.holds_on() else { continue };
        let held = pod.wants.amounts.devices();
        for (resource, _) in held.filter(|(name, count)| is_accelerator(name) && *count > 0) {
            let one = Ends {
                holders: 1,
                told: pod.until.map(|until| (1, until, until)),
            };
            let sum = all.entry((node, resource)).or_default();
            *sum = sum.and(one);
        }
    }
    all
}

impl Ends {
    pub(super) fn and(self, other: Self) -> Self {
        let told = match (self.told, other.told) {
            (Some((one, first, last)), Some((more, earlier, later))) => Some((
                one.saturating_add(more),
                first.min(earlier),
                last.max(later),
            )),
            (one, other) => one.or(other),
        };
        Self {
            holders: self.holders.saturating_add(other.holders),
            told,
        }
    }

    /// How long until one is free where none is.
    pub(super) fn wait(self) -> Wait {
        match (self.told, self.holders) {
            (Some((of, earliest, latest)), holders) => Wait::Between {
                earliest,
                latest,
                of,
                holders,
            },
            (None, 0) => Wait::Unknown(Unknown::NobodyHolds),
            (None, _) => Wait::Unknown(Unknown::NoDeadline),
        }
    }
}

/// Resources of accelerators that somebody holds on a node and that it does not name any more.
pub(super) fn held_names<'a>(held: impl Iterator<Item = (&'a str, u64)>) -> BTreeSet<&'a str> {
    let some = held.filter(|(name, count)| is_accelerator(name) && *count > 0);
    some.map(|(name, _)| name).collect()
}
