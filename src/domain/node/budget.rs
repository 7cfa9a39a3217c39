//! How many events are told, of Node and pods alike: so many at once, and then one in a while; and how long each may be.

use std::time::Duration;

/// What may be told: a bucket that fills with time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    spent: u32,
    since: Duration,
}

/// So many at once, and then one in this time.
pub(in crate::domain) const BURST: u32 = 25;
const EACH: Duration = Duration::from_secs(30);
/// Source: Kubernetes, `events.k8s.io/v1`, `note`: 1 kB.
pub(in crate::domain) const LONGEST: usize = 1000;

impl Budget {
    /// How many may be told now.
    pub fn room(&mut self, now: Duration) -> usize {
        let gone = now.saturating_sub(self.since).as_secs() / EACH.as_secs();
        let gone = u32::try_from(gone).unwrap_or(u32::MAX);
        self.spent = self.spent.saturating_sub(gone);
        // Whoever asks in between takes nothing away from what is to come; and what is full already does not fill up for later.
        self.since = if self.spent == 0 {
            now
        } else {
            self.since.saturating_add(EACH.saturating_mul(gone))
        };
        usize::try_from(BURST.saturating_sub(self.spent)).unwrap_or_default()
    }

    /// After how long one may be sent.
    pub fn wait(&mut self, now: Duration) -> Duration {
        if self.room(now) > 0 {
            return Duration::ZERO;
        }
        let missing = self.spent.saturating_sub(BURST).saturating_add(1);
        let at = self.since.saturating_add(EACH.saturating_mul(missing));
        at.saturating_sub(now)
    }

    /// So many were told.
    pub fn spend(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.spent = self.spent.saturating_add(count);
    }
}

/// Cuts what is longer than an event may be.
pub fn shorten(text: &mut String) {
    if text.len() <= LONGEST {
        return;
    }
    let end = (0..=LONGEST - 3)
        .rev()
        .find(|end| text.is_char_boundary(*end));
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
    fn so_many_are_told_at_once_and_then_one_in_thirty_seconds() {
        let mut budget = Budget::default();
        assert_eq!(budget.room(at(100)), 25);
        budget.spend(25);
        assert_eq!(budget.room(at(100)), 0);
        assert_eq!(budget.room(at(129)), 0);
        assert_eq!(budget.room(at(130)), 1);
        budget.spend(1);
        assert_eq!(budget.room(at(159)), 0);
        assert_eq!(budget.room(at(160)), 1);
        // What is not told now may be told later, and not more than at the start.
        assert_eq!(budget.room(at(220)), 3);
        assert_eq!(budget.room(at(1_000_000)), 25);
    }

    #[test]
    fn however_often_it_is_asked_room_comes_as_fast() {
        for step in [1, 7, 20, 29, 31, 45] {
            let mut budget = Budget::default();
            budget.room(at(0));
            budget.spend(25);
            let mut told = 0;
            for now in (0..=600).step_by(step) {
                let room = budget.room(at(now));
                budget.spend(room);
                told += room;
            }
            // The last time that it was asked may be a little before the end.
            assert!((19..=20).contains(&told), "every {step} s: {told}");
        }
    }

    #[test]
    fn what_was_full_for_long_gives_no_more_than_what_was_full_just_now() {
        let mut budget = Budget::default();
        assert_eq!(budget.room(at(29)), 25);
        budget.spend(25);
        assert_eq!(budget.room(at(58)), 0);
        assert_eq!(budget.room(at(59)), 1);
    }

    #[test]
    fn more_than_there_is_room_for_is_made_good_before_more_is_told() {
        let mut budget = Budget::default();
        assert_eq!(budget.room(at(0)), 25);
        budget.spend(27);
        assert_eq!(budget.room(at(60)), 0);
        assert_eq!(budget.room(at(90)), 1);
        budget.spend(usize::MAX);
        assert_eq!(budget.room(at(120)), 0);
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters_and_says_so() {
        for width in ["x", "é", "…", "𝄞"] {
            for before in 1..5 {
                let mut text = "-".repeat(before) + &width.repeat(LONGEST);
                let whole = text.clone();
                shorten(&mut text);
                assert!(text.len() <= LONGEST, "{width} {before}: {}", text.len());
                // Not a character less than there is room for.
                assert!(
                    text.len() + width.len() > LONGEST,
                    "{width} {before}: {}",
                    text.len()
                );
                let kept = text.strip_suffix('…').unwrap();
                assert!(whole.starts_with(kept), "{width} {before}");
            }
        }
        for fits in [String::new(), "x".repeat(LONGEST), "é".repeat(LONGEST / 2)] {
            let mut text = fits.clone();
            shorten(&mut text);
            assert_eq!(text, fits);
        }
    }
}
