//! Pending pods, holders of units, and the waiting time they imply.

use std::collections::BTreeMap;

use super::history::{HolderWorkload, HolderWorkloads, WaitEstimate, workload_key};
use super::row::{Row, RowKey, RowNodes, Unknown, Wait};
use super::shape::Shape;
use crate::cluster::{ClusterNode, ClusterSnapshot, NodePods, PodRequirements};
use crate::type_labels::{TYPE_LABEL, parse_type};

/// Maximum number of distinct pod requests matched against nodes. Pods beyond it count for every type with the
/// requested resource.
const MAX_DISTINCT_REQUESTS: usize = 256;

/// Maximum number of rows for requests that no node can satisfy: anyone who may create pods chooses their content.
const MAX_REQUESTED_ROWS: usize = 256;

/// Adds pending pods to the rows, and rows for resources that no node has. Returns the number of rows omitted because
/// of the limit.
pub(super) fn add_pending(
    rows: &mut BTreeMap<RowKey, Row>,
    members: &RowNodes<'_>,
    snapshot: &ClusterSnapshot,
) -> usize {
    let (mut wished_rows, mut left_out) = (0_usize, 0_usize);
    let mut pods_by_request: BTreeMap<&PodRequirements, u64> = BTreeMap::new();
    for pod in snapshot.pending_pods() {
        if pod.requirements.amounts.accelerators().next().is_some() {
            let count = pods_by_request.entry(&pod.requirements).or_default();
            *count = count.saturating_add(1);
        }
    }
    for (place, (wants, pods)) in pods_by_request.into_iter().enumerate() {
        for (resource, each) in wants.amounts.accelerators() {
            let suits = |nodes: &[&ClusterNode]| {
                place >= MAX_DISTINCT_REQUESTS || nodes.iter().any(|node| matches_node(wants, node))
            };
            let those = members.iter().filter(|(key, _)| key.resource == resource);
            let those = those.filter(|(_, nodes)| suits(nodes));
            let mut reached: Vec<RowKey> = those.map(|(key, _)| (*key).clone()).collect();
            if reached.is_empty() {
                reached.push(requested_key(wants, resource));
            }
            for key in reached {
                if !rows.contains_key(&key) {
                    if wished_rows >= MAX_REQUESTED_ROWS {
                        left_out = left_out.saturating_add(1);
                        continue;
                    }
                    wished_rows = wished_rows.saturating_add(1);
                }
                let row = rows.entry(key.clone()).or_insert_with(|| Row::new(key));
                row.pending.pods = row.pending.pods.saturating_add(pods);
                row.pending.units = row.pending.units.saturating_add(pods.saturating_mul(each));
            }
        }
    }
    left_out
}

/// Returns `true` if node selector and affinity match this node, regardless of other obstacles.
pub(super) fn matches_node(wants: &PodRequirements, node: &ClusterNode) -> bool {
    let mut selector = wants.selector.iter();
    let affinity = wants.affinity.as_ref();
    selector.all(|(key, value)| node.label(key) == Some(value))
        && affinity.is_none_or(|affinity| affinity.fits(&node.name, &node.labels))
}

/// Row key of a request that no node can satisfy, with the requested type if there is one.
pub(super) fn requested_key(wants: &PodRequirements, resource: &str) -> RowKey {
    RowKey {
        kind: wants.selector.get(TYPE_LABEL).and_then(|value| parse_type(value)).into(),
        resource: resource.to_owned(),
        shape: Shape::from_resource(resource, None),
    }
}

/// Number of holders of a resource on a node, and their deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Deadlines {
    holders: u32,
    /// Number of holders with a deadline, the earliest and the latest deadline.
    deadlines: Option<(u32, i64, i64)>,
}

/// Holders of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HeldUnits<'a> {
    /// Deadlines of holders whose units another pod could use afterwards.
    ends: Deadlines,
    /// Workloads that have started.
    works: HolderWorkloads<'a>,
}

impl<'a> HeldUnits<'a> {
    fn add(&mut self, work: (&'a str, i64), began: i64, is_usable: bool) {
        let fresh = HolderWorkload { began, is_usable };
        let work = self.works.entry(work).or_insert(fresh);
        work.began = work.began.min(began);
        work.is_usable |= is_usable;
    }

    /// Adds the pods that hold a resource on one more node. They release nothing usable if the node is unavailable
    /// (`is_usable` is false).
    pub(super) fn add_pods(&mut self, pods: &'a NodePods, resource: &str, is_usable: bool) {
        for pod in pods.iter().filter(|pod| pod.requirements.amounts.get(resource) > 0) {
            if is_usable {
                let deadlines = pod.until.map(|until| (1, until, until));
                self.ends = self.ends.merge(Deadlines { holders: 1, deadlines });
            }
            if let Some(began) = pod.started_at {
                self.add(workload_key(&pod.key.namespace, began), began, is_usable);
            }
        }
    }

    /// Waiting time until a unit is free, from the holders' deadlines and the history.
    pub(super) fn wait_time(
        &self,
        guess: impl FnOnce(&HolderWorkloads<'_>) -> WaitEstimate,
    ) -> Wait {
        let Deadlines { holders, deadlines } = self.ends;
        if holders == 0 {
            return Wait::Unknown(Unknown::NoHolders);
        }
        match (guess(&self.works), deadlines) {
            (WaitEstimate::Likely { from, to, samples, since }, deadlines) => {
                // A holder's deadline is an upper bound on the time until one is free.
                let last = deadlines.map(|(_, first, _)| first);
                Wait::Likely {
                    from: last.map_or(from, |last| from.min(last)),
                    to: to.into_iter().chain(last).min(),
                    samples,
                    since,
                    of: deadlines.map_or(0, |(of, _, _)| of),
                    holders,
                }
            }
            (WaitEstimate::Unknown(_), Some((of, earliest, latest))) => {
                Wait::Deadlines { earliest, latest, of, holders }
            }
            (WaitEstimate::Unknown(why), None) => Wait::Unknown(why),
        }
    }
}

impl Deadlines {
    fn merge(self, other: Self) -> Self {
        let deadlines = match (self.deadlines, other.deadlines) {
            (Some((one, first, last)), Some((more, earlier, later))) => {
                Some((one.saturating_add(more), first.min(earlier), last.max(later)))
            }
            (one, other) => one.or(other),
        };
        Self { holders: self.holders.saturating_add(other.holders), deadlines }
    }
}
