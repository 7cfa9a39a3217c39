//! The node agent: parses its settings, builds the adapters, runs.

mod daemon;
mod hardware;
mod node;
mod sharing_backend;

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use octavo_agent::liveness::Liveness;
use octavo_agent::metrics::LayoutMetrics;
use octavo_agent::metrics::serve::{MetricsServer, MetricsSources};
use octavo_agent::metrics::vendors::VendorMetrics;
use octavo_agent::partitioning::Partitioning;
use octavo_agent::settings::{AgentSettings, Cleanup, Schedule, UplinkSettings};
use octavo_agent::uplink::{self, Outbox, Uplink};
use octavo_agent::{self as agent, Outputs};
use octavo_client::endpoint::AggregatorEndpoint;
use octavo_engine::store;
use octavo_files::config_files::LayoutFile;
use octavo_settings::child::child;
use octavo_stream::protocol::Identity;
use octavo_toolkit::tasks::first_panic;
use octavo_toolkit::telemetry::LogLevelHandle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tracing::{info, warn};

fn main() -> ExitCode {
    if let Some(child) = child() {
        return hardware::child(&child);
    }
    daemon::main(AgentSettings::from_process(), |settings| &settings.log, start)
}

fn start(settings: &AgentSettings, level: LogLevelHandle) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(run(settings, level));
    // Do not wait for threads that hang in a file of /proc or /sys.
    runtime.shutdown_background();
    ended
}

async fn run(settings: &AgentSettings, level: LogLevelHandle) -> Result<(), Box<dyn Error>> {
    // Before the first log message: a reader of it may already send a signal.
    let shutdown = shutdown_signal()?;
    info!(version = %env!("CARGO_PKG_VERSION"), "starting octavo-agent");
    let mut tasks = JoinSet::new();
    let toggles = signal(SignalKind::user_defined1())?;
    tasks.spawn(toggle_log_level(level.clone(), toggles));
    let node = match &settings.cluster {
        Some(cluster) => Some(node::connect(cluster, &settings.sharing, &mut tasks).await?),
        None => None,
    };
    if let Some(then) = settings.cleanup {
        return tokio::select! {
            done = clean_up(settings, node, then, shutdown) => done,
            error = first_panic(&mut tasks) => Err(error.into()),
        };
    }
    // On the heap: this future is too large to embed in another one.
    Box::pin(operate((settings, level), node, tasks, shutdown)).await
}

/// Observes the hardware and keeps the node in its layout, once or until `shutdown`.
async fn operate(
    (settings, level): (&AgentSettings, LogLevelHandle),
    node: Option<node::ClusterHandles>,
    mut tasks: JoinSet<()>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let hardware = hardware::open(&settings.hardware)?;
    let partitioning = partitioning(settings)?;
    let once = settings.publishing.schedule() == Schedule::Once;
    let pods = node.as_ref().and_then(|node| node.pods.clone());
    let labels = settings.labels.options(Timestamp::now());
    let hand_off = node::hand_off(settings, node.as_ref(), labels.mig_strategy, &mut tasks)?;
    let (partitioning, dra) =
        node::dra(settings, node.as_ref(), &hardware, partitioning, &mut tasks);
    let (dra, claim_metrics, claim_backend) = match dra {
        Some(parts) => (Some(parts.publisher), Some(parts.metrics), Some(parts.backend)),
        None => (None, None, None),
    };
    let (mut sink, cluster) = node::outputs(settings, node, level, once)?;
    let outputs = Outputs {
        dra,
        sink: sink.as_mut(),
        outbox: None,
        cluster,
        sharing: None,
        usage: None,
        offered: None,
        liveness: Liveness::new(Duration::ZERO),
    };
    let Schedule::Every(interval) = settings.publishing.schedule() else {
        return tokio::select! {
            () = shutdown => Err("stopped before the hardware responded".into()),
            done = agent::run_once(&hardware, outputs, partitioning, &labels) => {
                done?.map_or(Ok(()), |failure| Err(failure.into()))
            }
            error = first_panic(&mut tasks) => Err(error.into()),
        };
    };
    let (embedded, partitioning) = sharing_backend::start(settings, partitioning, &mut tasks);
    let backend = embedded.or(hand_off).or(claim_backend);
    let (outbox, uplink) = settings.uplink.as_ref().map(uplink).unzip();
    // Tasks that end by themselves when the agent does, and are awaited.
    let mut leaving = JoinSet::new();
    if let Some(uplink) = uplink {
        leaving.spawn(uplink.run());
    }
    let liveness = Liveness::new(interval);
    let claims = partitioning.as_ref().and_then(Partitioning::claims);
    let views = node::observe(settings, &hardware, (pods, claims), &mut tasks);
    let served = MetricsSources {
        applies: partitioning.as_ref().map(|one| one.metrics().clone()).unwrap_or_default(),
        usage: (views.as_ref()).map(|views| node::usage_metrics(settings, views)),
        vendors: Some(VendorMetrics::new(hardware.clone())),
        claims: claim_metrics,
        liveness: liveness.clone(),
    };
    let metrics = metrics(settings.metrics, served, &mut leaving).await?;
    let settings = sharing_backend::loop_settings(settings, interval, labels);
    let (usage, offered) = views.map(|views| (views.usage, views.offered)).unzip();
    let outputs = Outputs { outbox, sharing: backend, usage, offered, liveness, ..outputs };
    let mut failure = None;
    let ends = async {
        failure = tokio::select! {
            () = shutdown => None,
            error = first_panic(&mut tasks) => Some(error),
            error = first_panic(&mut leaving) => Some(error),
        };
    };
    agent::run(&hardware, outputs, partitioning, &settings, ends).await;
    if let Some(error) = failure {
        return Err(error.into());
    }
    // The outbox is dropped, so the uplink closes its stream.
    end(metrics, &mut leaving).await?;
    tasks.shutdown().await;
    Ok(())
}

