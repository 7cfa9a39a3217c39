//! Rate limit of requests, as a token bucket. Time is an argument.

use std::time::Duration;

/// A token bucket, stored as the time at which it will be full again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rate {
    full: Duration,
}

/// Interval between requests: 20 per second, the limit of Kubernetes' own controllers. Source: Kubernetes,
/// `kube-controller-manager --kube-api-qps`.
const EACH: Duration = Duration::from_millis(50);
/// Maximum burst.
const BURST: u32 = 20;

impl Rate {
    /// Delay before the next request; `None` if it may be sent now.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let room = EACH.saturating_mul(BURST.saturating_sub(1));
        let due = self.full.saturating_sub(room);
        (due > now).then(|| due.saturating_sub(now))
    }

    /// Records a request, whether or not one was available.
    pub fn spend(&mut self, now: Duration) {
        self.full = self.full.max(now).saturating_add(EACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of requests sent in `until` milliseconds by a client that always has one pending and checks every
    /// `step` milliseconds.
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
        // A client that checks rarely gets the tokens accumulated meanwhile, up to one burst.
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
