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
    let stop = async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    Ok(run::run(settings, stop).await?)
}
