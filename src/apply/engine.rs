//! The apply loop. Each round observes, decides, writes the journal, changes devices, observes again and writes the
//! history.

mod begun;
mod reboot;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::executor::{self, Board, Outcome};
use super::reset::Resets;
use super::store::{Found, Store, StoreError};
use super::witness::{self, Witness};
use crate::domain::error::chain;
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Inventory};
use crate::domain::layout::Targets;
use crate::domain::plan::Policy;
use crate::domain::reason::Reason;
use crate::domain::reconcile::{
    Decision, DeviceStatus, Drift, Ending, InterruptedChange, Limits, Node, Past, Record, State,
    Status, View,
};
use crate::hw::Handle;

/// Engine settings: policy, drift handling, time limits and reset methods.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which changes are allowed.
    pub policy: Policy,
    /// How to respond to changes made by others.
    pub drift: Drift,
    /// Time limits and retry counts.
    pub limits: Limits,
    /// Available reset methods.
    pub resets: Resets,
    /// The program recorded in the history: `agent` or `command`.
    pub by: &'static str,
}

/// A desired layout, resolved for this node.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The layout's name.
    pub layout: &'a str,
    /// The layout resolved to targets on this node.
    pub targets: &'a Targets,
}

/// Devices whose interrupted change is completed although the current layout asks for something else or nothing, with
/// the layout of that change.
type Others = BTreeMap<PciAddress, String>;

/// The input of one round of changes.
#[derive(Clone, Copy)]
struct Task<'a> {
    holders: &'a [Holder],
    inventory: &'a Arc<Inventory>,
    targets: &'a Targets,
    decision: &'a Decision,
    plan: &'a str,
    layout: &'a str,
    /// Devices whose interrupted change is completed, with the layout of that change.
    others: &'a Others,
}

/// The result of a round.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// Results of the devices that were changed or could not be changed.
    pub outcomes: Vec<Outcome>,
    /// Devices whose applied layout was changed by others.
    pub drifted: Vec<PciAddress>,
    /// When to start the next round, even if nothing indicates a change.
    pub again: Option<Duration>,
    /// Duration from the first to the last observation.
    pub took: Duration,
}

/// Applies layouts to a node. Only one engine runs on a node at a time, because it holds the lock of the state
/// directory.
#[derive(Debug)]
pub struct Engine {
    store: Store,
    settings: Settings,
    witness: Arc<dyn Witness>,
    node: Node,
    /// The content of the journal.
    record: Option<Record>,
    progress: watch::Sender<Board>,
    began: Instant,
    plan: Option<String>,
    rounds: u32,
    /// The current problem with the journal or the state directory.
    notice: Option<String>,
    /// Unreadable journals that are not yet discarded, one report each.
    unreadable: Vec<String>,
    /// Changes completed for other layouts since the current one was selected.
    interrupted: BTreeMap<PciAddress, InterruptedChange>,
    /// The message last logged for each device that is left unchanged.
    said: BTreeMap<PciAddress, String>,
    /// Whether the journal file is out of date.
    stale: bool,
    past: Past,
    /// The latest time until which a running reset is awaited.
    end: Option<Instant>,
}

impl Engine {
    /// Opens the state directory and resumes interrupted changes. Publishes its progress through `progress`.
    pub fn open(
        folder: &Path,
        settings: Settings,
        witness: Arc<dyn Witness>,
        progress: watch::Sender<Board>,
    ) -> Result<Self, StoreError> {
        let store = Store::open(folder, settings.by)?;
        let record = match store.journal()? {
            // The unreadable journal is reported below, together with those of earlier starts.
            Found::Nothing | Found::Unreadable { .. } => None,
            Found::Begun(record) => {
                warn!(
                    "plan {} (layout {}) was begun and not ended; it is taken up again",
                    record.plan, record.layout
                );
                Some(record)
            }
        };
        let unreadable = store.unreadable();
        for notice in &unreadable {
            error!("{notice}");
        }
        let last_plan = store.last_plan();
        Ok(Self {
            store,
            settings,
            witness,
            node: Node::default(),
            record,
            progress,
            began: Instant::now(),
            plan: last_plan,
            rounds: 0,
            notice: None,
            unreadable,
            interrupted: BTreeMap::new(),
            said: BTreeMap::new(),
            stale: false,
            past: Past::default(),
            end: None,
        })
    }

    /// Sets the latest time until which a round waits for a running reset.
    pub fn wait_until(&mut self, end: Instant) {
        self.end = Some(end);
    }

    /// Resets the state of these devices because their targets changed.
    pub fn select(&mut self, devices: &BTreeSet<PciAddress>) {
        self.node.select(devices);
        self.interrupted.clear();
    }

    /// Resets the state of all devices because their targets changed.
    pub fn select_all(&mut self) {
        self.node.select_all();
    }

