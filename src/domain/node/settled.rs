//! A value that is acted on once it stands: the first change at once, and a storm of them when it is over.

use std::time::Duration;

/// A value, and whether it changes too often to be acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled<T> {
    acted: Option<T>,
    last: Option<T>,
    /// When it changed last, and whether it had been quiet before.
    changed: Option<Duration>,
    stormy: bool,
}

/// A change so soon after another is a part of a storm, and a storm is over after as long without one.
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
    /// The value is this now. Says when to come again, where that is before it changes.
    pub fn see(&mut self, now: Duration, value: &T) -> Option<Duration> {
        let since = |then: Duration| now.saturating_sub(then);
        if self.last.as_ref() != Some(value) {
            self.stormy = self.changed.is_some_and(|then| since(then) < QUIET);
            // What was there when we came is no change.
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

    /// The value to act on; `None` before there was one.
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
