//! Registration state of a resource with the kubelet, and when to register again.
//!
//! A resource is registered once per kubelet process, and again if its list is not read for long. It never competes
//! with another plugin: the last registration wins, and two plugins that insist would alternate forever.

use std::time::Duration;

use tokio::time::Instant;

use super::folder::Epoch;
use super::register::RegisterError;
use crate::domain::error::chain;

/// Delay after the first failure, doubled with each further one.
const FIRST: Duration = Duration::from_secs(1);
/// Maximum delay.
const LONGEST: Duration = Duration::from_mins(1);
/// Maximum time without a reader of the list after a successful registration.
const UNREAD: Duration = Duration::from_secs(20);

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Register with the kubelet.
    Register(Epoch),
    /// Wait at most this long; `None` means indefinitely.
    Wait(Option<Duration>),
}

/// Registration state of a resource.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The kubelet that accepted the registration.
    registered: Option<Epoch>,
    /// The kubelet to which a registration was sent.
    asked: Option<Epoch>,
    /// The kubelet that will never accept a registration.
    given_up: Option<Epoch>,
    /// The kubelet of the last failure.
    failed: Option<Epoch>,
    failures: u32,
    due: Option<Instant>,
    /// Since when the list has no reader.
    unread: Option<Instant>,
    trouble: Option<String>,
    count: u64,
}

impl Link {
    /// Returns the next action, given the running kubelet and whether the list has a reader.
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
            // A different kubelet, without failures so far.
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

    /// Records the result of a registration with `kubelet`.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        kubelet: Epoch,
        answer: &Result<(), RegisterError>,
    ) {
        if self.asked != Some(kubelet) {
            // Another kubelet has been registered with since.
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

    /// Requires a new registration, because the plugin's socket was recreated or another plugin registered in between.
    pub(super) fn forget(&mut self) {
        self.registered = None;
        self.asked = None;
    }

    /// Returns whether the kubelet has accepted the registration.
    pub(super) fn is_registered(&self, kubelet: Option<Epoch>) -> bool {
        self.registered.is_some() && self.registered == kubelet
    }

    /// Returns the last error, for users.
    pub(super) fn trouble(&self) -> Option<&String> {
        self.trouble.as_ref()
    }

    /// Returns the number of registrations.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests;
