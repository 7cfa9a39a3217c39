//! The sockets of the driver.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use octavo_toolkit::unix_socket::listen_private;
use thiserror::Error;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tracing::info;

use super::claims::{ClaimHandler, ClaimService};
use super::health::{HealthService, NodeDevices};
use super::registration::RegistrationService;
use crate::device_plugin::FileIdentity;
use crate::proto::dra::dra_plugin_server::DraPluginServer;
use crate::proto::dra_health::dra_resource_health_server::DraResourceHealthServer;
use crate::proto::plugin_registration::registration_server::RegistrationServer;

/// File name of the socket of claims.
const CLAIM_SOCKET: &str = "dra.sock";

/// Name and directories of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the driver, a DNS subdomain.
    pub driver: String,
    /// The kubelet's directory of registration sockets, `/var/lib/kubelet/plugins_registry`.
    pub registry: PathBuf,
    /// The kubelet's directory of plugins, `/var/lib/kubelet/plugins`. The kubelet dials a socket in it, so the path is
    /// the same inside and outside the pod.
    pub plugins: PathBuf,
}

/// Error that ends the server.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A directory or socket cannot be created.
    #[error("cannot listen at {}", path.display())]
    Listen {
        /// The directory or socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The server failed.
    #[error("the DRA server failed")]
    Transport(#[from] tonic::transport::Error),
}

/// A driver whose sockets are open.
#[derive(Debug)]
pub struct DraServer {
    claims: Socket,
    registration: Socket,
    settings: Settings,
}

/// A socket file, which is removed with this value unless another process has replaced it.
#[derive(Debug)]
struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
    identity: Option<FileIdentity>,
}

impl Settings {
    /// Path of the socket of claims and health.
    fn claim_socket(&self) -> PathBuf {
        self.plugins.join(&self.driver).join(CLAIM_SOCKET)
    }

    /// Path of the registration socket.
    ///
    /// The kubelet's gRPC client sends the escaped path as the HTTP authority, which this program's HTTP library rejects
    /// unless it contains `@`: the escaped directories are then user information, where escapes are valid.
    fn registration_socket(&self) -> PathBuf {
        self.registry.join(format!("octavo@{}-reg.sock", self.driver))
    }
}

impl Socket {
    fn listen(path: PathBuf) -> Result<Self, ServeError> {
        let listen = || {
            fs::create_dir_all(path.parent().unwrap_or_else(|| Path::new("/")))?;
            listen_private(&path)
        };
        let listener =
            listen().map_err(|source| ServeError::Listen { path: path.clone(), source })?;
        let identity = FileIdentity::read(&path);
        Ok(Self { path, listener: Some(listener), identity })
    }

    fn incoming(&mut self) -> Option<UnixListenerStream> {
        self.listener.take().map(UnixListenerStream::new)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if FileIdentity::read(&self.path) == self.identity {
            let _gone_already = fs::remove_file(&self.path);
        }
    }
}

impl DraServer {
    /// Opens the sockets and replaces those of an earlier process. The kubelet registers the driver as soon as it finds
    /// the registration socket, so that socket is the last one.
    pub fn listen(settings: Settings) -> Result<Self, ServeError> {
        let claims = Socket::listen(settings.claim_socket())?;
        let registration = Socket::listen(settings.registration_socket())?;
        info!(driver = %settings.driver, socket = %claims.path.display(), "serving resource claims");
        Ok(Self { claims, registration, settings })
    }

    /// Serves until `stop` resolves, then removes the sockets.
    pub async fn serve(
        mut self,
        handler: Arc<dyn ClaimHandler>,
        devices: watch::Receiver<Arc<NodeDevices>>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (Some(claims), Some(registrations)) =
            (self.claims.incoming(), self.registration.incoming())
        else {
            return Ok(());
        };
        let registration = RegistrationService {
            driver: self.settings.driver.clone(),
            endpoint: self.settings.claim_socket().display().to_string(),
            handler: Arc::clone(&handler),
        };
        let registration = Server::builder()
            .add_service(RegistrationServer::new(registration))
            .serve_with_incoming(registrations);
        let claims = Server::builder()
            .add_service(DraPluginServer::new(ClaimService(handler)))
            .add_service(DraResourceHealthServer::new(HealthService(devices)))
            .serve_with_incoming(claims);
        tokio::select! {
            () = stop => Ok(()),
            ended = registration => Ok(ended?),
            ended = claims => Ok(ended?),
        }
    }
}

#[cfg(test)]
mod tests;
