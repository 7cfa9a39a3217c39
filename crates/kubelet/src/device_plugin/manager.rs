//! Serves the listed resources and registers them with the kubelet, across restarts of the kubelet and changes of its
//! directory.
//!
//! A single task that re-evaluates everything on each event, and every ten seconds in case an event was missed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use octavo_model::resource::ResourceName;
use octavo_node::sharing::allocation::AllocationPolicy;
use octavo_node::sharing::listing::ListedResource;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use super::competing_plugins::{self, describe_replacement, find_foreign_id};
use super::gate::AllocationGate;
use super::kubelet_poller::{self, KubeletReport};
use super::plugin_dir::{KubeletInstance, PluginDir, SOCKET_PREFIX};
use super::register_request::{RegisterError, register};
use super::registration::{Registration, Step};
use super::resource_server::{ResourceServer, SharedContext};
use super::responder::Answer;
use super::service::devices;
use crate::pod_allocations::{AllocationReader, RunningPods};

/// Poll interval without events.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Debounce time of directory events.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// How long the kubelet may take to process a list update.
const MAX_LIST_DELAY: Duration = Duration::from_secs(5);

/// The kubelet's paths and allocation settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The device plugin directory.
    pub folder: PathBuf,
    /// The pod-resources socket; `None` if the kubelet cannot be queried.
    pub pod_resources: Option<PathBuf>,
    /// How replicas are distributed over units.
    pub policy: AllocationPolicy,
    /// Running pods, for allocations that the kubelet does not report.
    pub running_pods: Arc<dyn RunningPods>,
}

/// Registration state of all resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DevicePluginReport {
    /// Resources that are or should be served, by name.
    pub resources: BTreeMap<ResourceName, ResourceStatus>,
}

/// Registration state of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceStatus {
    /// Whether the running kubelet has accepted the registration.
    pub is_registered: bool,
    /// Whether it has read the latest list.
    pub is_list_read: bool,
    /// The current error, for users.
    pub trouble: Option<String>,
    /// Another plugin that serves the resource, for users.
    pub competing_plugin: Option<String>,
    /// Number of registrations.
    pub registrations: u64,
}

/// The task that serves the resources.
#[derive(Debug)]
pub struct Manager {
    folder: PluginDir,
    /// The pod-resources socket and its client.
    kubelet: Option<(PathBuf, AllocationReader)>,
    common: SharedContext,
    report: watch::Sender<Arc<DevicePluginReport>>,
    kubelet_report_sender: watch::Sender<Arc<KubeletReport>>,
    kubelet_report: watch::Receiver<Arc<KubeletReport>>,
    served: BTreeMap<ResourceName, ServedResource>,
    registering: JoinSet<(ResourceName, KubeletInstance, Result<(), RegisterError>)>,
    retiring: JoinSet<ResourceName>,
    /// Resources being retired. A resource that reappears meanwhile waits, because the kubelet would take the end of
    /// the old list for the end of the new one.
    retiring_names: BTreeSet<ResourceName>,
}

/// Serving and registration state of a resource.
#[derive(Debug)]
struct ServedResource {
    /// `None` while the socket cannot be created.
    serving: Option<ResourceServer>,
    link: Registration,
    trouble: Option<String>,
    rival: Option<String>,
    /// Another program has replaced our socket. It keeps the path while it listens there.
    is_replaced: bool,
    /// When the list was last changed.
    since: Instant,
}

impl Manager {
    /// Creates a manager that serves the list of `gate` and produces responses with `answer`. Also returns
    /// subscriptions to its own report and to the kubelet's.
    pub fn new(
        settings: &Settings,
        gate: Arc<AllocationGate>,
        answer: Arc<dyn Answer>,
    ) -> (
        Self,
        watch::Receiver<Arc<DevicePluginReport>>,
        watch::Receiver<Arc<KubeletReport>>,
    ) {
        let (report, seen) = watch::channel(Arc::default());
        let (told_in, told) = watch::channel(Arc::default());
        let manager = Self {
            folder: PluginDir::new(&settings.folder),
            kubelet: settings.pod_resources.as_ref().map(|socket| {
                let living = Arc::clone(&settings.running_pods);
                (
                    socket.clone(),
                    AllocationReader::new(socket, &settings.folder, living),
                )
            }),
            common: SharedContext {
                gate,
                answer,
                policy: settings.policy,
                readers_changed: Arc::new(Notify::new()),
            },
            report,
            kubelet_report_sender: told_in,
            kubelet_report: told.clone(),
            served: BTreeMap::new(),
            registering: JoinSet::new(),
            retiring: JoinSet::new(),
            retiring_names: BTreeSet::new(),
        };
        (manager, seen, told)
    }

