//! Backoff for writes: after failures, and when another writer keeps reverting them.

use std::time::Duration;

use octavo_planner::reconcile::{MAX_RETRY_DELAY, retry_delay};

/// Decides when the next write is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBackoff<T> {
    failures: u32,
    /// Number of times the last write was reverted.
    reverts: u32,
    last: Option<T>,
    /// Time of the last write.
    last_write: Duration,
    not_before: Duration,
}

/// Minimum interval between writes, so that changes in quick succession are combined.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// A value that lasted this long was changed, not reverted.
const RESET_AFTER: Duration = Duration::from_mins(10);

impl<T> Default for WriteBackoff<T> {
    fn default() -> Self {
        Self {
            failures: 0,
            reverts: 0,
            last: None,
            last_write: Duration::ZERO,
            not_before: Duration::ZERO,
        }
    }
}

impl<T: PartialEq> WriteBackoff<T> {
    /// Returns the delay before this write; `None` if it is allowed now.
    pub fn wait(&self, now: Duration, write: &T) -> Option<Duration> {
        // A reverted value is written at increasing intervals, without delaying other values.
        let again = self.last.as_ref() == Some(write);
        let held = if again && self.reverts > 0 {
            self.last_write.saturating_add(delay(self.reverts))
        } else {
            Duration::ZERO
        };
        let due = held.max(self.not_before);
        (due > now).then(|| due.saturating_sub(now))
    }

    /// Records a successful write.
    pub fn record_write(&mut self, now: Duration, write: T) {
        let again = self.last.as_ref() == Some(&write);
        let soon =
            now.saturating_sub(self.last_write) < RESET_AFTER.saturating_add(delay(self.reverts));
        self.reverts = if again && soon { self.reverts.saturating_add(1) } else { 0 };
        self.last = Some(write);
        self.last_write = now;
        self.failures = 0;
        self.not_before = now.saturating_add(MIN_INTERVAL);
    }

    /// Records a failed write; `min_delay` is the minimum delay requested by the server.
    pub fn record_failure(&mut self, now: Duration, min_delay: Option<Duration>) {
        self.failures = self.failures.saturating_add(1);
        let wait = delay(self.failures).max(min_delay.unwrap_or_default());
        self.not_before = now.saturating_add(wait.min(MAX_RETRY_DELAY));
    }

    /// Returns the number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the number of consecutive reverted writes.
    pub fn reverts(&self) -> u32 {
        self.reverts
    }
}

fn delay(times: u32) -> Duration {
    match times {
        0 => Duration::ZERO,
        some => retry_delay(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Counts the writes in a period in which every write is reverted immediately.
    fn writes(seconds: u64, undone: bool) -> u32 {
        let mut pace = WriteBackoff::default();
        let (mut now, mut count) = (Duration::ZERO, 0);
        while now < at(seconds) {
            let write = if undone { 0 } else { count };
            if let Some(wait) = pace.wait(now, &write) {
                now += wait;
            } else {
                pace.record_write(now, write);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn reverted_writes_back_off_without_delaying_others() {
        assert!(writes(3600, true) <= 22, "{}", writes(3600, true));
        assert_eq!(writes(60, false), 240);
        let mut pace = WriteBackoff::default();
        for _ in 0..5 {
            pace.record_write(at(1), "a");
        }
        assert!(pace.wait(at(2), &"a").is_some());
        assert_eq!(pace.wait(at(2), &"b"), None);
    }

    #[test]
    fn failures_back_off_and_respect_the_server_delay() {
        let mut pace = WriteBackoff::default();
        let waits: Vec<u64> = (0..11)
            .map(|_| {
                pace.record_failure(at(0), None);
                pace.wait(at(0), &"a").unwrap().as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        pace.record_write(at(0), "a");
        pace.record_failure(at(10), Some(at(7)));
        assert_eq!(pace.wait(at(10), &"a"), Some(at(7)));
    }

    #[test]
    fn value_that_lasted_is_rewritten_immediately() {
        let mut pace = WriteBackoff::default();
        pace.record_write(at(0), "a");
        pace.record_write(at(100), "a");
        assert_eq!(pace.reverts(), 1);
        pace.record_write(at(2000), "a");
        assert_eq!(pace.reverts(), 0);
    }
}
