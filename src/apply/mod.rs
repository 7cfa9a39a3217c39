//! Carries plans out: the shell around [`crate::domain::reconcile`], used by the agent and, where none runs, by a command.
//!
//! ```text
//!   engine   what to do now, journal before the first call, history after the last     one round
//!     |
//!   executor the transactions of a round, each on a thread of its own                  on the driver's thread
//!     |
//!   witness  who uses a device, asked before every call that destroys
//!   reset    what a mode change may need at last
//!   program  how NVIDIA's program is called
//!   store    lock, journal and history in the state directory
//! ```
//!
//! Whoever holds the lock of the state directory is the one who changes this node.

pub mod choice;
pub mod durable;
pub mod engine;
pub mod executor;
pub mod program;
pub mod reset;
pub mod settings;
pub mod store;
pub mod witness;
