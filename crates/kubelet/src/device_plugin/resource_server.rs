//! The socket of one resource and its server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_model::resource::ResourceName;
use octavo_node::sharing::allocation::AllocationPolicy;
use octavo_toolkit::unix_socket::listen_private;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tracing::{info, warn};

use super::allocation_response::DeviceResponder;
use super::gate::AllocationGate;
use super::plugin_dir::{FileIdentity, SOCKET_PREFIX};
use super::service::{ListVersion, ReaderStatus, ReaderTracker, Service};
use crate::proto::device_plugin::Device;
use crate::proto::device_plugin::device_plugin_server::DevicePluginServer;

/// How long the kubelet may take to read the empty list before its resource is removed, and to disconnect afterwards.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// State shared by all resources.
#[derive(Debug, Clone)]
pub(super) struct SharedContext {
    pub(super) gate: Arc<AllocationGate>,
    pub(super) responder: Arc<DeviceResponder>,
    pub(super) policy: AllocationPolicy,
    /// Notified when a reader connects or disconnects.
    pub(super) readers_changed: Arc<Notify>,
}

/// One resource, served at its own socket.
#[derive(Debug)]
pub(super) struct ResourceServer {
    /// File name of the socket.
    pub(super) endpoint: String,
    /// Path of the socket.
    pub(super) socket: PathBuf,
    identity: Option<FileIdentity>,
    lists: watch::Sender<ListVersion>,
    readers: watch::Receiver<ReaderStatus>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Returns the file name of a resource's socket.
pub(super) fn endpoint(resource: &ResourceName) -> String {
    format!("{SOCKET_PREFIX}{}.sock", resource.short())
}

impl ResourceServer {
    /// Serves `resource` in `plugin_dir`. Replaces the socket of an earlier agent.
    pub(super) fn start(
        dir: &Path,
        resource: &ResourceName,
        devices: Vec<Device>,
        common: &SharedContext,
    ) -> io::Result<Self> {
        let endpoint = endpoint(resource);
        let socket = dir.join(&endpoint);
        let listener = listen_private(&socket)?;
        let identity = FileIdentity::read(&socket);
        let (lists, list_receiver) =
            watch::channel(ListVersion { serial: 1, devices: Arc::new(devices) });
        let (tracker, readers) = ReaderTracker::new(Arc::clone(&common.readers_changed));
        let service = Service {
            resource: resource.clone(),
            gate: Arc::clone(&common.gate),
            responder: Arc::clone(&common.responder),
            policy: common.policy,
            lists: list_receiver,
            tracker,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let name = resource.clone();
        let task = tokio::spawn(async move {
            let ended = async {
                // A dropped sender stops the server, too.
                let _stopped = stopped.await;
            };
            let server = Server::builder().add_service(DevicePluginServer::new(service));
            let incoming = UnixListenerStream::new(listener);
            if let Err(error) = server.serve_with_incoming_shutdown(incoming, ended).await {
                warn!(resource = %name, %error, "device plugin server failed");
            }
        });
        info!(%resource, socket = %socket.display(), "serving the resource");
        Ok(Self { endpoint, socket, identity, lists, readers, stop, task })
    }

    /// Returns whether its socket exists and its server runs.
    pub(super) fn is_up(&self) -> bool {
        !self.task.is_finished() && FileIdentity::read(&self.socket) == self.identity
    }

    /// Returns whether another file has replaced its socket.
    pub(super) fn is_replaced(&self) -> bool {
        FileIdentity::read(&self.socket).is_some_and(|identity| Some(identity) != self.identity)
    }

    /// Updates the list. Returns whether it changed.
    pub(super) fn update_list(&self, devices: Vec<Device>) -> bool {
        self.lists.send_if_modified(|list| {
            let differs = *list.devices != devices;
            if differs {
                list.serial = list.serial.saturating_add(1);
                list.devices = Arc::new(devices);
            }
            differs
        })
    }

    /// Returns whether the list has a reader.
    pub(super) fn is_read(&self) -> bool {
        self.readers.borrow().streams > 0
    }

    /// Returns whether a connected reader has the latest list.
    pub(super) fn is_list_read(&self) -> bool {
        let readers = *self.readers.borrow();
        readers.streams > 0 && readers.last_read >= self.lists.borrow().serial
    }

    /// Retires the resource: sends an empty list, and removes the socket after the kubelet has read it.
    pub(super) async fn retire(mut self) {
        self.update_list(Vec::new());
        let last = self.lists.borrow().serial;
        let read =
            self.readers.wait_for(|readers| readers.streams == 0 || readers.last_read >= last);
        let is_read = timeout(RETIRE_TIMEOUT, read).await.is_ok();
        if !is_read {
            warn!(endpoint = %self.endpoint, "the kubelet has not read the empty list; removing the socket");
        }
        // Without a sender, the streams end after delivering the last list.
        drop(self.lists);
        let _ended_already = self.stop.send(());
        if timeout(RETIRE_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
        }
        if FileIdentity::read(&self.socket) == self.identity {
            let _gone_already = fs::remove_file(&self.socket);
        }
        info!(endpoint = %self.endpoint, "stopped serving the resource");
    }
}
