//! The apply loop. Each round observes, decides, writes the journal, changes devices, observes again and writes the
//! history.

mod journal;
mod reboot;
mod reporting;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_hardware::DriverHandle;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_planner::layout::Targets;
use octavo_planner::plan::Policy;
use octavo_planner::reconcile::{
    ApplyRecord, ChangeHistory, ChangeRequest, ChangeRound, Decision, DeviceLayoutStatus,
    DriftPolicy, InterruptedChange, Limits, NodeLayoutStatus, NodeReconciler, ReconcileInput,
};
use octavo_toolkit::error::chain;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::executor::{self, Outcome, ProgressByDevice};
use super::reset::ResetMethods;
use super::store::{JournalState, Store, StoreError};
use super::usage::{self, UsageProbe};

/// Engine settings: policy, drift handling, time limits and reset methods.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which changes are allowed.
    pub policy: Policy,
    /// How to respond to changes made by others.
    pub drift: DriftPolicy,
    /// Time limits and retry counts.
    pub limits: Limits,
    /// Available reset methods.
    pub resets: ResetMethods,
    /// The program recorded in the history: `agent` or `command`.
    pub by: &'static str,
}

/// A desired layout, resolved for this node.
#[derive(Debug, Clone, Copy)]
pub struct DesiredLayout<'a> {
    /// The layout's name.
    pub layout: &'a str,
    /// The layout resolved to targets on this node.
    pub targets: &'a Targets,
}

/// Devices whose interrupted change is completed although the current layout asks for something else or nothing, with
/// the layout of that change.
type InterruptedLayouts = BTreeMap<PciAddress, String>;

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
    usage_probe: Arc<dyn UsageProbe>,
    node: NodeReconciler,
    /// The content of the journal.
    record: Option<ApplyRecord>,
    progress: watch::Sender<ProgressByDevice>,
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
    logged: BTreeMap<PciAddress, String>,
    /// Whether the journal file is out of date.
    is_journal_stale: bool,
    past: ChangeHistory,
    /// The latest time until which a running reset is awaited.
    reset_deadline: Option<Instant>,
}

impl Engine {
    /// Opens the state directory and resumes interrupted changes. Publishes its progress through `progress`.
    pub fn open(
        state_dir: &Path,
        settings: Settings,
        usage_probe: Arc<dyn UsageProbe>,
        progress: watch::Sender<ProgressByDevice>,
    ) -> Result<Self, StoreError> {
        let store = Store::open(state_dir, settings.by)?;
        let record = match store.journal()? {
            // The unreadable journal is reported below, together with those of earlier starts.
            JournalState::Empty | JournalState::Unreadable { .. } => None,
            JournalState::Interrupted(record) => {
                warn!(plan = %record.plan, layout = %record.layout, "resuming an interrupted plan");
                Some(record)
            }
        };
        let unreadable = store.unreadable();
        for notice in &unreadable {
            error!("{notice}");
        }
        let plan = store.last_plan();
        Ok(Self {
            store,
            settings,
            usage_probe,
            node: NodeReconciler::default(),
            record,
            progress,
            began: Instant::now(),
            plan,
            rounds: 0,
            notice: None,
            unreadable,
            interrupted: BTreeMap::new(),
            logged: BTreeMap::new(),
            is_journal_stale: false,
            past: ChangeHistory::default(),
            reset_deadline: None,
        })
    }

    /// Sets the latest time until which a round waits for a running reset.
    pub fn set_reset_deadline(&mut self, end: Instant) {
        self.reset_deadline = Some(end);
    }

    /// Resets the state of these devices because their targets changed.
    pub fn select(&mut self, devices: &BTreeSet<PciAddress>) {
        self.node.select(devices);
        self.interrupted.clear();
    }

    /// Resets the state of all devices because their targets changed.
    pub fn select_all(&mut self) {
        self.node.reset_all();
    }

