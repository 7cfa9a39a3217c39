//! Startup and shutdown of the aggregator.
//!
//! Three threads with a runtime each: `ingest` serves the agents' streams and owns the store, `http` serves all
//! readers, and `cluster` watches the cluster and writes to it. They share published snapshots only, so readers can
//! delay other readers, but neither agents nor the cluster's watches.

mod cluster;
mod error;
mod replica;
mod threads;

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::{Extension, Router};
use octavo_access::audit::AuditLog;
use octavo_access::creation::ProfileCreator;
use octavo_access::guard::Guard;
use octavo_files::config_files::LayoutFile;
use octavo_files::config_files::budgets::BudgetFile;
use octavo_files::config_files::prices::PriceFile;
use octavo_files::config_files::profiles::HardwareProfileFile;
use octavo_fleet::startup::StartupProgress;
use octavo_kube::access_review::AccessReviewer;
use octavo_kube::client::{Client, ConnectError, Program, connect};
use octavo_kube::token_review::TokenReviewer;
use octavo_pages as pages;
use octavo_store::availability::Counter;
use octavo_store::estimate_engine::EstimateEngine;
use octavo_store::ledger::LedgerReader;
use octavo_store::startup::Startup;
use octavo_store::stats::Stats;
use octavo_store::store::shared_store::SharedStore;
use octavo_store::view::FleetView;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{error, info, warn};

use self::cluster::{ClusterTasks, profile_creator};
pub use self::error::{RunError, StartError};
pub use self::replica::run;
pub use self::threads::RunningAggregator;
use self::threads::Threads;
use super::access::guarded;
use super::auth::Gate;
use super::ingest::{IngestService, PeerTimeouts};
use super::policies;
use super::rest;
use super::serve::{Limits, Protocol, Server};
use super::settings::{AggregatorSettings, ServingSettings};
use super::tls::Tls;
use super::upstreams::Upstream;

/// Backlog of the listening sockets; after a restart, all agents of a fleet reconnect at the same time.
const BACKLOG: u32 = 4096;
/// Time limit for running profile creations at shutdown; slightly less than that of the shutdown.
const CREATION_DRAIN_TIMEOUT: Duration = Duration::from_millis(4500);
/// Time limit for remaining tasks of a runtime after its server ended.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum number of event streams: open pages, and programs that watch the fleet.
const MAX_STREAMS: usize = 1000;
const AGENTS: &str = "agents";
const READERS: &str = "HTTP clients";

/// Builds the routes of HTTP with guard and profile creation, and the routes for connections beyond the limit.
fn router(
    cluster: &ClusterTasks,
    stats: &Stats,
    ready: watch::Receiver<bool>,
    (guard, creator): (Guard, Option<ProfileCreator>),
) -> (Router, Router) {
    let availability = cluster.availability();
    let view = availability.view().clone();
    let mut registry = Registry::default();
    stats.register(&mut registry);
    rest::metrics::register(&mut registry, view.clone());
    rest::availability::register(&mut registry, availability.clone());
    if let Some(watched) = cluster.snapshots() {
        rest::metrics::cluster::register(&mut registry, watched);
    }
    if let Some((policies, requests)) = cluster.policies() {
        policies::register(&mut registry, policies, requests);
    }
    if let Some(ledger) = cluster.ledger() {
        ledger.register(&mut registry);
    }
    if let Some(budgets) = cluster.budgets() {
        budgets.register(&mut registry);
    }
    if let Some(opencost) = cluster.opencost() {
        opencost.register(&mut registry);
    }
    let pages = pages::router(availability.clone());
    let context = rest::ApiContext {
        view,
        availability,
        registry: Arc::new(registry),
        ready,
        max_streams: MAX_STREAMS,
    };
    let probes = rest::probes(&context);
    let api = rest::router(context);
    let all = api.merge(pages);
    let all = match creator {
        Some(creator) => all.layer(Extension(creator)),
        None => all,
    };
    (guarded(all, guard), probes)
}

/// Starts both servers; they are listening when this returns.
pub fn start(settings: &AggregatorSettings) -> Result<RunningAggregator, StartError> {
    outside_runtime(|| launch(settings))
}

/// Starts the server of a standby, which answers probes; it is listening when this returns.
fn start_standby(settings: &AggregatorSettings) -> Result<RunningAggregator, StartError> {
    outside_runtime(|| launch_standby(settings))
}

/// Runs `launch` in a separate thread, because within the caller's runtime another one can neither be blocked on nor dropped after
/// an error.
fn outside_runtime<T: Send>(launch: impl FnOnce() -> T + Send) -> T {
    let launched = thread::scope(|scope| scope.spawn(launch).join());
    launched.unwrap_or_else(|panic| resume_unwind(panic))
}

