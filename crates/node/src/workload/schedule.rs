//! Schedule of the annotation requests: nodes in turn, and for each node the pod that has waited longest. No pod is
//! lost: whatever the result of a request, its pod has a time for the next one.
//!
//! A pod is read before it is written, and remembered. An up-to-date pod therefore costs one request when an
//! aggregator becomes active, and then one per [`RECHECK_INTERVAL`]. Watching all pods of the cluster would cost more with every
//! other pod.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use octavo_model::id::NodeName;
use octavo_planner::reconcile::retry_delay;

use super::{Annotations, Patch, Pod, PodAnnotations, PodKey};
use crate::token_bucket::TokenBucket;

/// Allocations reported by a node.
pub type Claims = BTreeMap<PodKey, AllocationClaim>;

/// Interval at which up-to-date pods are checked again: another writer may have changed one, or it was replaced by a
/// pod of the same name.
const RECHECK_INTERVAL: Duration = Duration::from_mins(10);
/// Time after which a missing response is given up.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A node's report about one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationClaim {
    /// Prefixes of its UID, if known to the node; several if the node reported several.
    pub uids: BTreeSet<String>,
    /// Its desired annotations.
    pub annotations: PodAnnotations,
}

/// A pod and the node that reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodOnNode {
    /// The node.
    pub node: NodeName,
    /// The pod.
    pub place: PodKey,
}

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// Read this pod and call [`AnnotationSchedule::record_pod`].
    Read(PodOnNode),
    /// Wait for this long.
    Wait(Duration),
    /// Nothing to do until a node reports.
    Nothing,
}

/// Rate of requests: 20 per second, the limit of Kubernetes' own controllers, also as the maximum burst. Source:
/// Kubernetes, `kube-controller-manager --kube-api-qps`.
type RequestRate = TokenBucket<20, 50>;

/// Reports of nodes, and the schedule of their pods.
#[derive(Debug, Clone, Default)]
pub struct AnnotationSchedule {
    nodes: BTreeMap<NodeName, NodeQueue>,
    /// The node that was served last.
    last: Option<NodeName>,
    rate: RequestRate,
}

/// The pods of a node.
#[derive(Debug, Clone, Default)]
struct NodeQueue {
    entries: BTreeMap<PodKey, Entry>,
    due: BTreeSet<(Duration, PodKey)>,
}

#[derive(Debug, Clone)]
struct Entry {
    claim: AllocationClaim,
    due: Duration,
    /// Consecutive failures.
    failures: u32,
}

impl AnnotationSchedule {
    /// Replaces the report of a node.
    pub fn update(&mut self, now: Duration, node: &NodeName, claims: Claims) {
        if claims.is_empty() {
            self.nodes.remove(node);
            return;
        }
        let queue = self.nodes.entry(node.clone()).or_default();
        queue.update(now, claims);
    }

    /// Forgets a node without an agent.
    pub fn forget(&mut self, node: &NodeName) {
        self.nodes.remove(node);
    }

    /// Number of reported pods.
    pub fn len(&self) -> usize {
        self.nodes.values().map(|queue| queue.entries.len()).sum()
    }

    /// Returns whether no pods are reported.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the next action. Reading a pod counts as a request.
    pub fn next(&mut self, now: Duration) -> NextAction {
        if let Some(wait) = self.rate.wait(now) {
            return if self.is_empty() { NextAction::Nothing } else { NextAction::Wait(wait) };
        }
        let after = self.last.as_ref();
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let before = after.map_or(Bound::Unbounded, Bound::Included);
        let turns = self.nodes.range::<NodeName, _>((behind, Bound::Unbounded));
        let turns = turns.chain(self.nodes.range::<NodeName, _>((Bound::Unbounded, before)));
        let mut first: Option<Duration> = None;
        let mut found = None;
        for (node, queue) in turns {
            let Some((due, place)) = queue.due.first() else {
                continue;
            };
            if *due <= now {
                let (node, place) = (node.clone(), place.clone());
                found = Some(PodOnNode { node, place });
                break;
            }
            first = Some(first.map_or(*due, |first| first.min(*due)));
        }
        let Some(key) = found else {
            return first
                .map_or(NextAction::Nothing, |due| NextAction::Wait(due.saturating_sub(now)));
        };
        self.rate.take(now, 1);
        self.last = Some(key.node.clone());
        self.reschedule(&key, now.saturating_add(RESPONSE_TIMEOUT));
        NextAction::Read(key)
    }

