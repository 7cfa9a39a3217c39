//! How changing a device ends. Nothing else is an end, so that nothing is left at "pending".

use crate::domain::plan::{Cause, Infeasible, ResetScope};
use crate::domain::reason::Reason;

/// How the change of one device ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It was read again and has what it shall have.
    Applied,
    /// Something is in the way. It has what it had.
    Blocked {
        /// What; never empty.
        causes: Vec<Cause>,
        /// Whether something had been changed, and was brought back.
        rolled_back: bool,
    },
    /// The hardware cannot. It has what it had.
    Infeasible(Infeasible),
    /// It could not be done. It was read again and has what it had.
    RolledBack {
        /// Why, in words for a person.
        reason: String,
    },
    /// It could not be done, and what it had could not be brought back either, or was not tried.
    Failed {
        /// Why not the one.
        reason: String,
        /// Why not the other; `None` where nothing had been changed or nothing can be.
        rollback: Option<String>,
    },
    /// Everything is done but a reset, with which the mode comes into force.
    NeedsReset {
        /// What the reset concerns.
        scope: ResetScope,
        /// What is in its way, where it was tried.
        causes: Vec<Cause>,
    },
    /// Somebody else changes it. It is left to them.
    Yielded {
        /// What was seen, in words for a person.
        reason: String,
    },
}

/// What was done on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// GPU instances destroyed.
    pub destroyed: u32,
    /// GPU instances created.
    pub created: u32,
    /// Calls made again because the driver said that it may work later.
    pub retries: u32,
    /// Whether what was there before had to be brought back.
    pub rollbacks: u32,
}

impl Ending {
    /// All the words there are.
    pub const WORDS: [&'static str; 7] = [
        Reason::Applied.word(),
        Reason::Blocked.word(),
        Reason::Infeasible.word(),
        Reason::RolledBack.word(),
        Reason::Failed.word(),
        Reason::NeedsReset.word(),
        Reason::Yielded.word(),
    ];

    /// The reason's word: part of metrics, history and status.
    pub fn as_str(&self) -> &'static str {
        self.reason().word()
    }

    /// The reason that this is in metrics, history and status.
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

    /// Whether the device is as recorded: at its target, or back at what it had.
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
