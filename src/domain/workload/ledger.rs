//! Who is looked at when, and what is then written: nodes by turns, and of each node the pod first that has waited longest. Nothing
//! that is to be done is lost: whatever becomes of a request, its pod has a time at which it is looked at again.
//!
//! A pod is read before it is written, and remembered; so a pod that is as it shall be costs one request when an aggregator begins
//! to write, and then one in [`AGAIN`]. Following all pods of the cluster would cost the more the more other pods there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::{Annotations, Marks, Patch, Place, Pod, Rate};
use crate::domain::id::NodeName;
use crate::domain::reconcile::wait;

/// Whom a node says it has given what.
pub type Claims = BTreeMap<Place, Claim>;

/// How long what is as it shall be is not looked at: somebody may have changed it since, or it is another pod of that name.
const AGAIN: Duration = Duration::from_mins(10);
/// After so long an answer that never came is not waited for any more.
const LOST: Duration = Duration::from_secs(30);

/// What a node says of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// How its UID begins, where the node knows that. More than one where it told several at once.
    pub uids: BTreeSet<String>,
    /// What it shall have.
    pub marks: Marks,
}

/// A pod, and who speaks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The node.
    pub node: NodeName,
    /// The pod.
    pub place: Place,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Look at this pod: [`Ledger::found`].
    Look(Key),
    /// Nothing for so long.
    Wait(Duration),
    /// Nothing until a node says something.
    Nothing,
}

/// What nodes say, and when their pods are looked at.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    nodes: BTreeMap<NodeName, Desk>,
    /// Whose turn it was.
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
    /// In a row.
    failures: u32,
}

impl Ledger {
    /// A node says this of its pods, and nothing of others any more.
    pub fn tell(&mut self, now: Duration, node: &NodeName, claims: Claims) {
        if claims.is_empty() {
            self.nodes.remove(node);
            return;
        }
        let desk = self.nodes.entry(node.clone()).or_default();
        desk.tell(now, claims);
    }

    /// Nobody speaks for a node.
    pub fn forget(&mut self, node: &NodeName) {
        self.nodes.remove(node);
    }

    /// How many pods nodes speak of.
    pub fn len(&self) -> usize {
        self.nodes.values().map(|desk| desk.entries.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What is to be done now. A pod that is to be looked at counts as a request.
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

    /// The pod is so, or not there. What is to be written on it counts as a request; [`Ledger::written`] or [`Ledger::failed`].
    pub fn found(&mut self, now: Duration, key: &Key, pod: Option<&Pod>) -> Option<Patch> {
        let entry = self.entry(key)?;
        let Some(pod) = pod.filter(|pod| entry.claim.is_of(pod, &key.node)) else {
            // What the node says is of before, or of a moment that the API server does not know yet.
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

    /// It is as it shall be.
    pub fn written(&mut self, now: Duration, key: &Key) {
        if let Some(entry) = self.entry_mut(key) {
            entry.failures = 0;
        }
        self.again(key, now.saturating_add(AGAIN));
    }

    /// It was refused, for this pod's own sake; the server asked for patience of at least this.
    pub fn failed(&mut self, now: Duration, key: &Key, patience: Option<Duration>) {
        let Some(entry) = self.entry_mut(key) else {
            return;
        };
        entry.failures = entry.failures.saturating_add(1);
        let patience = patience.unwrap_or_default().min(AGAIN);
        let wait = wait(entry.failures).max(patience);
        self.again(key, now.saturating_add(wait));
    }

    /// Nobody answers, which is not this pod's fault: it keeps its place.
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
        // What has ended is a record of what was.
        if pod.has_ended {
            return super::Changes::new();
        }
        self.claim.marks.changes(has)
    }
}

impl Claim {
    /// Whether it is of this very pod: the node has it, and not an earlier one of its name.
    fn is_of(&self, pod: &Pod, node: &NodeName) -> bool {
        let is_there = pod.node.as_deref() == Some(node.as_str());
        let mut uids = self.uids.iter();
        is_there && uids.all(|beginning| pod.uid.starts_with(beginning.as_str()))
    }
}

#[cfg(test)]
mod tests;