    /// Compares the node with the desired layout and applies every change that is possible. Returns when every device
    /// has reached a result, success or failure.
    pub async fn round(
        &mut self,
        hardware: &Handle,
        inventory: &Arc<Inventory>,
        wanted: Wanted<'_>,
    ) -> Round {
        let began = Instant::now();
        let settled = self.settle(hardware, inventory, wanted).await;
        let inventory = match &settled {
            Ok(Some(fresh)) => fresh,
            Ok(None) | Err(_) => inventory,
        };
        if self.stale {
            self.keep();
        }
        self.drop_strangers(inventory);
        self.drop_untouched(inventory);
        let targets = self.with_unfinished(inventory, wanted.targets);
        let (mut holders, mut untold) = (Vec::new(), None);
        if self.has_to_do(inventory, &targets) {
            (holders, untold) = witness::everybody(&self.witness, inventory).await;
        }
        let decision = self.decide(inventory, &targets, (&holders, untold.as_deref()));
        self.say_left(inventory);
        self.settle_reached(inventory, wanted);
        if decision.change.is_empty() {
            self.forget_reboot();
            return Round {
                again: decision.again,
                ..Round::default()
            };
        }
        self.rounds = self.rounds.saturating_add(1);
        let plan = plan_id(self.rounds);
        self.plan = Some(plan.clone());
        self.say_drifted(inventory, &decision.drifted);
        let others = self.others(inventory, wanted, &decision);
        let task = Task {
            inventory,
            targets: &targets,
            holders: &holders,
            decision: &decision,
            plan: &plan,
            layout: wanted.layout,
            others: &others,
        };
        // Keep the devices closed to allocation until the end of the round, after the new state has been read.
        let _closed = self.witness.close(&decision.change);
        let mut outcomes = match &settled {
            Ok(_) => self.change(hardware, task).await,
            Err(reason) => refused_all(&decision, &format!("nothing was changed: {reason}")),
        };
        // Use the state from before a reset: a device reads differently after it, and the next round continues
        // immediately.
        let read = hardware.latest();
        let reset = self.reset(hardware, &mut outcomes).await;
        self.reboot(&read, wanted.layout, &mut outcomes).await;
        let holders = self.holders(&read).await;
        for outcome in &outcomes {
            self.ended((&read, &holders), outcome);
        }
        for pci in reset {
            self.node.was_reset(pci);
        }
        self.say_interrupted(&read, (&others, &outcomes));
        let took = began.elapsed();
        // Write the history before clearing the journal. After a crash in between, the change is in both, and never in
        // neither.
        self.remember(&read, (&plan, wanted.layout), (&others, &outcomes), took);
        // Write once for all devices, because each write waits for the disk.
        self.keep();
        Round {
            outcomes,
            drifted: decision.drifted,
            again: Some(Duration::ZERO),
            took,
        }
    }

    /// Returns the current status of the node.
    pub fn status(&self, inventory: &Inventory, layout: Option<&str>) -> Status {
        let board = self.progress.borrow();
        let devices = self.node.states().map(|(pci, state)| DeviceStatus {
            progress: board.get(&pci).cloned(),
            ..self.device_status(inventory, layout, (pci, state))
        });
        Status {
            layout: layout.map(ToOwned::to_owned),
            by_hand: false,
            label: None,
            layouts: None,
            generation: 0,
            meaning: 0,
            plan: self.plan.clone(),
            state: self.node.worst().map(State::as_str),
            notice: self.notices(inventory),
            drain: None,
            devices: devices.collect(),
            interrupted: self.interrupted.values().cloned().collect(),
            asked: None,
            sharing: None,
            past: self.past.clone(),
        }
    }

    fn decide(
        &mut self,
        inventory: &Inventory,
        targets: &Targets,
        (holders, untold): (&[Holder], Option<&str>),
    ) -> Decision {
        let now = self.began.elapsed();
        let unfinished = self.unsettled(inventory);
        let absent = self.absent(inventory);
        let view = View {
            inventory,
            targets,
            holders,
            untold,
            policy: &self.settings.policy,
            drift: self.settings.drift,
            unfinished: &unfinished,
            absent: &absent,
        };
        let mut decision = self.node.look(now, &view);
        decision.again = decision.again.map(|at| at.saturating_sub(now));
        decision
    }

    /// Returns the current holders. Callers that destroy instances check again; if the holders are unknown then, the
    /// device counts as in use.
    async fn holders(&self, inventory: &Inventory) -> Vec<Holder> {
        witness::everybody(&self.witness, inventory).await.0
    }

    /// Writes the journal, then runs the change. If the journal cannot be written, nothing is changed.
    async fn change(&mut self, hardware: &Handle, task: Task<'_>) -> Vec<Outcome> {
        let all = |reason: &str| refused_all(task.decision, reason);
        let jobs = self.jobs(task);
        let record = self.record_of(task, &jobs);
        if let Err(error) = self.store.begin(&record) {
            let reason = format!("nothing was changed: {}", chain(&error));
            error!("{reason}");
            return all(&reason);
        }
        self.record = Some(record);
        for pci in &task.decision.change {
            self.node.began(*pci);
        }
        let (plan, layout, count) = (task.plan, task.layout, task.decision.change.len());
        let reason = Reason::Applying.word();
        info!(reason = %reason, "plan {plan}: layout {layout}, devices to change: {count}");
        let witness = Arc::clone(&self.witness);
        let running = executor::run(hardware, jobs, witness, self.progress.clone());
        match running.await {
            Ok(outcomes) => outcomes,
            Err(error) => all(&error.to_string()),
        }
    }
}

fn find(inventory: &Inventory, pci: PciAddress) -> Option<&Device> {
    inventory.devices.iter().find(|device| device.pci == pci)
}

fn refused_all(decision: &Decision, reason: &str) -> Vec<Outcome> {
    let devices = decision.change.iter();
    devices.map(|pci| refused(*pci, reason)).collect()
}

fn refused(pci: PciAddress, reason: &str) -> Outcome {
    Outcome {
        pci,
        ending: Ending::Failed {
            reason: reason.to_owned(),
            rollback: None,
        },
        work: crate::domain::reconcile::Work::default(),
        took: Duration::ZERO,
        hardware: Duration::ZERO,
    }
}

/// Returns a new plan ID, the creation time in microseconds and the round number of this process:
/// `20261121T193044.012345Z-3`. IDs are unique because only one process at a time creates plans.
fn plan_id(round: u32) -> String {
    let now = Timestamp::now().strftime("%Y%m%dT%H%M%S.%6fZ").to_string();
    format!("{now}-{round}")
}
