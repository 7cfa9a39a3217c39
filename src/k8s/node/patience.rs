//! Backoff of failed watches.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use kube::runtime::utils::Backoff;
use tokio::time::Instant;

/// Exponential backoff with jitter of half the delay, so that a fleet does not reconnect at the same time.
#[derive(Debug, Default)]
pub(in crate::k8s) struct Patience {
    failures: u32,
    last: Option<Instant>,
}

const FIRST: Duration = Duration::from_secs(1);
pub(in crate::k8s) const LONGEST: Duration = Duration::from_secs(30);
/// After this time without a failure, the backoff starts again.
const PEACE: Duration = Duration::from_mins(2);

impl Patience {
    /// Returns the next delay, at most `longest`.
    pub(in crate::k8s) fn up_to(&mut self, longest: Duration) -> Duration {
        self.wait(Instant::now(), RandomState::new().hash_one(0), longest)
    }

    fn wait(&mut self, now: Instant, random: u64, longest: Duration) -> Duration {
        let since = |then: Instant| now.saturating_duration_since(then);
        if self.last.is_some_and(|then| since(then) > PEACE) {
            self.failures = 0;
        }
        self.last = Some(now);
        let whole = FIRST
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        let half = whole / 2;
        let share = u32::try_from(random >> 32).unwrap_or(u32::MAX);
        half.saturating_add(half.mul_f64(f64::from(share) / f64::from(u32::MAX)))
    }
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.up_to(LONGEST))
    }
}

impl Backoff for Patience {
    /// Does nothing. A watcher calls this for every event, including the mere intention to list, which does not show
    /// that the server works.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_whatever_the_watcher_says_between_and_begin_anew_after_peace() {
        let mut patience = Patience::default();
        let now = Instant::now();
        let waits: Vec<u64> = (0..7)
            .map(|_| {
                patience.reset();
                patience.wait(now, u64::MAX, LONGEST).as_secs_f64().round()
            })
            .map(|seconds| format!("{seconds}").parse().unwrap())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(patience.wait(now, 0, LONGEST), LONGEST / 2);
        let later = now + PEACE + Duration::from_secs(1);
        assert_eq!(patience.wait(later, 0, LONGEST), FIRST / 2);
    }
}
