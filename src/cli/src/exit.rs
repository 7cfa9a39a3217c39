//! Exit codes of the programs. Scripts and pipelines rely on these numbers, so they never change their meaning.

use std::process::{ExitCode, Termination};

/// Result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exit {
    /// 0: done, or nothing to do.
    #[default]
    Done,
    /// 1: failed; standard error contains the reason.
    Failed,
    /// 2: wrong arguments.
    Usage,
    /// 3: there are differences or changes, as in `diff`.
    Changes,
    /// 4: blocked until devices in use are released.
    Blocked,
    /// 5: never possible on this hardware.
    Infeasible,
}

impl Exit {
    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Changes => 3,
            Self::Blocked => 4,
            Self::Infeasible => 5,
        }
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}
