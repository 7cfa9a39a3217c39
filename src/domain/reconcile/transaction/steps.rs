//! Execution of a plan's steps, one call after the other.

use std::time::Duration;

use super::stop::Stop;
use super::{Aim, Transaction};
use crate::domain::call::{Call, Done, Failure, FailureKind};
use crate::domain::catalog::Placement;
use crate::domain::plan::{Cause, InstanceRef, Refusal, Step, in_the_way};
use crate::domain::reconcile::ending::Ending;
use crate::domain::reconcile::job::Action;

/// First delay for a device in use; doubled for each retry.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// Number of "in use" failures after which the device is read again, in case its state differs from the reports.
const DOUBTFUL: u32 = 3;
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(500);

impl Transaction {
    /// Starts the current step.
    pub(super) fn step(&mut self, now: Duration) -> Action {
        if now >= self.deadline() {
            let whole = self.job.limits.whole.as_secs_f32();
            let why = self.note.as_deref().unwrap_or("it takes too long");
            return self.stop(Stop::Failed(format!("not done within {whole} s: {why}")));
        }
        match self.pass.steps.get(self.pass.at) {
            None => Action::Read,
            Some(Step::Reset { scope }) => {
                let scope = scope.clone();
                let causes = Vec::new();
                Action::End(Ending::NeedsReset { scope, causes })
            }
            Some(step) => match self.call(step) {
                None => Action::Read,
                Some(call) if call.destroys() || matches!(call, Call::SetMigMode { .. }) => {
                    Action::Look
                }
                Some(_) => self.attempt(),
            },
        }
    }

    pub(super) fn deadline(&self) -> Duration {
        match self.aim {
            Aim::Target => self.job.limits.whole,
            // A rollback has the same limit, counted from its start.
            Aim::Previous(_) => {
                let began = self.back_since.unwrap_or_default();
                began.saturating_add(self.job.limits.whole)
            }
        }
    }

    /// The driver call of a step; `None` if it depends on a step that did not happen.
    fn call(&self, step: &Step) -> Option<Call> {
        Some(match step {
            Step::DestroyComputeInstance {
                gpu_instance,
                compute_instance,
            } => Call::DestroyComputeInstance {
                gpu_instance: *gpu_instance,
                compute_instance: *compute_instance,
            },
            Step::DestroyGpuInstance { gpu_instance, .. } => Call::DestroyGpuInstance {
                gpu_instance: *gpu_instance,
            },
            Step::SetMigMode { to } => Call::SetMigMode { to: *to },
            Step::CreateGpuInstance {
                profile_id,
                placement,
                ..
            } => Call::CreateGpuInstance {
                profile_id: *profile_id,
                placement: *placement,
            },
            Step::CreateComputeInstance {
                gpu_instance,
                slices,
            } => Call::CreateComputeInstance {
                gpu_instance: match gpu_instance {
                    InstanceRef::Existing(id) => *id,
                    InstanceRef::Planned(at) => *self.pass.made.get(at)?,
                },
                slices: *slices,
            },
            Step::Reset { .. } => return None,
        })
    }

    fn present(&self) -> Option<Call> {
        let step = self.pass.steps.get(self.pass.at)?;
        self.call(step)
    }

    /// Handles unknown users, which count as in use. The query is retried because its source may recover.
    pub(super) fn unlooked(&mut self, now: Duration, reason: String) -> Action {
        let (_, since, times) = self.delay(now);
        if now.saturating_sub(since) >= self.job.limits.in_use {
            return self.stop(Stop::Blocked(vec![Cause::Untold { reason }]));
        }
        self.again(since, times)
    }

    /// Makes the current call, unless it would destroy a partition in use.
    pub(super) fn attempt(&mut self) -> Action {
        let Some(call) = self.present() else {
            return Action::Read;
        };
        if let Some(cause) = in_the_way(&self.expected.device, &self.holders, call) {
            // Another plan may avoid the holder that was just discovered.
            self.obstacle = Some(cause);
            return Action::Read;
        }
        self.touched = true;
        self.expected.trying(call);
        Action::Call(call)
    }

    pub(super) fn called(&mut self, now: Duration, done: &Done) -> Action {
        let Some(call) = self.present() else {
            return Action::Read;
        };
        self.expected.did(call, done);
        if let Call::SetMigMode { .. } = call {
            return self.mode_set(now, done);
        }
        self.count(call);
        self.put_off = None;
        if let (
            Done::Created { id, placement },
            Some(Step::CreateGpuInstance {
                instance,
                placement: wanted,
                profile_id,
            }),
        ) = (done, self.pass.steps.get(self.pass.at))
        {
            self.pass.made.insert(*instance, *id);
            if placement != wanted {
                let (profile_id, placement) = (*profile_id, *wanted);
                self.note = Some("the driver created an instance in another place".to_owned());
                self.refuse(profile_id, placement);
                return Action::Read;
            }
        }
        self.pass.at = self.pass.at.saturating_add(1);
        self.step(now)
    }

