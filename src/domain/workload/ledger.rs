//! Schedule of the annotation requests: nodes in turn, and for each node the pod that has waited longest. No pod is
//! lost: whatever the result of a request, its pod has a time for the next one.
//!
//! A pod is read before it is written, and remembered. An up-to-date pod therefore costs one request when an
//! aggregator becomes active, and then one per [`AGAIN`]. Watching all pods of the cluster would cost more with every
//! other pod.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::{Annotations, Marks, Patch, Place, Pod, Rate};
use crate::domain::id::NodeName;
use crate::domain::reconcile::wait;

/// Allocations reported by a node.
pub type Claims = BTreeMap<Place, Claim>;

/// Interval at which up-to-date pods are checked again: another writer may have changed one, or it was replaced by a
/// pod of the same name.
const AGAIN: Duration = Duration::from_mins(10);
/// Time after which a missing response is given up.
const LOST: Duration = Duration::from_secs(30);

/// A node's report about one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Prefixes of its UID, if known to the node; several if the node reported several.
    pub uids: BTreeSet<String>,
    /// Its desired annotations.
    pub marks: Marks,
}

/// A pod and the node that reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The node.
    pub node: NodeName,
    /// The pod.
    pub place: Place,
}

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Read this pod and call [`Ledger::found`].
    Look(Key),
    /// Wait for this long.
    Wait(Duration),
    /// Nothing to do until a node reports.
    Nothing,
}

/// Reports of nodes, and the schedule of their pods.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    nodes: BTreeMap<NodeName, Desk>,
    /// The node that was served last.
    last: Option<NodeName>,
    rate: Rate,
}

/// The pods of a node.
#[derive(Debug, Clone, Default)]
struct Desk {
    entries: BTreeMap<Place, Entry>,
    due: BTreeSet<(Duration, Place)>,
}

#[derive(Debug, Clone)]
struct Entry {
    claim: Claim,
    due: Duration,
    /// Consecutive failures.
    failures: u32,
}

impl Ledger {
    /// Replaces the report of a node.
    pub fn tell(&mut self, now: Duration, node: &NodeName, claims: Claims) {
        if claims.is_empty() {
            self.nodes.remove(node);
            return;
        }
        let desk = self.nodes.entry(node.clone()).or_default();
        desk.tell(now, claims);
    }

    /// Forgets a node without an agent.
    pub fn forget(&mut self, node: &NodeName) {
        self.nodes.remove(node);
    }

    /// Number of reported pods.
    pub fn len(&self) -> usize {
        self.nodes.values().map(|desk| desk.entries.len()).sum()
    }

    /// Returns whether no pods are reported.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the next action. Reading a pod counts as a request.
    pub fn next(&mut self, now: Duration) -> Next {
        if let Some(wait) = self.rate.wait(now) {
            return if self.is_empty() {
                Next::Nothing
            } else {
                Next::Wait(wait)
            };
        }
        let after = self.last.as_ref();
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let before = after.map_or(Bound::Unbounded, Bound::Included);
        let turns = self.nodes.range::<NodeName, _>((behind, Bound::Unbounded));
        let turns = turns.chain(self.nodes.range::<NodeName, _>((Bound::Unbounded, before)));
        let mut first: Option<Duration> = None;
        let mut found = None;
        for (node, desk) in turns {
            let Some((due, place)) = desk.due.first() else {
                continue;
            };
            if *due <= now {
                let (node, place) = (node.clone(), place.clone());
                found = Some(Key { node, place });
                break;
            }
            first = Some(first.map_or(*due, |first| first.min(*due)));
        }
        let Some(key) = found else {
            return first.map_or(Next::Nothing, |due| Next::Wait(due.saturating_sub(now)));
        };
        self.rate.spend(now);
        self.last = Some(key.node.clone());
        self.again(&key, now.saturating_add(LOST));
        Next::Look(key)
    }

    /// Records the current pod, `None` if absent. Returns the patch to write, which counts as a request and must be
    /// followed by [`Ledger::written`] or [`Ledger::failed`].
    pub fn found(&mut self, now: Duration, key: &Key, pod: Option<&Pod>) -> Option<Patch> {
        let entry = self.entry(key)?;
        let Some(pod) = pod.filter(|pod| entry.claim.is_of(pod, &key.node)) else {
            // The node's report is outdated, or newer than the API server's data.
            self.failed(now, key, None);
            return None;
        };
        let changes = entry.changes(pod);
        if changes.is_empty() {
            self.written(now, key);
            return None;
        }
        self.rate.spend(now);
        Some(Patch {
            uid: pod.uid.clone(),
            changes,
        })
    }

    /// Records that the pod is up to date.
    pub fn written(&mut self, now: Duration, key: &Key) {
        if let Some(entry) = self.entry_mut(key) {
            entry.failures = 0;
        }
        self.again(key, now.saturating_add(AGAIN));
    }

    /// Records a failure specific to this pod, with the minimum delay requested by the server.
    pub fn failed(&mut self, now: Duration, key: &Key, patience: Option<Duration>) {
        let Some(entry) = self.entry_mut(key) else {
            return;
        };
        entry.failures = entry.failures.saturating_add(1);
        let patience = patience.unwrap_or_default().min(AGAIN);
        let wait = wait(entry.failures).max(patience);
        self.again(key, now.saturating_add(wait));
    }

    /// Records that the server does not respond, which is not specific to this pod: it keeps its place.
    pub fn put_back(&mut self, now: Duration, key: &Key) {
        self.again(key, now);
    }

    fn entry(&self, key: &Key) -> Option<&Entry> {
        self.nodes.get(&key.node)?.entries.get(&key.place)
    }

    fn entry_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        self.nodes.get_mut(&key.node)?.entries.get_mut(&key.place)
    }

    fn again(&mut self, key: &Key, due: Duration) {
        if let Some(desk) = self.nodes.get_mut(&key.node) {
            desk.again(&key.place, due);
        }
    }
}

impl Desk {
    fn tell(&mut self, now: Duration, claims: Claims) {
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
                let entry = Entry {
                    claim,
                    due: now,
                    failures: 0,
                };
                self.entries.insert(place.clone(), entry);
            }
            self.again(&place, now);
        }
    }

    fn again(&mut self, place: &Place, due: Duration) {
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
        self.claim.marks.changes(has)
    }
}

impl Claim {
    /// Returns whether the report is about this very pod: it runs on the node, and is not an earlier one of the same
    /// name.
    fn is_of(&self, pod: &Pod, node: &NodeName) -> bool {
        let is_there = pod.node.as_deref() == Some(node.as_str());
        let mut uids = self.uids.iter();
        is_there && uids.all(|beginning| pod.uid.starts_with(beginning.as_str()))
    }
}

#[cfg(test)]
mod tests;
