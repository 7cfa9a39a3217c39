//! Logging to standard error, as text or as JSON for a log collector. [`exposition`] encodes metrics.
//!
//! Standard output is reserved for the program's results (labels, tables), so nothing here writes to it.

pub mod exposition;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::{info, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::log::{LogFormat, LogLevel, LogSettings};

/// Changes the log level of a running program. Clones control the same logger.
#[derive(Debug, Clone)]
pub struct LogLevelHandle {
    handle: reload::Handle<Targets, Registry>,
    configured: Targets,
    now: Arc<Mutex<Option<String>>>,
}

/// Initializes logging. Called once, by `main`; a second call has no effect.
pub fn start(settings: &LogSettings) -> LogLevelHandle {
    let usual = match &settings.log_filter {
        Some(filter) => filter.clone(),
        None => targets(filter(settings.log_level)),
    };
    let (targets, handle) = reload::Layer::new(usual.clone());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false);
    let lines = match settings.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    // Keeps a subscriber that the caller has already installed.
    let _already_started = tracing_subscriber::registry()
        .with(targets)
        .with(lines)
        .try_init();
    LogLevelHandle {
        handle,
        configured: usual,
        now: Arc::default(),
    }
}

impl LogLevelHandle {
    /// Sets the log level. Without a level, or with an invalid one, the level of the settings applies.
    pub fn set(&self, level: Option<&str>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_deref() == level {
            return;
        }
        *now = level.map(ToOwned::to_owned);
        let known = level.map(LogLevel::from_name);
        if let (Some(None), Some(level)) = (known, level) {
            warn!("{level:?} is no level to log from: error, warn, info, debug or trace");
        }
        let (wanted, said) = match known.flatten().zip(level) {
            Some((known, level)) => (targets(filter(known)), level),
            None => (self.configured.clone(), "of the settings"),
        };
        // Reloading fails if another subscriber was installed before ours; then this logger is not in use.
        if self.handle.reload(wanted).is_ok() {
            info!("logging from level {said} on");
        }
    }

    /// Switches between `debug` and the level of the settings.
    pub fn toggle(&self) {
        let known = self
            .now
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        self.set(known.is_none().then_some("debug"));
    }
}

/// Logs of libraries are for debugging only. Octavo logs their relevant errors itself.
fn targets(level: LevelFilter) -> Targets {
    let of_others = match level {
        LevelFilter::TRACE => LevelFilter::TRACE,
        LevelFilter::DEBUG => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    };
    Targets::new()
        .with_default(of_others)
        .with_target("octavo", level)
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