    /// Records the current pod, `None` if absent. Returns the patch to write, which counts as a request and must be
    /// followed by [`AnnotationSchedule::record_up_to_date`] or [`AnnotationSchedule::record_failure`].
    pub fn record_pod(
        &mut self,
        now: Duration,
        key: &PodOnNode,
        pod: Option<&Pod>,
    ) -> Option<Patch> {
        let entry = self.entry(key)?;
        let Some(pod) = pod.filter(|pod| entry.claim.matches(pod, &key.node)) else {
            // The node's report is outdated, or newer than the API server's data.
            self.record_failure(now, key, None);
            return None;
        };
        let changes = entry.changes(pod);
        if changes.is_empty() {
            self.record_up_to_date(now, key);
            return None;
        }
        self.rate.take(now, 1);
        Some(Patch { uid: pod.uid.clone(), changes })
    }

    /// Records that the pod is up to date.
    pub fn record_up_to_date(&mut self, now: Duration, key: &PodOnNode) {
        if let Some(entry) = self.entry_mut(key) {
            entry.failures = 0;
        }
        self.reschedule(key, now.saturating_add(RECHECK_INTERVAL));
    }

    /// Records a failure specific to this pod, with the minimum delay requested by the server.
    pub fn record_failure(&mut self, now: Duration, key: &PodOnNode, min_delay: Option<Duration>) {
        let Some(entry) = self.entry_mut(key) else {
            return;
        };
        entry.failures = entry.failures.saturating_add(1);
        let min_delay = min_delay.unwrap_or_default().min(RECHECK_INTERVAL);
        let wait = retry_delay(entry.failures).max(min_delay);
        self.reschedule(key, now.saturating_add(wait));
    }

    /// Records that the server does not respond, which is not specific to this pod: it keeps its place.
    pub fn requeue(&mut self, now: Duration, key: &PodOnNode) {
        self.reschedule(key, now);
    }

    fn entry(&self, key: &PodOnNode) -> Option<&Entry> {
        self.nodes.get(&key.node)?.entries.get(&key.place)
    }

    fn entry_mut(&mut self, key: &PodOnNode) -> Option<&mut Entry> {
        self.nodes.get_mut(&key.node)?.entries.get_mut(&key.place)
    }

    fn reschedule(&mut self, key: &PodOnNode, due: Duration) {
        if let Some(queue) = self.nodes.get_mut(&key.node) {
            queue.again(&key.place, due);
        }
    }
}

impl NodeQueue {
    fn update(&mut self, now: Duration, claims: Claims) {
        self.entries.retain(|place, _| claims.contains_key(place));
        self.due.retain(|(_, place)| claims.contains_key(place));
        for (place, claim) in claims {
            if let Some(known) = self.entries.get_mut(&place) {
                if known.claim == claim {
                    continue;
                }
                known.claim = claim;
                known.failures = 0;
            } else {
                let entry = Entry { claim, due: now, failures: 0 };
                self.entries.insert(place.clone(), entry);
            }
            self.again(&place, now);
        }
    }

    fn again(&mut self, place: &PodKey, due: Duration) {
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        self.due.remove(&(entry.due, place.clone()));
        entry.due = due;
        self.due.insert((due, place.clone()));
    }
}

impl Entry {
    fn changes(&self, pod: &Pod) -> super::Changes {
        let has: &Annotations = &pod.annotations;
        // The annotations of an ended pod are a historical record.
        if pod.has_ended {
            return super::Changes::new();
        }
        self.claim.annotations.changes(has)
    }
}

impl AllocationClaim {
    /// Returns whether the report is about this very pod: it runs on the node, and is not an earlier one of the same
    /// name.
    fn matches(&self, pod: &Pod, node: &NodeName) -> bool {
        let is_there = pod.node.as_deref() == Some(node.as_str());
        let mut uids = self.uids.iter();
        is_there && uids.all(|beginning| pod.uid.starts_with(beginning.as_str()))
    }
}

#[cfg(test)]
mod tests;
