//! The node's main loop: scans the hardware, computes labels, publishes them, and repeats.
//!
//! ```text
//!   driver events -----+
//!   interval ----------+--> observe --> octavo_node::labels --> LabelSink
//!   shutdown ----------+                 |
//!   pod events ----------- last observation
//!                                        +--> uplink: the aggregator, in a task of its own
//!                                        +--> partitioning: one round of the engine, and then another scan
//! ```
//!
//! The loop makes no decisions: `octavo_hardware` describes the hardware, and `octavo_node` computes the labels. Its only
//! state is what it logged last, so that a lasting failure is one line and not ten thousand. It ends when it receives
//! a stop signal, or when the reader of its output is gone; hardware, driver and disk may fail and come back.

pub mod cluster;
pub mod control_socket;
pub mod dra;
pub mod draining;
pub mod feature_file;
pub mod liveness;
pub mod metrics;
pub mod node_sink;
mod observation_log;
pub mod partitioning;
pub mod settings;
pub mod sharing;
pub mod sink;
mod status_reporter;
mod type_override;
pub mod uplink;
pub mod usage;
mod xid_log;

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;

use octavo_hardware::{ChangeNotifications, DriverHandle};
use octavo_model::reason::Reason;
use octavo_node::labels::{self, LayoutState, Options};
use octavo_node::sharing::Offers;
use octavo_node::sharing::health::XidTable;
use octavo_node::sharing::usage::Usage;
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_toolkit::error::chain;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};
use tracing::{debug, info};

use crate::cluster::NodeClient;
use crate::control_socket::{CommandRequest, ControlSocket};
use crate::dra::DraPublisher;
use crate::liveness::Liveness;
use crate::observation_log::ObservationLog;
use crate::partitioning::Partitioning;
use crate::sharing::SharingBackend;
use crate::sink::{LabelSink, SinkError};
use crate::status_reporter::{Change, StatusReporter, publish};
use crate::uplink::Outbox;

/// Minimum time between two scans, however many hints the hardware sends: a storm of Xids needs only one scan.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time to finish a change in progress when the agent receives a stop signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(40);

/// Settings of the main loop.
#[derive(Debug, Clone)]
pub struct LoopSettings {
    /// Interval between scans of the hardware without a hint of a change.
    pub interval: Duration,
    /// Options of the label compiler.
    pub labels: Options,
    /// Effect of each Xid on the device that reports it.
    pub xids: XidTable,
}

/// Destinations of the observations.
#[expect(missing_debug_implementations, reason = "sinks are trait objects without Debug")]
pub struct Outputs<'a> {
    /// Sink for labels.
    pub sink: &'a mut dyn LabelSink,
    /// Queue of the uplink's reports; the uplink ends when this is dropped.
    pub outbox: Option<Outbox>,
    /// This machine's Node.
    pub cluster: Option<NodeClient>,
    /// Publication of devices for Dynamic Resource Allocation.
    pub dra: Option<DraPublisher>,
    /// Backend that allocates devices to pods.
    pub sharing: Option<Box<dyn SharingBackend>>,
    /// Usage by pod at the last scan.
    pub usage: Option<watch::Receiver<Arc<Usage>>>,
    /// The offered devices, for the observer of usage.
    pub offered: Option<watch::Sender<Arc<Offers>>>,
    /// Liveness and readiness of the agent.
    pub liveness: Liveness,
}

/// Reason for the loop to wake up.
enum Wakeup {
    /// A full scan is due, or something hints at a change.
    Scan,
    /// Only the backend that allocates devices reports a change.
    Allocation,
    /// A command sent a request.
    Command(CommandRequest),
}

/// Event sources that wake the loop.
struct EventSources {
    ticks: Interval,
    hints: ChangeNotifications,
    control_socket: Option<ControlSocket>,
    /// Changes of resource claims.
    claims: Option<watch::Receiver<u64>>,
}

