//! Rate limit: a burst, then one token per interval. Time is an argument.

use std::time::Duration;

/// A token bucket, stored as the time at which it will be full again. It holds `BURST` tokens, and gains one every
/// `INTERVAL_MS` milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenBucket<const BURST: u32, const INTERVAL_MS: u64> {
    full: Duration,
}

impl<const BURST: u32, const INTERVAL_MS: u64> TokenBucket<BURST, INTERVAL_MS> {
    const INTERVAL: Duration = Duration::from_millis(INTERVAL_MS);

    /// Returns how many tokens are available now.
    pub fn available(&self, now: Duration) -> usize {
        let until_full = self.full.saturating_sub(now).as_nanos();
        let missing = until_full.div_ceil(Self::INTERVAL.as_nanos());
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        usize::try_from(BURST.saturating_sub(missing)).unwrap_or_default()
    }

    /// Delay until the next token; `None` if one is available.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let rest = Self::INTERVAL.saturating_mul(BURST.saturating_sub(1));
        let due = self.full.saturating_sub(rest);
        (due > now).then(|| due.saturating_sub(now))
    }

    /// Takes `count` tokens, whether or not they are available.
    pub fn take(&mut self, now: Duration, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.full = self.full.max(now).saturating_add(Self::INTERVAL.saturating_mul(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type EventBudget = TokenBucket<25, 30_000>;
    type Requests = TokenBucket<20, 50>;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn burst_then_one_event_every_thirty_seconds() {
        let mut budget = EventBudget::default();
        assert_eq!(budget.available(at(100)), 25);
        budget.take(at(100), 25);
        assert_eq!(budget.available(at(100)), 0);
        assert_eq!(budget.available(at(129)), 0);
        assert_eq!(budget.available(at(130)), 1);
        budget.take(at(130), 1);
        assert_eq!(budget.available(at(159)), 0);
        assert_eq!(budget.available(at(160)), 1);
        // Unused tokens accumulate up to the burst.
        assert_eq!(budget.available(at(220)), 3);
        assert_eq!(budget.available(at(1_000_000)), 25);
    }

    #[test]
    fn refill_is_independent_of_call_frequency() {
        for step in [1, 7, 20, 29, 31, 45] {
            let mut budget = EventBudget::default();
            budget.take(at(0), 25);
            let mut allowed = 0;
            for now in (0..=600).step_by(step) {
                let room = budget.available(at(now));
                budget.take(at(now), room);
                allowed += room;
            }
            // The last call may be shortly before the end.
            assert!((19..=20).contains(&allowed), "every {step} s: {allowed}");
        }
    }

    #[test]
    fn full_budget_does_not_accumulate_time() {
        let mut budget = EventBudget::default();
        assert_eq!(budget.available(at(29)), 25);
        budget.take(at(29), 25);
        assert_eq!(budget.available(at(58)), 0);
        assert_eq!(budget.available(at(59)), 1);
    }

    #[test]
    fn overspending_delays_later_events() {
        let mut budget = EventBudget::default();
        assert_eq!(budget.available(at(0)), 25);
        budget.take(at(0), 27);
        assert_eq!(budget.available(at(60)), 0);
        assert_eq!(budget.available(at(90)), 1);
        budget.take(at(90), usize::MAX);
        assert_eq!(budget.available(at(120)), 0);
    }

    /// Number of requests sent in `until` milliseconds by a client that always has one pending and checks every
    /// `step` milliseconds.
    fn made(until: u64, step: u64) -> usize {
        let mut rate = Requests::default();
        let mut count = 0;
        for millis in (0..until).step_by(usize::try_from(step).unwrap()) {
            let now = Duration::from_millis(millis);
            while rate.wait(now).is_none() {
                rate.take(now, 1);
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
        let mut rate = Requests::default();
        for _ in 0..20 {
            assert_eq!(rate.wait(Duration::ZERO), None);
            rate.take(Duration::ZERO, 1);
        }
        assert_eq!(rate.wait(Duration::ZERO), Some(Duration::from_millis(50)));
        assert_eq!(rate.wait(Duration::from_millis(50)), None);
    }
}
