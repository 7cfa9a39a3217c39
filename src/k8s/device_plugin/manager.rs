//! Serves the listed resources and registers them with the kubelet, across restarts of the kubelet and changes of its
//! directory.
//!
//! A single task that re-evaluates everything on each event, and every ten seconds in case an event was missed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use super::folder::{Epoch, Folder, OURS};
use super::gate::Gate;
use super::kubelet::{self, Told};
use super::link::{Link, Step};
use super::lists::Answer;
use super::register::{RegisterError, register};
use super::rivals::{self, foreign, replaced};
use super::service::devices;
use super::serving::{Common, Serving};
use crate::domain::sharing::ResourceName;
use crate::domain::sharing::allocation::Policy;
use crate::domain::sharing::hold::Listed;
use crate::k8s::who_has::{Asker, Living};

/// Poll interval without events.
const RECHECK: Duration = Duration::from_secs(10);
/// Debounce time of directory events.
const BREATH: Duration = Duration::from_millis(20);
/// How long the kubelet may take to process a list update.
const SETTLED: Duration = Duration::from_secs(5);

/// The kubelet's paths and allocation settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The device plugin directory.
    pub folder: PathBuf,
    /// The pod-resources socket; `None` if the kubelet cannot be queried.
    pub pod_resources: Option<PathBuf>,
    /// How replicas are distributed over units.
    pub policy: Policy,
    /// Running pods, for allocations that the kubelet does not report.
    pub living: Arc<dyn Living>,
}

/// Registration state of all resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Resources that are or should be served, by name.
    pub resources: BTreeMap<ResourceName, Standing>,
}

/// Registration state of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Whether the running kubelet has accepted the registration.
    pub is_registered: bool,
    /// Whether it has read the latest list.
    pub is_taken: bool,
    /// The current error, for users.
    pub trouble: Option<String>,
    /// Another plugin that serves the resource, for users.
    pub rival: Option<String>,
    /// Number of registrations.
    pub registrations: u64,
}

/// The task that serves the resources.
#[derive(Debug)]
pub struct Manager {
    folder: Folder,
    /// The pod-resources socket and its client.
    kubelet: Option<(PathBuf, Asker)>,
    common: Common,
    report: watch::Sender<Arc<Report>>,
    told_in: watch::Sender<Arc<Told>>,
    told: watch::Receiver<Arc<Told>>,
    ways: BTreeMap<ResourceName, Way>,
    registering: JoinSet<(ResourceName, Epoch, Result<(), RegisterError>)>,
    retiring: JoinSet<ResourceName>,
    /// Resources being retired. A resource that reappears meanwhile waits, because the kubelet would take the end of
    /// the old list for the end of the new one.
    leaving: BTreeSet<ResourceName>,
}

