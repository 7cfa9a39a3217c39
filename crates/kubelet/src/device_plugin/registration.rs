//! Registration state of a resource with the kubelet, and when to register again.
//!
//! A resource is registered once per kubelet process, and again if its list is not read for long. It never competes
//! with another plugin: the last registration wins, and two plugins that insist would alternate forever.

use std::time::Duration;

use octavo_model::backoff::Backoff;
use octavo_toolkit::error::chain;
use tokio::time::Instant;

use super::plugin_dir::KubeletInstance;
use super::register_request::RegisterError;

/// Delay after a failure.
const RETRY: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_mins(1) };
/// Maximum time without a reader of the list after a successful registration.
const UNREAD: Backoff =
    Backoff { initial: Duration::from_secs(20), max: Duration::from_secs(20 << 8) };

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Register with the kubelet.
    Register(KubeletInstance),
    /// Wait at most this long; `None` means indefinitely.
    Wait(Option<Duration>),
}

/// Registration state of a resource.
#[derive(Debug, Default)]
pub(super) struct Registration {
    /// The kubelet that accepted the registration.
    registered: Option<KubeletInstance>,
    /// The kubelet to which a registration was sent.
    pending: Option<KubeletInstance>,
    /// The kubelet that will never accept a registration.
    given_up: Option<KubeletInstance>,
    /// The kubelet of the last failure.
    failed: Option<KubeletInstance>,
    failures: u32,
    due: Option<Instant>,
    /// Since when the list has no reader.
    unread_since: Option<Instant>,
    error: Option<String>,
    count: u64,
}

impl Registration {
    /// Returns the next action, given the running kubelet and whether the list has a reader.
    pub(super) fn next_step(
        &mut self,
        now: Instant,
        kubelet: Option<KubeletInstance>,
        is_read: bool,
    ) -> Step {
        let Some(kubelet) = kubelet else {
            return Step::Wait(None);
        };
        if self.pending == Some(kubelet) || self.given_up == Some(kubelet) {
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

    fn registered(&mut self, now: Instant, kubelet: KubeletInstance, is_read: bool) -> Step {
        if is_read {
            self.unread_since = None;
            self.failures = 0;
            return Step::Wait(None);
        }
        let since = *self.unread_since.get_or_insert(now);
        let delay = UNREAD.delay(self.failures);
        let waited = now.saturating_duration_since(since);
        if waited < delay {
            return Step::Wait(Some(delay.saturating_sub(waited)));
        }
        self.failures = self.failures.saturating_add(1);
        self.unread_since = None;
        self.start_registration(kubelet)
    }

    fn after_wait(&mut self, now: Instant, kubelet: KubeletInstance) -> Step {
        match self.due.filter(|due| *due > now) {
            Some(due) => Step::Wait(Some(due.saturating_duration_since(now))),
            None => self.start_registration(kubelet),
        }
    }

    fn start_registration(&mut self, kubelet: KubeletInstance) -> Step {
        self.pending = Some(kubelet);
        self.count = self.count.saturating_add(1);
        Step::Register(kubelet)
    }

    /// Records the result of a registration with `kubelet`.
    pub(super) fn record_result(
        &mut self,
        now: Instant,
        kubelet: KubeletInstance,
        result: &Result<(), RegisterError>,
    ) {
        if self.pending != Some(kubelet) {
            // Another kubelet has been registered with since.
            return;
        }
        self.pending = None;
        self.unread_since = None;
        let Err(error) = result else {
            self.registered = Some(kubelet);
            self.failed = None;
            self.error = None;
            return;
        };
        self.registered = None;
        self.failed = Some(kubelet);
        self.error = Some(chain(error));
        if matches!(error, RegisterError::Unsupported { .. }) {
            self.given_up = Some(kubelet);
        }
        self.due = now.checked_add(RETRY.delay(self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    /// Requires a new registration, because the plugin's socket was recreated or another plugin registered in between.
    pub(super) fn invalidate(&mut self) {
        self.registered = None;
        self.pending = None;
    }

    /// Returns whether the kubelet has accepted the registration.
    pub(super) fn is_registered(&self, kubelet: Option<KubeletInstance>) -> bool {
        self.registered.is_some() && self.registered == kubelet
    }

    /// Returns the last error, for users.
    pub(super) fn error(&self) -> Option<&String> {
        self.error.as_ref()
    }

    /// Returns the number of registrations.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests;