    /// Runs until the future is dropped.
    pub async fn run(mut self) {
        let gate = Arc::clone(&self.common.gate);
        let told = self.kubelet_report_sender.clone();
        let follow = kubelet_poller::poll(self.kubelet.take(), gate, told);
        tokio::join!(follow, self.serve());
    }

    async fn serve(mut self) {
        // Existing sockets may belong to an agent that is shutting down.
        self.common.gate.wait_until_serving().await;
        remove_old_sockets(self.folder.path());
        let mut listing = self.common.gate.listing();
        let mut told = self.kubelet_report.clone();
        let news = Arc::clone(&self.common.readers_changed);
        let mut pace = interval(RECHECK_INTERVAL);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks_around = true;
        loop {
            self.serve_listed();
            if looks_around {
                self.folder.watch();
                self.find_competing_plugins().await;
                // Serve a resource immediately once another plugin has left it.
                self.serve_listed();
            }
            let due = self.register_resources();
            looks_around = false;
            tokio::select! {
                _ = pace.tick() => looks_around = true,
                // Check for other plugins before registering a new resource.
                Ok(()) = listing.changed() => looks_around = true,
                Ok(()) = told.changed() => looks_around = true,
                () = self.folder.changed() => {
                    looks_around = true;
                    sleep(DEBOUNCE).await;
                }
                () = news.notified() => {}
                Some(Ok((resource, kubelet, answer))) = self.registering.join_next() => {
                    self.record_registration(&resource, kubelet, &answer);
                }
                Some(Ok(resource)) = self.retiring.join_next() => {
                    self.retiring_names.remove(&resource);
                    looks_around = true;
                }
                () = sleep(due.unwrap_or_default()), if due.is_some() => {}
            }
        }
    }

    /// Adjusts the sockets to the list.
    fn serve_listed(&mut self) {
        let listing = self.common.gate.listing();
        let listing = Arc::clone(&listing.borrow());
        self.retire_unlisted(&listing.resources);
        for (resource, listed) in &listing.resources {
            if self.retiring_names.contains(resource) {
                continue;
            }
            self.serve_one(resource, listed);
        }
    }

    /// Registers resources with the kubelet where necessary. Returns the delay until the next step, if there is one.
    fn register_resources(&mut self) -> Option<Duration> {
        let kubelet = self.folder.kubelet();
        let now = Instant::now();
        let mut soonest: Option<Duration> = None;
        for (resource, way) in &mut self.served {
            let Some(serving) = way.serving.as_ref().filter(|_| way.rival.is_none()) else {
                continue;
            };
            match way.link.next_step(now, kubelet, serving.is_read()) {
                Step::Wait(wait) => {
                    soonest = [soonest, wait].into_iter().flatten().min();
                }
                Step::Register(kubelet) => {
                    let folder = self.folder.path().to_owned();
                    let (endpoint, resource) = (serving.endpoint().to_owned(), resource.clone());
                    self.registering.spawn(async move {
                        let answer = register(&folder, &endpoint, &resource).await;
                        (resource, kubelet, answer)
                    });
                }
            }
        }
        self.publish_report(kubelet);
        soonest
    }

    fn retire_unlisted(&mut self, wanted: &BTreeMap<ResourceName, ListedResource>) {
        let gone = self
            .served
            .extract_if(.., |name, _| !wanted.contains_key(name));
        for (resource, way) in gone {
            if let Some(serving) = way.serving {
                self.retiring_names.insert(resource.clone());
                self.retiring.spawn(async move {
                    serving.retire().await;
                    resource
                });
            }
        }
    }

