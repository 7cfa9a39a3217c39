//! The node's main loop: scans the hardware, computes labels, publishes them, and repeats.
//!
//! ```text
//!   hw::Hints -----------+
//!   interval ----------+--> observe --> domain::labels::compile --> LabelSink
//!   shutdown ----------+                 |
//!   pod events ----------- last observation
//!                                        +--> uplink: the aggregator, in a task of its own
//!                                        +--> partitioning: one round of the engine, and then another scan
//! ```
//!
//! The loop makes no decisions: the hardware is described by `hw`, and the labels are computed by `domain`. Its only
//! state is what it logged last, so that a lasting failure is one line and not ten thousand. It ends when it receives
//! a stop signal, or when the reader of its output is gone; hardware, driver and disk may fail and come back.

pub mod cluster;
pub mod draining;
pub mod feature_file;
pub mod local;
mod log;
pub mod metrics;
mod names;
pub mod node_sink;
pub mod partitioning;
pub mod pulse;
pub mod sharing;
pub mod sink;
mod teller;
pub mod uplink;
pub mod usage;
mod xids;

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Duration, Instant, Interval, MissedTickBehavior, interval, sleep};
use tracing::{debug, info};

use crate::agent::cluster::Cluster;
use crate::agent::local::{Asked, Desk};
use crate::agent::log::Log;
use crate::agent::partitioning::Partitioning;
use crate::agent::pulse::Pulse;
use crate::agent::sharing::Giver;
use crate::agent::sink::{LabelSink, SinkError};
use crate::agent::teller::{News, Teller, publish};
use crate::agent::uplink::Outbox;
use crate::domain::error::chain;
use crate::domain::labels::{self, LayoutState, Options};
use crate::domain::reason::Reason;
use crate::domain::reconcile::Status;
use crate::domain::sharing::Offers;
use crate::domain::sharing::health::Table;
use crate::domain::sharing::usage::Usage;
use crate::hw::{Handle, Hints};

/// Minimum time between two scans, however many hints the hardware sends: a storm of Xids needs only one scan.
const BREATH: Duration = Duration::from_millis(100);
/// Maximum time to finish a change in progress when the agent receives a stop signal.
const LAST_WAIT: Duration = Duration::from_secs(40);

/// Settings of the main loop.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Interval between scans of the hardware without a hint of a change.
    pub interval: Duration,
    /// Options of the label compiler.
    pub labels: Options,
    /// Effect of each Xid on the device that reports it.
    pub xids: Table,
}

/// Destinations of the observations.
#[expect(missing_debug_implementations, reason = "a sink is somebody's writer")]
pub struct Outputs<'a> {
    /// Sink for labels.
    pub sink: &'a mut dyn LabelSink,
    /// Queue of the uplink's reports; the uplink ends when this is dropped.
    pub outbox: Option<Outbox>,
    /// This machine's Node.
    pub cluster: Option<Cluster>,
    /// Backend that allocates devices to pods.
    pub giver: Option<Box<dyn Giver>>,
    /// Usage by pod at the last scan.
    pub usage: Option<watch::Receiver<Arc<Usage>>>,
    /// The offered devices, for the observer of usage.
    pub offered: Option<watch::Sender<Arc<Offers>>>,
    /// Liveness and readiness of the agent.
    pub pulse: Pulse,
}

/// Reason for the loop to wake up.
enum Woken {
    /// A full scan is due, or something hints at a change.
    Look,
    /// Only the backend that allocates devices reports a change.
    Given,
    /// A command sent a request.
    Asked(Asked),
}

/// Event sources that wake the loop.
struct Ears {
    ticks: Interval,
    hints: Hints,
    desk: Option<Desk>,
}

impl Ears {
    fn new(hardware: &Handle, every: Duration) -> Self {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            ticks,
            hints: hardware.hints(),
            desk: None,
        }
    }

    /// Waits for the next event. Cancel-safe, as is each arm: a tick, a hint or a change that is not taken remains
    /// pending.
    async fn heard(&mut self, teller: &mut Teller<'_>, due: Option<Duration>) -> Woken {
        tokio::select! {
            _ = self.ticks.tick() => Woken::Look,
            () = self.hints.changed() => {
                debug!("the hardware hints at a change");
                Woken::Look
            }
            news = teller.changed() => match news {
                News::Node => {
                    debug!("the Node says something else");
                    Woken::Look
                }
                News::Given => {
                    debug!("who gives devices out says something else");
                    Woken::Given
                }
            },
            () = sleep(due.unwrap_or_default()), if due.is_some() => Woken::Look,
            Some(asked) = next(&mut self.desk) => Woken::Asked(asked),
        }
    }
}

/// Scans once and publishes once; before that it partitions the node where that is possible immediately. Returns why
/// the layout failed, if it did.
///
/// # Errors
/// Returns the sink's error.
pub async fn run_once(
    hardware: &Handle,
    outputs: Outputs<'_>,
    mut partitioning: Option<Partitioning>,
    labels: &Options,
) -> Result<Option<String>, SinkError> {
    let mut inventory = hardware.observe().await;
    let mut layout = None;
    let mut cluster = outputs.cluster;
    if let Some(cluster) = &mut cluster {
        cluster.look(partitioning.as_mut()).await?;
        cluster.name(hardware);
        inventory = hardware.latest();
    }
    let mut status = None;
    if let Some(partitioning) = &mut partitioning {
        while partitioning.round(hardware, &inventory).await == Some(Duration::ZERO) {
            inventory = hardware.observe().await;
        }
        let now = partitioning.status(&inventory);
        layout = LayoutState::of(&now);
        status = Some(now);
    }
    Log::default().inventory(&inventory);
    let options = Options { layout, ..*labels };
    let labels = labels::compile(&inventory, &options, None).labels;
    if let Some(cluster) = &mut cluster {
        cluster.say(&inventory, &labels, status.as_ref());
    }
    publish(&inventory, outputs.sink, &labels).await?;
    if let Some(cluster) = &mut cluster {
        cluster.leave().await;
    }
    Ok(partitioning.and_then(|partitioning| failure(&partitioning, status.as_ref()?)))
}

