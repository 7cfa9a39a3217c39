//! A kubelet, as far as device plugins and who asks for pods' devices see it, at the same sockets.
//!
//! It does what the real one does on demand, and what that cannot be made to do: it is started again at the worst moment, reads
//! slowly, or tells nothing of its pods. Source: kubelet, `pkg/kubelet/cm/devicemanager`.

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

/// What kubelet knows of a resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resource {
    /// The socket of its plugin.
    pub(crate) endpoint: String,
    /// Ids, and whether each is healthy.
    pub(crate) devices: BTreeMap<String, bool>,
    /// Ids that a list of this registration had as healthy.
    pub(crate) ever_healthy: BTreeSet<String>,
    /// NUMA nodes by id.
    pub(crate) numa: BTreeMap<String, i64>,
    /// Whether the plugin's list is being read.
    pub(crate) is_connected: bool,
    /// Lists that were read of it, in all.
    pub(crate) lists: usize,
    /// Which registration this is of.
    registration: u64,
}

/// A pod with what it has.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) resource: String,
    pub(crate) ids: Vec<String>,
}

/// What a kubelet tells of its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tells {
    #[default]
    All,
    /// As one that was just started.
    OfNone,
    /// It takes its pods in one after another, and is so far.
    OfFirst(usize),
    /// It never returns.
    Nothing,
}

/// How the kubelet behaves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manners {
    /// It refuses every registration with these words.
    pub(crate) refuses: Option<String>,
    /// It does not read lists.
    pub(crate) reads_nothing: bool,
    /// What it tells of its pods.
    pub(crate) tells: Tells,
    /// It is of an old version, and does not tell what it would give out.
    pub(crate) is_old: bool,
    /// Its socket is as old as it is, and not an hour old.
    pub(crate) is_young: bool,
    /// Ids of another plugin that it would give out beside ours.
    pub(crate) others: BTreeMap<String, BTreeSet<String>>,
}

/// What a kubelet knows, and what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) resources: BTreeMap<String, Resource>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) manners: Manners,
    /// Registrations that were asked for, of all its lives.
    pub(crate) registrations: u64,
    /// How often it was asked for its pods.
    pub(crate) requested: u64,
    /// Another one takes its place right when it is asked the next time, and is the one that answers.
    gives_way: bool,
}

/// What is shared between the kubelet and the test.
#[derive(Debug, Default)]
pub(super) struct Mind {
    known: Mutex<Known>,
    news: Condvar,
    /// The same for tasks.
    changed: Notify,
}

/// A kubelet; stopped when dropped.
pub(crate) struct Kubelet {
    directory: PathBuf,
    pod_resources: PathBuf,
    mind: Arc<Mind>,
    life: Option<Life>,
}

struct Life {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Mind {
    pub(super) fn change<T>(&self, what: impl FnOnce(&mut Known) -> T) -> T {
        let done = what(&mut self.known.lock().unwrap());
        self.news.notify_all();
        self.changed.notify_waiters();
        done
    }
}

impl Kubelet {
    /// Where plugins meet it, and where it tells of its pods.
    pub(crate) fn start(directory: &Path, pod_resources: &Path) -> Self {
        let mut kubelet = Self {
            directory: directory.to_owned(),
            pod_resources: pod_resources.to_owned(),
            mind: Arc::default(),
            life: None,
        };
        kubelet.begin();
        kubelet
    }

    /// Restarts: like the real one it empties the directory first, and keeps its pods.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.begin();
    }

    /// Ends, as if killed: its sockets stay as files.
    pub(crate) fn stop(&mut self) {
        if let Some(life) = self.life.take() {
            let _ended_already = life.stop.send(());
            life.thread.join().unwrap();
        }
        self.mind.change(|known| known.resources.clear());
    }

