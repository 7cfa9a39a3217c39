//! What every program needs and is specific to none: bounded reads, the state of tasks, error messages, logging and metrics
//! text.

pub mod choice;
pub mod desired;
pub mod error;
pub mod files;
pub mod log;
pub mod random;
pub mod tasks;
pub mod telemetry;
pub mod unix_socket;
