//! The node's shell: looks at the hardware, compiles labels, publishes them, and does it again.
//!
//! ```text
//!   hw::Hints -----------+
//!   interval ----------+--> observe --> domain::labels::compile --> LabelSink
//!   shutdown ----------+                 |
//!                                        +--> uplink: the aggregator, in a task of its own
//!                                        +--> partitioning: one round of the engine, and then another look
//! ```
//!
//! Nothing here decides anything: what the hardware is comes from `hw`, what the labels are from `domain`. The loop has
//! no state of its own but what it last said in the log, so that a long night of the same trouble is one line and not
//! ten thousand. It ends when it is told to, or when whoever read its output is gone: hardware, driver and disk may
//! fail and come back.

pub mod cluster;
pub mod feature_file;
pub mod local;
mod log;
pub mod metrics;
pub mod node_sink;
pub mod partitioning;
pub mod pulse;
pub mod sink;
pub mod uplink;

use std::future::{Future, pending};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Duration, Interval, MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, info};

use crate::agent::cluster::Cluster;
use crate::agent::local::{Asked, Desk};
use crate::agent::log::Log;
use crate::agent::metrics::Applies;
use crate::agent::partitioning::Partitioning;
use crate::agent::pulse::Pulse;
use crate::agent::sink::{Claim, LabelSink, Published, Sheet, SinkError};
use crate::agent::uplink::Outbox;
use crate::apply::executor::Board;
use crate::domain::error::chain;
use crate::domain::inventory::{Inventory, NvmlState};
use crate::domain::labels::{self, LabelSet, LayoutState, Options};
use crate::domain::reconcile::{DeviceStatus, State, Status};
use crate::hw::Handle;
use crate::wire::local as wire_local;

/// Between two looks at least this long, however often the hardware cries: a storm of Xids is one thing to look at.
const BREATH: Duration = Duration::from_millis(100);
/// How long a change that is under way may take when the agent is told to end.
const LAST_WAIT: Duration = Duration::from_secs(40);

/// What the loop needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How often the hardware is looked at when nothing hints at a change.
    pub interval: Duration,
    /// Which labels.
    pub labels: Options,
}

/// Where what is seen goes.
#[expect(missing_debug_implementations, reason = "a sink is somebody's writer")]
pub struct Outputs<'a> {
    /// The labels' place.
    pub sink: &'a mut dyn LabelSink,
    /// What an uplink shall report, which ends when this does.
    pub outbox: Option<Outbox>,
    /// This machine's Node.
    pub cluster: Option<Cluster>,
    /// Who asks whether this lives.
    pub pulse: Pulse,
}