    fn count(&mut self, call: Call) {
        match call {
            Call::DestroyGpuInstance { .. } => {
                self.work.destroyed = self.work.destroyed.saturating_add(1);
            }
            Call::CreateGpuInstance { .. } => {
                self.work.created = self.work.created.saturating_add(1);
            }
            Call::DestroyComputeInstance { .. }
            | Call::CreateComputeInstance { .. }
            | Call::SetMigMode { .. } => {}
        }
    }

    /// Continues after a change of MIG mode. The rest of the plan may differ in the new mode: older drivers report no
    /// profiles before.
    fn mode_set(&mut self, now: Duration, done: &Done) -> Action {
        let next = self.pass.steps.get(self.pass.at.saturating_add(1));
        match done {
            Done::Pending(reason) if !matches!(next, Some(Step::Reset { .. })) => {
                // No reset was planned, so a process has the device open.
                self.later(now, &format!("MIG mode is not in force: {reason}"))
            }
            Done::Pending(_) => {
                self.put_off = None;
                self.pass.at = self.pass.at.saturating_add(1);
                self.step(now)
            }
            // If the driver resets an idle device itself, the step is complete.
            Done::AsAsked | Done::Created { .. } => Action::Read,
        }
    }

    /// Excludes the placement from further plans. This explains why the plan did not reach its target.
    pub(super) fn refuse(&mut self, profile_id: u32, placement: Placement) {
        let new = self.refused.insert(Refusal {
            device: self.pci(),
            profile_id,
            placement,
        });
        if new {
            self.idle_passes = 0;
        }
    }

    pub(super) fn failed(&mut self, now: Duration, failure: Failure) -> Action {
        let call = self.present();
        self.note = Some(failure.what.clone());
        match (failure.kind, call) {
            (FailureKind::InUse | FailureKind::Again, _) => self.later(now, &failure.what),
            (
                FailureKind::NoRoom,
                Some(Call::CreateGpuInstance {
                    profile_id,
                    placement,
                }),
            ) => {
                self.doubt = Some(Refusal {
                    device: self.pci(),
                    profile_id,
                    placement,
                });
                Action::Read
            }
            (FailureKind::Gone, _) => Action::Read,
            (FailureKind::DeviceLost | FailureKind::DriverLost, _) => self.lost(failure.what),
            (FailureKind::NoRoom | FailureKind::Refused, _) => {
                self.stop(Stop::Failed(failure.what))
            }
        }
    }

    /// Retries the current call after a delay, until the time limit for "in use".
    fn later(&mut self, now: Duration, why: &str) -> Action {
        let Some(call) = self.present() else {
            return Action::Read;
        };
        let (_, since, times) = self.delay(now);
        if now.saturating_sub(since) >= self.job.limits.in_use {
            return self.stop(self.held(why));
        }
        let wait = self.again(since, times);
        if times == DOUBTFUL && call.destroys() {
            // A compute instance that was reported destroyed may still exist.
            return Action::Read;
        }
        wait
    }

    /// The current call, the time of its first failure, and the number of retries.
    fn delay(&self, now: Duration) -> (Option<Call>, Duration, u32) {
        let call = self.present();
        let known = self.put_off.filter(|(of, _, _)| Some(*of) == call);
        let (since, times) = known.map_or((now, 0), |(_, since, times)| (since, times));
        (call, since, times)
    }

    fn again(&mut self, since: Duration, times: u32) -> Action {
        self.work.retries = self.work.retries.saturating_add(1);
        let next = times.saturating_add(1);
        self.put_off = self.present().map(|call| (call, since, next));
        let wait = FIRST_WAIT.saturating_mul(1 << times.min(5));
        Action::Wait(wait.min(LONGEST_WAIT))
    }

    /// The reason to stop when the driver reports a user but none is visible.
    fn held(&self, why: &str) -> Stop {
        match self.present() {
            Some(call) if call.destroys() || matches!(call, Call::SetMigMode { .. }) => {
                let reason = format!(
                    "{why}, and no process, pod or open device node is seen: a monitor such as DCGM may have leaked a handle; \
                     restart those that have the GPU open, or reset it"
                );
                Stop::Blocked(vec![Cause::Untold { reason }])
            }
            Some(_) | None => Stop::Failed(why.to_owned()),
        }
    }
}
