//! How many requests are made: so many at once, and then so many a second. Time is an argument.

use std::time::Duration;

/// A bucket that fills with time, kept as the moment at which it will be full again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rate {
    full: Duration,
}

/// Twenty a second: what a controller of Kubernetes itself asks at most.
/// Source: Kubernetes, `kube-controller-manager --kube-api-qps`.
const EACH: Duration = Duration::from_millis(50);
/// So many at once.
const BURST: u32 = 20;

impl Rate {
    /// How long to wait before the next one; `None` where it may be made now.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let room = EACH.saturating_mul(BURST.saturating_sub(1));
        let due = self.full.saturating_sub(room);
        (due > now).then(|| due.saturating_sub(now))
    }

    /// One is made, whether or not there was room.
    pub fn spend(&mut self, now: Duration) {
        self.full = self.full.max(now).saturating_add(EACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are made until then by one who always has something to ask, and looks so often.
    fn made(until: u64, step: u64) -> usize {
        let mut rate = Rate::default();
        let mut count = 0;
        for millis in (0..until).step_by(usize::try_from(step).unwrap()) {
            let now = Duration::from_millis(millis);
            while rate.wait(now).is_none() {
                rate.spend(now);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn twenty_at_once_and_twenty_a_second_however_often_it_is_looked() {
        assert_eq!(made(1, 1), 20);
        for step in [1, 10, 50] {
            let count = made(10_000, step);
            assert!((219..=220).contains(&count), "every {step} ms: {count}");
        }
        // Who looks seldom gets what came meanwhile, and not more than at the start.
        assert_eq!(made(20_000, 10_000), 40);
    }

    #[test]
    fn it_says_for_how_long_to_wait() {
        let mut rate = Rate::default();
        for _ in 0..20 {
            assert_eq!(rate.wait(Duration::ZERO), None);
            rate.spend(Duration::ZERO);
        }
        assert_eq!(rate.wait(Duration::ZERO), Some(EACH));
        assert_eq!(rate.wait(EACH), None);
    }
}
