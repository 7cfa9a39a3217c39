//! Registration of a device plugin with the kubelet.

use std::path::Path;
use std::time::Duration;

use octavo_model::resource::ResourceName;
use thiserror::Error;
use tokio::time::timeout;

use crate::proto::device_plugin::registration_client::RegistrationClient;
use crate::proto::device_plugin::{DevicePluginOptions, RegisterRequest};
use crate::unix_channel::{self, ConnectError};

/// The only existing version. Source: k8s.io/kubelet, `deviceplugin/v1beta1/constants.go`.
const VERSION: &str = "v1beta1";
/// The kubelet's socket in the device plugin directory. Source: as above.
pub(super) const KUBELET: &str = "kubelet.sock";
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
