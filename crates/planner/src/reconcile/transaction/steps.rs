//! Execution of a plan's steps, one call after the other.

use std::time::Duration;

use octavo_model::backoff::Backoff;
use octavo_model::call::{CallFailure, CallResult, DriverCall, FailureKind};
use octavo_model::catalog::Placement;

use super::{Goal, PostponedCall, StopReason, Transaction};
use crate::plan::{Cause, InstanceRef, RefusedPlacement, Step, blocking_cause};
use crate::reconcile::request::NextAction;
use crate::reconcile::state::ChangeOutcome;

/// Delay before a call for a device in use is repeated.
const RETRY: Backoff = Backoff { initial: Duration::from_millis(20), max: MAX_RETRY_DELAY };
/// Number of "in use" failures after which the device is read again, in case its state differs from the reports.
const REREAD_AFTER_FAILURES: u32 = 3;
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_millis(500);

impl Transaction {
    /// Starts the current step.
    pub(super) fn step(&mut self) -> NextAction {
        if self.now >= self.deadline() {
            let whole = self.request.limits.change_timeout.as_secs_f32();
            let why = self.attempt.last_failure.as_deref().unwrap_or("the change takes too long");
            return self.stop(StopReason::Failed(format!("not done within {whole} s: {why}")));
        }
        match self.attempt.pass.steps.get(self.attempt.pass.at) {
            None => NextAction::Read,
            Some(Step::Reset { scope }) => {
                let scope = scope.clone();
                let causes = Vec::new();
                NextAction::End(ChangeOutcome::NeedsReset { scope, causes })
            }
            Some(step) => match self.call(step) {
                None => NextAction::Read,
                Some(call) if call.destroys() || matches!(call, DriverCall::SetMigMode { .. }) => {
                    NextAction::FindUsers
                }
                Some(_) => self.make_call(),
            },
        }
    }

    pub(super) fn deadline(&self) -> Duration {
        let timeout = self.request.limits.change_timeout;
        match self.goal {
            Goal::Target { .. } => timeout,
            // A rollback has the same limit, counted from its start.
            Goal::Previous { since, .. } => since.saturating_add(timeout),
        }
    }

    /// The driver call of a step; `None` if it depends on a step that did not happen.
    fn call(&self, step: &Step) -> Option<DriverCall> {
        Some(match step {
            Step::DestroyComputeInstance { gpu_instance, compute_instance } => {
                DriverCall::DestroyComputeInstance {
                    gpu_instance: *gpu_instance,
                    compute_instance: *compute_instance,
                }
            }
            Step::DestroyGpuInstance { gpu_instance, .. } => {
                DriverCall::DestroyGpuInstance { gpu_instance: *gpu_instance }
            }
            Step::SetMigMode { to } => DriverCall::SetMigMode { to: *to },
            Step::CreateGpuInstance { profile_id, placement, .. } => {
                DriverCall::CreateGpuInstance { profile_id: *profile_id, placement: *placement }
            }
            Step::CreateComputeInstance { gpu_instance, slices } => {
                DriverCall::CreateComputeInstance {
                    gpu_instance: match gpu_instance {
                        InstanceRef::Existing(id) => *id,
                        InstanceRef::Planned(at) => *self.attempt.pass.created_ids.get(at)?,
                    },
                    slices: *slices,
                }
            }
            Step::Reset { .. } => return None,
        })
    }

    fn current_call(&self) -> Option<DriverCall> {
        let step = self.attempt.pass.steps.get(self.attempt.pass.at)?;
        self.call(step)
    }

    /// Handles unknown users, which count as in use. The query is retried because its source may recover.
    pub(super) fn user_query_failed(&mut self, reason: String) -> NextAction {
        let Some(call) = self.current_call() else {
            return NextAction::Read;
        };
        let postponed = self.postponement(call);
        if self.has_timed_out(postponed) {
            return self.stop(StopReason::Blocked(vec![Cause::StateUnknown { reason }]));
        }
        self.retry_after(postponed)
    }

    /// Makes the current call, unless it would destroy a partition in use.
    pub(super) fn make_call(&mut self) -> NextAction {
        let Some(call) = self.current_call() else {
            return NextAction::Read;
        };
        if let Some(cause) = blocking_cause(&self.expected.device, &self.holders, call) {
            // Another plan may avoid the holder that was just discovered.
            self.attempt.obstacle = Some(cause);
            return NextAction::Read;
        }
        if let Goal::Target { is_device_changed } = &mut self.goal {
            *is_device_changed = true;
        }
        self.expected.record_attempt(call);
        NextAction::Call(call)
    }

    pub(super) fn call_succeeded(&mut self, done: &CallResult) -> NextAction {
        let Some(call) = self.current_call() else {
            return NextAction::Read;
        };
        self.expected.record_result(call, done);
        if let DriverCall::SetMigMode { .. } = call {
            return self.mode_set(done);
        }
        self.count(call);
        self.attempt.postponed_call = None;
        if let (
            CallResult::Created { id, placement },
            Some(Step::CreateGpuInstance { instance, placement: wanted, profile_id }),
        ) = (done, self.attempt.pass.steps.get(self.attempt.pass.at))
        {
            self.attempt.pass.created_ids.insert(*instance, *id);
            if placement != wanted {
                let (profile_id, placement) = (*profile_id, *wanted);
                self.attempt.last_failure =
                    Some("the driver created an instance at a different placement".to_owned());
                self.refuse(profile_id, placement);
                return NextAction::Read;
            }
        }
        self.attempt.pass.at = self.attempt.pass.at.saturating_add(1);
        self.step()
    }