fn launch_standby(settings: &AggregatorSettings) -> Result<RunningAggregator, StartError> {
    let stats = Stats::default();
    // An invalid file must end the program now, not when it becomes the leader.
    let unused = SharedStore::new(settings.fleet.limits(), stats.clone());
    view(unused.view(), settings)?;
    let profiles = settings.fleet.profiles.as_deref().map(HardwareProfileFile::open);
    profiles.transpose().map_err(StartError::Profiles)?;
    let serving = &settings.serving;
    let runtime = runtime("standby")?;
    let people = Server {
        reserve: Some(rest::standby()),
        ..server(Protocol::Http, rest::standby(), serving, &stats)?
    };
    let (listener, address) = listen(&runtime, READERS, serving.http_listen)?;
    let threads = Threads::new();
    let stopped = threads.stopped();
    threads.spawn("standby", move || {
        runtime.block_on(people.run(listener, stopped));
        runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    })?;
    info!("listening for probes on {address}");
    Ok(threads.running(watch::Sender::new(true)))
}

fn launch(settings: &AggregatorSettings) -> Result<RunningAggregator, StartError> {
    let stats = Stats::default();
    let store = Arc::new(SharedStore::new(settings.fleet.limits(), stats.clone()));
    let threads = Threads::new();
    let (ready, is_ready) = watch::channel(false);
    let (progress, startup) = watch::channel(Some(StartupProgress::new(0, None)));
    let view = view(store.view(), settings)?.with_startup(startup);
    let serving = &settings.serving;
    let (ingest_runtime, http_runtime) = (runtime("ingest")?, runtime("http")?);
    let cluster_runtime = runtime("cluster")?;
    let audit = settings.ledger.ledger.as_ref().map(|_| AuditLog::with_ledger(stats.clone()));
    let (audit, queue) = audit.unzip();
    let audit = audit.unwrap_or_default();
    let cluster = ClusterTasks::connect(&cluster_runtime, settings, view, &audit, queue)?;
    let counter = cluster.availability();
    let startup = Startup::new(store.view(), cluster.snapshots(), progress);
    let guard = guard(&http_runtime, settings, counter, &stats)?;
    let guard = guard.with_audit(audit);
    let creator = profile_creator(&http_runtime, settings, &guard)?;
    let (router, probes) = router(&cluster, &stats, is_ready, (guard.clone(), creator.clone()));
    let gate = gate(&ingest_runtime, settings, &stats)?;
    let timeouts = PeerTimeouts::default();
    let ingest = IngestService::new(Arc::clone(&store), gate, stats.clone(), timeouts);
    let ingest = ingest.with_readers(guard);
    let upstreams = upstreams(settings, &store, &stats);
    let agents = server(Protocol::Grpc, ingest.into_router(), serving, &stats)?;
    let people =
        Server { reserve: Some(probes), ..server(Protocol::Http, router, serving, &stats)? };
    let agents_at = listen(&ingest_runtime, AGENTS, serving.grpc_listen)?;
    let people_at = listen(&http_runtime, READERS, serving.http_listen)?;
    let (grpc, http) = (agents_at.1, people_at.1);
    let transport = if serving.plaintext { "plaintext" } else { "TLS" };
    let stopped = threads.stopped();
    threads.spawn("ingest", move || {
        ingest_runtime.block_on(async {
            tokio::select! {
                () = agents.run(agents_at.0, stopped) => {}
                () = store.run_maintenance() => {}
                () = super::upstreams::run(upstreams) => {}
            }
        });
        ingest_runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    })?;
    let stopped = threads.stopped();
    threads.spawn("cluster", move || {
        if let Err(error) = cluster_runtime.block_on(cluster.run(stopped)) {
            error!(%error, "cluster task failed; shutting down");
        }
        cluster_runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    })?;
    let stopped = threads.stopped();
    threads.spawn("http", move || {
        http_runtime.block_on(async {
            let serving = people.run(people_at.0, stopped.clone());
            // The API server may already have received a profile when serving ends, and its outcome must still be
            // logged.
            let serving = async { tokio::join!(serving, drain_creations(creator, stopped)) };
            let mut serving = pin!(serving);
            tokio::select! {
                _ended = serving.as_mut() => return,
                () = startup.run() => {}
            }
            serving.await;
        });
        http_runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    })?;
    warn_unauthenticated(settings, grpc, http);
    info!("listening for {AGENTS} on {grpc} ({transport})");
    info!("listening for {READERS} on {http} ({transport})");
    ready.send_replace(true);
    Ok(threads.running(ready))
}

fn upstreams(
    settings: &AggregatorSettings,
    store: &Arc<SharedStore>,
    stats: &Stats,
) -> Vec<Upstream> {
    let endpoints = settings.upstreams.endpoints.iter().cloned();
    let upstreams = endpoints
        .map(|(cluster, endpoint)| Upstream::new(&cluster, endpoint, Arc::clone(store), stats));
    upstreams.collect()
}

