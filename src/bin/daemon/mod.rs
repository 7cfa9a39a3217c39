//! Common parts of the long-running programs: settings or an early exit, a log, and the report of a failure.

use std::error::Error;
use std::panic::set_hook;
use std::process::ExitCode;

use octavo_settings::{EarlyExit, EarlyExitKind};
use octavo_toolkit::error::chain;
use octavo_toolkit::log::LogSettings;
use octavo_toolkit::telemetry::{self, LogLevelHandle};
use tracing::error;

/// Runs `start` with the settings, and logs as they configure.
pub(crate) fn main<S>(
    settings: Result<S, EarlyExit>,
    log: impl FnOnce(&S) -> &LogSettings,
    start: impl FnOnce(&S, LogLevelHandle) -> Result<(), Box<dyn Error>>,
) -> ExitCode {
    let settings = match settings {
        Ok(settings) => settings,
        Err(answer) => return print(&answer),
    };
    let level = telemetry::start(log(&settings));
    // Log panics of any thread or task.
    set_hook(Box::new(|panic| error!(%panic, "the program panicked")));
    match start(&settings, level) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!("{}", chain(failure.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn print(answer: &EarlyExit) -> ExitCode {
    // A closed standard output is no failure.
    let _unread = answer.print();
    match answer.kind() {
        EarlyExitKind::Requested => ExitCode::SUCCESS,
        EarlyExitKind::UsageError => ExitCode::from(2),
        EarlyExitKind::Failure => ExitCode::FAILURE,
    }
}
