//! The device plugin's gRPC service for one resource.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fs, io};

use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::text::join;
use octavo_node::sharing::allocation::{AllocationPolicy, AllocationRequest, preferred_ids};
use octavo_node::sharing::listing::ListedResource;
use octavo_toolkit::unix_socket::listen_private;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tracing::{debug, info, warn};

use super::allocation_response::DeviceResponder;
use super::gate::{AllocationError, AllocationGate};
use super::plugin_dir::{FileIdentity, SOCKET_PREFIX};
use super::registration::OPTIONS;
use crate::proto::device_plugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use crate::proto::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    NumaNode, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, TopologyInfo,
};

/// The kubelet's health values. Source: k8s.io/kubelet, `deviceplugin/v1beta1/constants.go`.
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";

/// A version of the device list.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ListVersion {
    pub(super) serial: u64,
    pub(super) devices: Arc<Vec<Device>>,
}

/// The number of readers of the list, and their progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ReaderStatus {
    pub(super) streams: usize,
    /// The last version that was handed to a reader.
    pub(super) last_read: u64,
}

/// Tracks the readers of a list.
#[derive(Debug, Clone)]
pub(super) struct ReaderTracker {
    readers: watch::Sender<ReaderStatus>,
    readers_changed: Arc<Notify>,
}

impl ReaderTracker {
    /// Creates a tracker without readers. Every change notifies `readers_changed`.
    pub(super) fn new(readers_changed: Arc<Notify>) -> (Self, watch::Receiver<ReaderStatus>) {
        let (readers, seen) = watch::channel(ReaderStatus::default());
        (Self { readers, readers_changed }, seen)
    }

    fn update(&self, change: impl FnOnce(&mut ReaderStatus)) {
        self.readers.send_modify(change);
        self.readers_changed.notify_one();
    }
}

/// The service of one resource.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) resource: ResourceName,
    pub(super) gate: Arc<AllocationGate>,
    pub(super) responder: Arc<DeviceResponder>,
    pub(super) policy: AllocationPolicy,
    pub(super) lists: watch::Receiver<ListVersion>,
    pub(super) tracker: ReaderTracker,
}

/// Converts the list to the kubelet's format.
pub(super) fn devices(listed: &ListedResource) -> Vec<Device> {
    let all = listed.items.iter().map(|item| {
        let node = listed.unit(&item.id).and_then(|unit| unit.numa_node);
        let health = if item.is_allocatable() { HEALTHY } else { UNHEALTHY };
        Device {
            id: item.id.to_string(),
            health: health.to_owned(),
            topology: node.map(|node| TopologyInfo { nodes: vec![NumaNode { id: node.into() }] }),
        }
    });
    all.collect()
}

/// A reader's stream of lists. A slow reader skips intermediate versions but never the last one.
#[derive(Debug)]
pub(super) struct ListStream {
    lists: WatchStream<ListVersion>,
    tracker: ReaderTracker,
}

impl Stream for ListStream {
    type Item = Result<ListAndWatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let list = match Pin::new(&mut self.lists).poll_next(cx) {
            Poll::Ready(Some(list)) => list,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        };
        self.tracker.update(|readers| readers.last_read = readers.last_read.max(list.serial));
        Poll::Ready(Some(Ok(ListAndWatchResponse { devices: list.devices.to_vec() })))
    }
}

