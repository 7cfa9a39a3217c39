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
use octavo_toolkit::desired::send_if_changed;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use super::allocation_response::DeviceResponder;
use super::competing_plugins::{self, describe_replacement, find_foreign_id};
use super::gate::AllocationGate;
use super::kubelet_poller::{self, KubeletReport};
use super::plugin_dir::{KubeletInstance, PluginDir, SOCKET_PREFIX, SOCKET_SUFFIX};
use super::registration::{RegisterError, Registration, Step, register};
use super::service::{ResourceServer, SharedContext, devices};
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
    pub directory: PathBuf,
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
    pub error: Option<String>,
    /// Another plugin that serves the resource, for users.
    pub competing_plugin: Option<String>,
    /// Number of registrations.
    pub registrations: u64,
}

/// The task that serves the resources.
#[derive(Debug)]
pub struct Manager {
    plugin_dir: PluginDir,
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
    registration: Registration,
    error: Option<String>,
    competitor: Option<String>,
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
        answer: Arc<DeviceResponder>,
    ) -> (Self, watch::Receiver<Arc<DevicePluginReport>>, watch::Receiver<Arc<KubeletReport>>) {
        let (report, report_receiver) = watch::channel(Arc::default());
        let (kubelet_report_sender, kubelet_report) = watch::channel(Arc::default());
        let manager = Self {
            plugin_dir: PluginDir::new(&settings.directory),
            kubelet: settings.pod_resources.as_ref().map(|socket| {
                let running_pods = Arc::clone(&settings.running_pods);
                (socket.clone(), AllocationReader::new(socket, &settings.directory, running_pods))
            }),
            common: SharedContext {
                gate,
                responder: answer,
                policy: settings.policy,
                readers_changed: Arc::new(Notify::new()),
            },
            report,
            kubelet_report_sender,
            kubelet_report: kubelet_report.clone(),
            served: BTreeMap::new(),
            registering: JoinSet::new(),
            retiring: JoinSet::new(),
            retiring_names: BTreeSet::new(),
        };
        (manager, report_receiver, kubelet_report)
    }

    /// Runs until the future is dropped.
    pub async fn run(mut self) {
        let gate = Arc::clone(&self.common.gate);
        let report = self.kubelet_report_sender.clone();
        let poll = kubelet_poller::poll(self.kubelet.take(), gate, report);
        tokio::join!(poll, self.serve());
    }

    async fn serve(mut self) {
        // Existing sockets may belong to an agent that is shutting down.
        self.common.gate.wait_until_serving().await;
        remove_old_sockets(self.plugin_dir.path());
        let mut listing = self.common.gate.listing();
        let mut report = self.kubelet_report.clone();
        let readers_changed = Arc::clone(&self.common.readers_changed);
        let mut ticks = interval(RECHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_check_due = true;
        loop {
            self.serve_listed();
            if is_check_due {
                self.plugin_dir.watch();
                self.find_competing_plugins().await;
                // Serve a resource immediately once another plugin has left it.
                self.serve_listed();
            }
            let due = self.register_resources();
            is_check_due = false;
            tokio::select! {
                _ = ticks.tick() => is_check_due = true,
                // Check for other plugins before registering a new resource.
                Ok(()) = listing.changed() => is_check_due = true,
                Ok(()) = report.changed() => is_check_due = true,
                () = self.plugin_dir.changed() => {
                    is_check_due = true;
                    sleep(DEBOUNCE).await;
                }
                () = readers_changed.notified() => {}
                Some(Ok((resource, kubelet, answer))) = self.registering.join_next() => {
                    self.record_registration(&resource, kubelet, &answer);
                }
                Some(Ok(resource)) = self.retiring.join_next() => {
                    self.retiring_names.remove(&resource);
                    is_check_due = true;
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
        let kubelet = self.plugin_dir.kubelet();
        let now = Instant::now();
        let mut soonest: Option<Duration> = None;
        for (resource, served) in &mut self.served {
            let Some(serving) = served.serving.as_ref().filter(|_| served.competitor.is_none())
            else {
                continue;
            };
            match served.registration.next_step(now, kubelet, serving.is_read()) {
                Step::Wait(wait) => {
                    soonest = [soonest, wait].into_iter().flatten().min();
                }
                Step::Register(kubelet) => {
                    let dir = self.plugin_dir.path().to_owned();
                    let (endpoint, resource) = (serving.endpoint.clone(), resource.clone());
                    self.registering.spawn(async move {
                        let result = register(&dir, &endpoint, &resource).await;
                        (resource, kubelet, result)
                    });
                }
            }
        }
        self.publish_report(kubelet);
        soonest
    }

    fn retire_unlisted(&mut self, wanted: &BTreeMap<ResourceName, ListedResource>) {
        let gone = self.served.extract_if(.., |name, _| !wanted.contains_key(name));
        for (resource, served) in gone {
            if let Some(serving) = served.serving {
                self.retiring_names.insert(resource.clone());
                self.retiring.spawn(async move {
                    serving.retire().await;
                    resource
                });
            }
        }
    }

    fn serve_one(&mut self, resource: &ResourceName, listed: &ListedResource) {
        let served = self.served.entry(resource.clone()).or_insert_with(|| ServedResource {
            serving: None,
            registration: Registration::default(),
            error: None,
            competitor: None,
            is_replaced: false,
            since: Instant::now(),
        });
        let devices = devices(listed);
        if let Some(serving) = &served.serving
            && serving.is_up()
        {
            if serving.update_list(devices) {
                served.since = Instant::now();
            }
            return;
        }
        if served.is_replaced {
            return;
        }
        if let Some(serving) = served.serving.take() {
            if serving.is_replaced() {
                // Taking the path back immediately would compete with another agent that does the same. The next check
                // shows whether that one is alive.
                served.is_replaced = true;
                served.registration.invalidate();
                warn_once(&mut served.competitor, describe_replacement(resource, &serving.socket));
                return;
            }
            info!(%resource, "socket removed; creating it again");
            served.registration.invalidate();
        }
        match ResourceServer::start(self.plugin_dir.path(), resource, devices, &self.common) {
            Ok(serving) => {
                served.serving = Some(serving);
                served.error = None;
                served.since = Instant::now();
            }
            Err(error) => {
                let dir = self.plugin_dir.path().display();
                let error = format!("cannot serve {resource} in {dir}: {error}");
                warn_once(&mut served.error, error);
            }
        }
    }

    /// Finds other plugins for our resources: live sockets of NVIDIA's device plugin, and IDs that the kubelet knows
    /// but we do not list.
    async fn find_competing_plugins(&mut self) {
        let resources = self.served.iter();
        let resources = resources.map(|(resource, served)| (resource.clone(), served.is_replaced));
        let mut alive =
            competing_plugins::find_live_plugins(self.plugin_dir.path(), resources).await;
        for (resource, served) in &mut self.served {
            let Some(alive) = alive.remove(resource) else {
                continue;
            };
            served.is_replaced = alive.socket_replacement.is_some();
            let socket = alive.nvidia_plugin.or(alive.socket_replacement);
            let report = Arc::clone(&self.kubelet_report.borrow());
            let is_settled =
                report.queried_at.saturating_duration_since(served.since) >= MAX_LIST_DELAY;
            let competitor = socket.or_else(|| {
                let listing = self.common.gate.listing();
                let listing = Arc::clone(&listing.borrow());
                let listed = listing.resources.get(resource).filter(|_| is_settled)?;
                find_foreign_id(listed, &report, resource)
            });
            if served.competitor.is_some() && competitor.is_none() {
                info!(%resource, "no other plugin serves the resource");
                served.registration.invalidate();
            }
            match competitor {
                Some(competitor) => warn_once(&mut served.competitor, competitor),
                None => served.competitor = None,
            }
        }
    }

    fn record_registration(
        &mut self,
        resource: &ResourceName,
        kubelet: KubeletInstance,
        result: &Result<(), RegisterError>,
    ) {
        let Some(served) = self.served.get_mut(resource) else {
            return;
        };
        let before = served.registration.error().cloned();
        served.registration.record_result(Instant::now(), kubelet, result);
        match served.registration.error() {
            None => info!(%resource, "registered with the kubelet"),
            Some(error) if before.as_ref() != Some(error) => warn!("{error}"),
            Some(_) => {}
        }
    }

    fn publish_report(&self, kubelet: Option<KubeletInstance>) {
        let report = |served: &ServedResource| {
            let serving = served.serving.as_ref();
            let error = served.error.as_ref().or_else(|| served.registration.error());
            ResourceStatus {
                is_registered: serving.is_some() && served.registration.is_registered(kubelet),
                is_list_read: serving.is_some_and(ResourceServer::is_list_read),
                error: error.cloned(),
                competing_plugin: served.competitor.clone(),
                registrations: served.registration.count(),
            }
        };
        let resources = self.served.iter();
        let new = DevicePluginReport {
            resources: resources.map(|(name, served)| (name.clone(), report(served))).collect(),
        };
        send_if_changed(&self.report, Arc::new(new));
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
fn remove_old_sockets(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(SOCKET_PREFIX) && name.ends_with(SOCKET_SUFFIX) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!(path = %entry.path().display(), %error, "cannot remove an old socket");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}
