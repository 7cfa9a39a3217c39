//! State machine that brings one device to its desired state, or back to its previous state.
//!
//! ```text
//!            +-------------------------- read <--------------------------+
//!            v                                                           |
//!   plan --> Change --> each step: find users, call, [wait, retry] ------+
//!     |                        |
//!     |  nothing left          | in use, refused, timeout
//!     v                        v
//!   Applied        rollback: plan with the previous state as target --> Blocked, RolledBack, Failed
//! ```
//!
//! The device is read and planned again after every pass. Therefore success is never reported without a reading, a
//! partition that was reported destroyed but remains is destroyed again, a placement that the hardware refuses is
//! replaced by another, and an interrupted agent continues from the current state.

mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_model::call::{CallFailure, DriverCall, FailureKind};
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory};
use octavo_model::text::join;

use self::steps::MAX_RETRY_DELAY;
use super::expected::ExpectedDevice;
use super::request::{ActionResult, ChangeProgress, ChangeRequest, NextAction};
use super::state::{ChangeOutcome, OperationCounts};
use crate::layout::{TargetScope, Targets};
use crate::plan::messages::PlanFormatter;
use crate::plan::{
    Cause, DevicePlanResult, Infeasible, PlanInput, PlannedInstance, RefusedPlacement, Step, plan,
};

/// State machine that changes one device.
#[derive(Debug, Clone)]
pub struct Transaction {
    request: ChangeRequest,
    expected: ExpectedDevice,
    holders: Vec<Holder>,
    goal: Goal,
    attempt: Attempt,
    /// A placement that failed. It counts as refused if the next reading shows it free.
    suspect_placement: Option<RefusedPlacement>,
    /// Time since the transaction began.
    now: Duration,
    work: OperationCounts,
}

#[derive(Debug, Clone)]
enum Goal {
    /// The desired state. A device that was changed is rolled back if it cannot be reached.
    Target { is_device_changed: bool },
    /// The state before the change, and the reason and start of the rollback.
    Previous { reason: StopReason, since: Duration },
}

/// The attempt to reach the current goal.
#[derive(Debug, Clone, Default)]
struct Attempt {
    pass: PlanProgress,
    /// Executed plans that did not reach their target, since the last one that refused placements explain.
    idle_passes: u32,
    refused: BTreeSet<RefusedPlacement>,
    postponed_call: Option<PostponedCall>,
    /// The blocker seen immediately before a call, since the last plan that accounted for it.
    obstacle: Option<Cause>,
    /// The most recent failure, used if there is no better explanation.
    last_failure: Option<String>,
}

/// A call that is retried because the device is in use, or because its users are unknown.
#[derive(Debug, Clone, Copy)]
struct PostponedCall {
    call: DriverCall,
    /// Time of the first failure.
    since: Duration,
    retries: u32,
}

/// The steps of the current plan.
#[derive(Debug, Clone, Default)]
struct PlanProgress {
    steps: Vec<Step>,
    after: Vec<PlannedInstance>,
    at: usize,
    /// The driver's ids of the created instances.
    created_ids: BTreeMap<usize, u32>,
}

/// Maximum number of consecutive plans that are executed without reaching the target.
const MAX_IDLE_PASSES: u32 = 3;
impl Transaction {
    /// Creates the transaction; it does nothing before the first [`Self::next`]. `None` if the node has no such
    /// device.
    pub fn new(request: ChangeRequest) -> Option<Self> {
        let pci = request.target.pci;
        let device = request.inventory.device(pci)?.clone();
        Some(Self {
            expected: ExpectedDevice::new(device),
            holders: request.holders.clone(),
            goal: Goal::Target { is_device_changed: request.resumed },
            request,
            attempt: Attempt::default(),
            suspect_placement: None,
            now: Duration::ZERO,
            work: OperationCounts::default(),
        })
    }

    /// The device's address.
    pub fn pci(&self) -> PciAddress {
        self.request.target.pci
    }

    /// Counts of the operations performed so far.
    pub fn work(&self) -> OperationCounts {
        self.work
    }