/// Returns why the layout failed on the node, if it did. A layout that is blocked, infeasible or waits for a reset did
/// not fail.
fn failure(partitioning: &Partitioning, status: &Status) -> Option<String> {
    let failed = Reason::Failed.word();
    let can_change = partitioning.is_open() || status.layout.is_none();
    if can_change && status.state != Some(failed) {
        return None;
    }
    let layout = status.layout.as_deref().unwrap_or("(none)");
    let mut devices = status.devices.iter();
    let device = devices.find(|device| device.state == failed);
    let device = device.map(|device| format!("{}: {}", device.pci, device.message));
    let why: Vec<String> = device.into_iter().chain(status.notice.clone()).collect();
    Some(format!("layout {layout} failed: {}", why.join("; ")))
}

/// Scans, publishes and partitions until `shutdown` resolves. Published labels remain.
pub async fn run(
    hardware: &Handle,
    outputs: Outputs<'_>,
    mut partitioning: Option<Partitioning>,
    settings: &Settings,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut ears = Ears::new(hardware, settings.interval);
    let teller = Teller::new(outputs, settings.labels, partitioning.as_ref());
    let mut teller = teller.hearing(hardware, settings.xids.clone());
    let (mut listened, mut last, mut again) = (false, false, None);
    while !last {
        let waited = Instant::now();
        let due = soonest(again, teller.again);
        let woken = tokio::select! {
            () = &mut shutdown => break,
            woken = ears.heard(&mut teller, due) => woken,
        };
        let given = matches!(woken, Woken::Given);
        if let (Woken::Asked(asked), Some(partitioning)) = (woken, &mut partitioning) {
            answer(partitioning, hardware, asked);
        }
        teller.outputs.pulse.beat();
        if given && let Some(told) = teller.tell_given(hardware, partitioning.as_ref()).await {
            again = again.map(|wait| wait.saturating_sub(waited.elapsed()));
            if told.is_break() || !rest(&mut shutdown, settings, again).await {
                break;
            }
            continue;
        }
        let waits = teller.follow_node(hardware, partitioning.as_mut());
        let inventory = tokio::select! {
            () = &mut shutdown => break,
            inventory = hardware.observe() => inventory,
        };
        let before = partitioning.as_ref().map(|one| one.status(&inventory));
        let silent = inventory.nvml.driver().is_some()
            && is_unlooked(partitioning.as_ref(), before.as_ref());
        if !silent && teller.tell(&inventory, before.as_ref()).await.is_break() {
            break;
        }
        again = waits;
        if let Some(partitioning) = &mut partitioning {
            let (status, mut progress) =
                (before.clone().unwrap_or_default(), partitioning.progress());
            let mut round = pin!(partitioning.round(hardware, &inventory));
            again = tokio::select! {
                again = &mut round => soonest(again, waits),
                () = teller.meanwhile(hardware, &mut ears.ticks, &mut progress, &status) => break,
                () = &mut shutdown => {
                    // A change in progress is completed and reported if the driver permits; otherwise the journal
                    // retains it.
                    last = true;
                    teller.last(round).await
                }
            };
        }
        if let Some(partitioning) = &partitioning {
            if !listened && partitioning.is_open() {
                listened = true;
                ears.desk = teller.listen(partitioning);
            }
            let inventory = hardware.latest();
            let after = partitioning.status(&inventory);
            if (silent || before.as_ref() != Some(&after))
                && teller.tell(&inventory, Some(&after)).await.is_break()
            {
                break;
            }
        }
        if !last && !rest(&mut shutdown, settings, again).await {
            break;
        }
    }
    teller.leave().await;
    info!("stopped; labels and partitions stay as they are");
}

/// Sleeps for [`BREATH`], but not longer than `again`. Returns `false` if shutdown was requested meanwhile.
async fn rest(
    shutdown: &mut (impl Future<Output = ()> + Unpin),
    settings: &Settings,
    again: Option<Duration>,
) -> bool {
    let breath = BREATH.min(settings.interval).min(again.unwrap_or(BREATH));
    tokio::select! {
        () = shutdown => false,
        () = sleep(breath) => true,
    }
}

/// Returns the shorter of two waits, if there is any.
fn soonest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

/// Returns whether the node was not compared with the selected layout yet: there is nothing to report before the first
/// round.
fn is_unlooked(partitioning: Option<&Partitioning>, status: Option<&Status>) -> bool {
    let nothing_known = |status: &Status| {
        status.layout.is_some() && status.state.is_none() && status.notice.is_none()
    };
    partitioning.is_some_and(Partitioning::is_due) || status.is_some_and(nothing_known)
}

/// Returns the next request of a command; pending forever without a socket.
async fn next(desk: &mut Option<Desk>) -> Option<Asked> {
    match desk {
        Some(desk) => desk.next().await,
        None => pending().await,
    }
}

fn answer(partitioning: &mut Partitioning, hardware: &Handle, asked: Asked) {
    let answer = match &asked.choice {
        Some(choice) => partitioning.choose(choice, &hardware.latest()),
        None => partitioning.forget(&hardware.latest()),
    };
    // A request is carried out even if the command has disconnected.
    let _gone = asked.reply.send(answer.map_err(|error| chain(&error)));
}
