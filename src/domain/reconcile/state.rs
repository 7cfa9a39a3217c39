//! Where a device stands with regard to what it shall have.

use std::time::Duration;

use super::ending::Ending;
use crate::domain::holder::Holder;
use crate::domain::plan::words::{Words, holders};
use crate::domain::plan::{Cause, Infeasible, ResetScope};
use crate::domain::reason::Reason;

/// Where a device stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It has what it shall have.
    Applied,
    /// It will be changed, or waits for what must come first.
    Pending {
        /// What it waits for, in words for a person.
        reason: String,
    },
    /// It is being changed.
    Applying,
    /// Something is in the way.
    Blocked {
        /// What; never empty.
        causes: Vec<Cause>,
    },
    /// The hardware cannot.
    Infeasible(Infeasible),
    /// It could not be changed and has what it had.
    RolledBack {
        /// Why.
        reason: String,
    },
    /// It could not be changed, and what it has now is neither the one nor the other.
    Failed {
        /// Why.
        reason: String,
        /// Why what it had could not be brought back; `None` where nothing was changed.
        rollback: Option<String>,
    },
    /// Everything is done but a reset.
    NeedsReset {
        /// What the reset concerns.
        scope: ResetScope,
        /// What is in its way, where it was tried.
        causes: Vec<Cause>,
    },
    /// Somebody else changed it after it had what it shall have, and it is left as it is.
    Drifted,
    /// Somebody else changes it.
    Yielded {
        /// What was seen.
        reason: String,
    },
}

impl State {
    /// The reason that this is in status, metrics and history.
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

    /// The reason's word.
    pub fn as_str(&self) -> &'static str {
        self.reason().word()
    }

    /// How much it needs somebody's attention, the least first.
    pub fn gravity(&self) -> u8 {
        match self {
            Self::Applied => 0,
            Self::Pending { .. } => 1,
            Self::Applying => 2,
            Self::Yielded { .. } => 3,
            Self::Drifted => 4,
            Self::Blocked { .. } => 5,
            Self::RolledBack { .. } => 6,
            Self::NeedsReset { .. } => 7,
            Self::Infeasible(_) => 8,
            Self::Failed { .. } => 9,
        }
    }

    /// The same without what the programs in the way were started with: arguments may be secrets, and not everybody who reads of
    /// a node may read those.
    #[must_use]
    pub fn without_arguments(&self) -> Self {
        let mut state = self.clone();
        if let Self::Blocked { causes } | Self::NeedsReset { causes, .. } = &mut state {
            for holder in causes.iter_mut().flat_map(Cause::holders_mut) {
                if let Some(command) = &mut holder.who.command {
                    let program = command.split(' ').next();
                    *command = program.unwrap_or_default().to_owned();
                }
            }
        }
        state
    }

    /// Why, in words for a person; empty where there is nothing to explain.
    pub fn message(&self, words: &Words<'_>) -> String {
        match self {
            Self::Applied | Self::Applying => String::new(),
            Self::Pending { reason } | Self::RolledBack { reason } | Self::Yielded { reason } => {
                reason.clone()
            }
            Self::Blocked { causes } => {
                let causes: Vec<String> = causes.iter().map(|cause| told(words, cause)).collect();
                causes.join("; ")
            }
            Self::Infeasible(infeasible) => words.impossible(infeasible),
            Self::Failed {
                reason,
                rollback: None,
            } => reason.clone(),
            Self::Failed {
                reason,
                rollback: Some(rollback),
            } => format!("{reason}; what it had could not be brought back: {rollback}"),
            Self::NeedsReset { scope, causes } => needs_reset(words, scope, causes),
            Self::Drifted => "somebody changed it; by policy it is left so".to_owned(),
        }
    }
}

impl State {
    /// Whether somebody has the device open who is in the way of a change of its MIG mode, or of a reset, and is no pod that kubelet
    /// gave the device to: a client such as a monitor, which can be asked to let go.
    pub fn is_held(&self) -> bool {
        let by_a_client = |cause: &Cause| match cause {
            Cause::DeviceInUse { holders } => {
                holders.is_empty() || !holders.iter().all(Holder::is_given)
            }
            Cause::InstanceInUse { .. }
            | Cause::NotAllowed { .. }
            | Cause::Untold { .. }
            | Cause::Refused => false,
        };
        self.causes().iter().any(by_a_client)
    }

    /// Whether it is enough that those go who are in the way and told.
    pub fn waits_for_holders(&self) -> bool {
        let causes = self.causes();
        !causes.is_empty() && causes.iter().all(|cause| !cause.holders().is_empty())
    }

    /// What is in the way.
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

    /// Whether a device in the state of this word is to be looked at by somebody. A word that is not known is not.
    pub fn wants_a_look(word: &str) -> bool {
        matches!(
            Reason::of(word),
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

    /// All the words there are, the least grave first.
    pub const WORDS: [&'static str; 10] = [
        Reason::Applied.word(),
        Reason::Pending.word(),
        Reason::Applying.word(),
        Reason::Yielded.word(),
        Reason::Drifted.word(),
        Reason::Blocked.word(),
        Reason::RolledBack.word(),
        Reason::NeedsReset.word(),
        Reason::Infeasible.word(),
        Reason::Failed.word(),
    ];
}

fn needs_reset(words: &Words<'_>, scope: &ResetScope, causes: &[Cause]) -> String {
    let what = format!(
        "MIG mode is set and comes into force with a reset of {}; `nvidia-smi --gpu-reset -i {}` does it while no agent runs, or a reboot",
        words.scope(scope),
        scope.device
    );
    let causes: Vec<String> = causes.iter().map(|cause| told(words, cause)).collect();
    match causes.as_slice() {
        [] => what,
        some => format!("{what}. In the way of the reset: {}", some.join("; ")),
    }
}

/// What is in the way, and who.
fn told(words: &Words<'_>, cause: &Cause) -> String {
    let cause_told = words.cause(cause);
    match cause.holders() {
        [] => cause_told,
        some => format!("{cause_told}: {}", holders(some)),
    }
}

impl From<Ending> for State {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Applied => Self::Applied,
            Ending::Blocked { causes, .. } => Self::Blocked { causes },
            Ending::Infeasible(infeasible) => Self::Infeasible(infeasible),
            Ending::RolledBack { reason } => Self::RolledBack { reason },
            Ending::Failed { reason, rollback } => Self::Failed { reason, rollback },
            Ending::NeedsReset { scope, causes } => Self::NeedsReset { scope, causes },
            Ending::Yielded { reason } => Self::Yielded { reason },
        }
    }
}

/// The first wait after an attempt that ended badly; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_secs(1);
pub(in crate::domain) const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// How long to wait after so many attempts in a row that ended badly.
pub(in crate::domain) fn wait(failures: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST_WAIT)
}
