//! The aggregator: parses its settings and runs.

mod daemon;

use std::error::Error;
use std::process::ExitCode;

use octavo_aggregator::run;
use octavo_aggregator::settings::AggregatorSettings;
use octavo_toolkit::telemetry::LogLevelHandle;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

fn main() -> ExitCode {
    daemon::main(AggregatorSettings::from_process(), |settings| &settings.log, start)
}

#[tokio::main(flavor = "current_thread")]
async fn start(
    settings: &AggregatorSettings,
    _level: LogLevelHandle,
) -> Result<(), Box<dyn Error>> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    info!("octavo-aggregator {}", env!("CARGO_PKG_VERSION"));
    let running = run::start(settings)?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
        name = running.failed() => {
            running.stop();
            return Err(format!("the thread {name} exited unexpectedly").into());
        }
    }
    info!("stopping");
    if running.stop() { Ok(()) } else { Err("not all tasks stopped in time".into()) }
}
