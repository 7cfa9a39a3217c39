//! Inputs of a transaction, the actions it requests and the answers it receives.

use std::sync::Arc;
use std::time::Duration;

use octavo_model::call::{CallFailure, CallResult, DriverCall};
use octavo_model::holder::Holder;
use octavo_model::inventory::{Device, Inventory, Process};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::state::ChangeOutcome;
use crate::layout::{DeviceTarget, MigTarget};
use crate::plan::Policy;

/// A requested change of one device.
#[derive(Debug, Clone)]
pub struct ChangeRequest {
    /// The node's inventory, read just before the change.
    pub inventory: Arc<Inventory>,
    /// The desired state of the device.
    pub target: DeviceTarget,
    /// The state of the device before any change, with the placement of each instance; `None` if unknown.
    pub previous: Option<MigTarget>,
    /// True if an earlier transaction for this change was interrupted.
    pub resumed: bool,
    /// Holders of the device, in addition to the processes in the inventory.
    pub holders: Vec<Holder>,
    /// The permitted operations.
    pub policy: Policy,
    /// The time limits.
    pub limits: Limits,
}

/// Time limits of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum time for which the driver may report "in use" for a device without a visible user. Source: a few
    /// tenths of a second after a process ended, measured on an A30 (FAR scheduler, JPDC 2025).
    pub in_use_timeout: Duration,
    /// Time limit of the whole change. A rollback has the same limit again.
    pub change_timeout: Duration,
}

/// The next action that the caller must perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// Find the users of the device and its partitions; answered by [`ActionResult::UsersFound`].
    FindUsers,
    /// Make this driver call; answered by [`ActionResult::Called`].
    Call(DriverCall),
    /// Wait; answered by [`ActionResult::Waited`].
    Wait(Duration),
    /// Read the device; answered by [`ActionResult::Read`].
    Read,
    /// The transaction has ended.
    End(ChangeOutcome),
}

/// The result of an action.
#[derive(Debug, Clone)]
pub enum ActionResult {
    /// No action was requested yet.
    Start,
    /// Answer to [`NextAction::FindUsers`]: the users, or why they cannot be determined.
    UsersFound(Result<ObservedUsers, String>),
    /// Answer to [`NextAction::Call`].
    Called(Result<CallResult, CallFailure>),
    /// Answer to [`NextAction::Wait`].
    Waited,
    /// Answer to [`NextAction::Read`].
    Read(Result<Box<Device>, CallFailure>),
}

/// The current users of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedUsers {
    /// Processes with a context, as reported by the driver.
    pub processes: Vec<Process>,
    /// All other holders.
    pub holders: Vec<Holder>,
}

/// Progress of a transaction, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Progress)]
pub struct ChangeProgress {
    /// Human-readable description of the current step.
    #[serde(rename = "doing")]
    pub current_step: String,
    /// Completed steps of the current plan.
    pub done: usize,
    /// Total steps of the current plan.
    pub steps: usize,
    /// True if the transaction is rolling back.
    pub back: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { in_use_timeout: Duration::from_secs(3), change_timeout: Duration::from_secs(30) }
    }
}