    fn count(&mut self, call: DriverCall) {
        match call {
            DriverCall::DestroyGpuInstance { .. } => {
                self.work.destroyed = self.work.destroyed.saturating_add(1);
            }
            DriverCall::CreateGpuInstance { .. } => {
                self.work.created = self.work.created.saturating_add(1);
            }
            DriverCall::DestroyComputeInstance { .. }
            | DriverCall::CreateComputeInstance { .. }
            | DriverCall::SetMigMode { .. } => {}
        }
    }

    /// Continues after a change of MIG mode. The rest of the plan may differ in the new mode: older drivers report no
    /// profiles before.
    fn mode_set(&mut self, done: &CallResult) -> NextAction {
        let next = self.attempt.pass.steps.get(self.attempt.pass.at.saturating_add(1));
        match done {
            CallResult::Pending(reason) if !matches!(next, Some(Step::Reset { .. })) => {
                // No reset was planned, so a process has the device open.
                self.postpone(&format!("MIG mode has not taken effect: {reason}"))
            }
            CallResult::Pending(_) => {
                self.attempt.postponed_call = None;
                self.attempt.pass.at = self.attempt.pass.at.saturating_add(1);
                self.step()
            }
            // If the driver resets an idle device itself, the step is complete.
            CallResult::Completed | CallResult::Created { .. } => NextAction::Read,
        }
    }

    /// Excludes the placement from further plans. This explains why the plan did not reach its target.
    pub(super) fn refuse(&mut self, profile_id: u32, placement: Placement) {
        let new = self.attempt.refused.insert(RefusedPlacement {
            device: self.pci(),
            profile_id,
            placement,
        });
        if new {
            self.attempt.idle_passes = 0;
        }
    }

    pub(super) fn call_failed(&mut self, failure: CallFailure) -> NextAction {
        let call = self.current_call();
        self.attempt.last_failure = Some(failure.what.clone());
        match (failure.kind, call) {
            (FailureKind::InUse | FailureKind::Temporary, _) => self.postpone(&failure.what),
            (
                FailureKind::InsufficientResources,
                Some(DriverCall::CreateGpuInstance { profile_id, placement }),
            ) => {
                self.suspect_placement =
                    Some(RefusedPlacement { device: self.pci(), profile_id, placement });
                NextAction::Read
            }
            (FailureKind::NotFound, _) => NextAction::Read,
            (FailureKind::DeviceLost | FailureKind::DriverLost, _) => {
                self.end_device_lost(failure.what)
            }
            (FailureKind::InsufficientResources | FailureKind::Rejected, _) => {
                self.stop(StopReason::Failed(failure.what))
            }
        }
    }

    /// Retries the current call after a delay, until the time limit for "in use".
    fn postpone(&mut self, why: &str) -> NextAction {
        let Some(call) = self.current_call() else {
            return NextAction::Read;
        };
        let postponed = self.postponement(call);
        if self.has_timed_out(postponed) {
            return self.stop(self.unknown_holder(why));
        }
        let wait = self.retry_after(postponed);
        if postponed.retries == REREAD_AFTER_FAILURES && call.destroys() {
            // A compute instance that was reported destroyed may still exist.
            return NextAction::Read;
        }
        wait
    }

    /// The earlier failures of a call, or none if this is the first one.
    fn postponement(&self, call: DriverCall) -> PostponedCall {
        let earlier = self.attempt.postponed_call;
        earlier.filter(|postponed| postponed.call == call).unwrap_or(PostponedCall {
            call,
            since: self.now,
            retries: 0,
        })
    }

    fn has_timed_out(&self, postponed: PostponedCall) -> bool {
        self.now.saturating_sub(postponed.since) >= self.request.limits.in_use_timeout
    }

    fn retry_after(&mut self, postponed: PostponedCall) -> NextAction {
        self.work.retries = self.work.retries.saturating_add(1);
        self.attempt.postponed_call =
            Some(PostponedCall { retries: postponed.retries.saturating_add(1), ..postponed });
        NextAction::Wait(RETRY.delay(postponed.retries))
    }

    /// The reason to stop when the driver reports a user but none is visible.
    fn unknown_holder(&self, why: &str) -> StopReason {
        match self.current_call() {
            Some(call) if call.destroys() || matches!(call, DriverCall::SetMigMode { .. }) => {
                let reason = format!(
                    "{why}, but no process, pod or open device file was found: a monitor such as DCGM may have \
                     leaked a handle; restart the programs that monitor the GPU, or reset it"
                );
                StopReason::Blocked(vec![Cause::StateUnknown { reason }])
            }
            Some(_) | None => StopReason::Failed(why.to_owned()),
        }
    }
}