/// Builds the partitioning, if it is enabled.
fn partitioning(settings: &AgentSettings) -> Result<Option<Partitioning>, Box<dyn Error>> {
    let sys_root = &settings.hardware.sys_root;
    let Some(partitioning) = &settings.partitioning else {
        // This agent changes no device, so it cannot finish what another program began.
        for notice in store::interrupted(&settings.engine.state_dir).notices() {
            warn!("{notice}");
        }
        return Ok(None);
    };
    let layout_file = match (&partitioning.layouts, settings.publishing.schedule()) {
        (None, _) => LayoutFile::default(),
        // With `once`, the agent cannot wait until the file is repaired.
        (Some(file), Schedule::Once) => LayoutFile::open(file)?,
        (Some(file), Schedule::Every(_)) => LayoutFile::open_or_empty(file),
    };
    Ok(Some(Partitioning::new(partitioning, &settings.engine, layout_file, sys_root)))
}

/// Stops the metrics server, and waits for all tasks in `leaving`.
async fn end(
    metrics: Option<oneshot::Sender<()>>,
    leaving: &mut JoinSet<()>,
) -> Result<(), JoinError> {
    drop(metrics);
    while let Some(ended) = leaving.join_next().await {
        ended?;
    }
    Ok(())
}

/// Resolves when this process receives SIGTERM or SIGINT.
fn shutdown_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    })
}

/// Removes everything that agents have written. With [`Cleanup::Stay`], the process then keeps serving its readiness
/// and no useful metrics.
async fn clean_up(
    settings: &AgentSettings,
    node: Option<node::ClusterHandles>,
    then: Cleanup,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let mut shutdown = pin!(shutdown);
    let mut leaving = JoinSet::new();
    let liveness = Liveness::always_alive();
    let served = match then {
        Cleanup::End => None,
        Cleanup::Stay => {
            let served = MetricsSources {
                applies: LayoutMetrics::default(),
                usage: None,
                vendors: None,
                claims: None,
                liveness: liveness.clone(),
            };
            metrics(settings.metrics, served, &mut leaving).await?
        }
    };
    // A failure here must not prevent the cleanup of the Node.
    let description = sharing_backend::clean_up(settings);
    tokio::select! {
        () = &mut shutdown => return Err("stopped before the cleanup was complete".into()),
        done = node::clean_up(&settings.publishing, node) => description.map_err(Box::<dyn Error>::from).and(done)?,
    }
    liveness.mark_ready();
    if then == Cleanup::Stay {
        shutdown.await;
    }
    end(served, &mut leaving).await?;
    Ok(())
}

/// Toggles the log level between `debug` and the configured one at each SIGUSR1.
async fn toggle_log_level(level: LogLevelHandle, mut toggles: Signal) {
    while toggles.recv().await.is_some() {
        level.toggle();
    }
}

/// Starts the metrics server, which stops when the returned sender is dropped.
async fn metrics(
    address: Option<SocketAddr>,
    sources: MetricsSources,
    leaving: &mut JoinSet<()>,
) -> Result<Option<oneshot::Sender<()>>, Box<dyn Error>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let server = MetricsServer::listen(address, sources).await;
    let server = server.map_err(|error| format!("cannot serve metrics on {address}: {error}"))?;
    let (stop, stopped) = oneshot::channel();
    leaving.spawn(server.run(stopped));
    Ok(Some(stop))
}

/// Builds the uplink to the aggregator, and its outbox.
fn uplink(settings: &UplinkSettings) -> (Outbox, Uplink<AggregatorEndpoint>) {
    let identity = Identity {
        node: settings.node.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let run = uplink::current_run(Timestamp::now());
    Uplink::new(settings.aggregator.clone(), identity, run, settings.heartbeat)
}
