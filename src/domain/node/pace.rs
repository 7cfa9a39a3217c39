//! Backoff for writes: after failures, and when another writer keeps reverting them.

use std::time::Duration;

use crate::domain::reconcile::{LONGEST_WAIT, wait};

/// Decides when the next write is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace<T> {
    failures: u32,
    /// Number of times the last write was reverted.
    undone: u32,
    last: Option<T>,
    /// Time of the last write.
    made: Duration,
    not_before: Duration,
}

/// Minimum interval between writes, so that changes in quick succession are combined.
const GAP: Duration = Duration::from_millis(250);
/// A value that lasted this long was changed, not reverted.
const PEACE: Duration = Duration::from_mins(10);

impl<T> Default for Pace<T> {
    fn default() -> Self {
        Self {
            failures: 0,
            undone: 0,
            last: None,
            made: Duration::ZERO,
            not_before: Duration::ZERO,
        }
    }
}

impl<T: PartialEq> Pace<T> {
    /// Returns the delay before this write; `None` if it is allowed now.
    pub fn wait(&self, now: Duration, write: &T) -> Option<Duration> {
        // A reverted value is written at increasing intervals, without delaying other values.
        let again = self.last.as_ref() == Some(write);
        let held = if again && self.undone > 0 {
            self.made.saturating_add(doubled(self.undone))
        } else {
            Duration::ZERO
        };
        let due = held.max(self.not_before);
        (due > now).then(|| due.saturating_sub(now))
    }

    /// Records a successful write.
    pub fn written(&mut self, now: Duration, write: T) {
        let again = self.last.as_ref() == Some(&write);
        let soon = now.saturating_sub(self.made) < PEACE.saturating_add(doubled(self.undone));
        self.undone = if again && soon {
            self.undone.saturating_add(1)
        } else {
            0
        };
        self.last = Some(write);
        self.made = now;
        self.failures = 0;
        self.not_before = now.saturating_add(GAP);
    }

    /// Records a failed write; `patience` is the minimum delay requested by the server.
    pub fn failed(&mut self, now: Duration, patience: Option<Duration>) {
        self.failures = self.failures.saturating_add(1);
        let wait = doubled(self.failures).max(patience.unwrap_or_default());
        self.not_before = now.saturating_add(wait.min(LONGEST_WAIT));
    }

    /// Returns the number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the number of consecutive reverted writes.
    pub fn undone(&self) -> u32 {
        self.undone
    }
}

fn doubled(times: u32) -> Duration {
    match times {
        0 => Duration::ZERO,
        some => wait(some),
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
        let mut pace = Pace::default();
        let (mut now, mut count) = (Duration::ZERO, 0);
        while now < at(seconds) {
            let write = if undone { 0 } else { count };
            if let Some(wait) = pace.wait(now, &write) {
                now += wait;
            } else {
                pace.written(now, write);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn two_who_undo_each_other_come_to_a_few_writes_an_hour_and_other_news_is_not_held_up() {
        assert!(writes(3600, true) <= 22, "{}", writes(3600, true));
        assert_eq!(writes(60, false), 240);
        let mut pace = Pace::default();
        for _ in 0..5 {
            pace.written(at(1), "a");
        }
        assert!(pace.wait(at(2), &"a").is_some());
        assert_eq!(pace.wait(at(2), &"b"), None);
    }

    #[test]
    fn a_failure_is_waited_for_longer_each_time_and_as_long_as_the_server_says() {
        let mut pace = Pace::default();
        let waits: Vec<u64> = (0..11)
            .map(|_| {
                pace.failed(at(0), None);
                pace.wait(at(0), &"a").unwrap().as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        pace.written(at(0), "a");
        pace.failed(at(10), Some(at(7)));
        assert_eq!(pace.wait(at(10), &"a"), Some(at(7)));
    }

    #[test]
    fn what_stood_for_long_is_written_again_at_once() {
        let mut pace = Pace::default();
        pace.written(at(0), "a");
        pace.written(at(100), "a");
        assert_eq!(pace.undone(), 1);
        pace.written(at(2000), "a");
        assert_eq!(pace.undone(), 0);
    }
}
