//! Whether kubelet knows of a resource, and when it is told again.
//!
//! It is told once by each start of kubelet, and once more where nobody reads the list for long. Never by turns with another plugin:
//! the last to register wins, and two that insist would change places for ever.

use std::time::Duration;

use tokio::time::Instant;

use super::folder::Epoch;
use super::register::RegisterError;
use crate::domain::error::chain;

/// The first wait after a failure; it doubles with each.
const FIRST: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST: Duration = Duration::from_mins(1);
/// How long a list may go unread after kubelet has said that it knows of it.
const UNREAD: Duration = Duration::from_secs(20);

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Tell kubelet.
    Register(Epoch),
    /// Nothing, for so long at most; for ever where nothing is said.
    Wait(Option<Duration>),
}

/// What kubelet knows of a resource.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The kubelet that knows of it.
    registered: Option<Epoch>,
    /// The kubelet that is being told.
    asked: Option<Epoch>,
    /// The kubelet that will never take it.
    given_up: Option<Epoch>,
    /// The kubelet that the last failure was of.
    failed: Option<Epoch>,
    failures: u32,
    due: Option<Instant>,
    /// Since when nobody reads the list.
    unread: Option<Instant>,
    trouble: Option<String>,
    count: u64,
}

impl Link {
    /// What is to be done where this kubelet listens, and somebody reads the list or not.
    pub(super) fn step(&mut self, now: Instant, kubelet: Option<Epoch>, is_read: bool) -> Step {
        let Some(kubelet) = kubelet else {
            return Step::Wait(None);
        };
        if self.asked == Some(kubelet) || self.given_up == Some(kubelet) {
            return Step::Wait(None);
        }
        if self.registered == Some(kubelet) {
            return self.registered(now, kubelet, is_read);
        }
        if self.failed != Some(kubelet) {
            // Another one, which has refused nothing yet.
            self.failures = 0;
            self.due = None;
        }
        self.after_wait(now, kubelet)
    }

    fn registered(&mut self, now: Instant, kubelet: Epoch, is_read: bool) -> Step {
        if is_read {
            self.unread = None;
            self.failures = 0;
            return Step::Wait(None);
        }
        let since = *self.unread.get_or_insert(now);
        let patience = UNREAD.saturating_mul(2_u32.saturating_pow(self.failures.min(8)));
        let waited = now.saturating_duration_since(since);
        if waited < patience {
            return Step::Wait(Some(patience.saturating_sub(waited)));
        }
        self.failures = self.failures.saturating_add(1);
        self.unread = None;
        self.ask(kubelet)
    }

    fn after_wait(&mut self, now: Instant, kubelet: Epoch) -> Step {
        match self.due.filter(|due| *due > now) {
            Some(due) => Step::Wait(Some(due.saturating_duration_since(now))),
            None => self.ask(kubelet),
        }
    }

    fn ask(&mut self, kubelet: Epoch) -> Step {
        self.asked = Some(kubelet);
        self.count = self.count.saturating_add(1);
        Step::Register(kubelet)
    }

    /// What became of telling `kubelet`.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        kubelet: Epoch,
        answer: &Result<(), RegisterError>,
    ) {
        if self.asked != Some(kubelet) {
            // Another one was asked since.
            return;
        }
        self.asked = None;
        self.unread = None;
        let Err(error) = answer else {
            self.registered = Some(kubelet);
            self.failed = None;
            self.trouble = None;
            return;
        };
        self.registered = None;
        self.failed = Some(kubelet);
        self.trouble = Some(chain(error));
        if matches!(error, RegisterError::Unsupported { .. }) {
            self.given_up = Some(kubelet);
        }
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        self.due = now.checked_add(wait.min(LONGEST));
    }

    /// Kubelet is to be told again: its plugin's socket is a new one, or another plugin was in between.
    pub(super) fn forget(&mut self) {
        self.registered = None;
        self.asked = None;
    }

    /// Whether kubelet has said that it knows of it.
    pub(super) fn is_registered(&self, kubelet: Option<Epoch>) -> bool {
        self.registered.is_some() && self.registered == kubelet
    }

    /// Why not, in words for a person.
    pub(super) fn trouble(&self) -> Option<&String> {
        self.trouble.as_ref()
    }

    /// How often kubelet was told.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests;