impl EventSources {
    fn new(hardware: &DriverHandle, every: Duration, claims: Option<watch::Receiver<u64>>) -> Self {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, hints: hardware.changes(), control_socket: None, claims }
    }

    /// Waits for the next event. Cancel-safe, as is each arm: a tick, a hint or a change that is not taken remains
    /// pending.
    async fn next(&mut self, reporter: &mut StatusReporter<'_>, due: Option<Duration>) -> Wakeup {
        tokio::select! {
            _ = self.ticks.tick() => Wakeup::Scan,
            () = self.hints.changed() => {
                debug!("possible hardware change; scanning");
                Wakeup::Scan
            }
            change = reporter.changed() => match change {
                Change::Node => {
                    debug!("the Node changed; scanning");
                    Wakeup::Scan
                }
                Change::Allocation => {
                    debug!("the allocation status changed");
                    Wakeup::Allocation
                }
            },
            () = sleep(due.unwrap_or_default()), if due.is_some() => Wakeup::Scan,
            Some(request) = next_request(&mut self.control_socket) => Wakeup::Command(request),
            () = claims_changed(&mut self.claims) => {
                debug!("a resource claim needs a change; scanning");
                Wakeup::Scan
            }
        }
    }
}

/// Scans once and publishes once; before that it partitions the node where that is possible immediately. Returns why
/// the layout failed, if it did.
///
/// # Errors
/// Returns the sink's error.
pub async fn run_once(
    hardware: &DriverHandle,
    outputs: Outputs<'_>,
    mut partitioning: Option<Partitioning>,
    labels: &Options,
) -> Result<Option<String>, SinkError> {
    let mut inventory = hardware.observe().await;
    let mut layout = None;
    let mut cluster = outputs.cluster;
    if let Some(cluster) = &mut cluster {
        cluster.run_once(partitioning.as_mut()).await?;
        cluster.name(hardware);
        inventory = hardware.latest();
    }
    let mut status = None;
    if let Some(partitioning) = &mut partitioning {
        while partitioning.round(hardware, &inventory).await == Some(Duration::ZERO) {
            inventory = hardware.observe().await;
        }
        let now = partitioning.status(&inventory);
        layout = LayoutState::from_status(&now);
        status = Some(now);
    }
    ObservationLog::default().inventory(&inventory);
    let options = Options { layout, ..*labels };
    let labels = labels::compile(&inventory, &options, None).labels;
    if let Some(cluster) = &mut cluster {
        cluster.report(&inventory, &labels, status.as_ref());
    }
    publish(&inventory, outputs.sink, &labels).await?;
    if let Some(cluster) = &mut cluster {
        cluster.write_final_state().await;
    }
    Ok(partitioning.and_then(|partitioning| failure(&partitioning, status.as_ref()?)))
}

/// Returns why the layout failed on the node, if it did. A layout that is blocked, infeasible or waits for a reset did
/// not fail.
fn failure(partitioning: &Partitioning, status: &NodeLayoutStatus) -> Option<String> {
    let can_change = partitioning.owns_state_dir() || status.layout.is_none();
    if can_change && status.state != Some(Reason::Failed.into()) {
        return None;
    }
    let layout = status.layout.as_deref().unwrap_or("(none)");
    let mut devices = status.devices.iter();
    let device = devices.find(|device| device.state == Reason::Failed);
    let device = device.map(|device| format!("{}: {}", device.pci, device.message));
    let why: Vec<String> = device.into_iter().chain(status.notice.clone()).collect();
    Some(format!("layout {layout} failed: {}", why.join("; ")))
}

