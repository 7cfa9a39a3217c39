//! Debouncing: the first change of a value takes effect immediately, a series of rapid changes when it is over.

use std::time::Duration;

/// A debounced value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Debounced<T> {
    effective: Option<T>,
    last: Option<T>,
    /// Time of the last change.
    changed: Option<Duration>,
    is_bursting: bool,
}

/// A change within this time after another is part of a series; the series ends after this time without a change.
const QUIET_PERIOD: Duration = Duration::from_secs(2);

impl<T> Default for Debounced<T> {
    fn default() -> Self {
        Self { effective: None, last: None, changed: None, is_bursting: false }
    }
}

impl<T: Clone + PartialEq> Debounced<T> {
    /// Records the current value. Returns the delay after which to call again, unless the value changes before.
    pub fn update(&mut self, now: Duration, value: &T) -> Option<Duration> {
        let since = |then: Duration| now.saturating_sub(then);
        if self.last.as_ref() != Some(value) {
            self.is_bursting = self.changed.is_some_and(|then| since(then) < QUIET_PERIOD);
            // The initial value is not a change.
            self.changed = self.last.as_ref().map(|_| now);
            self.last = Some(value.clone());
        }
        let quiet = self.changed.map_or(QUIET_PERIOD, since);
        if self.is_bursting && quiet < QUIET_PERIOD {
            return Some(QUIET_PERIOD.saturating_sub(quiet));
        }
        self.is_bursting = false;
        self.effective = Some(value.clone());
        None
    }

    /// Returns the value in effect; `None` before the first one.
    pub fn get(&self) -> Option<&T> {
        self.effective.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn single_change_is_immediate_and_burst_is_debounced() {
        let mut value = Debounced::default();
        assert_eq!(value.update(at(0), &"a"), None);
        assert_eq!(value.get(), Some(&"a"));
        assert_eq!(value.update(at(1000), &"c"), None);
        assert_eq!(value.get(), Some(&"c"));
        assert_eq!(value.update(at(10_000), &"b"), None);
        assert_eq!(value.get(), Some(&"b"));
        // Ten times a second.
        for turn in 1..=50 {
            let now = at(10_000 + 100 * turn);
            assert!(value.update(now, &["a", "b"][usize::from(turn % 2 == 0)]).is_some());
            assert_eq!(value.get(), Some(&"b"), "turn {turn}");
        }
        assert_eq!(value.update(at(16_000), &"b"), Some(at(1000)));
        assert_eq!(value.update(at(17_000), &"b"), None);
        assert_eq!(value.update(at(20_000), &"c"), None);
        assert_eq!(value.get(), Some(&"c"));
    }

    #[test]
    fn value_reverted_within_a_burst_is_no_change() {
        let mut value = Debounced::default();
        value.update(at(0), &1);
        value.update(at(5000), &2);
        assert!(value.update(at(5100), &1).is_some());
        assert_eq!(value.get(), Some(&2));
        assert_eq!(value.update(at(7100), &1), None);
        assert_eq!(value.get(), Some(&1));
    }
}
