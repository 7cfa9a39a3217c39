//! The steps of a plan, one call after the other.

use std::time::Duration;

use super::stop::Stop;
use super::{Aim, Transaction};
use crate::domain::call::{Call, Done, Failure, FailureKind};
use crate::domain::catalog::Placement;
use crate::domain::plan::{Cause, InstanceRef, Refusal, Step, in_the_way};
use crate::domain::reconcile::ending::Ending;
use crate::domain::reconcile::job::Action;

/// The first wait for what is in use; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// So many times "in use", and it is worth to look whether all is as it was said to be.
const DOUBTFUL: u32 = 3;
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(500);

impl Transaction {
    /// The present step, from its beginning.
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
            Aim::Previous(_) => self.job.limits.whole.saturating_mul(2),
        }
    }

    /// `None` where the step follows one that did not happen.
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

    /// Makes the present call, unless it would take something away from somebody.
    pub(super) fn attempt(&mut self) -> Action {
        let Some(call) = self.present() else {
            return Action::Read;
        };
        if let Some(cause) = in_the_way(&self.expected.device, &self.holders, call) {
            return self.stop(Stop::Blocked(vec![cause]));
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

    /// What is left of the plan may look otherwise in the other mode: older drivers tell nothing of profiles before.
    fn mode_set(&mut self, now: Duration, done: &Done) -> Action {
        let next = self.pass.steps.get(self.pass.at.saturating_add(1));
        match done {
            Done::Pending(reason) if !matches!(next, Some(Step::Reset { .. })) => {
                // No reset was planned: somebody has the device open.
                self.later(now, &format!("MIG mode is not in force: {reason}"))
            }
            Done::Pending(_) => {
                self.put_off = None;
                self.pass.at = self.pass.at.saturating_add(1);
                self.step(now)
            }
            // A driver that resets an idle device by itself leaves nothing to do.
            Done::AsAsked | Done::Created { .. } => Action::Read,
        }
    }

    /// The place is not tried again, which explains that the plan was not met.
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

    /// The same call again in a while, as long as there is patience.
    fn later(&mut self, now: Duration, why: &str) -> Action {
        let Some(call) = self.present() else {
            return Action::Read;
        };
        let known = self.put_off.filter(|(of, _, _)| *of == call);
        let (_, since, times) = known.unwrap_or((call, now, 0));
        if now.saturating_sub(since) >= self.job.limits.in_use {
            return self.stop(self.held(why));
        }
        self.work.retries = self.work.retries.saturating_add(1);
        self.put_off = Some((call, since, times.saturating_add(1)));
        if times == DOUBTFUL && call.destroys() {
            // Perhaps it is in use by a compute instance that was said to be destroyed.
            return Action::Read;
        }
        let wait = FIRST_WAIT.saturating_mul(1 << times.min(5));
        Action::Wait(wait.min(LONGEST_WAIT))
    }

    /// The driver says that somebody uses it, and nobody is seen to.
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
