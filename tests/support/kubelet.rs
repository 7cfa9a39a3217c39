//! A simulated kubelet for device plugins and clients of the pod-resources API, at the same sockets.
//!
//! It behaves like the real one on demand, including rare cases: restarts at the worst moment, slow readers, missing
//! pods. Source: kubelet, `pkg/kubelet/cm/devicemanager`.

mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use octavo_kubelet::proto::device_plugin::ContainerAllocateResponse;
use octavo_kubelet::proto::device_plugin::registration_server::RegistrationServer;
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Code, Status};

use crate::record;
use crate::time_limits::TIME_LIMIT;

/// State of a resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resource {
    /// The socket of its plugin.
    pub(crate) endpoint: String,
    /// Ids, and whether each is healthy.
    pub(crate) devices: BTreeMap<String, bool>,
    /// Ids that were healthy in a list of this registration.
    pub(crate) ever_healthy: BTreeSet<String>,
    /// NUMA nodes by id.
    pub(crate) numa: BTreeMap<String, i64>,
    /// Whether the plugin's list is being read.
    pub(crate) is_connected: bool,
    /// Number of lists read so far.
    pub(crate) lists: usize,
    /// Number of its registration.
    registration: u64,
}

/// A pod with its devices.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) resource: String,
    pub(crate) ids: Vec<String>,
}

/// Pods that the pod-resources API lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PodListing {
    #[default]
    All,
    /// Like a kubelet that has just restarted.
    Empty,
    /// The first pods, like a kubelet that is still loading.
    First(usize),
    /// The call never returns.
    Never,
}

/// Behavior of the kubelet.
#[derive(Debug, Clone, Default)]
pub(crate) struct KubeletBehavior {
    /// Refuses every registration with this message.
    pub(crate) refuses: Option<String>,
    /// It does not read lists.
    pub(crate) reads_no_lists: bool,
    /// Pods that it lists.
    pub(crate) pod_listing: PodListing,
    /// An old version without the allocatable API.
    pub(crate) is_old: bool,
    /// The socket keeps its real age instead of an hour.
    pub(crate) is_young: bool,
    /// Ids of another plugin that it advertises beside ours.
    pub(crate) others: BTreeMap<String, BTreeSet<String>>,
}

/// State of a kubelet, and the requests it received.
#[derive(Debug, Default)]
pub(crate) struct KubeletRecords {
    pub(crate) resources: BTreeMap<String, Resource>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) behavior: KubeletBehavior,
    /// Number of registrations over all restarts.
    pub(crate) registrations: u64,
    /// Number of requests for its pods.
    pub(crate) requested: u64,
    /// Another kubelet replaces it at the next query and answers that query.
    replace_on_next_query: bool,
}

/// State shared between the kubelet and the test.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    known: Mutex<KubeletRecords>,
    updates: Condvar,
    /// The same notification for tasks.
    changed: Notify,
}

/// A kubelet; stopped when dropped.
pub(crate) struct Kubelet {
    directory: PathBuf,
    pod_resources: PathBuf,
    state: Arc<SharedState>,
    server: Option<ServerThread>,
}

struct ServerThread {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl SharedState {
    pub(super) fn change<T>(&self, what: impl FnOnce(&mut KubeletRecords) -> T) -> T {
        let done = what(&mut self.known.lock().unwrap());
        self.updates.notify_all();
        self.changed.notify_waiters();
        done
    }
}

impl Kubelet {
    /// Starts with the directory of plugin sockets, and the path of the pod-resources socket.
    pub(crate) fn start(directory: &Path, pod_resources: &Path) -> Self {
        let mut kubelet = Self {
            directory: directory.to_owned(),
            pod_resources: pod_resources.to_owned(),
            state: Arc::default(),
            server: None,
        };
        kubelet.begin();
        kubelet
    }

    /// Restarts like the real one: empties the directory and keeps its pods.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.begin();
    }