/// Looks once and publishes once; before that it partitions the node as far as that is possible now. An error is that of the
/// sink.
pub async fn run_once(
    hardware: &Handle,
    outputs: Outputs<'_>,
    mut partitioning: Option<Partitioning>,
    labels: &Options,
) -> Result<(), SinkError> {
    let mut inventory = hardware.observe().await;
    let mut layout = None;
    let mut cluster = outputs.cluster;
    if let Some(cluster) = &mut cluster {
        cluster.look(partitioning.as_mut()).await?;
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
    let labels = labels::compile(&inventory, &options).labels;
    if let Some(cluster) = &mut cluster {
        cluster.say(&inventory, &labels, status.as_ref());
    }
    publish(&inventory, outputs.sink, &labels).await?;
    if let Some(cluster) = &cluster {
        cluster.leave().await;
    }
    Ok(())
}

/// Looks, publishes and partitions until `shutdown` resolves. What was published stays.
pub async fn run(
    hardware: &Handle,
    outputs: Outputs<'_>,
    mut partitioning: Option<Partitioning>,
    settings: &Settings,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut ticks = interval(settings.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hints = hardware.hints();
    let mut teller = Teller::new(outputs, settings.labels, partitioning.as_ref());
    let (mut desk, mut listened, mut last) = (None, false, false);
    let mut again: Option<Duration> = None;
    while !last {
        let due = soonest(again, teller.again);
        // Each arm can be dropped at any time: a tick, a hint and a signal that are not taken now are still there later.
        tokio::select! {
            () = &mut shutdown => break,
            _ = ticks.tick() => {}
            () = hints.changed() => debug!("the hardware hints at a change"),
            () = teller.node_changed() => debug!("the Node says something else"),
            () = sleep(due.unwrap_or_default()), if due.is_some() => {}
            Some(asked) = next(&mut desk) => {
                if let Some(partitioning) = &mut partitioning {
                    answer(partitioning, hardware, asked);
                }
            }
        }
        teller.outputs.pulse.beat();
        let waits = teller.follow_node(partitioning.as_mut());
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
                () = teller.meanwhile(hardware, &mut ticks, &mut progress, &status) => break,
                () = &mut shutdown => {
                    // What is half done is brought to its end, if the driver lets it, and told; else the journal has it.
                    last = true;
                    timeout(LAST_WAIT, round).await.unwrap_or_default()
                }
            };
        }
        if let Some(partitioning) = &partitioning {
            if !listened && partitioning.is_open() {
                listened = true;
                desk = teller.listen(partitioning);
            }
            let inventory = hardware.latest();
            let after = partitioning.status(&inventory);
            if (silent || before.as_ref() != Some(&after))
                && teller.tell(&inventory, Some(&after)).await.is_break()
            {
                break;
            }
        }
        let breath = BREATH.min(settings.interval).min(again.unwrap_or(BREATH));
        tokio::select! {
            () = &mut shutdown, if !last => break,
            () = sleep(breath) => {}
        }
    }
    teller.leave().await;
    info!("stopped; labels and partitions stay as they are");
}

/// The shorter of two waits, where there is one.
fn soonest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

/// Whether nobody has held the node against what is chosen yet: there is nothing to say of it before the round has.
fn is_unlooked(partitioning: Option<&Partitioning>, status: Option<&Status>) -> bool {
    let nothing_known = |status: &Status| {
        status.layout.is_some() && status.state.is_none() && status.notice.is_none()
    };
    partitioning.is_some_and(Partitioning::is_due) || status.is_some_and(nothing_known)
}

/// The next thing that a command asks for; never where there is no socket.
async fn next(desk: &mut Option<Desk>) -> Option<Asked> {
    match desk {
        Some(desk) => desk.asked.recv().await,
        None => pending().await,
    }
}

fn answer(partitioning: &mut Partitioning, hardware: &Handle, asked: Asked) {
    let answer = match &asked.choice {
        Some(choice) => partitioning.choose(choice, &hardware.latest()),
        None => partitioning.forget(),
    };
    // Who has gone meanwhile is no reason not to do it.
    let _gone = asked.reply.send(answer.map_err(|error| chain(&error)));
}

/// Says what was seen, wherever it is to be said.
struct Teller<'a> {
    outputs: Outputs<'a>,
    labels: Options,
    log: Log,
    /// Where it is counted.
    applies: Option<Applies>,
    /// For commands that watch.
    status: Option<watch::Sender<Arc<wire_local::Status>>>,
    /// When there is something to be said again, whatever happens.
    again: Option<Duration>,
}

impl<'a> Teller<'a> {
    fn new(outputs: Outputs<'a>, labels: Options, partitioning: Option<&Partitioning>) -> Self {
        Self {
            outputs,
            labels,
            log: Log::default(),
            applies: partitioning.map(|one| one.applies().clone()),
            status: None,
            again: None,
        }
    }

    /// Waits until the Node says something else; for ever where there is none.
    async fn node_changed(&mut self) {
        match &mut self.outputs.cluster {
            Some(cluster) => cluster.changed().await,
            None => pending().await,
        }
    }

    /// Lets the Node choose the layout; says when to come again, where that is before it says something else.
    fn follow_node(&mut self, partitioning: Option<&mut Partitioning>) -> Option<Duration> {
        let (following, again) = self.outputs.cluster.as_mut()?.follow();
        partitioning?.follow(following, again.is_some());
        again
    }

