//! Observer of usage by pod: a task separate from the loop, with its own interval.
//!
//! ```text
//!   Handle::readings --------+
//!   kubelet, its checkpoint -+--> octavo_node::sharing::join --> guard --> Usage, metrics
//!   /proc -------------------+                                     |
//!                                                                  +--> events of pods
//! ```
//!
//! Each of the three sources has its own timeout and may be unreachable. Its last answer is used for [`MAX_STALENESS`], and
//! `missing` reports that and why; after that it counts as empty. A source that hangs in `/proc` is awaited once and
//! not queried again before it returns.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use octavo_dra::allocations::with_uuids;
use octavo_hardware::{DriverHandle, DriverUnavailable, ReadingsError, holders};
use octavo_kube::events::PodEventsHandle;
use octavo_kubelet::kubelet_checkpoint::{self, PodUids};
use octavo_kubelet::pod_resources::{self, DeviceAllocation, PodResourcesError};
use octavo_model::id::PciAddress;
use octavo_model::reading::Reading;
use octavo_model::reason::Reason;
use octavo_node::node_object::event_deduplicator::Event;
use octavo_node::sharing::Offers;
use octavo_node::sharing::guard::{Alarm, Guard};
use octavo_node::sharing::join::{Allocation, PodAttribution, UsageInput, join};
use octavo_node::sharing::usage::Usage;
use octavo_settings::engine::EngineSettings;
use octavo_toolkit::desired::send_if_changed;
use octavo_toolkit::error::chain;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, info, warn};

/// Maximum age of the last answer of a source that does not respond any more.
pub const MAX_STALENESS: Duration = Duration::from_mins(5);
/// Timeout for kubelet, which answers from memory; with a thousand pods that is some hundred kilobytes.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for `/proc`: reading a file of a hanging process may never return.
const PROC_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of one scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageObservation {
    /// Usage by pod.
    pub usage: Arc<Usage>,
    /// Readings of the driver.
    pub readings: Vec<Reading>,
    /// The last Xid of each device since the observer started.
    pub xids: BTreeMap<PciAddress, u64>,
    /// The sources that responded.
    pub answered: RespondingSources,
    /// Number of scans.
    pub scans: u64,
    /// Duration of this scan.
    pub duration: Duration,
}

/// Sources that responded to a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RespondingSources {
    /// The driver.
    pub driver: bool,
    /// Kubelet; also true without a kubelet.
    pub kubelet: bool,
    /// The kernel, about processes.
    pub processes: bool,
}

/// Devices of resource claims.
pub trait ClaimAllocations: fmt::Debug + Send + Sync {
    /// Adds the devices of claims to the allocations that the kubelet lists, if it does not list a pod of the claim yet.
    fn add_unlisted(&self, listed: &mut Vec<DeviceAllocation>);
}

/// Observes usage by pod.
#[derive(Debug)]
pub struct UsageObserver {
    hardware: DriverHandle,
    engine: EngineSettings,
    interval: Duration,
    offers: watch::Receiver<Arc<Offers>>,
    usage: watch::Sender<Arc<Usage>>,
    seen: watch::Sender<Arc<UsageObservation>>,
    pods: Option<PodEventsHandle>,
    claims: Option<Arc<dyn ClaimAllocations>>,
    guard: Guard,
    xids: BTreeMap<PciAddress, u64>,
    readings: CachedAnswer<Vec<Reading>>,
    allocations: CachedAnswer<Vec<Allocation>>,
    attribution: CachedAnswer<PodAttribution>,
    /// The last scan of `/proc`, while it is running.
    pending_scan: Option<JoinHandle<FileScan>>,
    /// Problems that were logged, so that each is logged once.
    logged_problems: Vec<String>,
    scans: u64,
    began: Instant,
}

/// Channels of an [`UsageObserver`].
#[derive(Debug)]
pub struct UsageChannels {
    /// Usage by pod; notifies when it changes.
    pub usage: watch::Receiver<Arc<Usage>>,
    /// The result of every scan, for metrics.
    pub seen: watch::Receiver<Arc<UsageObservation>>,
    /// Sender of the current offers.
    pub offered: watch::Sender<Arc<Offers>>,
}

/// The last answer of a source, and its time.
#[derive(Debug)]
struct CachedAnswer<T>(Option<(Instant, T)>);

