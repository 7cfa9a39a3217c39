//! Pending pods, holders of units, and the waiting time they imply.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Guess;
use super::kind::{Kind, typed};
use super::row::{Key, Pending, Row, Unknown, Wait};
use super::shape::{Shape, is_accelerator};
use crate::domain::cluster::{ClusterNode, ClusterPod, Sights, Wants};

/// Maximum number of distinct pod requests matched against nodes. Pods beyond it count for every type with the
/// requested resource.
const MOST_WISHES: usize = 256;

/// Nodes of each row.
pub(super) type Members<'a> = BTreeMap<Key, Vec<&'a ClusterNode>>;

/// Maximum number of rows for requests that no node can satisfy: anyone who may create pods chooses their content.
const MOST_WISHED: usize = 256;

/// Adds pending pods to the rows, and rows for resources that no node has. Returns the number of rows omitted because
/// of the limit.
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

/// Returns `true` if node selector and affinity match this node, regardless of other obstacles.
fn selects(wants: &Wants, node: &ClusterNode) -> bool {
    let mut selector = wants.selector.iter();
    let affinity = wants.affinity.as_ref();
    selector.all(|(key, value)| node.label(key) == Some(value))
        && affinity.is_none_or(|affinity| affinity.fits(&node.name, &node.labels))
}

/// Row key of a request that no node can satisfy, with the requested type if there is one.
fn wished(wants: &Wants, resource: &str) -> Key {
    let named = wants.selector.get(TYPE);
    let kind = named.and_then(|value| typed(value));
    Key {
        kind: kind.map_or(Kind::Unknown, Kind::Known),
        resource: resource.to_owned(),
        shape: Shape::of(resource, None),
    }
}

/// Label by which pods select a type.
const TYPE: &str = "octavo.dev/type";

/// Number of holders of a resource on a node, and their deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ends {
    holders: u32,
    /// Number of holders with a deadline, the earliest and the latest deadline.
    told: Option<(u32, i64, i64)>,
}

/// Holders grouped into workloads by namespace and start minute (since 1970). Pods of one namespace that start in the
/// same minute are usually replicas or workers of one job and end together. Counting them individually would
/// underestimate the time until the first end.
pub(super) type Works<'a> = BTreeMap<(&'a str, i64), Work>;

/// Workload that holds units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    /// Start of its first pod, in seconds since 1970.
    pub(super) began: i64,
    /// True if another pod could use its units afterwards.
    pub(super) is_usable: bool,
}

/// Workload that a pod belongs to.
pub(super) fn work(namespace: &str, began: i64) -> (&str, i64) {
    (namespace, began.div_euclid(60))
}

/// Holders of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Held<'a> {
    /// Deadlines of holders whose units another pod could use afterwards.
    ends: Ends,
    /// Workloads that have started.
    works: Works<'a>,
}

/// Holders by node and resource.
pub(super) type HeldByNode<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Held<'a>>>;

/// Collects the holders of accelerator resources on each node.
pub(super) fn holders(sights: &Sights) -> HeldByNode<'_> {
    let mut all = HeldByNode::new();
    for pod in sights.pods.values() {
        let Some(node) = pod.holds_on() else { continue };
        let held = pod.wants.amounts.devices();
        for (resource, _) in held.filter(|(name, count)| is_accelerator(name) && *count > 0) {
            let of_node = all.entry(node).or_default();
            let sum = of_node.entry(resource).or_default();
            sum.ends = sum.ends.and(Ends {
                holders: 1,
                told: pod.until.map(|until| (1, until, until)),
            });
            if let Some(began) = pod.began {
                sum.add(work(&pod.key.namespace, began), began, true);
            }
        }
    }
    all
}

impl<'a> Held<'a> {
    fn add(&mut self, work: (&'a str, i64), began: i64, is_usable: bool) {
        let fresh = Work { began, is_usable };
        let work = self.works.entry(work).or_insert(fresh);
        work.began = work.began.min(began);
        work.is_usable |= is_usable;
    }

    /// Adds the holders of one more node. They release nothing usable if the node is unavailable (`is_usable` is
    /// false).
    pub(super) fn take(&mut self, node: &Self, is_usable: bool) {
        if is_usable {
            self.ends = self.ends.and(node.ends);
        }
        for (key, work) in &node.works {
            self.add(*key, work.began, is_usable);
        }
    }

    /// Waiting time until a unit is free, from the holders' deadlines and the history.
    pub(super) fn wait(&self, guess: impl FnOnce(&Works<'_>) -> Guess) -> Wait {
        let Ends { holders, told } = self.ends;
        if holders == 0 {
            return Wait::Unknown(Unknown::NobodyHolds);
        }
        match (guess(&self.works), told) {
            (
                Guess::Likely {
                    from,
                    to,
                    samples,
                    since,
                },
                told,
            ) => {
                // A holder's deadline is an upper bound on the time until one is free.
                let last = told.map(|(_, first, _)| first);
                Wait::Likely {
                    from: last.map_or(from, |last| from.min(last)),
                    to: to.into_iter().chain(last).min(),
                    samples,
                    since,
                    of: told.map_or(0, |(of, _, _)| of),
                    holders,
                }
            }
            (Guess::Unknown(_), Some((of, earliest, latest))) => Wait::Between {
                earliest,
                latest,
                of,
                holders,
            },
            (Guess::Unknown(why), None) => Wait::Unknown(why),
        }
    }
}

impl Ends {
    fn and(self, other: Self) -> Self {
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
}

/// Accelerator resources that pods hold on a node, including those that the node no longer reports.
pub(super) fn held_names<'a>(held: impl Iterator<Item = (&'a str, u64)>) -> BTreeSet<&'a str> {
    let some = held.filter(|(name, count)| is_accelerator(name) && *count > 0);
    some.map(|(name, _)| name).collect()
}
