//! Debouncing: the first change of a value takes effect immediately, a series of rapid changes when it is over.

use std::time::Duration;

/// A debounced value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled<T> {
    acted: Option<T>,
    last: Option<T>,
    /// Time of the last change.
    changed: Option<Duration>,
    stormy: bool,
}

/// A change within this time after another is part of a series; the series ends after this time without a change.
const QUIET: Duration = Duration::from_secs(2);

impl<T> Default for Settled<T> {
    fn default() -> Self {
        Self {
            acted: None,
            last: None,
            changed: None,
            stormy: false,
        }
    }
}

impl<T: Clone + PartialEq> Settled<T> {
    /// Records the current value. Returns the delay after which to call again, unless the value changes before.
    pub fn see(&mut self, now: Duration, value: &T) -> Option<Duration> {
        let since = |then: Duration| now.saturating_sub(then);
        if self.last.as_ref() != Some(value) {
            self.stormy = self.changed.is_some_and(|then| since(then) < QUIET);
            // The initial value is not a change.
            self.changed = self.last.as_ref().map(|_| now);
            self.last = Some(value.clone());
        }
        let quiet = self.changed.map_or(QUIET, since);
        if self.stormy && quiet < QUIET {
            return Some(QUIET.saturating_sub(quiet));
        }
        self.stormy = false;
        self.acted = Some(value.clone());
        None
    }

    /// Returns the value in effect; `None` before the first one.
    pub fn get(&self) -> Option<&T> {
        self.acted.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_change_counts_at_once_and_a_storm_when_it_is_over() {
        let mut value = Settled::default();
        assert_eq!(value.see(at(0), &"a"), None);
        assert_eq!(value.get(), Some(&"a"));
        assert_eq!(value.see(at(1000), &"c"), None);
        assert_eq!(value.get(), Some(&"c"));
        assert_eq!(value.see(at(10_000), &"b"), None);
        assert_eq!(value.get(), Some(&"b"));
        // Ten times a second.
        for turn in 1..=50 {
            let now = at(10_000 + 100 * turn);
            assert!(
                value
                    .see(now, &["a", "b"][usize::from(turn % 2 == 0)])
                    .is_some()
            );
            assert_eq!(value.get(), Some(&"b"), "turn {turn}");
        }
        assert_eq!(value.see(at(16_000), &"b"), Some(at(1000)));
        assert_eq!(value.see(at(17_000), &"b"), None);
        assert_eq!(value.see(at(20_000), &"c"), None);
        assert_eq!(value.get(), Some(&"c"));
    }

    #[test]
    fn what_comes_back_after_a_storm_to_what_it_was_is_no_change() {
        let mut value = Settled::default();
        value.see(at(0), &1);
        value.see(at(5000), &2);
        assert!(value.see(at(5100), &1).is_some());
        assert_eq!(value.get(), Some(&2));
        assert_eq!(value.see(at(7100), &1), None);
        assert_eq!(value.get(), Some(&1));
    }
}
