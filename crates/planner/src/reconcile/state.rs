//! State of a device relative to its desired state.

use std::time::Duration;

use octavo_model::backoff::Backoff;
use octavo_model::holder::Holder;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;

use super::outcome::ChangeOutcome;
use crate::plan::messages::{PlanFormatter, holders};
use crate::plan::{Cause, Infeasible, ResetScope};

/// State of a device relative to its desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyState {
    /// The device is in its desired state.
    Applied,
    /// The change is queued, or waits for a prerequisite.
    Pending {
        /// Human-readable prerequisite.
        reason: String,
    },
    /// The device is being changed.
    Applying,
    /// A blocker prevents the change.
    Blocked {
        /// The blockers; never empty.
        causes: Vec<Cause>,
    },
    /// The hardware cannot provide the desired state.
    Infeasible(Infeasible),
    /// The change failed, and the device is in its previous state.
    RolledBack {
        /// Human-readable reason.
        reason: String,
    },
    /// The change failed, and the device is in neither its desired nor its previous state.
    Failed {
        /// Human-readable reason.
        reason: String,
        /// Reason of the failed rollback; `None` if nothing was changed.
        rollback: Option<String>,
    },
    /// Every step is done except a reset.
    NeedsReset {
        /// The devices affected by the reset.
        scope: ResetScope,
        /// Blockers of the reset, if it was attempted.
        causes: Vec<Cause>,
    },
    /// Another process changed the device after it had reached its desired state, and the policy leaves it.
    Drifted,
    /// Another process is changing the device.
    Yielded {
        /// Human-readable description of the observed change.
        reason: String,
    },
}

impl ApplyState {
    /// The reason, as it appears in status, metrics and history.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Applied => Reason::Applied,
            Self::Pending { .. } => Reason::Pending,
            Self::Applying => Reason::Applying,
            Self::Blocked { .. } => Reason::Blocked,
            Self::Infeasible(_) => Reason::Infeasible,
            Self::RolledBack { .. } => Reason::RolledBack,
            Self::Failed { .. } => Reason::Failed,
            Self::NeedsReset { .. } => Reason::NeedsReset,
            Self::Drifted => Reason::Drifted,
            Self::Yielded { .. } => Reason::Yielded,
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
        if let Self::Blocked { causes } | Self::NeedsReset { causes, .. } = &mut state {
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
    pub fn message(&self, words: &PlanFormatter<'_>) -> String {
        match self {
            Self::Applied | Self::Applying => String::new(),
            Self::Pending { reason } | Self::RolledBack { reason } | Self::Yielded { reason } => {
                reason.clone()
            }
            Self::Blocked { causes } => {
                let causes: Vec<String> =
                    causes.iter().map(|cause| describe_cause(words, cause)).collect();
                causes.join("; ")
            }
            Self::Infeasible(infeasible) => words.infeasible(infeasible),
            Self::Failed { reason, rollback: None } => reason.clone(),
            Self::Failed { reason, rollback: Some(rollback) } => {
                format!("{reason}; the previous state could not be restored: {rollback}")
            }
            Self::NeedsReset { scope, causes } => needs_reset(words, scope, causes),
            Self::Drifted => {
                "another program changed it; by policy, it is left unchanged".to_owned()
            }
        }
    }
}

impl ApplyState {
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
            Self::Blocked { causes } | Self::NeedsReset { causes, .. } => causes,
            Self::Applied
            | Self::Pending { .. }
            | Self::Applying
            | Self::Infeasible(_)
            | Self::RolledBack { .. }
            | Self::Failed { .. }
            | Self::Drifted
            | Self::Yielded { .. } => &[],
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

fn needs_reset(words: &PlanFormatter<'_>, scope: &ResetScope, causes: &[Cause]) -> String {
    let what = format!(
        "MIG mode is set and takes effect after a reset of {}; stop the agent and run `nvidia-smi --gpu-reset -i \
         {}`, or reboot",
        words.scope(scope),
        scope.device
    );
    let causes: Vec<String> = causes.iter().map(|cause| describe_cause(words, cause)).collect();
    match causes.as_slice() {
        [] => what,
        some => format!("{what}. The reset is blocked by: {}", some.join("; ")),
    }
}

/// A blocker and its holders.
fn describe_cause(words: &PlanFormatter<'_>, cause: &Cause) -> String {
    let description = words.cause(cause);
    match cause.holders() {
        [] => description,
        some => format!("{description}: {}", holders(some)),
    }
}

impl From<ChangeOutcome> for ApplyState {
    fn from(ending: ChangeOutcome) -> Self {
        match ending {
            ChangeOutcome::Applied => Self::Applied,
            ChangeOutcome::Blocked { causes, .. } => Self::Blocked { causes },
            ChangeOutcome::Infeasible(infeasible) => Self::Infeasible(infeasible),
            ChangeOutcome::RolledBack { reason } => Self::RolledBack { reason },
            ChangeOutcome::Failed { reason, rollback } => Self::Failed { reason, rollback },
            ChangeOutcome::NeedsReset { scope, causes } => Self::NeedsReset { scope, causes },
            ChangeOutcome::Yielded { reason } => Self::Yielded { reason },
        }
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
