//! State of a device relative to its desired state.

use std::time::Duration;

use octavo_model::backoff::Backoff;
use octavo_model::holder::Holder;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::tone::Tone;

use crate::plan::messages::PlanFormatter;
use crate::plan::{Cause, Infeasible, ResetScope};

/// State of a device relative to its desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyState {
    /// The change is queued, or waits for a prerequisite.
    Pending {
        /// Human-readable prerequisite.
        reason: String,
    },
    /// The device is being changed.
    Applying,
    /// Another process changed the device after it had reached its desired state, and the policy leaves it.
    Drifted,
    /// The outcome of the last change, or the outcome that a change would have.
    Ended(ChangeOutcome),
}

impl ApplyState {
    /// The reason, as it appears in status, metrics and history.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Pending { .. } => Reason::Pending,
            Self::Applying => Reason::Applying,
            Self::Drifted => Reason::Drifted,
            Self::Ended(outcome) => outcome.reason(),
        }
    }

    /// Severity of a state's reason: its position in [`ApplyState::REASONS`]; `None` for another reason.
    pub fn severity(reason: Reason) -> Option<usize> {
        Self::REASONS.iter().position(|known| *known == reason)
    }

    /// Returns the state without the command-line arguments of blocking programs: arguments may contain secrets, and
    /// not every reader of a node's status is authorized to see them.
    #[must_use]
    pub fn without_arguments(&self) -> Self {
        let mut state = self.clone();
        if let Self::Ended(
            ChangeOutcome::Blocked { causes, .. } | ChangeOutcome::NeedsReset { causes, .. },
        ) = &mut state
        {
            for holder in causes.iter_mut().flat_map(Cause::holders_mut) {
                if let Some(command) = &mut holder.details.command {
                    let program = command.split(' ').next();
                    *command = program.unwrap_or_default().to_owned();
                }
            }
        }
        state
    }

    /// Human-readable explanation; empty if there is nothing to explain.
    pub fn message(&self, formatter: &PlanFormatter<'_>) -> String {
        match self {
            Self::Pending { reason } => reason.clone(),
            Self::Applying => String::new(),
            Self::Drifted => {
                "another program changed it; by policy, it is left unchanged".to_owned()
            }
            Self::Ended(outcome) => outcome.message(formatter),
        }
    }

    /// Returns whether a change of MIG mode or a reset is blocked by an open handle of a process that is not a pod
    /// with a kubelet allocation: a client such as a monitor, which can be asked to close the device.
    pub fn is_blocked_by_client(&self) -> bool {
        let by_a_client = |cause: &Cause| match cause {
            Cause::DeviceInUse { holders } => {
                holders.is_empty() || !holders.iter().all(Holder::is_kubelet_allocation)
            }
            Cause::InstanceInUse { .. }
            | Cause::NotAllowed { .. }
            | Cause::StateUnknown { .. }
            | Cause::HardwareRefused => false,
        };
        self.causes().iter().any(by_a_client)
    }

    /// Returns whether the change can proceed once the known holders are gone.
    pub fn waits_for_holders(&self) -> bool {
        let causes = self.causes();
        !causes.is_empty() && causes.iter().all(|cause| !cause.holders().is_empty())
    }

    /// The blockers.
    pub fn causes(&self) -> &[Cause] {
        match self {
            Self::Ended(
                ChangeOutcome::Blocked { causes, .. } | ChangeOutcome::NeedsReset { causes, .. },
            ) => causes,
            Self::Pending { .. } | Self::Applying | Self::Drifted | Self::Ended(_) => &[],
        }
    }

    /// Returns whether a device in this state needs attention; `false` for an unknown state.
    pub fn needs_attention(state: &Reported<Reason>) -> bool {
        matches!(
            state.known(),
            Some(
                Reason::Blocked
                    | Reason::Infeasible
                    | Reason::RolledBack
                    | Reason::Failed
                    | Reason::NeedsReset
                    | Reason::Drifted
            )
        )
    }

    /// Color of a state. Unknown states come from a newer agent.
    pub fn tone(state: &Reported<Reason>) -> Tone {
        match state.known() {
            Some(Reason::Applied) => Tone::Good,
            Some(Reason::Yielded | Reason::Drifted | Reason::Blocked) => Tone::Warning,
            _ if Self::needs_attention(state) => Tone::Bad,
            _ => Tone::Neutral,
        }
    }

    /// The reason of every state, in ascending order of severity: how much the state needs attention.
    pub const REASONS: [Reason; 10] = [
        Reason::Applied,
        Reason::Pending,
        Reason::Applying,
        Reason::Yielded,
        Reason::Drifted,
        Reason::Blocked,
        Reason::RolledBack,
        Reason::NeedsReset,
        Reason::Infeasible,
        Reason::Failed,
    ];
}

