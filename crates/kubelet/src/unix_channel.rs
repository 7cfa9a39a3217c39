//! gRPC connections to the kubelet's Unix sockets.

use std::io;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Error that prevents a connection to the kubelet.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// No process listens. The kubelet is not running or is restarting, and its pods keep running.
    #[error("cannot connect to the kubelet at {}", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The listening process does not speak gRPC.
    #[error("the process that listens at {} does not implement the kubelet API", socket.display())]
    NotKubelet {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
}

/// Returns an endpoint for [`connect`]. Its address is never used, because a Unix socket has no host name.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

/// Connects to the server that listens at `socket`, for one request.
pub(crate) async fn connect(socket: &Path, endpoint: Endpoint) -> Result<Channel, ConnectError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| ConnectError::Unreachable { socket: socket.to_owned(), source })?;
    let mut stream = Some(TokioIo::new(stream));
    let connector = service_fn(move |_: Uri| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| io::Error::other("the connection was used before")) }
    });
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|source| ConnectError::NotKubelet { socket: socket.to_owned(), source })
}
