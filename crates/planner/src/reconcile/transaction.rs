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
mod stop;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_model::call::{CallFailure, DriverCall, FailureKind};
use octavo_model::catalog::Placement;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory};

use self::steps::MAX_RETRY_DELAY;
use self::stop::StopReason;
use super::expected::ExpectedDevice;
use super::outcome::{ChangeOutcome, OperationCounts};
use super::request::{Answer, ChangeProgress, ChangeRequest, NextAction};
use crate::layout::{DeviceTarget, Targets};
use crate::plan::messages::PlanFormatter;
use crate::plan::{Cause, PlanInput, PlannedInstance, RefusedPlacement, Step, Verdict, plan};

/// State machine that changes one device.
#[derive(Debug, Clone)]
pub struct Transaction {
    job: ChangeRequest,
    expected: ExpectedDevice,
    holders: Vec<Holder>,
    refused: BTreeSet<RefusedPlacement>,
    aim: Goal,
    pass: Pass,
    /// Executed plans that did not reach their target, since the last one that refused placements explain.
    idle_passes: u32,
    /// The most recent failure, used if there is no better explanation.
    last_failure: Option<String>,
    /// A placement that failed. It counts as refused if the next reading shows it free.
    suspect_placement: Option<RefusedPlacement>,
    /// The call that the driver postponed, the time of its first failure, and the number of retries.
    postponed_call: Option<(DriverCall, Duration, u32)>,
    /// The blocker seen immediately before a call, since the last plan that accounted for it.
    obstacle: Option<Cause>,
    /// Start of the rollback.
    back_since: Option<Duration>,
    now: Duration,
    has_changed_device: bool,
    work: OperationCounts,
}

#[derive(Debug, Clone)]
enum Goal {
    Target,
    /// Roll back, with the reason.
    Previous(StopReason),
}

/// The steps of the current plan.
#[derive(Debug, Clone, Default)]
struct Pass {
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
    pub fn new(job: ChangeRequest) -> Option<Self> {
        let pci = job.target.pci;
        let mut devices = job.inventory.devices.iter();
        let device = devices.find(|device| device.pci == pci)?.clone();
        Some(Self {
            expected: ExpectedDevice::new(device),
            holders: job.holders.clone(),
            has_changed_device: job.resumed,
            job,
            refused: BTreeSet::new(),
            aim: Goal::Target,
            pass: Pass::default(),
            idle_passes: 0,
            last_failure: None,
            suspect_placement: None,
            postponed_call: None,
            obstacle: None,
            back_since: None,
            now: Duration::ZERO,
            work: OperationCounts::default(),
        })
    }

    /// The device's address.
    pub fn pci(&self) -> PciAddress {
        self.job.target.pci
    }

    /// Counts of the operations performed so far.
    pub fn work(&self) -> OperationCounts {
        self.work
    }

    /// The current progress.
    pub fn progress(&self) -> ChangeProgress {
        let words = PlanFormatter::new(&self.job.inventory, self.pci());
        let step = self.pass.steps.get(self.pass.at);
        ChangeProgress {
            current_step: step.map_or_else(
                || "read it again".to_owned(),
                |step| words.step(step, &self.pass.after),
            ),
            done: self.pass.at,
            steps: self.pass.steps.len(),
            back: matches!(self.aim, Goal::Previous(_)),
        }
    }

    /// Returns the next action; `now` is the time since the transaction began.
    pub fn next(&mut self, now: Duration, answer: Answer) -> NextAction {
        self.now = now;
        match answer {
            Answer::Start => self.plan(now),
            Answer::UsersFound(Ok(users)) => {
                self.expected.device.set_processes(users.processes);
                self.holders = users.holders;
                self.attempt()
            }
            Answer::UsersFound(Err(reason)) => self.user_query_failed(now, reason),
            Answer::Called(Ok(done)) => self.call_succeeded(now, &done),
            Answer::Called(Err(failure)) => self.call_failed(now, failure),
            Answer::Waited => self.step(now),
            Answer::Read(Ok(device)) => self.read(now, *device),
            Answer::Read(Err(failure)) => self.read_failed(now, failure),
        }
    }

    fn plan(&mut self, now: Duration) -> NextAction {
        let wanted = match &self.aim {
            Goal::Target => self.job.target.mig.clone(),
            Goal::Previous(_) => self.job.previous.clone(),
        };
        let targets = Targets {
            devices: vec![DeviceTarget {
                mig: wanted,
                ..self.job.target.clone()
            }],
            ..Targets::default()
        };
        let inventory = self.current_inventory();
        let planned = plan(&PlanInput {
            inventory: &inventory,
            targets: &targets,
            holders: &self.holders,
            policy: &self.job.policy,
            refused: &self.refused,
        });
        let verdict = planned.devices.into_iter().next();
        match verdict.map_or(Verdict::Unchanged, |device| device.verdict) {
            Verdict::Unchanged => self.end_at_target(),
            Verdict::Blocked(blocked) => self.stop(StopReason::Blocked(blocked.causes)),
            Verdict::Infeasible(infeasible) => self.stop(StopReason::Infeasible(infeasible)),
            Verdict::Change(_) if self.idle_passes >= MAX_IDLE_PASSES => {
                if let Some(cause) = self.obstacle.take() {
                    return self.stop(StopReason::Blocked(vec![cause]));
                }
                let nothing = || "the driver says that it is done, and it is not".to_owned();
                let why = self.last_failure.clone().unwrap_or_else(nothing);
                self.stop(StopReason::Failed(why))
            }
            Verdict::Change(change) => {
                self.idle_passes = self.idle_passes.saturating_add(1);
                self.pass = Pass {
                    steps: change.steps,
                    after: change.after,
                    ..Pass::default()
                };
                self.step(now)
            }
        }
    }

    /// The node's inventory with the current state of this device.
    fn current_inventory(&self) -> Inventory {
        let mut inventory = Inventory::clone(&self.job.inventory);
        let pci = self.pci();
        for device in &mut inventory.devices {
            if device.pci == pci {
                device.clone_from(&self.expected.device);
            }
        }
        inventory
    }

    fn read(&mut self, now: Duration, device: Device) -> NextAction {
        if !device.mig.is_fully_known() && now < self.deadline() {
            // A later reading may contain the missing partitions.
            return self.read_again("the driver does not tell all the partitions that it has");
        }
        let foreign = self.expected.observe(device);
        if let Some(reason) = foreign {
            return NextAction::End(ChangeOutcome::Yielded { reason });
        }
        if let Some(doubt) = self.suspect_placement.take()
            && self.is_free(&doubt)
        {
            self.refuse(doubt.profile_id, doubt.placement);
        }
        self.plan(now)
    }

    /// Returns whether the placement of the refused instance is free.
    fn is_free(&self, refusal: &RefusedPlacement) -> bool {
        let end = |of: Placement| of.start.saturating_add(of.size);
        let place = refusal.placement;
        let state = self.expected.device.mig.state();
        let mut all = state.into_iter().flat_map(|state| &state.gpu_instances);
        all.all(|one| end(one.placement) <= place.start || end(place) <= one.placement.start)
    }

    fn read_again(&mut self, why: &str) -> NextAction {
        // Skips to the end of the pass, where the device is read.
        self.pass.at = self.pass.steps.len();
        self.last_failure = Some(why.to_owned());
        NextAction::Wait(MAX_RETRY_DELAY)
    }

    fn read_failed(&mut self, now: Duration, failure: CallFailure) -> NextAction {
        match failure.kind {
            FailureKind::Temporary | FailureKind::InUse if now < self.deadline() => {
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
