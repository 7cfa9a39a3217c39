//! Starts the aggregator and stops it.
//!
//! Three threads with a runtime each: `ingest` has the agents' streams and the store, `http` everything that is read, `cluster` what
//! follows the cluster around it and writes there. They share what is published and nothing else, so a reader can delay readers, and
//! never an agent nor what is known of the cluster.

mod cluster;
mod error;
mod threads;

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{error, info, warn};

use self::cluster::{Cluster, maker};
pub use self::error::StartError;
pub use self::threads::Running;
use self::threads::Threads;
use super::access::{Believed, Guard, check};
use super::auth::Gate;
use super::availability::Counter;
use super::creation::Maker;
use super::engine::Engine;
use super::ingest::{Ingest, Patience};
use super::serve::{Limits, Protocol, Server};
use super::startup::{Startup, StartupProgress};
use super::stats::Stats;
use super::store::desk::Desk;
use super::tls::Tls;
use super::view::View;
use super::{pages, rest};
use crate::book::Book;
use crate::book::prices::Prices;
use crate::config::aggregator::{
    AgentAuth, AggregatorSettings, HttpAuth, ServingSettings, Transport,
};
use crate::k8s::access_review::Asker;
use crate::k8s::token_review::Reviewer;

/// Connections that the kernel keeps for us until they are accepted: a fleet comes back as one.
const BACKLOG: u32 = 4096;
/// How long a profile that is being made is waited for: a little less than stopping may take.
const MADE_WITHIN: Duration = Duration::from_millis(4500);
/// For what a runtime may still have to do when its server has ended.
const RUNTIME_ENDS: Duration = Duration::from_millis(100);
/// Event streams at once: pages that are open, and programs that follow the fleet.
const MOST_STREAMS: usize = 1000;
const AGENTS: &str = "agents";
const PEOPLE: &str = "people and programs";

/// What is served over HTTP, to whom a guard lets, with what makes hardware profiles for them; and what is served on
/// connections beyond the limit.
fn router(
    cluster: &Cluster,
    stats: &Stats,
    ready: watch::Receiver<bool>,
    (guard, maker): (Guard, Option<Maker>),
) -> (Router, Router) {
    let availability = cluster.availability();
    let view = availability.view().clone();
    let mut registry = Registry::default();
    stats.register(&mut registry);
    rest::metrics::register(&mut registry, view.clone());
    rest::availability::register(&mut registry, availability.clone());
    if let Some(followed) = cluster.followed() {
        rest::metrics::cluster::register(&mut registry, followed);
    }
    let pages = pages::router(availability.clone());
    let context = rest::Context {
        view,
        availability,
        registry: Arc::new(registry),
        ready,
        max_streams: MOST_STREAMS,
    };
    let probes = rest::probes(&context);
    let api = rest::router(context);
    let all = api.merge(pages);
    let all = match maker {
        Some(maker) => all.layer(Extension(maker)),
        None => all,
    };
    (all.layer(from_fn_with_state(guard, check)), probes)
}

/// Starts both servers; they listen when this returns.
pub fn start(settings: &AggregatorSettings) -> Result<Running, StartError> {
    // In a thread of its own: within the caller's runtime no other one can be waited for, nor be dropped after a failure.
    let started = thread::scope(|scope| scope.spawn(|| launch(settings)).join());
    started.unwrap_or_else(|panic| resume_unwind(panic))
}

fn launch(settings: &AggregatorSettings) -> Result<Running, StartError> {
    let stats = Stats::default();
    let desk = Arc::new(Desk::new(settings.fleet(), stats.clone()));
    let threads = Threads::new();
    let (ready, is_ready) = watch::channel(false);
    let (progress, startup) = watch::channel(Some(StartupProgress::default()));
    let view = view(desk.view(), settings)?.with_startup(startup);
    let serving = settings.serving();
    let (ingest_runtime, http_runtime) = (runtime("ingest")?, runtime("http")?);
    let cluster_runtime = runtime("cluster")?;
    let cluster = Cluster::connect(&cluster_runtime, settings, view)?;
    let counter = cluster.availability();
    let startup = Startup::new(desk.view(), cluster.followed(), progress);
    let guard = guard(&http_runtime, settings, counter, &stats)?;
    let maker = maker(&http_runtime, settings, &guard)?;
    let (router, probes) = router(&cluster, &stats, is_ready, (guard.clone(), maker.clone()));
    let gate = gate(&ingest_runtime, settings.agent_auth(), &stats)?;
    let ingest = Ingest::new(Arc::clone(&desk), gate, stats.clone(), Patience::default());
    let ingest = ingest.with_readers(guard);
    let agents = server(Protocol::Grpc, ingest.into_router(), serving, &stats)?;
    let people = Server {
        reserve: Some(probes),
        ..server(Protocol::Http, router, serving, &stats)?
    };
    let agents_at = listen(&ingest_runtime, AGENTS, serving.grpc_listen())?;
    let people_at = listen(&http_runtime, PEOPLE, serving.http_listen())?;
    let (grpc, http) = (agents_at.1, people_at.1);
    let transport = match serving.transport() {
        Transport::Plaintext => "plaintext",
        Transport::Tls(_) => "TLS",
    };
    let stopped = threads.stopped();
    threads.spawn("ingest", move || {
        ingest_runtime.block_on(async {
            tokio::select! {
                () = agents.run(agents_at.0, stopped) => {}
                () = desk.keep() => {}
            }
        });
        ingest_runtime.shutdown_timeout(RUNTIME_ENDS);
    })?;
    let stopped = threads.stopped();
    threads.spawn("cluster", move || {
        if let Err(error) = cluster_runtime.block_on(cluster.run(stopped)) {
            error!(%error, "task of the cluster failed; ending");
        }
        cluster_runtime.shutdown_timeout(RUNTIME_ENDS);
    })?;
    let stopped = threads.stopped();
    threads.spawn("http", move || {
        http_runtime.block_on(async {
            let serving = people.run(people_at.0, stopped.clone());
            // The API server may have a profile already when serving is over, and its line of the log says what came of that.
            let serving = async { tokio::join!(serving, made(maker, stopped)) };
            let mut serving = pin!(serving);
            tokio::select! {
                _ended = serving.as_mut() => return,
                () = startup.run() => {}
            }
            serving.await;
        });
        http_runtime.shutdown_timeout(RUNTIME_ENDS);
    })?;
    warn_of_strangers(settings, grpc, http);
    info!("listening for {AGENTS} on {grpc} ({transport})");
    info!("listening for {PEOPLE} on {http} ({transport})");
    ready.send_replace(true);
    Ok(threads.running((grpc, http), ready))
}

