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

use self::steps::LONGEST_WAIT;
use self::stop::Stop;
use super::ending::{Ending, Work};
use super::expect::Expected;
use super::job::{Action, Answer, Job, Progress};
use crate::domain::call::{Call, Failure, FailureKind};
use crate::domain::catalog::Placement;
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Inventory};
use crate::domain::layout::{DeviceTarget, Targets};
use crate::domain::plan::words::Words;
use crate::domain::plan::{Cause, PlannedInstance, Question, Refusal, Step, Verdict, plan};

/// State machine that changes one device.
#[derive(Debug, Clone)]
pub struct Transaction {
    job: Job,
    expected: Expected,
    holders: Vec<Holder>,
    refused: BTreeSet<Refusal>,
    aim: Aim,
    pass: Pass,
    /// Executed plans that did not reach their target, since the last one that refused placements explain.
    idle_passes: u32,
    /// The most recent failure, used if there is no better explanation.
    note: Option<String>,
    /// A placement that failed. It counts as refused if the next reading shows it free.
    doubt: Option<Refusal>,
    /// The call that the driver postponed, the time of its first failure, and the number of retries.
    put_off: Option<(Call, Duration, u32)>,
    /// The blocker seen immediately before a call, since the last plan that accounted for it.
    obstacle: Option<Cause>,
    /// Start of the rollback.
    back_since: Option<Duration>,
    now: Duration,
    touched: bool,
    work: Work,
}

#[derive(Debug, Clone)]
enum Aim {
    Target,
    /// Roll back, with the reason.
    Previous(Stop),
}

/// The steps of the current plan.
#[derive(Debug, Clone, Default)]
struct Pass {
    steps: Vec<Step>,
    after: Vec<PlannedInstance>,
    at: usize,
    /// The driver's ids of the created instances.
    made: BTreeMap<usize, u32>,
}

/// Maximum number of consecutive plans that are executed without reaching the target.
const MOST_PASSES: u32 = 3;
impl Transaction {
    /// Creates the transaction; it does nothing before the first [`Self::next`]. `None` if the node has no such
    /// device.
    pub fn new(job: Job) -> Option<Self> {
        let pci = job.target.pci;
        let mut devices = job.inventory.devices.iter();
        let device = devices.find(|device| device.pci == pci)?.clone();
        Some(Self {
            expected: Expected::new(device),
            holders: job.holders.clone(),
            touched: job.resumed,
            job,
            refused: BTreeSet::new(),
            aim: Aim::Target,
            pass: Pass::default(),
            idle_passes: 0,
            note: None,
            doubt: None,
            put_off: None,
            obstacle: None,
            back_since: None,
            now: Duration::ZERO,
            work: Work::default(),
        })
    }

    /// The device's address.
    pub fn pci(&self) -> PciAddress {
        self.job.target.pci
    }

    /// Counts of the operations performed so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// The current progress.
    pub fn progress(&self) -> Progress {
        let words = Words::new(&self.job.inventory, self.pci());
        let step = self.pass.steps.get(self.pass.at);
        Progress {
            doing: step.map_or_else(
                || "read it again".to_owned(),
                |step| words.step(step, &self.pass.after),
            ),
            done: self.pass.at,
            steps: self.pass.steps.len(),
            back: matches!(self.aim, Aim::Previous(_)),
        }
    }

    /// Returns the next action; `now` is the time since the transaction began.
    pub fn next(&mut self, now: Duration, answer: Answer) -> Action {
        self.now = now;
        match answer {
            Answer::Begin => self.plan(now),
            Answer::Looked(Ok(users)) => {
                self.expected.device.told_processes(users.processes);
                self.holders = users.holders;
                self.attempt()
            }
            Answer::Looked(Err(reason)) => self.unlooked(now, reason),
            Answer::Called(Ok(done)) => self.called(now, &done),
            Answer::Called(Err(failure)) => self.failed(now, failure),
            Answer::Waited => self.step(now),
            Answer::Read(Ok(device)) => self.read(now, *device),
            Answer::Read(Err(failure)) => self.unread(now, failure),
        }
    }

    fn plan(&mut self, now: Duration) -> Action {
        let wanted = match &self.aim {
            Aim::Target => self.job.target.mig.clone(),
            Aim::Previous(_) => self.job.previous.clone(),
        };
        let targets = Targets {
            devices: vec![DeviceTarget {
                mig: wanted,
                ..self.job.target.clone()
            }],
            ..Targets::default()
        };
        let inventory = self.node();
        let planned = plan(&Question {
            inventory: &inventory,
            targets: &targets,
            holders: &self.holders,
            policy: &self.job.policy,
            refused: &self.refused,
        });
        let verdict = planned.devices.into_iter().next();
        match verdict.map_or(Verdict::Unchanged, |device| device.verdict) {
            Verdict::Unchanged => self.settled(),
            Verdict::Blocked(blocked) => self.stop(Stop::Blocked(blocked.causes)),
            Verdict::Infeasible(infeasible) => self.stop(Stop::Infeasible(infeasible)),
            Verdict::Change(_) if self.idle_passes >= MOST_PASSES => {
                if let Some(cause) = self.obstacle.take() {
                    return self.stop(Stop::Blocked(vec![cause]));
                }
                let nothing = || "the driver says that it is done, and it is not".to_owned();
                let why = self.note.clone().unwrap_or_else(nothing);
                self.stop(Stop::Failed(why))
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
    fn node(&self) -> Inventory {
        let mut inventory = Inventory::clone(&self.job.inventory);
        let pci = self.pci();
        for device in &mut inventory.devices {
            if device.pci == pci {
                device.clone_from(&self.expected.device);
            }
        }
        inventory
    }

    fn read(&mut self, now: Duration, device: Device) -> Action {
        if !device.mig.is_told() && now < self.deadline() {
            // A later reading may contain the missing partitions.
            return self.read_again("the driver does not tell all the partitions that it has");
        }
        let foreign = self.expected.read(device);
        if let Some(reason) = foreign {
            return Action::End(Ending::Yielded { reason });
        }
        if let Some(doubt) = self.doubt.take()
            && self.is_free(&doubt)
        {
            self.refuse(doubt.profile_id, doubt.placement);
        }
        self.plan(now)
    }

    /// Returns whether the placement of the refused instance is free.
    fn is_free(&self, refusal: &Refusal) -> bool {
        let end = |of: Placement| of.start.saturating_add(of.size);
        let place = refusal.placement;
        let state = self.expected.device.mig.state();
        let mut all = state.into_iter().flat_map(|state| &state.gpu_instances);
        all.all(|one| end(one.placement) <= place.start || end(place) <= one.placement.start)
    }

    fn read_again(&mut self, why: &str) -> Action {
        // Skips to the end of the pass, where the device is read.
        self.pass.at = self.pass.steps.len();
        self.note = Some(why.to_owned());
        Action::Wait(LONGEST_WAIT)
    }

    fn unread(&mut self, now: Duration, failure: Failure) -> Action {
        match failure.kind {
            FailureKind::Again | FailureKind::InUse if now < self.deadline() => {
                self.read_again(&failure.what)
            }
            FailureKind::Again
            | FailureKind::InUse
            | FailureKind::NoRoom
            | FailureKind::Gone
            | FailureKind::DeviceLost
            | FailureKind::DriverLost
            | FailureKind::Refused => self.lost(failure.what),
        }
    }
}
