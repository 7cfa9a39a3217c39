//! Actions of faults, and how calls are counted.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Code;

/// Action of a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Returns a code without effect.
    Return(Code),
    /// Does not return.
    Hang(Hang),
    /// Takes this much longer.
    Delay(Duration),
    /// Takes this many times the latency of its class.
    Slow(f64),
    /// Kills the calling process, like `kill -9`.
    Abort(Abort),
    /// Returns SUCCESS without effect: an instance that stays after it was destroyed.
    Lie,
    /// Returns `IN_USE` for this long after the first matching call, then lets one call succeed and starts again.
    InUseFor(Duration),
    /// Creates a GPU instance at another placement than requested, if there is a free one.
    WrongPlacement,
    /// `nvmlDeviceGetMigDeviceHandleByIndex` also returns destroyed devices.
    StaleMigHandles,
    /// GPUs are enumerated in this order of their indices.
    IndexOrder(Vec<u32>),
    /// `nvmlDeviceSetMigMode` succeeds with this activation status: the mode waits for a reset, or with SUCCESS never
    /// changes.
    Activation(Code),
    /// The GPU of the call is lost after the call.
    LoseGpu,
}

/// End of a hang, besides removal of its rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hang {
    /// Never.
    Forever,
    /// When this file appears.
    UntilFile(PathBuf),
}

/// When the calling process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Abort {
    /// Before the call has an effect.
    Before,
    /// After the call had its effect, without a result.
    After,
}

/// Scope of the count for "the nth call".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountScope {
    /// Calls of each process; a restarted client starts at one.
    #[default]
    Process,
    /// Calls of all processes on this state directory.
    Machine,
}
