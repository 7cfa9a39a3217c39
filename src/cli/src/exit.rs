//! Exit codes of the programs. Scripts and pipelines rely on these numbers, so they never change their meaning.

use std::process::{ExitCode, Termination};

/// Result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exit {
    /// Done, or nothing to do.
    #[default]
    Done = 0,
    /// Failed; standard error contains the reason.
    Failed = 1,
    /// Wrong arguments.
    Usage = 2,
    /// There are differences or changes, as in `diff`.
    Changes = 3,
    /// Blocked until devices in use are released.
    Blocked = 4,
    /// Never possible on this hardware.
    Infeasible = 5,
}

impl Exit {
    /// Returns the exit code.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}
