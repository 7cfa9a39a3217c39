//! Registration state of a resource with the kubelet, and when to register again.
//!
//! A resource is registered once per kubelet process, and again if its list is not read for long. It never competes
//! with another plugin: the last registration wins, and two plugins that insist would alternate forever.

use std::path::Path;
use std::time::Duration;

use octavo_model::backoff::Backoff;
use octavo_model::resource::ResourceName;
use octavo_toolkit::error::chain;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use super::plugin_dir::{KUBELET, KubeletInstance};
use crate::proto::device_plugin::registration_client::RegistrationClient;
use crate::proto::device_plugin::{DevicePluginOptions, RegisterRequest};
use crate::unix_channel::{self, ConnectError};

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

/// The only existing version. Source: k8s.io/kubelet, `deviceplugin/v1beta1/constants.go`.
const VERSION: &str = "v1beta1";
/// Part of the kubelet's error for an unsupported version. Source: kubelet,
/// `pkg/kubelet/cm/devicemanager/plugin/v1beta1`.
const UNSUPPORTED_MESSAGE: &str = "not supported by kubelet";
/// Registration timeout. The kubelet calls back before it responds, both on this machine.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Optional calls that this plugin supports.
pub(super) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

/// Error that prevents the registration of a resource.
#[derive(Debug, Error)]
pub(super) enum RegisterError {
    /// There is no connection to the kubelet.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No response in time.
    #[error("no response from the kubelet to a registration within {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// The kubelet uses another version, which only changes with its replacement.
    #[error("the kubelet does not support {VERSION} of the device plugin API: {message}")]
    Unsupported {
        /// The kubelet's message.
        message: String,
    },
    /// The kubelet refused the registration.
    #[error("the kubelet rejected {resource}: {message}")]
    Refused {
        /// The resource.
        resource: ResourceName,
        /// The kubelet's message.
        message: String,
    },
}

/// Registers `endpoint` for `resource` with the kubelet whose sockets are in `dir`.
pub(super) async fn register(
    dir: &Path,
    endpoint: &str,
    resource: &ResourceName,
) -> Result<(), RegisterError> {
    timeout(TIMEOUT, request(dir, endpoint, resource)).await.unwrap_or(Err(RegisterError::TimedOut))
}

async fn request(dir: &Path, endpoint: &str, resource: &ResourceName) -> Result<(), RegisterError> {
    let channel = unix_channel::connect(&dir.join(KUBELET), unix_channel::endpoint()).await?;
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_string(),
        options: Some(OPTIONS),
    };
    let result = RegistrationClient::new(channel).register(request).await;
    let Err(status) = result else { return Ok(()) };
    let message = status.message().to_owned();
    if message.contains(UNSUPPORTED_MESSAGE) {
        Err(RegisterError::Unsupported { message })
    } else {
        Err(RegisterError::Refused { resource: resource.clone(), message })
    }
}

#[cfg(test)]
mod tests;
