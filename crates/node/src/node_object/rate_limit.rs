//! Rate limit for Kubernetes events of Nodes and pods: a burst, then one per interval. Also limits the length of
//! messages.

use std::time::Duration;

/// Token bucket for events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventRateLimit {
    spent: u32,
    since: Duration,
}

/// Maximum burst, and the interval after which one more event is allowed.
pub(crate) const BURST: u32 = 25;
const REFILL_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum message length in bytes. Source: Kubernetes, `events.k8s.io/v1`, `note`: 1 kB.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1000;

impl EventRateLimit {
    /// Returns how many events may be sent now.
    pub fn available(&mut self, now: Duration) -> usize {
        let gone = now.saturating_sub(self.since).as_secs() / REFILL_INTERVAL.as_secs();
        let gone = u32::try_from(gone).unwrap_or(u32::MAX);
        self.spent = self.spent.saturating_sub(gone);
        // Calling this more often does not delay later tokens, and a full bucket does not accumulate time for later.
        self.since = if self.spent == 0 {
            now
        } else {
            self.since.saturating_add(REFILL_INTERVAL.saturating_mul(gone))
        };
        usize::try_from(BURST.saturating_sub(self.spent)).unwrap_or_default()
    }

    /// Returns the delay until the next event may be sent.
    pub fn wait(&mut self, now: Duration) -> Duration {
        if self.available(now) > 0 {
            return Duration::ZERO;
        }
        let missing = self.spent.saturating_sub(BURST).saturating_add(1);
        let at = self.since.saturating_add(REFILL_INTERVAL.saturating_mul(missing));
        at.saturating_sub(now)
    }

    /// Records `count` sent events.
    pub fn spend(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.spent = self.spent.saturating_add(count);
    }
}

/// Truncates a message that exceeds the limit for events.
pub fn truncate_message(text: &mut String) {
    if text.len() <= MAX_MESSAGE_BYTES {
        return;
    }
    let end = (0..=MAX_MESSAGE_BYTES - 3).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
    text.push('…');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn burst_then_one_event_every_thirty_seconds() {
        let mut budget = EventRateLimit::default();
        assert_eq!(budget.available(at(100)), 25);
        budget.spend(25);
        assert_eq!(budget.available(at(100)), 0);
        assert_eq!(budget.available(at(129)), 0);
        assert_eq!(budget.available(at(130)), 1);
        budget.spend(1);
        assert_eq!(budget.available(at(159)), 0);
        assert_eq!(budget.available(at(160)), 1);
        // Unused tokens accumulate up to the burst.
        assert_eq!(budget.available(at(220)), 3);
        assert_eq!(budget.available(at(1_000_000)), 25);
    }

    #[test]
    fn refill_is_independent_of_call_frequency() {
        for step in [1, 7, 20, 29, 31, 45] {
            let mut budget = EventRateLimit::default();
            budget.available(at(0));
            budget.spend(25);
            let mut allowed = 0;
            for now in (0..=600).step_by(step) {
                let room = budget.available(at(now));
                budget.spend(room);
                allowed += room;
            }
            // The last call may be shortly before the end.
            assert!((19..=20).contains(&allowed), "every {step} s: {allowed}");
        }
    }

    #[test]
    fn full_budget_does_not_accumulate_time() {
        let mut budget = EventRateLimit::default();
        assert_eq!(budget.available(at(29)), 25);
        budget.spend(25);
        assert_eq!(budget.available(at(58)), 0);
        assert_eq!(budget.available(at(59)), 1);
    }

    #[test]
    fn overspending_delays_later_events() {
        let mut budget = EventRateLimit::default();
        assert_eq!(budget.available(at(0)), 25);
        budget.spend(27);
        assert_eq!(budget.available(at(60)), 0);
        assert_eq!(budget.available(at(90)), 1);
        budget.spend(usize::MAX);
        assert_eq!(budget.available(at(120)), 0);
    }

    #[test]
    fn long_message_is_truncated_at_a_character_boundary() {
        for width in ["x", "é", "…", "𝄞"] {
            for before in 1..5 {
                let mut text = "-".repeat(before) + &width.repeat(MAX_MESSAGE_BYTES);
                let whole = text.clone();
                truncate_message(&mut text);
                assert!(text.len() <= MAX_MESSAGE_BYTES, "{width} {before}: {}", text.len());
                // Truncation removes no more characters than necessary.
                assert!(
                    text.len() + width.len() > MAX_MESSAGE_BYTES,
                    "{width} {before}: {}",
                    text.len()
                );
                let prefix = text.strip_suffix('…').unwrap();
                assert!(whole.starts_with(prefix), "{width} {before}");
            }
        }
        for fits in
            [String::new(), "x".repeat(MAX_MESSAGE_BYTES), "é".repeat(MAX_MESSAGE_BYTES / 2)]
        {
            let mut text = fits.clone();
            truncate_message(&mut text);
            assert_eq!(text, fits);
        }
    }
}
