//! Observer of usage by pod: a task separate from the loop, with its own interval.
//!
//! ```text
//!   hw::Handle::readings ----+
//!   kubelet, its checkpoint -+--> domain::sharing::join --> guard --> Usage, metrics
//!   /proc -------------------+                                |
//!                                                             +--> events of pods
//! ```
//!
//! Each of the three sources has its own timeout and may be unreachable. Its last answer is used for [`STALE`], and
//! `missing` reports that and why; after that it counts as empty. A source that hangs in `/proc` is awaited once and
//! not queried again before it returns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, info, warn};

use crate::config::engine::EngineSettings;
use crate::domain::error::chain;
use crate::domain::id::PciAddress;
use crate::domain::node::telling::Event;
use crate::domain::reading::Reading;
use crate::domain::reason::Reason;
use crate::domain::sharing::Offers;
use crate::domain::sharing::guard::{Alarm, Guard};
use crate::domain::sharing::join::{Given, Kin, Scene, join};
use crate::domain::sharing::usage::Usage;
use crate::hw::{Handle, holders};
use crate::k8s::device_record::{self, Record};
use crate::k8s::events::PodEvents;
use crate::k8s::pod_resources::{self, PodDevice, PodResourcesError};

/// Maximum age of the last answer of a source that does not respond any more.
pub const STALE: Duration = Duration::from_mins(5);
/// Timeout for kubelet, which answers from memory; with a thousand pods that is some hundred kilobytes.
const KUBELET: Duration = Duration::from_secs(2);
/// Timeout for `/proc`: reading a file of a hanging process may never return.
const PROCESSES: Duration = Duration::from_secs(5);

/// Sources of the observations, and their interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    interval: Duration,
    proc_root: PathBuf,
    /// Kubelet's socket; `None` if the settings state that there is no kubelet.
    pod_resources: Option<PathBuf>,
    in_pod: bool,
    /// Directory of kubelet's device manager checkpoint.
    device_plugins: PathBuf,
}

/// Result of one scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Usage by pod.
    pub usage: Arc<Usage>,
    /// Readings of the driver.
    pub readings: Vec<Reading>,
    /// The last Xid of each device since the observer started.
    pub xids: BTreeMap<PciAddress, u64>,
    /// The sources that responded.
    pub answered: Answered,
    /// Number of scans.
    pub looks: u64,
    /// Duration of this scan.
    pub took: Duration,
}

/// Sources that responded to a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answered {
    /// The driver.
    pub driver: bool,
    /// Kubelet; also true without a kubelet.
    pub kubelet: bool,
    /// The kernel, about processes.
    pub processes: bool,
}

/// Observes usage by pod.
#[derive(Debug)]
pub struct Observer {
    hardware: Handle,
    settings: Settings,
    offers: watch::Receiver<Arc<Offers>>,
    usage: watch::Sender<Arc<Usage>>,
    seen: watch::Sender<Arc<Seen>>,
    pods: Option<PodEvents>,
    guard: Guard,
    xids: BTreeMap<PciAddress, u64>,
    readings: Last<Vec<Reading>>,
    given: Last<Vec<Given>>,
    kin: Last<Kin>,
    /// The last scan of `/proc`, while it is running.
    looking: Option<JoinHandle<Looked>>,
    /// Problems that were logged, so that each is logged once.
    troubles: Vec<String>,
    looks: u64,
    began: Instant,
}

/// Channels of an [`Observer`].
#[derive(Debug)]
pub struct Views {
    /// Usage by pod; notifies when it changes.
    pub usage: watch::Receiver<Arc<Usage>>,
    /// The result of every scan, for metrics.
    pub seen: watch::Receiver<Arc<Seen>>,
    /// Sender of the current offers.
    pub offered: watch::Sender<Arc<Offers>>,
}

/// The last answer of a source, and its time.
#[derive(Debug)]
struct Last<T>(Option<(Instant, T)>);

/// Result of a scan of files: the pods of processes, and kubelet's checkpoint.
type Looked = ((Kin, Result<(), String>), Result<Record, String>);

impl<T> Last<T> {
    fn put(&mut self, now: Instant, value: T) {
        self.0 = Some((now, value));
    }