    /// The current progress.
    pub fn progress(&self) -> ChangeProgress {
        let formatter = PlanFormatter::new(&self.request.inventory, self.pci());
        let pass = &self.attempt.pass;
        let step = pass.steps.get(pass.at);
        ChangeProgress {
            current_step: step.map_or_else(
                || "read it again".to_owned(),
                |step| formatter.step(step, &pass.after),
            ),
            done: pass.at,
            steps: pass.steps.len(),
            back: matches!(self.goal, Goal::Previous { .. }),
        }
    }

    /// Returns the next action; `now` is the time since the transaction began.
    pub fn next(&mut self, now: Duration, result: ActionResult) -> NextAction {
        self.now = now;
        match result {
            ActionResult::Start => self.plan(),
            ActionResult::UsersFound(Ok(users)) => {
                self.expected.device.set_processes(users.processes);
                self.holders = users.holders;
                self.make_call()
            }
            ActionResult::UsersFound(Err(reason)) => self.user_query_failed(reason),
            ActionResult::Called(Ok(done)) => self.call_succeeded(&done),
            ActionResult::Called(Err(failure)) => self.call_failed(failure),
            ActionResult::Waited => self.step(),
            ActionResult::Read(Ok(device)) => self.read(*device),
            ActionResult::Read(Err(failure)) => self.read_failed(failure),
        }
    }

    fn plan(&mut self) -> NextAction {
        let mut target = self.request.target.clone();
        if matches!(self.goal, Goal::Previous { .. }) {
            target.mig.clone_from(&self.request.previous);
            target.scope = TargetScope::Layout;
        }
        let targets = Targets { devices: vec![target], ..Targets::default() };
        let inventory = self.current_inventory();
        let planned = plan(&PlanInput {
            inventory: &inventory,
            targets: &targets,
            holders: &self.holders,
            policy: &self.request.policy,
            refused: &self.attempt.refused,
        });
        let verdict = planned.devices.into_iter().next();
        match verdict.map_or(DevicePlanResult::Unchanged, |device| device.verdict) {
            DevicePlanResult::Unchanged => self.end_at_target(),
            DevicePlanResult::Blocked(blocked) => self.stop(StopReason::Blocked(blocked.causes)),
            DevicePlanResult::Infeasible(infeasible) => {
                self.stop(StopReason::Infeasible(infeasible))
            }
            DevicePlanResult::Change(_) if self.attempt.idle_passes >= MAX_IDLE_PASSES => {
                if let Some(cause) = self.attempt.obstacle.take() {
                    return self.stop(StopReason::Blocked(vec![cause]));
                }
                let nothing = || {
                    "the driver reports success, but the device is not in the requested state"
                        .to_owned()
                };
                let why = self.attempt.last_failure.clone().unwrap_or_else(nothing);
                self.stop(StopReason::Failed(why))
            }
            DevicePlanResult::Change(change) => {
                self.attempt.idle_passes = self.attempt.idle_passes.saturating_add(1);
                self.attempt.pass = PlanProgress {
                    steps: change.steps,
                    after: change.after,
                    ..PlanProgress::default()
                };
                self.step()
            }
        }
    }

    /// The node's inventory with the current state of this device.
    fn current_inventory(&self) -> Inventory {
        let mut inventory = Inventory::clone(&self.request.inventory);
        let pci = self.pci();
        for device in &mut inventory.devices {
            if device.pci == pci {
                device.clone_from(&self.expected.device);
            }
        }
        inventory
    }

    fn read(&mut self, device: Device) -> NextAction {
        if !device.mig.is_fully_known() && self.now < self.deadline() {
            // A later reading may contain the missing partitions.
            return self.read_again("the driver does not report all of its partitions");
        }
        let foreign = self.expected.observe(device);
        if let Some(reason) = foreign {
            return NextAction::End(ChangeOutcome::Yielded { reason });
        }
        if let Some(suspect) = self.suspect_placement.take()
            && self.is_free(&suspect)
        {
            self.refuse(suspect.profile_id, suspect.placement);
        }
        self.plan()
    }

    /// Returns whether the placement of the refused instance is free.
    fn is_free(&self, refusal: &RefusedPlacement) -> bool {
        let place = refusal.placement;
        let state = self.expected.device.mig.state();
        let mut all = state.into_iter().flat_map(|state| &state.gpu_instances);
        all.all(|one| one.placement.end() <= place.start || place.end() <= one.placement.start)
    }