    /// Stops as if killed: its socket files stay.
    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            let _already_stopped = server.stop.send(());
            server.thread.join().unwrap();
        }
        self.state.change(|known| known.resources.clear());
    }

    fn begin(&mut self) {
        fs::create_dir_all(&self.directory).unwrap();
        fs::create_dir_all(self.pod_resources.parent().unwrap()).unwrap();
        let _none = fs::remove_file(&self.pod_resources);
        wipe(&self.directory);
        let (directory, pods) = (self.directory.clone(), self.pod_resources.clone());
        let state = Arc::clone(&self.state);
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, reported) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let handle = runtime.handle().clone();
            runtime.block_on(async move {
                calls::Lister::new(&state, &pods).listen();
                let service = calls::CallHandler { directory: directory.clone(), state };
                let service = RegistrationServer::new(service);
                let listener = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
                let incoming = UnixListenerStream::new(listener);
                tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
                sender.send(handle).unwrap();
                let _shown = stopped.await;
            });
        });
        self.server =
            Some(ServerThread { handle: reported.recv_timeout(TIME_LIMIT).unwrap(), stop, thread });
    }

    /// Changes its behavior.
    pub(crate) fn set_behavior(&self, how: impl FnOnce(&mut KubeletBehavior)) {
        self.state.change(|known| how(&mut known.behavior));
    }

    /// At the next query, another kubelet without pods replaces it first.
    pub(crate) fn replace_on_next_query(&self) {
        self.state.change(|known| {
            known.behavior.pod_listing = PodListing::Empty;
            known.replace_on_next_query = true;
        });
    }

    /// Reads its state.
    pub(crate) fn inspect<T>(&self, what: impl FnOnce(&KubeletRecords) -> T) -> T {
        what(&self.state.known.lock().unwrap())
    }

    /// Registers these ids for another plugin, all healthy.
    pub(crate) fn has(&self, resource: &str, ids: &[String]) {
        let devices = ids.iter().map(|id| (id.clone(), true)).collect();
        let one = Resource { devices, ..Resource::default() };
        self.state.change(|known| known.resources.insert(resource.to_owned(), one));
    }

    /// Waits until its state satisfies `wanted`.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&KubeletRecords) -> bool) {
        let known = self.state.known.lock().unwrap();
        let ended =
            self.state.updates.wait_timeout_while(known, TIME_LIMIT, |known| !wanted(known));
        let (known, over) = ended.unwrap();
        assert!(!over.timed_out(), "{what}: not within the time limit; last state: {known:#?}");
    }

    /// Waits until exactly these ids are healthy.
    #[track_caller]
    pub(crate) fn await_ids(&self, resource: &str, ids: &[String]) {
        let wanted: BTreeSet<&String> = ids.iter().collect();
        self.wait(&format!("{resource} with {ids:?}"), |known| {
            let healthy: BTreeSet<&String> = known.healthy(resource).collect();
            known.resources.contains_key(resource) && healthy == wanted
        });
    }

    /// Waits until this many ids are healthy.
    #[track_caller]
    pub(crate) fn await_count(&self, resource: &str, count: usize) {
        self.wait(&format!("{count} of {resource}"), |known| {
            known.resources.contains_key(resource) && known.healthy(resource).count() == count
        });
    }

    /// Requests these ids from a plugin, for one container.
    pub(crate) fn allocate(
        &self,
        resource: &str,
        ids: &[String],
    ) -> Result<ContainerAllocateResponse, Status> {
        let endpoint =
            self.inspect(|known| known.resources.get(resource).map(|one| one.endpoint.clone()));
        let endpoint = endpoint.ok_or_else(|| Status::not_found("kubelet does not know it"))?;
        self.run(calls::allocate(self.directory.join(endpoint), ids.to_vec()))
    }

    /// The preferred allocation of a plugin.
    pub(crate) fn preferred_ids(
        &self,
        resource: &str,
        available: &[String],
        (must, size): (&[String], i32),
    ) -> Vec<String> {
        let endpoint = self.inspect(|known| known.resources[resource].endpoint.clone());
        let socket = self.directory.join(endpoint);
        let requested = calls::prefer(socket, available.to_vec(), must.to_vec(), size);
        self.run(requested).unwrap()
    }

    /// Admits a pod with this many devices: chooses free ones with the plugin's preference, allocates them and records
    /// the pod.
    pub(crate) fn admit(&self, name: &str, resource: &str, count: usize) -> Result<Pod, Status> {
        let free: Vec<String> = self.inspect(|known| known.free(resource));
        if free.len() < count {
            return Err(Status::new(Code::ResourceExhausted, "not enough is free"));
        }
        let size = i32::try_from(count).unwrap();
        let ids = self.preferred_ids(resource, &free, (&[], size));
        assert_eq!(ids.len(), count, "{ids:?} of {free:?}");
        self.allocate(resource, &ids)?;
        let pod = Pod { name: name.to_owned(), resource: resource.to_owned(), ids };
        self.state.change(|known| known.pods.push(pod.clone()));
        // The checkpoint drops ended pods only with the next write.
        self.inspect(|known| {
            let pods = known.pods.iter();
            let pods =
                pods.map(|pod| (pod.name.as_str(), pod.resource.as_str(), pod.ids.as_slice()));
            record::write(&self.directory, pods);
        });
        Ok(pod)
    }

    /// Removes a pod.
    pub(crate) fn end_pod(&self, name: &str) {
        self.state.change(|known| known.pods.retain(|pod| pod.name != name));
    }

    fn run<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, reported) = mpsc::channel();
        let handle = &self.server.as_ref().unwrap().handle;
        handle.spawn(async move {
            let _gone = sender.send(call.await);
        });
        reported.recv_timeout(TIME_LIMIT).unwrap()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _already_stopped = server.stop.send(());
            let _panicked = server.thread.join();
        }
    }
}

impl KubeletRecords {
    /// Allocatable ids.
    pub(crate) fn healthy(&self, resource: &str) -> impl Iterator<Item = &String> {
        let devices = self.resources.get(resource).into_iter();
        let devices = devices.flat_map(|one| &one.devices);
        devices.filter(|(_, healthy)| **healthy).map(|(id, _)| id)
    }

    fn free(&self, resource: &str) -> Vec<String> {
        let allocated: BTreeSet<&String> = self.pods.iter().flat_map(|pod| &pod.ids).collect();
        let free = self.healthy(resource).filter(|id| !allocated.contains(id));
        free.cloned().collect()
    }
}

/// Empties the directory except for the checkpoint, as kubelet does when it starts.
pub(super) fn wipe(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with(record::FILE) {
            let _gone_already = fs::remove_file(path);
        }
    }
}
