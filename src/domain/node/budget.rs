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
        if gone > 0 {
            let gone = u32::try_from(gone).unwrap_or(u32::MAX);
            self.spent = self.spent.saturating_sub(gone);
            self.since = now;
        }
        usize::try_from(BURST.saturating_sub(self.spent)).unwrap_or_default()
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