    fn read_again(&mut self, why: &str) -> NextAction {
        // Skips to the end of the pass, where the device is read.
        self.attempt.pass.at = self.attempt.pass.steps.len();
        self.attempt.last_failure = Some(why.to_owned());
        NextAction::Wait(MAX_RETRY_DELAY)
    }

    fn read_failed(&mut self, failure: CallFailure) -> NextAction {
        match failure.kind {
            FailureKind::Temporary | FailureKind::InUse if self.now < self.deadline() => {
                self.read_again(&failure.what)
            }
            FailureKind::Temporary
            | FailureKind::InUse
            | FailureKind::InsufficientResources
            | FailureKind::NotFound
            | FailureKind::DeviceLost
            | FailureKind::DriverLost
            | FailureKind::Rejected => self.end_device_lost(failure.what),
        }
    }
}

/// The reason for stopping.
#[derive(Debug, Clone)]
enum StopReason {
    Blocked(Vec<Cause>),
    Infeasible(Infeasible),
    Failed(String),
}

impl StopReason {
    /// Returns the outcome of a device that is in its previous state, either untouched or rolled back.
    fn outcome(self, rolled_back: bool) -> ChangeOutcome {
        match self {
            Self::Blocked(causes) => ChangeOutcome::Blocked { causes, rolled_back },
            Self::Infeasible(infeasible) => ChangeOutcome::Infeasible(infeasible),
            Self::Failed(reason) if rolled_back => ChangeOutcome::RolledBack { reason },
            Self::Failed(reason) => ChangeOutcome::Failed { reason, rollback: None },
        }
    }
}

impl Transaction {
    /// Ends the transaction because the device is lost and cannot even be rolled back.
    fn end_device_lost(&mut self, what: String) -> NextAction {
        let what = self.with_work(what);
        NextAction::End(match self.rollback_reason() {
            Some(stop) => {
                ChangeOutcome::Failed { reason: self.describe(&stop), rollback: Some(what) }
            }
            None => ChangeOutcome::Failed { reason: what, rollback: None },
        })
    }

    /// Appends the number of destroyed and created GPU instances to `what`.
    fn with_work(&self, what: String) -> String {
        let OperationCounts { destroyed, created, .. } = self.work;
        if destroyed == 0 && created == 0 {
            return what;
        }
        format!("{what}; before that, GPU instances destroyed: {destroyed}, created: {created}")
    }

    /// The reason for the rollback, if one is in progress.
    fn rollback_reason(&self) -> Option<StopReason> {
        match &self.goal {
            Goal::Target { .. } => None,
            Goal::Previous { reason, .. } => Some(reason.clone()),
        }
    }

    /// Ends the transaction after a reading that matches the current target.
    fn end_at_target(&self) -> NextAction {
        let Some(stop) = self.rollback_reason() else {
            return NextAction::End(ChangeOutcome::Applied);
        };
        NextAction::End(stop.outcome(true))
    }

    /// Stops the change, and starts the rollback if the device was touched.
    fn stop(&mut self, stop: StopReason) -> NextAction {
        let is_device_changed = match &self.goal {
            Goal::Target { is_device_changed } => *is_device_changed,
            Goal::Previous { reason, .. } => {
                return NextAction::End(ChangeOutcome::Failed {
                    reason: self.describe(reason),
                    rollback: Some(self.describe(&stop)),
                });
            }
        };
        if !is_device_changed {
            return NextAction::End(stop.outcome(false));
        }
        if self.request.previous.is_none() {
            return NextAction::End(ChangeOutcome::Failed {
                reason: self.describe(&stop),
                rollback: Some("its previous state is unknown".to_owned()),
            });
        }
        self.work.rollbacks = self.work.rollbacks.saturating_add(1);
        self.goal = Goal::Previous { reason: stop, since: self.now };
        self.attempt = Attempt::default();
        NextAction::Read
    }

    fn describe(&self, stop: &StopReason) -> String {
        let formatter = PlanFormatter::new(&self.request.inventory, self.pci());
        match stop {
            StopReason::Blocked(causes) => {
                join(causes.iter().map(|cause| formatter.cause(cause)), "; ")
            }
            StopReason::Infeasible(infeasible) => formatter.rule(&infeasible.rule),
            StopReason::Failed(reason) => reason.clone(),
        }
    }
}
