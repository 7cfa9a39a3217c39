//! Delay before the next attempt to connect.

use std::time::Duration;

use octavo_model::backoff::{self, jittered};

/// Exponential backoff with jitter. After a restart of the aggregator, the agents of a fleet reconnect spread over
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backoff {
    failures: u32,
}

const MAX_DELAY: backoff::Backoff =
    backoff::Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(30) };

impl Backoff {
    /// Returns the delay after another failure. `random` must be uniform over all of `u64`; the delay is uniform
    /// between a tenth and all of the current maximum.
    #[must_use = "the returned delay must be observed"]
    pub fn next_delay(&mut self, random: u64) -> Duration {
        let longest = MAX_DELAY.delay(self.failures);
        self.failures = self.failures.saturating_add(1);
        jittered(longest / 10, longest, random)
    }

    /// Resets the backoff after a successful connection.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_half_a_minute_and_resets_after_success() {
        let mut backoff = Backoff::default();
        let longest: Vec<u64> = (0..7)
            .map(|_| backoff.next_delay(u64::MAX).as_millis())
            .map(|ms| u64::try_from(ms).unwrap())
            .collect();
        assert_eq!(longest, [999, 1999, 3999, 7999, 15999, 29999, 29999]);
        backoff.reset();
        assert_eq!(backoff.next_delay(0), MAX_DELAY.initial / 10);
    }

    #[test]
    fn jitter_is_uniform() {
        let waits: Vec<Duration> =
            (0..10).map(|n| Backoff { failures: 9 }.next_delay(n * (u64::MAX / 9))).collect();
        assert!(waits.is_sorted());
        assert_eq!(waits[0], MAX_DELAY.max / 10);
        let steps: Vec<u128> =
            waits.windows(2).map(|pair| pair[1].abs_diff(pair[0]).as_millis()).collect();
        assert!(steps.iter().all(|step| (2990..=3010).contains(step)), "{steps:?}");
    }
}