/// Result of a scan of files: the pods of processes, and kubelet's checkpoint.
type FileScan = ((PodAttribution, Result<(), String>), Result<PodUids, String>);

impl<T> CachedAnswer<T> {
    fn put(&mut self, now: Instant, value: T) {
        self.0 = Some((now, value));
    }

    /// Returns the answer if it is recent enough.
    fn get(&self, now: Instant) -> Option<&T> {
        let known = self.0.as_ref();
        let fresh = known.filter(|(at, _)| now.saturating_duration_since(*at) <= MAX_STALENESS);
        fresh.map(|(_, value)| value)
    }
}

impl UsageObserver {
    /// Creates an observer that scans at this interval and emits events on pods through `pods`, if set. No source is
    /// queried before it runs.
    pub fn new(
        hardware: DriverHandle,
        engine: EngineSettings,
        interval: Duration,
        pods: Option<PodEventsHandle>,
    ) -> (Self, UsageChannels) {
        let (usage, usage_receiver) = watch::channel(Arc::default());
        let (seen, seen_receiver) = watch::channel(Arc::default());
        let (offered, offers) = watch::channel(Arc::default());
        let observer = Self {
            hardware,
            engine,
            interval,
            offers,
            usage,
            seen,
            pods,
            claims: None,
            guard: Guard::default(),
            xids: BTreeMap::new(),
            readings: CachedAnswer(None),
            allocations: CachedAnswer(None),
            attribution: CachedAnswer(None),
            pending_scan: None,
            logged_problems: Vec::new(),
            scans: 0,
            began: Instant::now(),
        };
        let views = UsageChannels { usage: usage_receiver, seen: seen_receiver, offered };
        (observer, views)
    }

    /// Also counts the devices of resource claims whose pods the kubelet does not list yet.
    #[must_use]
    pub fn with_claims(self, claims: Option<Arc<dyn ClaimAllocations>>) -> Self {
        Self { claims, ..self }
    }

    /// Observes until [`UsageChannels::offered`] is dropped.
    pub async fn run(mut self) {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.offers.has_changed().is_ok() {
            ticks.tick().await;
            self.scan().await;
        }
    }

    async fn scan(&mut self) {
        let began = Instant::now();
        let mut missing = Vec::new();
        let mut answered = RespondingSources::default();
        let (readings, allocations) = tokio::join!(
            self.hardware.readings(),
            allocations(self.engine.pod_resources(), self.engine.in_pod())
        );
        let xids = self.hardware.xids().into_iter();
        self.xids.extend(xids.map(|xid| (xid.pci, xid.number)));
        let now = Instant::now();
        match readings {
            Ok(readings) => {
                answered.driver = true;
                self.readings.put(now, readings);
            }
            // The inventory reports a driver that is missing. Other vendors' devices do not need it.
            Err(ReadingsError::NoDriver(DriverUnavailable::Absent { .. })) => {}
            Err(error) => missing.push(chain(&error)),
        }
        let (attributed, record) = self.attribute_processes().await;
        match allocations {
            // An older or newer checkpoint may attribute the same ID to another pod.
            Ok(mut allocations) => {
                answered.kubelet = true;
                if let Some(claims) = &self.claims {
                    claims.add_unlisted(&mut allocations);
                }
                with_uuids(&mut allocations, &self.hardware.latest().devices);
                let allocations = allocations.into_iter().map(|device| record.name(device));
                self.allocations.put(now, allocations.collect());
            }
            Err(reason) => missing.push(reason),
        }
        match attributed {
            Ok(()) => answered.processes = true,
            Err(reason) => missing.push(reason),
        }
        self.log_problems(&missing);
        let now = Instant::now();
        let readings = self.readings.get(now).cloned().unwrap_or_default();
        let allocations = self.allocations.get(now).cloned();
        let are_allocations_unknown = allocations.is_none();
        let attribution = self.attribution.get(now).cloned().unwrap_or(PodAttribution::Hidden);
        let offers = Arc::clone(&self.offers.borrow());
        let mut usage = join(&UsageInput {
            readings: &readings,
            offers: &offers,
            allocations: &allocations.unwrap_or_default(),
            is_current: answered.kubelet,
            attribution: &attribution,
        });
        missing.append(&mut usage.missing);
        usage.missing = missing;
        usage.are_allocations_unknown = are_allocations_unknown;
        // Without new readings there are no new events, and no step in the slope.
        if answered.driver {
            let alarms = self.guard.check(self.began.elapsed(), &mut usage);
            self.emit_alarms(alarms);
        } else {
            self.guard.apply_marks(&mut usage);
        }
        self.publish(usage, readings, answered, began);
    }