/// Scans, publishes and partitions until `shutdown` resolves. Published labels remain.
#[expect(clippy::too_many_lines, reason = "the steps of one iteration, in their order")]
pub async fn run(
    hardware: &DriverHandle,
    outputs: Outputs<'_>,
    mut partitioning: Option<Partitioning>,
    settings: &LoopSettings,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let claims = partitioning.as_ref().and_then(Partitioning::claim_changes);
    let mut events = EventSources::new(hardware, settings.interval, claims);
    let reporter = StatusReporter::new(outputs, settings.labels, partitioning.as_ref());
    let mut reporter = reporter.with_xids(hardware, settings.xids.clone());
    // The first tick is immediate, and so is the first scan.
    let mut shortest_wait = Duration::ZERO;
    let (mut listened, mut last, mut again) = (false, false, None);
    while !last {
        let waited = Instant::now();
        let earliest = waited + again.unwrap_or(shortest_wait).min(shortest_wait);
        shortest_wait = MIN_SCAN_INTERVAL.min(settings.interval);
        let due = soonest(again, reporter.next_report);
        let woken = tokio::select! {
            () = &mut shutdown => break,
            woken = events.next(&mut reporter, due) => woken,
        };
        if !pause(&mut shutdown, earliest).await {
            break;
        }
        let is_allocation = matches!(woken, Wakeup::Allocation);
        if let (Wakeup::Command(request), Some(partitioning)) = (woken, &mut partitioning) {
            handle_command(partitioning, hardware, request);
        }
        reporter.outputs.liveness.beat();
        let engine = partitioning.as_ref();
        if is_allocation && let Some(end) = reporter.report_allocations(hardware, engine).await {
            again = again.map(|wait| wait.saturating_sub(waited.elapsed()));
            if end.is_break() {
                break;
            }
            continue;
        }
        let waits = reporter.update_node_choice(hardware, partitioning.as_mut());
        let inventory = tokio::select! {
            () = &mut shutdown => break,
            inventory = hardware.observe() => inventory,
        };
        let before = partitioning.as_ref().map(|one| one.status(&inventory));
        let silent = inventory.nvml.driver().is_some()
            && is_unchecked(partitioning.as_ref(), before.as_ref());
        if !silent && reporter.report(&inventory, before.as_ref()).await.is_break() {
            break;
        }
        again = waits;
        if let Some(partitioning) = &mut partitioning {
            let (status, mut progress) = (before.clone(), partitioning.progress());
            let status = status.unwrap_or_default();
            let mut round = pin!(partitioning.round(hardware, &inventory));
            again = tokio::select! {
                again = &mut round => soonest(again, waits),
                () = reporter.report_progress(hardware, &mut events.ticks, &mut progress, &status) => break,
                () = &mut shutdown => {
                    // A change in progress is completed and reported if the driver permits; otherwise the journal
                    // retains it.
                    last = true;
                    reporter.finish_round(round).await
                }
            };
        }
        if let Some(partitioning) = &partitioning {
            if !listened && partitioning.owns_state_dir() {
                listened = true;
                events.control_socket = reporter.listen(partitioning);
            }
            let inventory = hardware.latest();
            let after = partitioning.status(&inventory);
            if (silent || before.as_ref() != Some(&after))
                && reporter.report(&inventory, Some(&after)).await.is_break()
            {
                break;
            }
        }
    }
    if let Some(partitioning) = &partitioning {
        partitioning.close();
    }
    reporter.write_final_state().await;
    info!("stopped; labels and partitions are unchanged");
}

/// Waits until `earliest`. Sets no timer if that time has passed, as it usually has in an idle agent. Returns `false` if
/// shutdown was requested meanwhile.
async fn pause(shutdown: &mut (impl Future<Output = ()> + Unpin), earliest: Instant) -> bool {
    if earliest <= Instant::now() {
        return true;
    }
    tokio::select! {
        () = shutdown => false,
        () = sleep_until(earliest) => true,
    }
}

/// Returns the shorter of two waits, if there is any.
fn soonest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

/// Returns whether the node was not compared with the selected layout yet: there is nothing to report before the first
/// round.
fn is_unchecked(partitioning: Option<&Partitioning>, status: Option<&NodeLayoutStatus>) -> bool {
    let nothing_known = |status: &NodeLayoutStatus| {
        status.layout.is_some() && status.state.is_none() && status.notice.is_none()
    };
    partitioning.is_some_and(Partitioning::has_pending_choice) || status.is_some_and(nothing_known)
}

/// Returns the next request of a command; pending forever without a socket.
async fn next_request(socket: &mut Option<ControlSocket>) -> Option<CommandRequest> {
    match socket {
        Some(socket) => socket.next().await,
        None => pending().await,
    }
}

/// Waits for a change of resource claims; pending forever without claims. Cancel-safe.
async fn claims_changed(claims: &mut Option<watch::Receiver<u64>>) {
    if let Some(claims) = claims
        && claims.changed().await.is_ok()
    {
        return;
    }
    pending::<()>().await;
}

fn handle_command(
    partitioning: &mut Partitioning,
    hardware: &DriverHandle,
    request: CommandRequest,
) {
    let answer = match &request.choice {
        Some(choice) => partitioning.choose(choice, &hardware.latest()),
        None => partitioning.forget(&hardware.latest()),
    };
    // A request is carried out even if the command has disconnected.
    let _gone = request.reply.send(answer.map_err(|error| chain(&error)));
}