    fn begin(&mut self) {
        fs::create_dir_all(&self.directory).unwrap();
        fs::create_dir_all(self.pod_resources.parent().unwrap()).unwrap();
        let _none = fs::remove_file(&self.pod_resources);
        wipe(&self.directory);
        let (directory, pods) = (self.directory.clone(), self.pod_resources.clone());
        let mind = Arc::clone(&self.mind);
        let (stop, stopped) = oneshot::channel::<()>();
        let (say, reported) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let handle = runtime.handle().clone();
            runtime.block_on(async move {
                calls::Lister::new(&mind, &pods).listen();
                let desk = calls::CallHandler { directory: directory.clone(), mind };
                let desk = RegistrationServer::new(desk);
                let listener = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
                let incoming = UnixListenerStream::new(listener);
                tokio::spawn(Server::builder().add_service(desk).serve_with_incoming(incoming));
                say.send(handle).unwrap();
                let _shown = stopped.await;
            });
        });
        self.life = Some(Life { handle: reported.recv_timeout(TIME_LIMIT).unwrap(), stop, thread });
    }

    /// Makes it behave otherwise.
    pub(crate) fn behaves(&self, how: impl FnOnce(&mut Manners)) {
        self.mind.change(|known| how(&mut known.manners));
    }

    /// When it is asked the next time, another one takes its place first and knows no pod yet.
    pub(crate) fn gives_way(&self) {
        self.mind.change(|known| {
            known.manners.tells = Tells::OfNone;
            known.gives_way = true;
        });
    }

    /// What it knows.
    pub(crate) fn knows<T>(&self, what: impl FnOnce(&Known) -> T) -> T {
        what(&self.mind.known.lock().unwrap())
    }

    /// Another plugin than ours has registered these, and all of them are healthy.
    pub(crate) fn has(&self, resource: &str, ids: &[String]) {
        let devices = ids.iter().map(|id| (id.clone(), true)).collect();
        let one = Resource { devices, ..Resource::default() };
        self.mind.change(|known| known.resources.insert(resource.to_owned(), one));
    }

    /// Waits until what it knows is as wanted.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&Known) -> bool) {
        let known = self.mind.known.lock().unwrap();
        let ended = self.mind.news.wait_timeout_while(known, TIME_LIMIT, |known| !wanted(known));
        let (known, over) = ended.unwrap();
        assert!(!over.timed_out(), "{what} never came; it knows {known:#?}");
    }

    /// Waits until it would give out exactly these.
    #[track_caller]
    pub(crate) fn offers(&self, resource: &str, ids: &[String]) {
        let wanted: BTreeSet<&String> = ids.iter().collect();
        self.wait(&format!("{resource} with {ids:?}"), |known| {
            let healthy: BTreeSet<&String> = known.healthy(resource).collect();
            known.resources.contains_key(resource) && healthy == wanted
        });
    }

    /// Waits until it would give out so many.
    #[track_caller]
    pub(crate) fn counts(&self, resource: &str, count: usize) {
        self.wait(&format!("{count} of {resource}"), |known| {
            known.resources.contains_key(resource) && known.healthy(resource).count() == count
        });
    }

    /// Asks a plugin for these, for one container.
    pub(crate) fn allocate(
        &self,
        resource: &str,
        ids: &[String],
    ) -> Result<ContainerAllocateResponse, Status> {
        let endpoint =
            self.knows(|known| known.resources.get(resource).map(|one| one.endpoint.clone()));
        let endpoint = endpoint.ok_or_else(|| Status::not_found("kubelet does not know it"))?;
        self.run(calls::allocate(self.directory.join(endpoint), ids.to_vec()))
    }

    /// What a plugin advises.
    pub(crate) fn prefers(
        &self,
        resource: &str,
        available: &[String],
        (must, size): (&[String], i32),
    ) -> Vec<String> {
        let endpoint = self.knows(|known| known.resources[resource].endpoint.clone());
        let socket = self.directory.join(endpoint);
        let requested = calls::prefer(socket, available.to_vec(), must.to_vec(), size);
        self.run(requested).unwrap()
    }

    /// Admits a pod that asks for so many: chosen with the plugin's advice among what is free, asked for, and noted.
    pub(crate) fn admit(&self, name: &str, resource: &str, count: usize) -> Result<Pod, Status> {
        let free: Vec<String> = self.knows(|known| known.free(resource));
        if free.len() < count {
            return Err(Status::new(Code::ResourceExhausted, "not enough is free"));
        }
        let size = i32::try_from(count).unwrap();
        let ids = self.prefers(resource, &free, (&[], size));
        assert_eq!(ids.len(), count, "{ids:?} of {free:?}");
        self.allocate(resource, &ids)?;
        let pod = Pod { name: name.to_owned(), resource: resource.to_owned(), ids };
        self.mind.change(|known| known.pods.push(pod.clone()));
        // Of pods that have ended it gets to know nothing before it has something new to write.
        self.knows(|known| {
            let pods = known.pods.iter();
            let pods =
                pods.map(|pod| (pod.name.as_str(), pod.resource.as_str(), pod.ids.as_slice()));
            record::write(&self.directory, pods);
        });
        Ok(pod)
    }

    /// The pod has ended.
    pub(crate) fn ended(&self, name: &str) {
        self.mind.change(|known| known.pods.retain(|pod| pod.name != name));
    }

    fn run<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> T {
        let (say, reported) = mpsc::channel();
        let handle = &self.life.as_ref().unwrap().handle;
        handle.spawn(async move {
            let _gone = say.send(call.await);
        });
        reported.recv_timeout(TIME_LIMIT).unwrap()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            let _ended_already = life.stop.send(());
            let _its_panic_was_seen = life.thread.join();
        }
    }
}

impl Known {
    /// What it would give out.
    pub(crate) fn healthy(&self, resource: &str) -> impl Iterator<Item = &String> {
        let devices = self.resources.get(resource).into_iter();
        let devices = devices.flat_map(|one| &one.devices);
        devices.filter(|(_, healthy)| **healthy).map(|(id, _)| id)
    }

    fn free(&self, resource: &str) -> Vec<String> {
        let given: BTreeSet<&String> = self.pods.iter().flat_map(|pod| &pod.ids).collect();
        let free = self.healthy(resource).filter(|id| !given.contains(id));
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