    /// The socket for commands, whose watchers are told too.
    fn listen(&mut self, partitioning: &Partitioning) -> Option<Desk> {
        let desk = partitioning.listen()?;
        self.status = Some(desk.status.clone());
        Some(desk)
    }

    async fn leave(&self) {
        if let Some(cluster) = &self.outputs.cluster {
            cluster.leave().await;
        }
    }

    /// Breaks where nobody reads the labels any more.
    async fn tell(
        &mut self,
        inventory: &Arc<Inventory>,
        status: Option<&Status>,
    ) -> ControlFlow<()> {
        self.log.inventory(inventory);
        if let (Some(applies), Some(status)) = (&self.applies, status) {
            applies.stands(status);
        }
        if let (Some(watched), Some(status)) = (&self.status, status) {
            let new = wire_local::Status::from(status);
            watched.send_if_modified(|known| {
                let differs = **known != new;
                if differs {
                    *known = Arc::new(new);
                }
                differs
            });
        }
        let options = Options {
            layout: status.and_then(LayoutState::of),
            ..self.labels
        };
        let labels = labels::compile(inventory, &options).labels;
        if let Some(outbox) = &mut self.outputs.outbox {
            outbox.put(inventory, &labels, status);
        }
        self.outputs.pulse.beat();
        let mut served = true;
        if let Some(cluster) = &mut self.outputs.cluster {
            self.again = cluster.say(inventory, &labels, status);
            served = cluster.is_heard();
        }
        let outcome = publish(inventory, self.outputs.sink, &labels).await;
        if served && outcome.is_ok() {
            self.outputs.pulse.serves();
        }
        if outcome.as_ref().is_err_and(SinkError::has_no_reader) {
            info!("nobody reads the labels any more");
            return ControlFlow::Break(());
        }
        self.log.publishing(outcome);
        ControlFlow::Continue(())
    }

    /// While devices are being changed nothing is read; how far they are is told, and that a call hangs.
    async fn meanwhile(
        &mut self,
        hardware: &Handle,
        ticks: &mut Interval,
        progress: &mut watch::Receiver<Board>,
        status: &Status,
    ) {
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = progress.changed() => if changed.is_err() {
                    pending::<()>().await;
                },
            }
            let inventory = hardware.latest();
            let now = during(status, &inventory, &progress.borrow_and_update());
            // Before the first look is over there is nothing to say of it.
            if now.layout.is_some() && now.state.is_none() && now.notice.is_none() {
                continue;
            }
            if self.tell(&inventory, Some(&now)).await.is_break() {
                return;
            }
            // Steps follow each other faster than anybody reads.
            sleep(BREATH).await;
        }
    }
}

/// The status while devices are being changed.
fn during(status: &Status, inventory: &Inventory, board: &Board) -> Status {
    let mut status = status.clone();
    for (pci, progress) in board {
        let now = DeviceStatus {
            progress: Some(progress.clone()),
            ..DeviceStatus::new(inventory, *pci, &State::Applying)
        };
        match status.devices.iter_mut().find(|device| device.pci == *pci) {
            Some(device) => *device = now,
            None => status.devices.push(now),
        }
        status.state = Some(State::Applying.as_str());
    }
    status.devices.sort_by_key(|device| device.pci);
    status
}

async fn publish(
    inventory: &Inventory,
    sink: &mut dyn LabelSink,
    labels: &LabelSet,
) -> Result<Published, SinkError> {
    let sheet = Sheet {
        labels,
        inventory,
        claim: claim(&inventory.nvml),
        now: Timestamp::now(),
    };
    sink.publish(sheet).await
}

/// A call that hangs before the driver said which it is hangs before anything was read.
fn claim(nvml: &NvmlState) -> Claim {
    match nvml {
        NvmlState::Stalled { driver: None, .. } => Claim::Unread,
        NvmlState::Absent { .. }
        | NvmlState::Loading
        | NvmlState::Ready(_)
        | NvmlState::Lost { .. }
        | NvmlState::Stalled {
            driver: Some(_), ..
        } => Claim::Read,
    }
}
