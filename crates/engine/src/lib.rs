//! Applies plans to a node: the imperative shell around [`octavo_planner::reconcile`], used by the agent and, where no
//! agent runs, by a command.
//!
//! ```text
//!   engine   one round: decide, journal before the first call, history after the last
//!     |
//!   executor the transactions of a round, one thread per device, on the driver's thread
//!     |
//!   usage    device usage, queried before every destructive call
//!   claims   resource claims that an agent prepared, which count as users
//!   reset    the reset that a MIG mode change may require
//!   program  runs NVIDIA's tools
//!   store    lock, journal and history in the state directory
//! ```
//!
//! Only the process that holds the lock of the state directory changes this node.

pub mod agent_socket;
pub mod claims;
pub mod durable;
pub mod engine;
pub mod executor;
pub mod manual_choice;
pub mod program;
pub mod reset;
pub mod settings;
pub mod store;
pub mod usage;
