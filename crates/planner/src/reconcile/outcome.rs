//! Final outcomes of changing one device. Every change ends in one of them; none is left "pending".

use octavo_model::reason::Reason;

use crate::plan::{Cause, Infeasible, ResetScope};

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