    /// Returns the answer if it is recent enough.
    fn get(&self, now: Instant) -> Option<&T> {
        let known = self.0.as_ref();
        let fresh = known.filter(|(at, _)| now.saturating_duration_since(*at) <= STALE);
        fresh.map(|(_, value)| value)
    }
}

impl Settings {
    /// Observes the engine's sources every `interval`, and kubelet's checkpoint in `device_plugins`.
    pub fn new(interval: Duration, engine: &EngineSettings, device_plugins: PathBuf) -> Self {
        Self {
            interval,
            proc_root: engine.proc_root().to_owned(),
            pod_resources: engine.pod_resources().map(ToOwned::to_owned),
            in_pod: engine.in_pod(),
            device_plugins,
        }
    }
}

impl Observer {
    /// Creates an observer that emits events on pods through `pods`, if set. No source is queried before it runs.
    pub fn new(hardware: Handle, settings: Settings, pods: Option<PodEvents>) -> (Self, Views) {
        let (usage, used) = watch::channel(Arc::default());
        let (seen, looked) = watch::channel(Arc::default());
        let (offered, offers) = watch::channel(Arc::default());
        let observer = Self {
            hardware,
            settings,
            offers,
            usage,
            seen,
            pods,
            guard: Guard::default(),
            xids: BTreeMap::new(),
            readings: Last(None),
            given: Last(None),
            kin: Last(None),
            looking: None,
            troubles: Vec::new(),
            looks: 0,
            began: Instant::now(),
        };
        let views = Views {
            usage: used,
            seen: looked,
            offered,
        };
        (observer, views)
    }

