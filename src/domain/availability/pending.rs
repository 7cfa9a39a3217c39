//! Who waits for what, who holds it, and how long those may who do.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Guess;
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
struct Ends {
    holders: u32,
    /// How many say when, the first and the last of them.
    told: Option<(u32, i64, i64)>,
}

/// Pods of one namespace that began in the same minute: replicas, or the workers of one training, which end together as a rule. Each
/// counted for itself, the first end would be said to be sooner than it is. By the namespace and the minute since 1970.
pub(super) type Works<'a> = BTreeMap<(&'a str, i64), Work>;

/// A piece of work that holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    /// When the first of its pods began, in seconds since 1970.
    pub(super) began: i64,
    /// Whether another pod could have what it holds.
    pub(super) is_usable: bool,
}

/// Which piece of work a pod belongs to.
pub(super) fn work(namespace: &str, began: i64) -> (&str, i64) {
    (namespace, began.div_euclid(60))
}

/// Who holds some of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Held<'a> {
    /// Of those whose units another could have afterwards.
    ends: Ends,
    /// Those that have begun.
    works: Works<'a>,
}

/// By node and resource.
pub(super) type HeldByNode<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Held<'a>>>;

/// Who holds what on each node.
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

    /// With those of one more node, which are of use to nobody else where it is of none.
    pub(super) fn take(&mut self, node: &Self, is_usable: bool) {
        if is_usable {
            self.ends = self.ends.and(node.ends);
        }
        for (key, work) in &node.works {
            self.add(*key, work.began, is_usable);
        }
    }

    /// How long until one is free where none is, by what those say who hold some, and by the past.
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
                // Where one has to end by then, one is free by then.
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

/// Resources of accelerators that somebody holds on a node and that it does not name any more.
pub(super) fn held_names<'a>(held: impl Iterator<Item = (&'a str, u64)>) -> BTreeSet<&'a str> {
    let some = held.filter(|(name, count)| is_accelerator(name) && *count > 0);
    some.map(|(name, _)| name).collect()
}