impl Drop for ListStream {
    fn drop(&mut self) {
        self.tracker.update(|readers| {
            readers.streams = readers.streams.saturating_sub(1);
            if readers.streams == 0 {
                // The next reader, such as a restarted kubelet, has not received any version.
                readers.last_read = 0;
            }
        });
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream = ListStream;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        debug!(resource = %self.resource, "the kubelet reads the list");
        self.tracker.update(|readers| readers.streams = readers.streams.saturating_add(1));
        Ok(Response::new(ListStream {
            lists: WatchStream::new(self.lists.clone()),
            tracker: self.tracker.clone(),
        }))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let requests = request.into_inner().container_requests.into_iter();
        let responses = requests.map(|request| ContainerPreferredAllocationResponse {
            device_i_ds: self.preferred_ids(&request),
        });
        Ok(Response::new(PreferredAllocationResponse { container_responses: responses.collect() }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let requests: Vec<Vec<String>> = requests.into_iter().map(|one| one.devices_ids).collect();
        let allocation = self.gate.allocate(&self.resource, &requests);
        let allocated = allocation.map_err(|refusal| {
            warn!(resource = %self.resource, error = %refusal, "allocation rejected");
            status(&refusal)
        })?;
        let mut responses = Vec::new();
        for ids in allocated {
            info!(resource = %self.resource, ids = %join(ids.iter(), ", "), "devices allocated");
            let response = self.responder.response_for_ids(&ids);
            responses.push(response.map_err(|error| Status::internal(error.to_string()))?);
        }
        Ok(Response::new(AllocateResponse { container_responses: responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("not requested in the options"))
    }
}

impl Service {
    /// Returns preferred IDs. Never fails, because the kubelet would reject the pod: without a preference, any
    /// available IDs are returned.
    fn preferred_ids(&self, request: &ContainerPreferredAllocationRequest) -> Vec<String> {
        let size = usize::try_from(request.allocation_size).unwrap_or_default();
        let read = |ids: &[String]| ids.iter().filter_map(|id| id.parse().ok()).collect();
        let request_input = AllocationRequest {
            available: read(&request.available_device_i_ds),
            must_include: read(&request.must_include_device_i_ds),
            size,
        };
        let listing = self.gate.listing();
        let listing = Arc::clone(&listing.borrow());
        let listed = listing.resources.get(&self.resource);
        let preferred: Vec<ShareId> = match listed.zip(self.gate.inventory()) {
            Some((listed, inventory)) => {
                preferred_ids(&request_input, self.policy, &listed.offer, &inventory)
            }
            None => Vec::new(),
        };
        let preferred = preferred.iter().map(ToString::to_string);
        let available: BTreeSet<&String> = request.available_device_i_ds.iter().collect();
        let mut chosen = request.must_include_device_i_ds.clone();
        for id in preferred.chain(request.available_device_i_ds.iter().cloned()) {
            if chosen.len() >= size {
                break;
            }
            if available.contains(&id) && !chosen.contains(&id) {
                chosen.push(id);
            }
        }
        chosen
    }
}

fn status(refusal: &AllocationError) -> Status {
    let message = refusal.to_string();
    match refusal {
        AllocationError::Unknown { .. } => Status::not_found(message),
        AllocationError::Unhealthy { .. } => Status::failed_precondition(message),
        AllocationError::Changing { .. } | AllocationError::Withheld { .. } => {
            Status::unavailable(message)
        }
        AllocationError::MoreThanOne { .. } => Status::invalid_argument(message),
    }
}

/// Time limit for the kubelet to read the empty list before its resource is removed, and to disconnect afterwards.
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

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::super::allocation_response::tests::RecordingMachine;
    use super::*;

    async fn read(service: &Service) -> ListStream {
        let lists = service.list_and_watch(Request::new(Empty {})).await;
        lists.unwrap().into_inner()
    }

    #[tokio::test]
    async fn reader_status_resets_when_all_readers_disconnect() {
        let (lists, seen) = watch::channel(ListVersion { serial: 3, ..ListVersion::default() });
        let changed = Arc::new(Notify::new());
        let (tracker, readers) = ReaderTracker::new(Arc::clone(&changed));
        let service = Service {
            resource: ResourceName::gpu(),
            gate: Arc::default(),
            responder: Arc::new(DeviceResponder::new([], Box::new(RecordingMachine::default()))),
            policy: AllocationPolicy::Spread,
            lists: seen,
            tracker,
        };
        let now = || {
            let ReaderStatus { streams, last_read } = *readers.borrow();
            (streams, last_read)
        };
        let mut one = read(&service).await;
        assert_eq!(now(), (1, 0));
        one.next().await.unwrap().unwrap();
        assert_eq!(now(), (1, 3));
        // Another reader without any version does not reset the first one's progress.
        let mut other = read(&service).await;
        assert_eq!(now(), (2, 3));
        drop(one);
        assert_eq!(now(), (1, 3));
        lists.send_modify(|list| list.serial = 4);
        other.next().await.unwrap().unwrap();
        assert_eq!(now(), (1, 4));
        // The kubelet restarts, so the next reader may be another process.
        drop(other);
        assert_eq!(now(), (0, 0));
        let mut next = read(&service).await;
        assert_eq!(now(), (1, 0));
        next.next().await.unwrap().unwrap();
        assert_eq!(now(), (1, 4));
        // Every change was notified.
        changed.notified().await;
    }
}
