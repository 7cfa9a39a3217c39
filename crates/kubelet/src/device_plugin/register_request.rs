//! Registration of a device plugin with the kubelet.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use octavo_model::resource::ResourceName;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::transport::{Endpoint, Uri};
use tower::service_fn;

use crate::proto::device_plugin::registration_client::RegistrationClient;
use crate::proto::device_plugin::{DevicePluginOptions, RegisterRequest};

/// The only existing version. Source: k8s.io/kubelet, `deviceplugin/v1beta1/constants.go`.
const VERSION: &str = "v1beta1";
/// The kubelet's socket in the device plugin directory. Source: as above.
pub(super) const KUBELET: &str = "kubelet.sock";
/// Part of the kubelet's error for an unsupported version. Source: kubelet,
/// `pkg/kubelet/cm/devicemanager/plugin/v1beta1`.
const UNSUPPORTED_MESSAGE: &str = "not supported by kubelet";
/// Registration timeout. The kubelet calls back before it responds, both on this machine.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Placeholder that is never used, because a Unix socket has no host name.
const PLACEHOLDER_URI: &str = "http://localhost";

/// Optional calls that this plugin supports.
pub(super) const OPTIONS: DevicePluginOptions = DevicePluginOptions {
    pre_start_required: false,
    get_preferred_allocation_available: true,
};

/// Error that prevents the registration of a resource.
#[derive(Debug, Error)]
pub(super) enum RegisterError {
    /// No process listens: the kubelet is not running or is restarting.
    #[error("cannot connect to kubelet at {}", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The listening process does not speak gRPC.
    #[error("whoever listens at {} does not speak as kubelet does", socket.display())]
    NotKubelet {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
    /// No response in time.
    #[error("kubelet did not answer a registration within {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// The kubelet uses another version, which only changes with its replacement.
    #[error(
        "kubelet does not speak {VERSION}, the only version of device plugins there is: {message}"
    )]
    Unsupported {
        /// The kubelet's message.
        message: String,
    },
    /// The kubelet refused the registration.
    #[error("kubelet refused {resource}: {message}")]
    Refused {
        /// The resource.
        resource: ResourceName,
        /// The kubelet's message.
        message: String,
    },
}

/// Registers `endpoint` for `resource` with the kubelet of `folder`.
pub(super) async fn register(
    folder: &Path,
    endpoint: &str,
    resource: &ResourceName,
) -> Result<(), RegisterError> {
    timeout(TIMEOUT, ask(folder, endpoint, resource))
        .await
        .unwrap_or(Err(RegisterError::TimedOut))
}

async fn ask(folder: &Path, endpoint: &str, resource: &ResourceName) -> Result<(), RegisterError> {
    let socket = folder.join(KUBELET);
    let stream = match UnixStream::connect(&socket).await {
        Ok(stream) => stream,
        Err(source) => return Err(RegisterError::Unreachable { socket, source }),
    };
    // One connection per request.
    let mut stream = Some(TokioIo::new(stream));
    let connector = service_fn(move |_: Uri| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| io::Error::other("the connection was used before")) }
    });
    let channel = Endpoint::from_static(PLACEHOLDER_URI)
        .connect_with_connector(connector)
        .await;
    let channel = channel.map_err(|source| RegisterError::NotKubelet { socket, source })?;
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_string(),
        options: Some(OPTIONS),
    };
    let answer = RegistrationClient::new(channel).register(request).await;
    let Err(status) = answer else { return Ok(()) };
    let message = status.message().to_owned();
    if message.contains(UNSUPPORTED_MESSAGE) {
        Err(RegisterError::Unsupported { message })
    } else {
        Err(RegisterError::Refused {
            resource: resource.clone(),
            message,
        })
    }
}