/// Returns when it is over and nothing is being made any more, or will not be in time.
async fn made(maker: Option<Maker>, mut stopped: watch::Receiver<bool>) {
    let Some(maker) = maker else { return };
    drop(stopped.wait_for(|stopped| *stopped).await);
    let _ended = timeout(MADE_WITHIN, maker.ended()).await;
}

/// Tells of a server that other machines reach and that asks nobody who they are.
fn warn_of_strangers(settings: &AggregatorSettings, grpc: SocketAddr, http: SocketAddr) {
    if *settings.agent_auth() == AgentAuth::None && !grpc.ip().is_loopback() {
        warn!(
            "whoever reaches {grpc} can report as any node: there is no --agent-auth token-review"
        );
    }
    if *settings.http_auth() == HttpAuth::None && !http.ip().is_loopback() {
        warn!(
            "whoever reaches {http} sees everything, names of nodes and serial numbers included: --http-auth none was asked for"
        );
    }
}

/// The fleet, with what else of files and engines its readers are given.
fn view(fleet: View, settings: &AggregatorSettings) -> Result<View, StartError> {
    let book = settings.layouts().map(Book::open).transpose()?;
    let advice = settings.advice();
    let prices = advice.price_book.as_deref().map(Prices::open).transpose()?;
    let view = fleet
        .with_layouts(book.unwrap_or_default())
        .with_prices(prices.unwrap_or_default());
    Ok(match &advice.engine {
        Some(engine) => view.with_engine(Engine::new(engine)?),
        None => view,
    })
}

fn server(
    protocol: Protocol,
    router: Router,
    settings: &ServingSettings,
    stats: &Stats,
) -> Result<Server, StartError> {
    let tls = match settings.transport() {
        Transport::Plaintext => None,
        Transport::Tls(files) => Some(Tls::load(files.clone(), protocol.alpn())?),
    };
    Ok(Server {
        protocol,
        router,
        reserve: None,
        tls,
        limits: Limits::new(protocol, settings.max_connections()),
        stats: stats.clone(),
    })
}

/// Who may report. The client of the API server lives in `runtime`, which asks it.
fn gate(runtime: &Runtime, auth: &AgentAuth, stats: &Stats) -> Result<Gate, StartError> {
    let AgentAuth::TokenReview(settings) = auth else {
        return Ok(Gate::open());
    };
    let rule = settings.rule().clone();
    let connect = Reviewer::connect(settings.kubeconfig(), rule.audience.clone());
    let reviewer = runtime.block_on(connect)?;
    let account = &rule.account;
    info!("agents report for their own node, with a token of the service account {account}");
    Ok(Gate::checked(rule, Box::new(reviewer), stats.clone()))
}

/// Who may see what. The client of the API server lives in `runtime`, which asks it.
fn guard(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    counter: Counter,
    stats: &Stats,
) -> Result<Guard, StartError> {
    let HttpAuth::Reviewed(settings) = settings.http_auth() else {
        let serving = settings.serving();
        let guard = Guard::open(stats.clone());
        // Anyone who reaches a server of other addresses can read it anyway, so a name proves nothing there.
        return Ok(if serving.http_listen().ip().is_loopback() {
            guard.with_hosts(serving.http_hosts())
        } else {
            guard
        });
    };
    let believed = Believed {
        audience: settings.audience().cloned(),
        proxies: settings.proxies().cloned(),
    };
    let connect = Asker::connect(settings.kubeconfig(), believed.audience.clone());
    let asker = runtime.block_on(connect).map_err(StartError::HttpAuth)?;
    info!("the cluster's roles decide who sees what over HTTP");
    Ok(Guard::checked(
        believed,
        Box::new(asker),
        counter,
        stats.clone(),
    ))
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
        // A restart must not wait for connections of its predecessor to be forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|source| StartError::Listen {
        whom,
        address,
        source,
    })
}
