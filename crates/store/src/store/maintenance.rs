//! Periodic maintenance of the fleet: marks stale nodes, removes old ones, and closes misbehaving connections.

use std::sync::Weak;
use std::time::Duration;

use octavo_model::id::NodeName;

use super::{Store, StoreError};
use crate::clock::Moment;
use crate::peer::Peer;
use crate::stats::Stats;

/// Multiple of the staleness bound after which a silent stream is closed.
const SILENCE_FACTOR: u32 = 3;
/// Time limit for a stream that was asked to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

impl Store {
    /// Marks nodes that became stale, removes those that have been stale for too long, and closes silent or superseded
    /// connections.
    pub fn sweep(&mut self, now: Moment) {
        let (mut turned, mut forgotten) = (Vec::new(), Vec::new());
        let bound = self.limits.stale_after;
        let silence = bound.saturating_mul(SILENCE_FACTOR);
        let remembered = bound.saturating_add(self.limits.forget_after);
        for (name, entry) in &mut self.entries {
            if entry.last_message.age(now) > silence
                && let Some(line) = entry.stream.take()
            {
                close_peer(&line.peer, "silent", &self.stats);
                if let Some(freshness) = &entry.freshness {
                    self.disconnected.insert((freshness.confirmed(), name.clone()));
                }
                turned.push(name.clone());
            }
            match &entry.freshness {
                Some(freshness) if freshness.age(now) > remembered => forgotten.push(name.clone()),
                Some(freshness) if freshness.is_stale(now) != freshness.found_stale() => {
                    turned.push(name.clone());
                }
                None if entry.stream.is_none() => forgotten.push(name.clone()),
                Some(_) | None => {}
            }
        }
        for name in turned {
            self.refresh(&name, now, false);
        }
        for name in forgotten {
            self.forget(&name, now);
        }
        self.closing.retain(|(since, peer)| {
            let late = since.age(now) > CLOSE_TIMEOUT;
            if late {
                close_peer(peer, "superseded", &self.stats);
            }
            !late && peer.strong_count() > 0
        });
        self.interned.purge();
        self.check();
    }

    /// Ensures that there is room for this node, if necessary by evicting the stale, disconnected node with the oldest
    /// confirmation.
    pub(super) fn make_room(&mut self, node: &NodeName, now: Moment) -> Result<(), StoreError> {
        let most = self.limits.max_nodes;
        if self.entries.len() < most || self.entries.contains_key(node) {
            return Ok(());
        }
        let longest = self.disconnected.first().filter(|(confirmed, _)| {
            // If this one is not stale, none of the others is.
            confirmed.age(now) > self.limits.stale_after
        });
        let Some((_, longest)) = longest.cloned() else {
            let node = node.clone();
            return Err(StoreError::TooManyNodes { node, most });
        };
        self.forget(&longest, now);
        Ok(())
    }

    pub(super) fn forget(&mut self, name: &NodeName, now: Moment) {
        if let Some(entry) = self.entries.remove(name) {
            if let Some(freshness) = entry.freshness {
                self.disconnected.remove(&(freshness.confirmed(), name.clone()));
            }
            if let Some(line) = entry.stream {
                self.closing.push((now, line.peer));
            }
        }
        if self.fleet.nodes.remove(name).is_some() {
            self.changed(now);
        }
    }

    fn check(&self) {
        let known = self.entries.values();
        let known = known.filter(|entry| entry.freshness.is_some()).count();
        if known != self.fleet.nodes.len() {
            self.stats.count_invariant_violation("I9");
        }
        let left = self.entries.values();
        let left = left.filter(|entry| entry.freshness.is_some() && entry.stream.is_none());
        if left.count() != self.disconnected.len() {
            self.stats.count_invariant_violation("I9");
        }
        if self.entries.len() > self.limits.max_nodes {
            self.stats.count_invariant_violation("I10");
        }
        self.stats.nodes.set(gauge(self.fleet.nodes.len()));
        self.stats.shared_contents.set(gauge(self.interned.len()));
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn close_peer(peer: &Weak<Peer>, why: &'static str, stats: &Stats) {
    if let Some(peer) = peer.upgrade() {
        stats.count_closed_connection(why);
        peer.close();
    }
}
