//! The node agent: parses, builds the adapters, runs.

mod hardware;
mod program;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use jiff::Timestamp;
use octavo::agent::feature_file::FeatureFile;
use octavo::agent::metrics::Applies;
use octavo::agent::metrics::serve::Server;
use octavo::agent::partitioning::Partitioning;
use octavo::agent::sink::{self, LabelSink};
use octavo::agent::uplink::dial::Aggregator;
use octavo::agent::uplink::{self, Outbox, Uplink};
use octavo::agent::{self, Outputs, Settings};
use octavo::config::agent::{AgentSettings, LabelSink as Target, Schedule, UplinkSettings};
use octavo::wire::stream::Identity;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::info;

fn main() -> ExitCode {
    program::main(AgentSettings::from_process(), AgentSettings::log, start)
}

fn start(settings: &AgentSettings) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(run(settings));
    // Whoever hangs in a file of /proc or /sys is not waited for.
    runtime.shutdown_background();
    ended
}

async fn run(settings: &AgentSettings) -> Result<(), Box<dyn Error>> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let hardware = hardware::open(settings.hardware())?;
    let mut sink: Box<dyn LabelSink> = match settings.sink() {
        Target::Stdout => Box::new(sink::Stdout::new(io::stdout())),
        Target::FeatureFile(file) => {
            Box::new(FeatureFile::new(file.path().to_owned(), file.expiry()))
        }
    };
    let labels = settings.labels().options(Timestamp::now());
    info!("octavo-agent {}", env!("CARGO_PKG_VERSION"));
    let shutdown = async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    let mut partitioning = settings
        .partitioning()
        .map(|one| Partitioning::open(one, settings.hardware().sys_root()))
        .transpose()?;
    match settings.schedule() {
        Schedule::Once => tokio::select! {
            () = shutdown => return Err("stopped before the hardware had answered".into()),
            done = agent::run_once(&hardware, sink.as_mut(), partitioning.as_mut(), &labels) => done?,
        },
        Schedule::Every(interval) => {
            let (outbox, uplink) = settings.uplink().map(uplink).unzip();
            let uplink = uplink.map(|uplink| tokio::spawn(uplink.run()));
            let applies = partitioning.as_ref().map(|one| one.applies().clone());
            let metrics = metrics(settings.metrics(), applies.unwrap_or_default()).await?;
            let settings = Settings { interval, labels };
            let outputs = Outputs {
                sink: sink.as_mut(),
                outbox,
            };
            agent::run(&hardware, outputs, partitioning, &settings, shutdown).await;
            if let Some((stop, served)) = metrics {
                drop(stop);
                served.await?;
            }
            // The outbox is gone, and the uplink takes its leave.
            if let Some(uplink) = uplink {
                uplink.await?;
            }
        }
    }
    Ok(())
}

/// The server of metrics, which ends when its other end is dropped.
async fn metrics(
    address: Option<SocketAddr>,
    applies: Applies,
) -> Result<Option<(oneshot::Sender<()>, JoinHandle<()>)>, Box<dyn Error>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let server = Server::listen(address, applies).await;
    let server = server.map_err(|error| format!("cannot serve metrics on {address}: {error}"))?;
    let (stop, stopped) = oneshot::channel();
    Ok(Some((stop, tokio::spawn(server.run(stopped)))))
}

/// What reports to the aggregator, and where it is told what.
fn uplink(settings: &UplinkSettings) -> (Outbox, Uplink<Aggregator>) {
    let identity = Identity {
        node: settings.node().clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let run = uplink::this_run(Timestamp::now());
    let aggregator = Aggregator::new(settings.clone());
    Uplink::new(aggregator, identity, run, settings.heartbeat())
}