    /// Observes until [`Views::offered`] is dropped.
    pub async fn run(mut self) {
        let mut ticks = interval(self.settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.offers.has_changed().is_ok() {
            ticks.tick().await;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let began = Instant::now();
        let mut missing = Vec::new();
        let mut answered = Answered::default();
        let (readings, given) = tokio::join!(
            self.hardware.readings(),
            given(self.settings.pod_resources.as_deref(), self.settings.in_pod)
        );
        let heard = self.hardware.xids().into_iter();
        self.xids.extend(heard.map(|xid| (xid.pci, xid.number)));
        let now = Instant::now();
        match readings {
            Ok(readings) => {
                answered.driver = true;
                self.readings.put(now, readings);
            }
            Err(error) => missing.push(chain(&error)),
        }
        let (whose, record) = self.whose().await;
        match given {
            // An older or newer checkpoint may attribute the same ID to another pod.
            Ok(given) => {
                answered.kubelet = true;
                let given = given.into_iter().map(|device| record.name(device));
                self.given.put(now, given.collect());
            }
            Err(reason) => missing.push(reason),
        }
        match whose {
            Ok(()) => answered.processes = true,
            Err(reason) => missing.push(reason),
        }
        self.complain(&missing);
        let now = Instant::now();
        let readings = self.readings.get(now).cloned().unwrap_or_default();
        let given = self.given.get(now).cloned().unwrap_or_default();
        let kin = self.kin.get(now).cloned().unwrap_or(Kin::Hidden);
        let offers = Arc::clone(&self.offers.borrow());
        let mut usage = join(&Scene {
            readings: &readings,
            offers: &offers,
            given: &given,
            is_current: answered.kubelet,
            kin: &kin,
        });
        missing.append(&mut usage.missing);
        usage.missing = missing;
        // Without new readings there are no new events, and no step in the slope.
        if answered.driver {
            let alarms = self.guard.look(self.began.elapsed(), &mut usage);
            self.tell(alarms);
        } else {
            self.guard.mark(&mut usage);
        }
        self.publish(usage, readings, answered, began);
    }

    fn publish(
        &mut self,
        usage: Usage,
        readings: Vec<Reading>,
        answered: Answered,
        began: Instant,
    ) {
        let usage = Arc::new(usage);
        self.usage.send_if_modified(|known| {
            let differs = *known != usage;
            if differs {
                *known = Arc::clone(&usage);
            }
            differs
        });
        self.looks = self.looks.wrapping_add(1);
        let seen = Seen {
            usage,
            readings,
            xids: self.xids.clone(),
            answered,
            looks: self.looks,
            took: began.elapsed(),
        };
        debug!("it was looked who uses what, in {:?}", seen.took);
        self.seen.send_replace(Arc::new(seen));
    }

    /// Updates the pods of processes, and returns kubelet's checkpoint: empty if it was not read in this scan.
    async fn whose(&mut self) -> (Result<(), String>, Record) {
        let is_of_before = self.looking.is_some();
        let mut looking = self.looking.take().unwrap_or_else(|| {
            let pids = self.pids();
            let root = self.settings.proc_root.clone();
            let folder = self.settings.device_plugins.clone();
            tokio::task::spawn_blocking(move || {
                let kin = kin(&root, pids);
                let record = device_record::read(&folder).map_err(|error| chain(&error));
                (kin, record)
            })
        });
        match timeout(PROCESSES, &mut looking).await {
            Ok(Ok(((kin, answer), record))) => {
                // Without it, pods are identified by elimination; where that is not enough, the join reports it.
                let record = record.unwrap_or_else(|reason| {
                    debug!("{reason}");
                    Record::default()
                });
                self.kin.put(Instant::now(), kin);
                (
                    answer,
                    if is_of_before {
                        Record::default()
                    } else {
                        record
                    },
                )
            }
            Ok(Err(error)) => (Err(error.to_string()), Record::default()),
            Err(_late) => {
                self.looking = Some(looking);
                let reason = "a process of this node does not let itself be looked at";
                (Err(reason.to_owned()), Record::default())
            }
        }
    }

    fn pids(&self) -> Vec<u32> {
        let readings = self.readings.0.iter().flat_map(|(_, readings)| readings);
        let processes = readings.flat_map(|reading| reading.processes.iter().flatten());
        let mut pids: Vec<u32> = processes.map(|process| process.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    fn tell(&self, alarms: Vec<Alarm>) {
        for alarm in alarms {
            let Alarm {
                reason,
                pods,
                message,
            } = alarm;
            let names: Vec<String> = pods
                .iter()
                .map(|pod| format!("{}/{}", pod.namespace, pod.name))
                .collect();
            let names = names.join(", ");
            if reason == Reason::MemoryWithinShare {
                info!("{names}: {message}");
            } else {
                warn!("{names}: {message}");
            }
            let Some(events) = &self.pods else { continue };
            if pods.is_empty() {
                info!("no pod is told of it: nobody's UID is known");
            }
            let event = Event {
                reason,
                message,
                unit: None,
            };
            for pod in &pods {
                events.tell(pod, &event);
            }
        }
    }

    /// Logs each problem once.
    fn complain(&mut self, troubles: &[String]) {
        if self.troubles == troubles {
            return;
        }
        let new = troubles.iter().filter(|new| !self.troubles.contains(new));
        for trouble in new {
            warn!("who uses what is not fully known: {trouble}");
        }
        if troubles.is_empty() {
            info!("it is known again who uses what");
        }
        self.troubles = troubles.to_vec();
    }
}

/// Returns the pods of these processes, and why some are unknown.
fn kin(root: &Path, pids: Vec<u32>) -> (Kin, Result<(), String>) {
    match holders::origins(root, pids) {
        Ok(_) if holders::is_elsewhere(root) => (
            Kin::Elsewhere,
            Err(
                "the driver names no processes of other pods: memory by pod needs hostPID"
                    .to_owned(),
            ),
        ),
        Ok(origins) => (Kin::Seen(origins), Ok(())),
        Err(error) => (Kin::Hidden, Err(chain(&error))),
    }
}

/// Returns the devices allocated to each container.
async fn given(socket: Option<&Path>, in_pod: bool) -> Result<Vec<PodDevice>, String> {
    let Some(socket) = socket else {
        return Ok(Vec::new());
    };
    match pod_resources::list(socket, KUBELET).await {
        Ok(given) => Ok(given),
        Err(PodResourcesError::Absent { .. }) if !in_pod => Ok(Vec::new()),
        Err(error) => Err(chain(&error)),
    }
}
