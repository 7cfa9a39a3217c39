//! Limits of the changes of a node for pending pods.

use jiff::{SignedDuration, Timestamp};

use crate::demand::PolicyDemand;
use crate::node::{PolicyNode, Progress};
use crate::record::NodeRecord;

/// Period of [`PolicyDemand::changes_per_hour`].
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
        let cooled = has_failed.then(|| after(record.since, self.cooldown.signed()));
        held.into_iter().chain(free).chain(cooled).max().unwrap_or(Timestamp::MIN)
    }

    /// Returns whether the limits permit to change the node now.
    pub(crate) fn can_change(&self, node: &PolicyNode<'_>, uid: &str, now: Timestamp) -> bool {
        node.record.of(uid).is_none_or(|record| self.next_change(node, record) <= now)
    }
}

/// Times of the changes of a node within the last hour, with one more change now.
pub(crate) fn with_change(changes: &[Timestamp], now: Timestamp) -> Vec<Timestamp> {
    let recent = changes.iter().filter(|time| time.saturating_add(HOUR).is_ok_and(|end| end > now));
    recent.copied().chain([now]).collect()
}
