//! The socket of one resource and its server.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_model::resource::ResourceName;
use octavo_node::sharing::allocation::AllocationPolicy;
use tokio::net::UnixListener;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tracing::{info, warn};

use super::gate::AllocationGate;
use super::plugin_dir::{FileIdentity, SOCKET_PREFIX};
use super::responder::Answer;
use super::service::{ListVersion, ReaderStatus, ReaderTracker, Service};
use crate::proto::device_plugin::Device;
use crate::proto::device_plugin::device_plugin_server::DevicePluginServer;

/// How long the kubelet may take to read the empty list before its resource is removed, and to disconnect afterwards.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// State shared by all resources.
#[derive(Debug, Clone)]
pub(super) struct SharedContext {
    pub(super) gate: Arc<AllocationGate>,
    pub(super) answer: Arc<dyn Answer>,
    pub(super) policy: AllocationPolicy,
    /// Notified when a reader connects or disconnects.
    pub(super) readers_changed: Arc<Notify>,
}

/// One resource, served at its own socket.
#[derive(Debug)]
pub(super) struct ResourceServer {
    endpoint: String,
    socket: PathBuf,
    stamp: Option<FileIdentity>,
    pages: watch::Sender<ListVersion>,
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
        folder: &Path,
        resource: &ResourceName,
        devices: Vec<Device>,
        common: &SharedContext,
    ) -> io::Result<Self> {
        let endpoint = endpoint(resource);
        let socket = folder.join(&endpoint);
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&socket)?;
        fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        let stamp = FileIdentity::of(&socket);
        let (pages, pages_out) = watch::channel(ListVersion {
            serial: 1,
            devices: Arc::new(devices),
        });
        let (audience, readers) = ReaderTracker::new(Arc::clone(&common.readers_changed));
        let service = Service {
            resource: resource.clone(),
            gate: Arc::clone(&common.gate),
            answer: Arc::clone(&common.answer),
            policy: common.policy,
            pages: pages_out,
            audience,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let name = resource.clone();
        let task = tokio::spawn(async move {
            let ended = async {
                // A dropped sender stops the server, too.
                let _told = stopped.await;
            };
            let server = Server::builder().add_service(DevicePluginServer::new(service));
            let incoming = UnixListenerStream::new(listener);
            if let Err(error) = server.serve_with_incoming_shutdown(incoming, ended).await {
                warn!("{name} is not served any more: {error}");
            }
        });
        info!("{resource} is served at {}", socket.display());
        Ok(Self {
            endpoint,
            socket,
            stamp,
            pages,
            readers,
            stop,
            task,
        })
    }

    /// Returns the file name of its socket.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns whether its socket exists and its server runs.
    pub(super) fn is_up(&self) -> bool {
        !self.task.is_finished() && FileIdentity::of(&self.socket) == self.stamp
    }

    /// Returns whether another file has replaced its socket.
    pub(super) fn is_replaced(&self) -> bool {
        FileIdentity::of(&self.socket).is_some_and(|stamp| Some(stamp) != self.stamp)
    }

    /// Returns the path of its socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Updates the list. Returns whether it changed.
    pub(super) fn update_list(&self, devices: Vec<Device>) -> bool {
        self.pages.send_if_modified(|page| {
            let differs = *page.devices != devices;
            if differs {
                page.serial = page.serial.saturating_add(1);
                page.devices = Arc::new(devices);
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
        readers.streams > 0 && readers.last_read >= self.pages.borrow().serial
    }

    /// Retires the resource: sends an empty list, and removes the socket after the kubelet has read it.
    pub(super) async fn retire(mut self) {
        self.update_list(Vec::new());
        let last = self.pages.borrow().serial;
        let read = self
            .readers
            .wait_for(|readers| readers.streams == 0 || readers.last_read >= last);
        let is_read = timeout(RETIRE_TIMEOUT, read).await.is_ok();
        if !is_read {
            warn!("{} goes, and kubelet has not read so", self.endpoint);
        }
        // Without a sender, the streams end after delivering the last list.
        drop(self.pages);
        let _ended_already = self.stop.send(());
        if timeout(RETIRE_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
        }
        if FileIdentity::of(&self.socket) == self.stamp {
            let _gone_already = fs::remove_file(&self.socket);
        }
        info!("{} is not served any more", self.endpoint);
    }
}