fn needs_reset(formatter: &PlanFormatter<'_>, scope: &ResetScope, causes: &[Cause]) -> String {
    let what = format!(
        "MIG mode is set and takes effect after a reset of {}; stop the agent and run `nvidia-smi --gpu-reset -i \
         {}`, or reboot",
        formatter.scope(scope),
        scope.device
    );
    match causes {
        [] => what,
        some => format!("{what}. The reset is blocked by: {}", formatter.causes(some)),
    }
}

/// Longest delay between attempts.
pub const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);
/// Delay between attempts.
const RETRY: Backoff = Backoff { initial: Duration::from_secs(1), max: MAX_RETRY_DELAY };

/// Delay after this number of consecutive failed attempts.
pub fn retry_delay(failures: u32) -> Duration {
    RETRY.delay(failures.saturating_sub(1))
}

/// Final outcome of changing one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The device was read again and is in its desired state.
    Applied,
    /// A blocker prevents the change. The device is in its previous state.
    Blocked {
        /// The blockers; never empty.
        causes: Vec<Cause>,
        /// True if a partial change was rolled back.
        rolled_back: bool,
    },
    /// The hardware cannot provide the desired state. The device is in its previous state.
    Infeasible(Infeasible),
    /// The change failed. The device was read again and is in its previous state.
    RolledBack {
        /// Human-readable reason.
        reason: String,
    },
    /// The change failed, and the rollback failed or was not attempted.
    Failed {
        /// Reason of the failed change.
        reason: String,
        /// Reason of the failed rollback; `None` if nothing was changed or nothing can be rolled back.
        rollback: Option<String>,
    },
    /// Every step is done except a reset, which activates the new MIG mode.
    NeedsReset {
        /// The devices affected by the reset.
        scope: ResetScope,
        /// Blockers of the reset, if it was attempted.
        causes: Vec<Cause>,
    },
    /// Another process is changing the device. The transaction leaves it alone.
    Yielded {
        /// Human-readable description of the observed change.
        reason: String,
    },
}

/// Counts of the operations performed during a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationCounts {
    /// GPU instances destroyed.
    pub destroyed: u32,
    /// GPU instances created.
    pub created: u32,
    /// Calls retried because the driver reported a temporary failure.
    pub retries: u32,
    /// Rollbacks started.
    pub rollbacks: u32,
}

impl ChangeOutcome {
    /// The reason of every outcome.
    pub const REASONS: [Reason; 7] = [
        Reason::Applied,
        Reason::Blocked,
        Reason::Infeasible,
        Reason::RolledBack,
        Reason::Failed,
        Reason::NeedsReset,
        Reason::Yielded,
    ];

    /// The reason, as it appears in metrics, history and status.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Applied => Reason::Applied,
            Self::Blocked { .. } => Reason::Blocked,
            Self::Infeasible(_) => Reason::Infeasible,
            Self::RolledBack { .. } => Reason::RolledBack,
            Self::Failed { .. } => Reason::Failed,
            Self::NeedsReset { .. } => Reason::NeedsReset,
            Self::Yielded { .. } => Reason::Yielded,
        }
    }

    /// Human-readable explanation; empty if there is nothing to explain.
    pub fn message(&self, formatter: &PlanFormatter<'_>) -> String {
        match self {
            Self::Applied => String::new(),
            Self::Blocked { causes, .. } => formatter.causes(causes),
            Self::Infeasible(infeasible) => formatter.infeasible(infeasible),
            Self::RolledBack { reason }
            | Self::Yielded { reason }
            | Self::Failed { reason, rollback: None } => reason.clone(),
            Self::Failed { reason, rollback: Some(rollback) } => {
                format!("{reason}; the previous state could not be restored: {rollback}")
            }
            Self::NeedsReset { scope, causes } => needs_reset(formatter, scope, causes),
        }
    }

    /// Returns whether the device is in a recorded state: its target or its previous state.
    pub fn is_settled(&self) -> bool {
        match self {
            Self::Applied
            | Self::Blocked { .. }
            | Self::Infeasible(_)
            | Self::RolledBack { .. } => true,
            Self::Failed { .. } | Self::NeedsReset { .. } | Self::Yielded { .. } => false,
        }
    }
}
