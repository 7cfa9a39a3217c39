//! Errors of mig-parted's commands: configurations and hooks.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use octavo_files::hooks::{HookPoint, HooksError};
use thiserror::Error;

/// Reason why a command of mig-parted failed.
#[derive(Debug, Error)]
pub(crate) enum MigPartedError {
    /// No name was given although one is required.
    #[error(
        "missing required flag 'selected-config' when more than one config available; {place} has {}",
        .known.join(", ")
    )]
    NoneSelected {
        /// The file.
        place: String,
        /// Names in the file.
        known: Vec<String>,
    },
    /// The name is not in the file.
    #[error("selected mig-config not present: {name}; {place} has {}", .known.join(", "))]
    NotPresent {
        /// The name.
        name: String,
        /// The file.
        place: String,
        /// Names in the file, the nearest first.
        known: Vec<String>,
    },
    /// The node does not have the configuration.
    #[error("assertion failure: selected configuration not currently applied")]
    NotApplied,
    /// A hooks file cannot be used.
    #[error("cannot use the hooks in {}", .path.display())]
    Hooks {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: HooksError,
    },
    /// A hook could not be started.
    #[error("cannot run the {moment} hook {command}")]
    HookStart {
        /// The hook's event.
        moment: HookPoint,
        /// Its program.
        command: String,
        /// The cause.
        source: io::Error,
    },
    /// A hook failed.
    #[error("the {moment} hook {command} failed: {status}")]
    HookFailed {
        /// The hook's event.
        moment: HookPoint,
        /// Its program.
        command: String,
        /// Its exit status.
        status: ExitStatus,
    },
    /// A hook exceeded its time limit.
    #[error(
        "the {moment} hook {command} did not exit within {} s and was killed; increase \
         --hook-timeout",
        .longest.as_secs()
    )]
    HookTimedOut {
        /// The hook's event.
        moment: HookPoint,
        /// Its program.
        command: String,
        /// The time limit.
        longest: Duration,
    },
    /// There is nothing to write.
    #[error("no GPU of this node supports MIG, so there is nothing to generate")]
    NothingToGenerate,
}
