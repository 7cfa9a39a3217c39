//! Limits of the changes of a node for pending pods.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use crate::demand::PolicyDemand;
use crate::node::{PolicyNode, Progress};
use crate::record::NodeRecord;

/// Period of [`PolicyDemand::changes_per_hour`] and [`PolicyDemand::evictions_per_hour`].
const HOUR: SignedDuration = SignedDuration::from_hours(1);

impl PolicyDemand {
    /// Earliest time at which a node with this record is changed.
    pub(crate) fn next_change(&self, node: &PolicyNode<'_>, record: &NodeRecord) -> Timestamp {
        let after = |time: Timestamp, period: SignedDuration| {
            time.saturating_add(period).unwrap_or(Timestamp::MAX)
        };
        let held = record.changes.last().map(|last| after(*last, self.hold.signed()));
        let limit = usize::try_from(self.changes_per_hour.max(1)).unwrap_or(usize::MAX);
        let used = record.changes.len().checked_sub(limit).and_then(|at| record.changes.get(at));
        let free = used.map(|first| after(*first, HOUR));
        let has_failed = matches!(node.progress(record), Progress::Failed { .. });
        // After a change that was withdrawn before its evictions, the same pods would be named again.
        let has_evictions =
            !record.evictions.is_empty() && record.evictions.last() == record.changes.last();
        let is_withdrawn = record.withdrawn.is_some() && has_evictions;
        let cooled =
            (has_failed || is_withdrawn).then(|| after(record.since, self.cooldown.signed()));
        held.into_iter().chain(free).chain(cooled).max().unwrap_or(Timestamp::MIN)
    }

    /// Returns whether the limits permit to change the node now.
    pub(crate) fn can_change(&self, node: &PolicyNode<'_>, uid: &str, now: Timestamp) -> bool {
        node.record.of(uid).is_none_or(|record| self.next_change(node, record) <= now)
    }

    /// Earliest time at which this number of further pods can be evicted, after pods were evicted at these times. `None` if that is possible
    /// at any time.
    pub(crate) fn next_eviction(&self, evicted: &[Timestamp], count: usize) -> Option<Timestamp> {
        if count == 0 {
            return None;
        }
        let Some(allowed) = self.max_evictions().checked_sub(count) else {
            return Some(Timestamp::MAX);
        };
        let mut latest = evicted.to_vec();
        latest.sort_unstable_by_key(|time| Reverse(*time));
        latest.get(allowed).map(|time| time.saturating_add(HOUR).unwrap_or(Timestamp::MAX))
    }
}

/// The times within the last hour.
pub(crate) fn recent(times: &[Timestamp], now: Timestamp) -> Vec<Timestamp> {
    let recent = times.iter().filter(|time| time.saturating_add(HOUR).is_ok_and(|end| end > now));
    recent.copied().collect()
}
