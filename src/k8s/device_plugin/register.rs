//! Telling kubelet that there is a plugin.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::transport::{Endpoint, Uri};
use tower::service_fn;

use crate::domain::sharing::ResourceName;
use crate::proto::device_plugin::registration_client::RegistrationClient;
use crate::proto::device_plugin::{DevicePluginOptions, RegisterRequest};

/// The only version there is. Source: k8s.io/kubelet, `deviceplugin/v1beta1/constants.go`.
const VERSION: &str = "v1beta1";
/// Kubelet's socket in the folder of the plugins. Source: as above.
pub(super) const KUBELET: &str = "kubelet.sock";
/// What kubelet says to a version that it does not speak. Source: kubelet, `pkg/kubelet/cm/devicemanager/plugin/v1beta1`.
const UNSUPPORTED: &str = "not supported by kubelet";
/// Kubelet calls back before it answers, both on this machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nobody reads it: a Unix socket has no name of a host.
const HOST: &str = "http://localhost";

/// What this plugin can be asked.
pub(super) const OPTIONS: DevicePluginOptions = DevicePluginOptions {
    pre_start_required: false,
    get_preferred_allocation_available: true,
};

/// Why kubelet does not know of a resource.
#[derive(Debug, Error)]
pub(super) enum RegisterError {
    /// Nobody listens: kubelet does not run, or is being started again.
    #[error("cannot connect to kubelet at {}", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Whoever listens does not speak gRPC.
    #[error("whoever listens at {} does not speak as kubelet does", socket.display())]
    NotKubelet {
        /// The socket.
        socket: PathBuf,
        /// What is wrong.
        #[source]
        source: tonic::transport::Error,
    },
    /// It did not answer in time.
    #[error("kubelet did not answer a registration within {} s", PATIENCE.as_secs())]
    TimedOut,
    /// It speaks another version, and will until it is replaced.
    #[error(
        "kubelet does not speak {VERSION}, the only version of device plugins there is: {message}"
    )]
    Unsupported {
        /// What it said.
        message: String,
    },
    /// It refused.
    #[error("kubelet refused {resource}: {message}")]
    Refused {
        /// What it was to know.
        resource: ResourceName,
        /// What it said.
        message: String,
    },
}

/// Tells the kubelet of `folder` that `endpoint` there gives `resource` out.
pub(super) async fn register(
    folder: &Path,
    endpoint: &str,
    resource: &ResourceName,
) -> Result<(), RegisterError> {
    timeout(PATIENCE, ask(folder, endpoint, resource))
        .await
        .unwrap_or(Err(RegisterError::TimedOut))
}

async fn ask(folder: &Path, endpoint: &str, resource: &ResourceName) -> Result<(), RegisterError> {
    let socket = folder.join(KUBELET);
    let stream = match UnixStream::connect(&socket).await {
        Ok(stream) => stream,
        Err(source) => return Err(RegisterError::Unreachable { socket, source }),
    };
    // One question, one connection.
    let mut stream = Some(TokioIo::new(stream));
    let connector = service_fn(move |_: Uri| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| io::Error::other("the connection was used before")) }
    });
    let channel = Endpoint::from_static(HOST)
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
    if message.contains(UNSUPPORTED) {
        Err(RegisterError::Unsupported { message })
    } else {
        Err(RegisterError::Refused {
            resource: resource.clone(),
            message,
        })
    }
}
