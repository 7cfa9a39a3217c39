//! The aggregator: parses, runs, ends.

use std::error::Error;
use std::process::ExitCode;

use octavo::aggregator::run;
use octavo::config::aggregator::AggregatorSettings;
use octavo::config::{Answer, AnswerKind};
use octavo::domain::error::chain;
use octavo::telemetry;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

fn main() -> ExitCode {
    let settings = match AggregatorSettings::from_process() {
        Ok(settings) => settings,
        Err(answer) => return say(&answer),
    };
    telemetry::start(settings.log());
    match start(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!("{}", chain(failure.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn say(answer: &Answer) -> ExitCode {
    // Help that nobody reads is no failure.
    let _unread = answer.print();
    match answer.kind() {
        AnswerKind::Asked => ExitCode::SUCCESS,
        AnswerKind::UsageError => ExitCode::from(2),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn start(settings: &AggregatorSettings) -> Result<(), Box<dyn Error>> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    info!("octavo-aggregator {}", env!("CARGO_PKG_VERSION"));
    let running = run::start(settings)?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    info!("stopping");
    if running.stop() {
        Ok(())
    } else {
        Err("not everything could be ended in time".into())
    }
}
