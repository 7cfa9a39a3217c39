//! State machines that execute plans, without I/O: each next action follows from the results of the previous ones.

mod expected;
mod node;
mod record;
mod request;
mod round;
mod state;
mod status;
mod transaction;

pub use self::node::{Decision, DriftPolicy, NodeReconciler, ReconcileInput};
pub use self::record::{ApplyRecord, ApplyRecordEntry, targets_with_interrupted};
pub use self::request::{
    ActionResult, ChangeProgress, ChangeRequest, Limits, NextAction, ObservedUsers,
};
pub use self::round::ChangeRound;
pub use self::state::{ApplyState, ChangeOutcome, MAX_RETRY_DELAY, OperationCounts, retry_delay};
pub use self::status::{
    ChangeHistory, DeviceLayoutStatus, InterruptedChange, MAX_LAYOUT_DEVICES, NodeLayoutStatus,
};
pub use self::transaction::Transaction;

#[cfg(test)]
mod tests;
