//! What every program needs and is specific to none: bounded file reads, error chains, logging and metrics text.

pub mod error;
pub mod files;
pub mod log;
pub mod telemetry;
