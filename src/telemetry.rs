//! How the programs log: lines on standard error, for people or for a collector. How metrics are written is in
//! [`exposition`].
//!
//! Standard output belongs to a program's answer (labels, tables), so nothing here writes to it.

pub mod exposition;

use std::io;

use tracing::level_filters::LevelFilter;

use crate::config::log::{LogFormat, LogLevel, LogSettings};

/// Starts logging. Called once, by `main`; a second call changes nothing.
pub fn start(settings: LogSettings) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(filter(settings.level()))
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false);
    // A subscriber that is there already is the caller's own, and stays.
    let _already_started = match settings.format() {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
