//! State machines that execute plans, without I/O: each next action follows from the results of the previous ones.

mod ending;
mod expect;
mod job;
mod node;
mod record;
mod state;
mod status;
mod transaction;

pub use self::ending::{Ending, Work};
pub use self::job::{Action, Answer, Job, Limits, Progress, Users};
pub use self::node::{Decision, Drift, Node, View};
pub use self::record::{Entry, Record};
pub use self::state::State;
pub(in crate::domain) use self::state::{LONGEST_WAIT, wait};
pub use self::status::{DeviceStatus, InterruptedChange, Past, Status};
pub use self::transaction::Transaction;

#[cfg(test)]
mod tests;
