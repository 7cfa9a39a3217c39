//! Exponential backoff.

use std::time::Duration;

/// Delays before a failed operation is repeated: each is twice the one before, up to a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub initial: Duration,
    /// Upper bound of every delay.
    pub max: Duration,
}

impl Backoff {
    /// Returns the delay after a failure that followed `failures` others.
    pub fn delay(self, failures: u32) -> Duration {
        let factor = 2_u128.saturating_pow(failures);
        let nanos = self.initial.as_nanos().saturating_mul(factor);
        Duration::from_nanos_u128(nanos.min(self.max.as_nanos()))
    }
}

/// Returns a delay that is uniform between `min` and `max`, so that a fleet does not repeat an operation at the same
/// time. `random` must be uniform over all of `u64`.
pub fn jittered(min: Duration, max: Duration, random: u64) -> Duration {
    let span = max.saturating_sub(min);
    // 32 random bits suffice, and their product with nanoseconds does not overflow.
    let share = u128::from(random >> 32).saturating_mul(span.as_nanos()) >> 32;
    min.saturating_add(Duration::from_nanos_u128(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_exactly_up_to_the_maximum() {
        let seconds = |initial, max| Backoff {
            initial: Duration::from_secs(initial),
            max: Duration::from_secs(max),
        };
        let delays: Vec<u64> = (0..8).map(|n| seconds(1, 60).delay(n).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(seconds(1, 60).delay(u32::MAX), Duration::from_mins(1));
        assert_eq!(seconds(9, 5).delay(0), Duration::from_secs(5));
        assert_eq!(seconds(0, 5).delay(u32::MAX), Duration::ZERO);
        let unbounded = Backoff { initial: Duration::from_nanos(1), max: Duration::MAX };
        assert_eq!(unbounded.delay(40), Duration::from_nanos(1 << 40));
        assert_eq!(unbounded.delay(u32::MAX), Duration::MAX);
    }

    #[test]
    fn jitter_stays_between_its_bounds() {
        let of = |random| jittered(Duration::from_secs(1), Duration::from_secs(3), random);
        assert_eq!(of(0), Duration::from_secs(1));
        assert_eq!(of(1 << 63), Duration::from_secs(2));
        assert!(of(u64::MAX) < Duration::from_secs(3));
        let widest = jittered(Duration::ZERO, Duration::MAX, u64::MAX);
        assert!(widest < Duration::MAX);
    }
}
