//! Backoff of failed watches and requests.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use octavo_model::backoff::{self, jittered};
use octavo_toolkit::random::random;
use tokio::time::Instant;

/// Exponential backoff with jitter of half the delay, so that a fleet does not reconnect at the same time.
#[derive(Debug, Default)]
pub(crate) struct ReconnectBackoff {
    failures: u32,
    last: Option<Instant>,
}

const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// Maximum delay of a watch.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(30);
/// After this time without a failure, the backoff starts again.
const RESET_AFTER: Duration = Duration::from_mins(2);

impl ReconnectBackoff {
    /// Returns the next delay, at most `longest`.
    pub(crate) fn next_delay(&mut self, longest: Duration) -> Duration {
        self.wait(Instant::now(), random(), longest)
    }

    fn wait(&mut self, now: Instant, random: u64, longest: Duration) -> Duration {
        let since = |then: Instant| now.saturating_duration_since(then);
        if self.last.is_some_and(|then| since(then) > RESET_AFTER) {
            self.failures = 0;
        }
        self.last = Some(now);
        let backoff = backoff::Backoff { initial: INITIAL_DELAY, max: longest };
        let whole = backoff.delay(self.failures);
        self.failures = self.failures.saturating_add(1);
        jittered(whole / 2, whole, random)
    }
}

impl Iterator for ReconnectBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.next_delay(MAX_DELAY))
    }
}

impl Backoff for ReconnectBackoff {
    /// Does nothing. A watcher calls this for every event, including the mere intention to list, which does not show
    /// that the server works.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_until_reset_after_success() {
        let mut backoff = ReconnectBackoff::default();
        let now = Instant::now();
        let waits: Vec<u64> = (0..7)
            .map(|_| {
                backoff.reset();
                backoff.wait(now, u64::MAX, MAX_DELAY).as_secs_f64().round()
            })
            .map(|seconds| format!("{seconds}").parse().unwrap())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.wait(now, 0, MAX_DELAY), MAX_DELAY / 2);
        let later = now + RESET_AFTER + Duration::from_secs(1);
        assert_eq!(backoff.wait(later, 0, MAX_DELAY), INITIAL_DELAY / 2);
    }
}