/// Waits for the shutdown and then for running profile creations, with a time limit.
async fn drain_creations(creator: Option<ProfileCreator>, mut stopped: watch::Receiver<bool>) {
    let Some(creator) = creator else { return };
    drop(stopped.wait_for(|stopped| *stopped).await);
    let _ended = timeout(CREATION_DRAIN_TIMEOUT, creator.ended()).await;
}

/// Warns about servers that other machines can reach without authentication.
fn warn_unauthenticated(settings: &AggregatorSettings, grpc: SocketAddr, http: SocketAddr) {
    if settings.agent_auth.rule().is_none() && !grpc.ip().is_loopback() {
        warn!(
            address = %grpc,
            "agents are not authenticated: any client can report as any node; set --agent-auth token-review"
        );
    }
    if settings.http_auth.sources().is_none() && !http.ip().is_loopback() {
        warn!(
            address = %http,
            "HTTP clients are not authenticated: any client can read all data, including node names and serial numbers; \
             set --http-auth token-review or proxy-header"
        );
    }
}

/// Adds layouts, prices, links and the estimate engine to the view of the fleet.
fn view(fleet: FleetView, settings: &AggregatorSettings) -> Result<FleetView, StartError> {
    let layouts = settings.fleet.layouts.as_deref();
    // An invalid file must not stop the view of the fleet.
    let layout_file = layouts.map(LayoutFile::open_or_empty);
    let advice = &settings.advice;
    let prices = advice.price_book.as_deref();
    let prices = prices.map(PriceFile::open).transpose().map_err(StartError::Prices)?;
    let budgets = settings.ledger.budgets.as_deref();
    let budgets = budgets.map(BudgetFile::open).transpose().map_err(StartError::Budgets)?;
    let prometheus = settings.fleet.prometheus_url.as_ref().map(ToString::to_string);
    let view = fleet
        .with_layouts(layout_file.unwrap_or_default())
        .with_prices(prices.unwrap_or_default())
        .with_ledger(settings.ledger.ledger.clone().map(LedgerReader::new))
        .with_budgets(budgets)
        .with_site(settings.fleet.cluster_name.clone(), prometheus);
    Ok(match &advice.estimate_engine {
        Some(url) => {
            let engine = EstimateEngine::new(&url.to_string(), advice.estimate_timeout)?;
            view.with_engine(engine)
        }
        None => view,
    })
}

fn server(
    protocol: Protocol,
    router: Router,
    settings: &ServingSettings,
    stats: &Stats,
) -> Result<Server, StartError> {
    let tls = settings.tls();
    let tls = tls.map(|files| Tls::load(files, protocol.alpn())).transpose()?;
    Ok(Server {
        protocol,
        router,
        reserve: None,
        tls,
        limits: Limits::new(protocol, settings.max_connections),
        stats: stats.clone(),
    })
}

/// Creates the gate for agents. The client of the API server uses `runtime`.
fn gate(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    stats: &Stats,
) -> Result<Gate, StartError> {
    let Some(rule) = settings.agent_auth.rule() else {
        return Ok(Gate::without_auth());
    };
    let client = kube_client(runtime, settings)?;
    let reviewer = TokenReviewer::new(client, Some(rule.audience.clone()));
    let account = &rule.account;
    info!(
        service_account = %account,
        "agents must authenticate with a token of the service account and can report only their own node"
    );
    Ok(Gate::with_reviewer(rule, Box::new(reviewer), stats.clone()))
}

/// Creates the guard for readers. The client of the API server uses `runtime`.
fn guard(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    counter: Counter,
    stats: &Stats,
) -> Result<Guard, StartError> {
    let Some(believed) = settings.http_auth.sources() else {
        let serving = &settings.serving;
        let guard = Guard::open(stats.clone());
        // On other addresses any client can read the server anyway, so checking the host name would not protect
        // anything.
        return Ok(if serving.http_listen.ip().is_loopback() {
            guard.with_hosts(&serving.http_hosts)
        } else {
            guard
        });
    };
    let client = kube_client(runtime, settings).map_err(StartError::HttpAuth)?;
    let reviewer = AccessReviewer::new(client, believed.audience.clone());
    info!("HTTP clients are authorized by the roles of the cluster");
    Ok(Guard::with_reviewer(believed, Box::new(reviewer), counter, stats.clone()))
}

/// Creates a client of the API server that uses `runtime`.
fn kube_client(runtime: &Runtime, settings: &AggregatorSettings) -> Result<Client, ConnectError> {
    let kubeconfig = settings.kubernetes.kubeconfig.as_deref();
    runtime.block_on(connect(kubeconfig, Program::Aggregator))
}

fn runtime(name: &'static str) -> Result<Runtime, StartError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| StartError::Thread { name, source })
}

fn listen(
    runtime: &Runtime,
    whom: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let _inside = runtime.enter();
    let listen = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // A restart must not wait for old connections in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|source| StartError::Listen { clients: whom, address, source })
}