    fn serve_one(&mut self, resource: &ResourceName, listed: &ListedResource) {
        let way = self
            .served
            .entry(resource.clone())
            .or_insert_with(|| ServedResource {
                serving: None,
                link: Registration::default(),
                trouble: None,
                rival: None,
                is_replaced: false,
                since: Instant::now(),
            });
        let devices = devices(listed);
        if let Some(serving) = &way.serving
            && serving.is_up()
        {
            if serving.update_list(devices) {
                way.since = Instant::now();
            }
            return;
        }
        if way.is_replaced {
            return;
        }
        if let Some(serving) = way.serving.take() {
            if serving.is_replaced() {
                // Taking the path back immediately would compete with another agent that does the same. The next check
                // shows whether that one is alive.
                way.is_replaced = true;
                way.link.invalidate();
                warn_once(
                    &mut way.rival,
                    describe_replacement(resource, serving.socket()),
                );
                return;
            }
            info!("the socket of {resource} is gone: it is made anew");
            way.link.invalidate();
        }
        match ResourceServer::start(self.folder.path(), resource, devices, &self.common) {
            Ok(serving) => {
                way.serving = Some(serving);
                way.trouble = None;
                way.since = Instant::now();
            }
            Err(error) => {
                let folder = self.folder.path().display();
                let trouble = format!("{resource} cannot be served in {folder}: {error}");
                warn_once(&mut way.trouble, trouble);
            }
        }
    }

    /// Finds other plugins for our resources: live sockets of NVIDIA's device plugin, and IDs that the kubelet knows
    /// but we do not list.
    async fn find_competing_plugins(&mut self) {
        let ways = self.served.iter();
        let ways = ways.map(|(resource, way)| (resource.clone(), way.is_replaced));
        let mut alive = competing_plugins::find_live_plugins(self.folder.path(), ways).await;
        for (resource, way) in &mut self.served {
            let Some(alive) = alive.remove(resource) else {
                continue;
            };
            way.is_replaced = alive.socket_replacement.is_some();
            let socket = alive.nvidia_plugin.or(alive.socket_replacement);
            let told = Arc::clone(&self.kubelet_report.borrow());
            let is_settled = told.queried_at.saturating_duration_since(way.since) >= MAX_LIST_DELAY;
            let rival = socket.or_else(|| {
                let listing = self.common.gate.listing();
                let listing = Arc::clone(&listing.borrow());
                let listed = listing.resources.get(resource).filter(|_| is_settled)?;
                find_foreign_id(listed, &told, resource)
            });
            if way.rival.is_some() && rival.is_none() {
                info!("nobody else gives {resource} out any more");
                way.link.invalidate();
            }
            match rival {
                Some(rival) => warn_once(&mut way.rival, rival),
                None => way.rival = None,
            }
        }
    }

    fn record_registration(
        &mut self,
        resource: &ResourceName,
        kubelet: KubeletInstance,
        answer: &Result<(), RegisterError>,
    ) {
        let Some(way) = self.served.get_mut(resource) else {
            return;
        };
        let before = way.link.error().cloned();
        way.link.record_result(Instant::now(), kubelet, answer);
        match way.link.error() {
            None => info!("kubelet knows of {resource}"),
            Some(trouble) if before.as_ref() != Some(trouble) => warn!("{trouble}"),
            Some(_) => {}
        }
    }

    fn publish_report(&self, kubelet: Option<KubeletInstance>) {
        let standing = |way: &ServedResource| {
            let serving = way.serving.as_ref();
            let trouble = way.trouble.as_ref().or_else(|| way.link.error());
            ResourceStatus {
                is_registered: serving.is_some() && way.link.is_registered(kubelet),
                is_list_read: serving.is_some_and(ResourceServer::is_list_read),
                trouble: trouble.cloned(),
                competing_plugin: way.rival.clone(),
                registrations: way.link.count(),
            }
        };
        let resources = self.served.iter();
        let new = DevicePluginReport {
            resources: resources
                .map(|(name, way)| (name.clone(), standing(way)))
                .collect(),
        };
        self.report.send_if_modified(|report| {
            let differs = **report != new;
            if differs {
                *report = Arc::new(new);
            }
            differs
        });
    }
}

/// Logs a message once.
fn warn_once(known: &mut Option<String>, new: String) {
    if known.as_ref() != Some(&new) {
        warn!("{new}");
        *known = Some(new);
    }
}

/// Removes the sockets of earlier agents.
fn remove_old_sockets(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(SOCKET_PREFIX) && name.ends_with(".sock") {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!("cannot remove {}: {error}", entry.path().display());
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}
