//! HTTP server for the agent's metrics and health probes.
//!
//! It admits few connections at a time, with one request each and a deadline for request and answer. No client of it
//! can delay a label.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use octavo_toolkit::telemetry::exposition;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;
use tracing::{debug, info, warn};

use super::LayoutMetrics;
use super::claims::ClaimMetrics;
use super::usage::UsageMetrics;
use super::vendors::VendorMetrics;
use crate::liveness::Liveness;

/// Concurrent connections; more wait in the kernel.
const MAX_CONNECTIONS: u32 = 16;
/// Maximum duration of a connection, its answer included.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for open connections to finish when the agent exits.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// Delay after a failure to accept, most often caused by a lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum size of the request line and headers.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// A bound server that is not running yet.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    router: Router,
}

/// Sources of the served metrics.
#[derive(Debug)]
pub struct MetricsSources {
    /// Changes of layouts.
    pub applies: LayoutMetrics,
    /// Usage by pod, if it is observed.
    pub usage: Option<UsageMetrics>,
    /// Devices of other vendors.
    pub vendors: Option<VendorMetrics>,
    /// Resource claims, if they are served.
    pub claims: Option<ClaimMetrics>,
    /// Liveness and readiness of the agent.
    pub liveness: Liveness,
}

/// Data that requests are answered from.
#[derive(Debug, Clone)]
struct MetricsState {
    applies: LayoutMetrics,
    registries: Arc<Vec<Registry>>,
    liveness: Liveness,
}

impl MetricsServer {
    /// Listens at `address`; port 0 takes any free one.
    pub async fn listen(address: SocketAddr, sources: MetricsSources) -> io::Result<Self> {
        let MetricsSources { applies, usage, vendors, claims, liveness } = sources;
        let listener = TcpListener::bind(address).await?;
        info!(address = %listener.local_addr()?, "serving metrics");
        let mut registries = vec![applies.registry()];
        registries.extend(usage.iter().flat_map(UsageMetrics::registries));
        registries.extend(vendors.iter().map(VendorMetrics::registry));
        registries.extend(claims.iter().map(ClaimMetrics::registry));
        let registries = Arc::new(registries);
        let router = Router::new()
            .route("/metrics", get(scrape))
            .route("/healthz", get(alive))
            .route("/readyz", get(ready))
            .with_state(MetricsState { applies, registries, liveness });
        Ok(Self { listener, router })
    }

    /// Serves until `stop` is sent or dropped, then lets open connections finish.
    pub async fn run(self, mut stop: oneshot::Receiver<()>) {
        let permits =
            Arc::new(Semaphore::new(usize::try_from(MAX_CONNECTIONS).unwrap_or_default()));
        let mut answering = JoinSet::new();
        loop {
            // Reap finished connections; a panic was already logged.
            while answering.try_join_next().is_some() {}
            let accepted = tokio::select! {
                _stopped = &mut stop => break,
                accepted = accept(&self.listener, &permits) => accepted,
            };
            match accepted {
                Some((socket, permit)) => {
                    let router = self.router.clone();
                    answering.spawn(async move {
                        serve_connection(socket, router).await;
                        drop(permit);
                    });
                }
                None => sleep(ACCEPT_RETRY_DELAY).await,
            }
        }
        drop(self.listener);
        let _all_ended = timeout(SHUTDOWN_GRACE, permits.acquire_many(MAX_CONNECTIONS)).await;
    }
}

/// Returns the next connection with its permit, once a permit is free.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((socket, _)) => Some((socket, permit)),
        Err(error) => {
            warn!(%error, "cannot accept a metrics connection");
            None
        }
    }
}

async fn serve_connection(socket: TcpStream, router: Router) {
    let service = service_fn(move |request: Request<Incoming>| router.clone().oneshot(request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), service);
    match timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "metrics connection failed"),
        Err(_late) => debug!("metrics connection timed out"),
    }
}

async fn alive(State(source): State<MetricsState>) -> (StatusCode, &'static str) {
    verdict(source.liveness.is_alive(), "the main loop is not running\n")
}

async fn ready(State(source): State<MetricsState>) -> (StatusCode, &'static str) {
    verdict(source.liveness.is_ready(), "nothing has been published yet\n")
}

fn verdict(good: bool, bad: &'static str) -> (StatusCode, &'static str) {
    if good { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, bad) }
}

async fn scrape(State(source): State<MetricsState>, headers: HeaderMap) -> Response {
    source.applies.refresh();
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    match exposition::write_all(source.registries.iter(), accepted) {
        Ok((kind, body)) => ([(header::CONTENT_TYPE, kind)], body).into_response(),
        Err(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "cannot encode the metrics\n").into_response()
        }
    }
}
