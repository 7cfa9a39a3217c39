//! Bounded record of the changes of a node.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Change;

/// Maximum number of recorded changes of a node. With texts of the maximum length, they need about 75 KiB.
pub const MAX_ENTRIES: usize = 64;

/// Time after a change in which the same change is counted instead of recorded again.
const REPEAT_WINDOW: Duration = Duration::from_mins(15);

/// Latest changes of a node. Its clones share the entries. Times are relative to the start of the recording program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeLog {
    since: Duration,
    /// Ordered by the time of the last occurrence.
    entries: VecDeque<Arc<ChangeEntry>>,
    dropped: u64,
}

/// Recorded change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEntry {
    /// The change, with the message of its last occurrence.
    pub change: Change,
    /// Time of the first occurrence.
    pub first: Duration,
    /// Time of the last occurrence.
    pub last: Duration,
    /// Number of occurrences, each at most 15 minutes after the previous one.
    pub count: u32,
}

impl ChangeLog {
    /// Creates an empty record that begins at `since`.
    pub fn new(since: Duration) -> Self {
        Self { since, ..Self::default() }
    }

    /// Start of the record.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Number of older changes that are no longer recorded.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Recorded changes, newest first.
    pub fn newest(&self) -> impl Iterator<Item = &ChangeEntry> {
        self.entries.iter().rev().map(AsRef::as_ref)
    }

    /// The same record with these changes, which were observed at `now`.
    #[must_use]
    pub fn with(&self, changes: Vec<Change>, now: Duration) -> Self {
        let mut log = self.clone();
        for change in changes {
            log.record(change, now);
        }
        log
    }

    fn record(&mut self, change: Change, now: Duration) {
        let earlier = self.entries.iter().position(|known| {
            now.saturating_sub(known.last) <= REPEAT_WINDOW && known.change.repeats(&change)
        });
        let earlier = earlier.and_then(|at| self.entries.remove(at));
        let (first, count) = earlier.map_or((now, 0), |known| (known.first, known.count));
        let count = count.saturating_add(1);
        self.entries.push_back(Arc::new(ChangeEntry { change, first, last: now, count }));
        if self.entries.len() > MAX_ENTRIES {
            self.entries.pop_front();
            self.dropped = self.dropped.saturating_add(1);
        }
    }
}
