//! Delay before the next attempt to connect.

use std::time::Duration;

/// Exponential backoff with jitter. After a restart of the aggregator, the agents of a fleet reconnect spread over
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backoff {
    failures: u32,
}

const INITIAL_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);

impl Backoff {
    /// Returns the delay after another failure. `random` must be uniform over all of `u64`; the delay is uniform
    /// between a tenth and all of the current maximum.
    #[must_use = "the wait is to be waited for"]
    pub fn next_delay(&mut self, random: u64) -> Duration {
        let ceiling = INITIAL_DELAY
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        jittered(ceiling, random)
    }

    /// Resets the backoff after a successful connection.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A duration between a tenth and all of `ceiling`.
pub(super) fn jittered(ceiling: Duration, random: u64) -> Duration {
    let floor = ceiling / 10;
    let span = ceiling.saturating_sub(floor);
    // 32 random bits suffice, and their product with nanoseconds does not overflow.
    let share = u128::from(random >> 32).saturating_mul(span.as_nanos()) >> 32;
    floor.saturating_add(Duration::from_nanos(
        u64::try_from(share).unwrap_or(u64::MAX),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute_and_start_again_after_success() {
        let mut backoff = Backoff::default();
        let longest: Vec<u64> = (0..7)
            .map(|_| backoff.next_delay(u64::MAX).as_millis())
            .map(|ms| u64::try_from(ms).unwrap())
            .collect();
        assert_eq!(longest, [999, 1999, 3999, 7999, 15999, 29999, 29999]);
        backoff.reset();
        assert_eq!(backoff.next_delay(0), INITIAL_DELAY / 10);
    }

    #[test]
    fn jitter_is_uniform() {
        let waits: Vec<Duration> = (0..10)
            .map(|n| Backoff { failures: 9 }.next_delay(n * (u64::MAX / 9)))
            .collect();
        assert!(waits.is_sorted());
        assert_eq!(waits[0], MAX_DELAY / 10);
        let steps: Vec<u128> = waits
            .windows(2)
            .map(|pair| pair[1].abs_diff(pair[0]).as_millis())
            .collect();
        assert!(
            steps.iter().all(|step| (2990..=3010).contains(step)),
            "{steps:?}"
        );
    }
}
