//! Limits of the changes of a node for pending pods.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use crate::demand::PolicyDemand;
use crate::node::{PolicyNode, Progress};
use crate::record::NodeRecord;

/// Period of [`PolicyDemand::changes_per_hour`] and [`PolicyDemand::evictions_per_hour`].
const HOUR: SignedDuration = SignedDuration::from_hours(1);

impl PolicyDemand {
    /// Earliest time at which a node with this record is changed, by a change that waits for running pods or by another one.
    pub(crate) fn next_change(
        &self,
        (node, record): (&PolicyNode<'_>, &NodeRecord),
        waits_for_pods: bool,
    ) -> Timestamp {
        let has_failed = matches!(node.progress(record), Progress::Failed { .. });
        // Pods that did not end would be waited for again.
        let is_withdrawn = record.withdrawn.is_some() && waits_for_pods;
        let cooled =
            (has_failed || is_withdrawn).then(|| after(record.since, self.cooldown.signed()));
        self.after_changes(&record.changes)
            .into_iter()
            .chain(cooled)
            .max()
            .unwrap_or(Timestamp::MIN)
    }

    /// Earliest time at which a node is changed again after changes at these times, in ascending order; `None` without changes.
    pub fn after_changes(&self, changes: &[Timestamp]) -> Option<Timestamp> {
        let held = changes.last().map(|last| after(*last, self.hold.signed()));
        let limit = usize::try_from(self.changes_per_hour.max(1)).unwrap_or(usize::MAX);
        let used = changes.len().checked_sub(limit).and_then(|at| changes.get(at));
        held.into_iter().chain(used.map(|first| after(*first, HOUR))).max()
    }

    /// Returns whether the limits permit to change the node now, by a change that waits for running pods or by another one.
    pub(crate) fn can_change(
        &self,
        (node, uid): (&PolicyNode<'_>, &str),
        waits_for_pods: bool,
        now: Timestamp,
    ) -> bool {
        let record = node.record.of(uid);
        record.is_none_or(|record| self.next_change((node, record), waits_for_pods) <= now)
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
        latest.get(allowed).map(|time| after(*time, HOUR))
    }
}

fn after(time: Timestamp, period: SignedDuration) -> Timestamp {
    time.saturating_add(period).unwrap_or(Timestamp::MAX)
}

/// The times within the last hour.
pub(crate) fn recent(times: &[Timestamp], now: Timestamp) -> Vec<Timestamp> {
    let recent = times.iter().filter(|time| time.saturating_add(HOUR).is_ok_and(|end| end > now));
    recent.copied().collect()
}
