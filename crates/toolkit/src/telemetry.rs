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

use crate::log::{LEVELS, LogFormat, LogSettings};

/// Changes the log level of a running program. Clones control the same logger.
#[derive(Debug, Clone)]
pub struct LogLevelHandle {
    handle: reload::Handle<Targets, Registry>,
    configured: Targets,
    now: Arc<Mutex<Option<String>>>,
}

/// Initializes logging. Called once, by `main`; a second call has no effect.
pub fn start(settings: &LogSettings) -> LogLevelHandle {
    let configured = match &settings.log_filter {
        Some(filter) => filter.clone(),
        None => targets(settings.log_level),
    };
    let (targets, handle) = reload::Layer::new(configured.clone());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false);
    let lines = match settings.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    // Keeps a subscriber that the caller has already installed.
    let _already_started = tracing_subscriber::registry().with(targets).with(lines).try_init();
    LogLevelHandle { handle, configured, now: Arc::default() }
}

impl LogLevelHandle {
    /// Sets the log level. Without a level, or with an invalid one, the level of the settings applies.
    pub fn set(&self, level: Option<&str>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_deref() == level {
            return;
        }
        *now = level.map(ToOwned::to_owned);
        let known = LEVELS.iter().find(|(name, ..)| Some(*name) == level);
        if let (None, Some(level)) = (known, level) {
            warn!(?level, "unknown log level: use error, warn, info, debug or trace");
        }
        let (wanted, name) = match known {
            Some((name, _, filter)) => (targets(*filter), *name),
            None => (self.configured.clone(), "settings"),
        };
        // Reloading fails if another subscriber was installed before ours; then this logger is not in use.
        if self.handle.reload(wanted).is_ok() {
            info!(level = %name, "log level set");
        }
    }

    /// Switches between `debug` and the level of the settings.
    pub fn toggle(&self) {
        let known = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
    Targets::new().with_default(of_others).with_target("octavo", level)
}