    /// Compares the node with the desired layout and applies every change that is possible. Returns when every device
    /// has reached a result, success or failure.
    pub async fn round(
        &mut self,
        hardware: &DriverHandle,
        inventory: &Arc<Inventory>,
        wanted: DesiredLayout<'_>,
    ) -> Round {
        let began = Instant::now();
        let settled = self.wait_for_running_reset(hardware, inventory, wanted).await;
        let inventory = match &settled {
            Ok(Some(fresh)) => fresh,
            Ok(None) | Err(_) => inventory,
        };
        if self.is_journal_stale {
            self.write_journal();
        }
        self.drop_replaced_devices(inventory);
        self.drop_untouched(inventory);
        let (mut holders, mut unknown_reason) = (Vec::new(), None);
        if self.has_changes(inventory, wanted.targets) {
            (holders, unknown_reason) = usage::all_holders(&self.usage_probe, inventory).await;
        }
        let holders_unknown = unknown_reason.as_deref();
        let decision = self.decide(inventory, wanted.targets, (&holders, holders_unknown));
        self.log_unchanged(inventory);
        self.drop_reached(inventory, wanted);
        if decision.change.is_empty() {
            self.forget_reboot();
            return Round { again: decision.again, ..Round::default() };
        }
        self.rounds = self.rounds.saturating_add(1);
        let plan = plan_id(self.rounds);
        self.plan = Some(plan.clone());
        self.log_drifted(inventory, &decision.drifted);
        let changes = ChangeRound {
            inventory,
            layout: wanted.layout,
            targets: wanted.targets,
            plan: &plan,
            record: self.record.as_ref(),
            decision: &decision,
            holders: &holders,
            policy: self.settings.policy,
            limits: self.settings.limits,
        };
        let others = changes.interrupted_layouts();
        let requests = changes.requests();
        let journal = changes.journal(&requests);
        // Keep the devices closed to allocation until the end of the round, after the new state has been read.
        let _closed = self.usage_probe.block_allocation(&decision.change);
        let mut outcomes = match &settled {
            Ok(_) => self.change(hardware, &decision, (requests, journal)).await,
            Err(reason) => refused_all(&decision, &format!("nothing was changed: {reason}")),
        };
        // Use the state from before a reset: a device reads differently after it, and the next round continues
        // immediately.
        let read = hardware.latest();
        let reset = self.reset(hardware, &mut outcomes).await;
        self.reboot(&read, wanted.layout, &mut outcomes).await;
        // Callers that destroy instances query the holders again; if they are unknown then, the device counts as in use.
        let (holders, _) = usage::all_holders(&self.usage_probe, &read).await;
        for outcome in &outcomes {
            self.record_outcome((&read, &holders), outcome);
        }
        for pci in reset {
            self.node.was_reset(pci);
        }
        self.record_interrupted(&read, (&others, &outcomes));
        let took = began.elapsed();
        // Write the history before clearing the journal. After a crash in between, the change is in both, and never in
        // neither.
        self.write_history(&read, (&plan, wanted.layout), (&others, &outcomes), took);
        // Write once for all devices, because each write waits for the disk.
        self.write_journal();
        Round { outcomes, drifted: decision.drifted, again: Some(Duration::ZERO), took }
    }

    /// Returns the current status of the node.
    pub fn status(&self, inventory: &Inventory, layout: Option<&str>) -> NodeLayoutStatus {
        let board = self.progress.borrow();
        let devices = self.node.states().map(|(pci, state)| DeviceLayoutStatus {
            progress: board.get(&pci).cloned(),
            ..self.device_status(inventory, layout, (pci, state))
        });
        NodeLayoutStatus {
            layout: layout.map(ToOwned::to_owned),
            plan: self.plan.clone(),
            state: self.node.worst().map(|state| state.reason().into()),
            notice: self.notices(inventory),
            devices: devices.collect(),
            interrupted: self.interrupted.values().cloned().collect(),
            history: self.past.clone(),
            ..NodeLayoutStatus::default()
        }
    }

    fn decide(
        &mut self,
        inventory: &Inventory,
        targets: &Targets,
        (holders, holders_unknown): (&[Holder], Option<&str>),
    ) -> Decision {
        let now = self.began.elapsed();
        let view = ReconcileInput {
            inventory,
            targets,
            holders,
            holders_unknown,
            policy: &self.settings.policy,
            drift: self.settings.drift,
            record: self.record.as_ref(),
        };
        let mut decision = self.node.reconcile(now, &view);
        decision.again = decision.again.map(|at| at.saturating_sub(now));
        decision
    }

    /// Writes the journal, then runs the changes. If the journal cannot be written, nothing is changed.
    async fn change(
        &mut self,
        hardware: &DriverHandle,
        decision: &Decision,
        (requests, journal): (Vec<ChangeRequest>, ApplyRecord),
    ) -> Vec<Outcome> {
        if let Err(error) = self.store.write_journal(&journal) {
            let reason = format!("nothing was changed: {}", chain(&error));
            error!("{reason}");
            return refused_all(decision, &reason);
        }
        for pci in &decision.change {
            self.node.change_started(*pci);
        }
        let (plan, layout, count) = (&journal.plan, &journal.layout, decision.change.len());
        let reason = Reason::Applying.as_str();
        info!(%plan, %layout, devices = count, reason = %reason, "applying the layout");
        self.record = Some(journal);
        let usage_probe = Arc::clone(&self.usage_probe);
        let running = executor::run(hardware, requests, usage_probe, self.progress.clone());
        running.await.unwrap_or_else(|error| refused_all(decision, &error.to_string()))
    }
}

fn refused_all(decision: &Decision, reason: &str) -> Vec<Outcome> {
    let devices = decision.change.iter();
    devices.map(|pci| Outcome::not_started(*pci, reason)).collect()
}

/// Returns a new plan ID, the creation time in microseconds and the round number of this process:
/// `20261121T193044.012345Z-3`. IDs are unique because only one process at a time creates plans.
fn plan_id(round: u32) -> String {
    let now = Timestamp::now().strftime("%Y%m%dT%H%M%S.%6fZ").to_string();
    format!("{now}-{round}")
}