    fn publish(
        &mut self,
        usage: Usage,
        readings: Vec<Reading>,
        answered: RespondingSources,
        began: Instant,
    ) {
        let usage = Arc::new(usage);
        send_if_changed(&self.usage, Arc::clone(&usage));
        self.scans = self.scans.wrapping_add(1);
        let seen = UsageObservation {
            usage,
            readings,
            xids: self.xids.clone(),
            answered,
            scans: self.scans,
            duration: began.elapsed(),
        };
        debug!(duration = ?seen.duration, "usage scanned");
        self.seen.send_replace(Arc::new(seen));
    }

    /// Updates the pods of processes, and returns kubelet's checkpoint: empty if it was not read in this scan.
    async fn attribute_processes(&mut self) -> (Result<(), String>, PodUids) {
        let is_of_before = self.pending_scan.is_some();
        let mut scan = self.pending_scan.take().unwrap_or_else(|| {
            let pids = self.pids();
            let root = self.engine.proc_root.clone();
            let dir = self.engine.device_plugins();
            tokio::task::spawn_blocking(move || {
                let attribution = attribute(&root, pids);
                let record = kubelet_checkpoint::read(&dir).map_err(|error| chain(&error));
                (attribution, record)
            })
        });
        match timeout(PROC_TIMEOUT, &mut scan).await {
            Ok(Ok(((attribution, allocations), record))) => {
                // Without it, pods are identified by elimination; where that is not enough, the join reports it.
                let record = record.unwrap_or_else(|reason| {
                    debug!("{reason}");
                    PodUids::default()
                });
                self.attribution.put(Instant::now(), attribution);
                (allocations, if is_of_before { PodUids::default() } else { record })
            }
            Ok(Err(error)) => (Err(error.to_string()), PodUids::default()),
            Err(_late) => {
                self.pending_scan = Some(scan);
                let reason = "timed out reading /proc: a process of this node blocks it";
                (Err(reason.to_owned()), PodUids::default())
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

    fn emit_alarms(&self, alarms: Vec<Alarm>) {
        for alarm in alarms {
            let Alarm { reason, pods, message } = alarm;
            let names: Vec<String> =
                pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
            let names = names.join(", ");
            if reason == Reason::MemoryWithinShare {
                info!(pods = %names, "{message}");
            } else {
                warn!(pods = %names, "{message}");
            }
            let Some(events) = &self.pods else { continue };
            if pods.is_empty() {
                info!("no event is emitted: the UIDs of the pods are unknown");
            }
            let event = Event { reason, message, unit: None };
            for pod in &pods {
                events.report(pod, &event);
            }
        }
    }

    /// Logs each problem once.
    fn log_problems(&mut self, problems: &[String]) {
        if self.logged_problems == problems {
            return;
        }
        let new = problems.iter().filter(|new| !self.logged_problems.contains(new));
        for problem in new {
            warn!(%problem, "usage by pod is incomplete");
        }
        if problems.is_empty() {
            info!("usage by pod is complete again");
        }
        self.logged_problems = problems.to_vec();
    }
}

/// Returns the pods of these processes, and why some are unknown.
fn attribute(root: &Path, pids: Vec<u32>) -> (PodAttribution, Result<(), String>) {
    match holders::origins(root, pids) {
        Ok(_) if holders::is_other_pid_namespace(root) => (
            PodAttribution::OtherNamespace,
            Err("the driver does not report processes of other pods: memory by pod requires hostPID"
                .to_owned()),
        ),
        Ok(origins) => (PodAttribution::Inspected(origins), Ok(())),
        Err(error) => (PodAttribution::Hidden, Err(chain(&error))),
    }
}

/// Returns the devices allocated to each container.
async fn allocations(socket: Option<&Path>, in_pod: bool) -> Result<Vec<DeviceAllocation>, String> {
    let Some(socket) = socket else {
        return Ok(Vec::new());
    };
    match pod_resources::list(socket, KUBELET_TIMEOUT).await {
        Ok(allocations) => Ok(allocations),
        Err(PodResourcesError::Absent { .. }) if !in_pod => Ok(Vec::new()),
        Err(error) => Err(chain(&error)),
    }
}
