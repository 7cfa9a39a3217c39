//! What a fault does, and which calls are counted for it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Code;

/// What one rule does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Answers a code without doing anything.
    Return(Code),
    /// Does not come back.
    Hang(Hang),
    /// Takes longer by this.
    Delay(Duration),
    /// Takes this many times as long as its class of call.
    Slow(f64),
    /// Kills the calling process, as `kill -9`.
    Abort(Abort),
    /// Answers SUCCESS without doing anything: an instance that stays after it was destroyed.
    Lie,
    /// Answers `IN_USE` for this long after the first matching call, then lets one through and starts again.
    InUseFor(Duration),
    /// Puts a GPU instance somewhere else than asked, when there is another free place.
    WrongPlacement,
    /// `nvmlDeviceGetMigDeviceHandleByIndex` also answers devices that were destroyed.
    StaleMigHandles,
    /// GPUs are enumerated in this order of their indices.
    IndexOrder(Vec<u32>),
    /// `nvmlDeviceSetMigMode` succeeds with this activation status: the mode waits for a reset, or with SUCCESS for nothing.
    Activation(Code),
    /// The GPU of the call is lost when the call is done.
    LoseGpu,
}

/// How a hang ends, other than by removing its rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hang {
    /// It does not.
    Forever,
    /// When this file appears.
    UntilFile(PathBuf),
}

/// When the caller dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Abort {
    /// Nothing was done yet.
    Before,
    /// It was done, and the caller never learns.
    After,
}

/// Over what "the nth call" counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counting {
    /// Calls of each process on its own; a restarted client starts at one.
    #[default]
    Process,
    /// Calls of all processes on this state directory.
    Machine,
}
