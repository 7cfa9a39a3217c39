//! Rate limit of requests, as a token bucket. Time is an argument.

use std::time::Duration;

/// A token bucket, stored as the time at which it will be full again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateLimiter {
    full: Duration,
}

/// Interval between requests: 20 per second, the limit of Kubernetes' own controllers. Source: Kubernetes,
/// `kube-controller-manager --kube-api-qps`.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum burst.
const BURST: u32 = 20;

impl RateLimiter {
    /// Delay before the next request; `None` if it may be sent now.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let room = REQUEST_INTERVAL.saturating_mul(BURST.saturating_sub(1));
        let due = self.full.saturating_sub(room);
        (due > now).then(|| due.saturating_sub(now))
    }

    /// Records a request, whether or not one was available.
    pub fn acquire(&mut self, now: Duration) {
        self.full = self.full.max(now).saturating_add(REQUEST_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of requests sent in `until` milliseconds by a client that always has one pending and checks every
    /// `step` milliseconds.
    fn made(until: u64, step: u64) -> usize {
        let mut rate = RateLimiter::default();
        let mut count = 0;
        for millis in (0..until).step_by(usize::try_from(step).unwrap()) {
            let now = Duration::from_millis(millis);
            while rate.wait(now).is_none() {
                rate.acquire(now);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn rate_is_twenty_per_second_with_burst_of_twenty() {
        assert_eq!(made(1, 1), 20);
        for step in [1, 10, 50] {
            let count = made(10_000, step);
            assert!((219..=220).contains(&count), "every {step} ms: {count}");
        }
        // A client that checks rarely gets the tokens accumulated meanwhile, up to one burst.
        assert_eq!(made(20_000, 10_000), 40);
    }

    #[test]
    fn delay_until_next_request_is_returned() {
        let mut rate = RateLimiter::default();
        for _ in 0..20 {
            assert_eq!(rate.wait(Duration::ZERO), None);
            rate.acquire(Duration::ZERO);
        }
        assert_eq!(rate.wait(Duration::ZERO), Some(REQUEST_INTERVAL));
        assert_eq!(rate.wait(REQUEST_INTERVAL), None);
    }
}
