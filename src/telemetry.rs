//! How the programs log: lines on standard error, for people or for a collector.
//!
//! Standard output belongs to a program's answer (labels, tables), so nothing here writes to it.

use std::fmt;
use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogFormat {
    /// Time, level, message and fields, for a person.
    Text,
    /// One JSON object a line, for a collector.
    Json,
}

/// Starts logging. Called once, by `main`; a second call changes nothing.
pub fn start(format: LogFormat, level: LevelFilter) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_target(false);
    // An already installed subscriber is the caller's own, and stays.
    let _already_started = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// An error with all its causes on one line, outermost first.
#[derive(Debug)]
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