/// Serving and registration state of a resource.
#[derive(Debug)]
struct Way {
    /// `None` while the socket cannot be created.
    serving: Option<Serving>,
    link: Link,
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
        gate: Arc<Gate>,
        answer: Arc<dyn Answer>,
    ) -> (
        Self,
        watch::Receiver<Arc<Report>>,
        watch::Receiver<Arc<Told>>,
    ) {
        let (report, seen) = watch::channel(Arc::default());
        let (told_in, told) = watch::channel(Arc::default());
        let manager = Self {
            folder: Folder::new(&settings.folder),
            kubelet: settings.pod_resources.as_ref().map(|socket| {
                let living = Arc::clone(&settings.living);
                (socket.clone(), Asker::new(socket, &settings.folder, living))
            }),
            common: Common {
                gate,
                answer,
                policy: settings.policy,
                news: Arc::new(Notify::new()),
            },
            report,
            told_in,
            told: told.clone(),
            ways: BTreeMap::new(),
            registering: JoinSet::new(),
            retiring: JoinSet::new(),
            leaving: BTreeSet::new(),
        };
        (manager, seen, told)
    }

    /// Runs until the future is dropped.
    pub async fn run(mut self) {
        let gate = Arc::clone(&self.common.gate);
        let told = self.told_in.clone();
        let follow = kubelet::follow(self.kubelet.take(), gate, told);
        tokio::join!(follow, self.serve());
    }

    async fn serve(mut self) {
        // Existing sockets may belong to an agent that is shutting down.
        self.common.gate.opened().await;
        sweep(self.folder.path());
        let mut listing = self.common.gate.listing();
        let mut told = self.told.clone();
        let news = Arc::clone(&self.common.news);
        let mut pace = interval(RECHECK);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks_around = true;
        loop {
            self.serve_listed();
            if looks_around {
                self.folder.watch();
                self.look_for_rivals().await;
                // Serve a resource immediately once another plugin has left it.
                self.serve_listed();
            }
            let due = self.introduce();
            looks_around = false;
            tokio::select! {
                _ = pace.tick() => looks_around = true,
                // Check for other plugins before registering a new resource.
                Ok(()) = listing.changed() => looks_around = true,
                Ok(()) = told.changed() => looks_around = true,
                () = self.folder.changed() => {
                    looks_around = true;
                    sleep(BREATH).await;
                }
                () = news.notified() => {}
                Some(Ok((resource, kubelet, answer))) = self.registering.join_next() => {
                    self.answered(&resource, kubelet, &answer);
                }
                Some(Ok(resource)) = self.retiring.join_next() => {
                    self.leaving.remove(&resource);
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
        self.drop_others(&listing.resources);
        for (resource, listed) in &listing.resources {
            if self.leaving.contains(resource) {
                continue;
            }
            self.serve_one(resource, listed);
        }
    }

    /// Registers resources with the kubelet where necessary. Returns the delay until the next step, if there is one.
    fn introduce(&mut self) -> Option<Duration> {
        let kubelet = self.folder.kubelet();
        let now = Instant::now();
        let mut soonest: Option<Duration> = None;
        for (resource, way) in &mut self.ways {
            let Some(serving) = way.serving.as_ref().filter(|_| way.rival.is_none()) else {
                continue;
            };
            match way.link.step(now, kubelet, serving.is_read()) {
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
        self.say(kubelet);
        soonest
    }

    fn drop_others(&mut self, wanted: &BTreeMap<ResourceName, Listed>) {
        let gone = self
            .ways
            .extract_if(.., |name, _| !wanted.contains_key(name));
        for (resource, way) in gone {
            if let Some(serving) = way.serving {
                self.leaving.insert(resource.clone());
                self.retiring.spawn(async move {
                    serving.retire().await;
                    resource
                });
            }
        }
    }

    fn serve_one(&mut self, resource: &ResourceName, listed: &Listed) {
        let way = self.ways.entry(resource.clone()).or_insert_with(|| Way {
            serving: None,
            link: Link::default(),
            trouble: None,
            rival: None,
            is_replaced: false,
            since: Instant::now(),
        });
        let devices = devices(listed);
        if let Some(serving) = &way.serving
            && serving.is_up()
        {
            if serving.list(devices) {
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
                way.link.forget();
                complain(&mut way.rival, replaced(resource, serving.socket()));
                return;
            }
            info!("the socket of {resource} is gone: it is made anew");
            way.link.forget();
        }
        match Serving::start(self.folder.path(), resource, devices, &self.common) {
            Ok(serving) => {
                way.serving = Some(serving);
                way.trouble = None;
                way.since = Instant::now();
            }
            Err(error) => {
                let folder = self.folder.path().display();
                let trouble = format!("{resource} cannot be served in {folder}: {error}");
                complain(&mut way.trouble, trouble);
            }
        }
    }

    /// Finds other plugins for our resources: live sockets of NVIDIA's device plugin, and IDs that the kubelet knows
    /// but we do not list.
    async fn look_for_rivals(&mut self) {
        let ways = self.ways.iter();
        let ways = ways.map(|(resource, way)| (resource.clone(), way.is_replaced));
        let mut alive = rivals::alive(self.folder.path(), ways).await;
        for (resource, way) in &mut self.ways {
            let Some(alive) = alive.remove(resource) else {
                continue;
            };
            way.is_replaced = alive.usurper.is_some();
            let socket = alive.nvidias.or(alive.usurper);
            let told = Arc::clone(&self.told.borrow());
            let is_settled = told.asked.saturating_duration_since(way.since) >= SETTLED;
            let rival = socket.or_else(|| {
                let listing = self.common.gate.listing();
                let listing = Arc::clone(&listing.borrow());
                let listed = listing.resources.get(resource).filter(|_| is_settled)?;
                foreign(listed, &told, resource)
            });
            if way.rival.is_some() && rival.is_none() {
                info!("nobody else gives {resource} out any more");
                way.link.forget();
            }
            match rival {
                Some(rival) => complain(&mut way.rival, rival),
                None => way.rival = None,
            }
        }
    }

    fn answered(
        &mut self,
        resource: &ResourceName,
        kubelet: Epoch,
        answer: &Result<(), RegisterError>,
    ) {
        let Some(way) = self.ways.get_mut(resource) else {
            return;
        };
        let before = way.link.trouble().cloned();
        way.link.answered(Instant::now(), kubelet, answer);
        match way.link.trouble() {
            None => info!("kubelet knows of {resource}"),
            Some(trouble) if before.as_ref() != Some(trouble) => warn!("{trouble}"),
            Some(_) => {}
        }
    }

    fn say(&self, kubelet: Option<Epoch>) {
        let standing = |way: &Way| {
            let serving = way.serving.as_ref();
            let trouble = way.trouble.as_ref().or_else(|| way.link.trouble());
            Standing {
                is_registered: serving.is_some() && way.link.is_registered(kubelet),
                is_taken: serving.is_some_and(Serving::is_taken),
                trouble: trouble.cloned(),
                rival: way.rival.clone(),
                registrations: way.link.count(),
            }
        };
        let resources = self.ways.iter();
        let new = Report {
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
fn complain(known: &mut Option<String>, new: String) {
    if known.as_ref() != Some(&new) {
        warn!("{new}");
        *known = Some(new);
    }
}

/// Removes the sockets of earlier agents.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(OURS) && name.ends_with(".sock") {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!("cannot remove {}: {error}", entry.path().display());
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}
