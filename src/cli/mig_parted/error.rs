//! What can go wrong with configurations and hooks, beyond what goes wrong anywhere.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

use crate::wire::hooks::{HooksError, Moment};

/// Why a verb of mig-parted failed.
#[derive(Debug, Error)]
pub enum MigPartedError {
    /// No name was given and one is needed.
    #[error(
        "missing required flag 'selected-config' when more than one config available; {place} has {}",
        .known.join(", ")
    )]
    NoneSelected {
        /// The file.
        place: String,
        /// What it has.
        known: Vec<String>,
    },
    /// The name is not in the file.
    #[error("selected mig-config not present: {name}; {place} has {}", .known.join(", "))]
    NotPresent {
        /// The name.
        name: String,
        /// The file.
        place: String,
        /// What it has, the nearest first.
        known: Vec<String>,
    },
    /// The node does not have it.
    #[error("assertion failure: selected configuration not currently applied")]
    NotApplied,
    /// A file of hooks cannot be used.
    #[error("cannot use the hooks in {}", .path.display())]
    Hooks {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: HooksError,
    },
    /// A hook could not be run.
    #[error("cannot run the {moment} hook {command}")]
    HookStart {
        /// When it was to run.
        moment: Moment,
        /// Its program.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A hook failed.
    #[error("the {moment} hook {command} failed: {status}")]
    HookFailed {
        /// When it ran.
        moment: Moment,
        /// Its program.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A hook does not end.
    #[error(
        "the {moment} hook {command} did not end within {} s and was killed; --hook-timeout gives it longer",
        .longest.as_secs()
    )]
    HookEndless {
        /// When it ran.
        moment: Moment,
        /// Its program.
        command: String,
        /// How long it had.
        longest: Duration,
    },
    /// There is nothing to write.
    #[error("no GPU of this node can be partitioned, so that there is nothing to generate")]
    NothingToGenerate,
}
