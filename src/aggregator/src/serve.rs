//! HTTP server with limits, shared by the agents' server and the readers' server.
//!
//! No client can delay another or exceed its share. Connections are counted. The handshake, the first request and each
//! body have a deadline. Each connection has its own task, and HTTP/2 windows, frames and resets are limited. hyper is
//! used directly because axum does not expose all of these limits.

mod cut_reason;
mod frames;
mod limits;
mod pace;
mod reserve;
mod responses;

use std::convert::Infallible;
use std::error::Error;
use std::mem;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use octavo_store::peer::Peer;
use octavo_store::stats::Stats;
use octavo_toolkit::error::chain;
use prometheus_client::metrics::gauge::Gauge;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;
use tracing::{debug, error, warn};

use self::cut_reason::cut_reason;
pub use self::frames::FLOODS;
use self::frames::FrameMonitor;
use self::limits::{GRPC_STREAMS, HTTP_STREAMS, HTTP1_BUFFER, UNACKED_TIMEOUT, limit_http2};
pub use self::limits::{Limits, Protocol};
use self::pace::PacedBody;
pub use self::pace::{Pace, SlowBody};
use self::reserve::{LogLimit, ProbeConnections};
use self::responses::Responses;
use super::tls::Tls;

/// Configured server.
#[derive(Debug)]
pub struct Server {
    /// Protocol.
    pub protocol: Protocol,
    /// Routes.
    pub router: Router,
    /// Routes for connections beyond the limit, such as probes; without it they are closed.
    pub reserve: Option<Router>,
    /// TLS certificate; `None` serves plaintext.
    pub tls: Option<Tls>,
    /// Limits.
    pub limits: Limits,
    /// Metrics.
    pub stats: Stats,
}

/// State shared by all connections.
struct ServerState {
    server: Server,
    slots: Arc<Semaphore>,
    open: Gauge,
    accepted: AtomicU64,
    stop: watch::Receiver<bool>,
    reserve: ProbeConnections,
    logs: LogLimits,
}

/// Rate limits of log lines that clients can cause.
#[derive(Default)]
struct LogLimits {
    accept: LogLimit,
    full: LogLimit,
    slow: LogLimit,
}

/// Slot of a connection, released on drop.
enum ConnectionSlot {
    Own { _slot: OwnedSemaphorePermit, open: Gauge },
    Reserve { shared: Arc<ServerState>, peer: Peer },
}

/// Accepted connection.
struct AcceptedConnection {
    peer: Peer,
    router: Router,
    /// Maximum age.
    age: Duration,
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Possibly without a request so far.
    New,
    /// Has made a request. On the agents' server it is checked regularly, because a connection without a stream
    /// occupies a slot needlessly.
    Open,
    /// Graceful shutdown was requested.
    Closing,
}

/// Pause after `accept` fails, usually because of too many open files; other connections may close in the meantime.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Content type of event streams, which store few events and never end by themselves.
const EVENT_STREAM: &[u8] = b"text/event-stream";

impl Server {
    /// Accepts connections until `stop` is true or its sender is dropped, then waits until every connection has ended
    /// or exceeded its grace period.
    pub async fn run(self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let shared = Arc::new(ServerState {
            slots: Arc::new(Semaphore::new(self.limits.connections)),
            open: self.stats.connections(self.protocol.name()),
            accepted: AtomicU64::new(0),
            stop: stop.clone(),
            reserve: ProbeConnections::default(),
            logs: LogLimits::default(),
            server: self,
        });
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stopped(&mut stop) => break,
                Some(ended) = connections.join_next() => shared.log_task_failure(ended),
                accepted = listener.accept() => match accepted {
                    Ok((socket, address)) => shared.admit(&mut connections, socket, address),
                    Err(error) => {
                        if shared.logs.accept.allow() {
                            let server = shared.server.protocol.name();
                            warn!(
                                server,
                                %error,
                                "cannot accept a connection; retrying (with too many open files: raise ulimit -n above twice \
                                 --max-connections, or lower --max-connections)"
                            );
                        }
                        sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
            }
        }
        drop(listener);
        while let Some(ended) = connections.join_next().await {
            shared.log_task_failure(ended);
        }
    }
}

impl ServerState {
    fn admit(self: &Arc<Self>, connections: &mut JoinSet<()>, socket: TcpStream, at: SocketAddr) {
        let (name, stats) = (self.server.protocol.name(), &self.server.stats);
        let peer = Peer::new(at);
        let (place, router, age) = if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            stats.count_connection(name);
            self.open.inc();
            let number = self.accepted.fetch_add(1, Ordering::Relaxed);
            let place = ConnectionSlot::Own { _slot: slot, open: self.open.clone() };
            let router = self.server.router.clone();
            (place, router, self.server.limits.age_of(number))
        } else {
            stats.count_refused_connection(name);
            if self.logs.full.allow() {
                let limit = self.server.limits.connections;
                warn!(server = name, limit, "connection limit reached; rejecting new connections");
            }
            let Some(router) = self.server.reserve.clone() else {
                return;
            };
            if self.reserve.enter(peer.clone()) {
                stats.count_closed_connection("reserve_full");
            }
            let place = ConnectionSlot::Reserve { shared: Arc::clone(self), peer: peer.clone() };
            (place, router, Duration::ZERO)
        };
        // Disables Nagle's algorithm for small responses. An error means that the socket is closed.
        let _refused = socket.set_nodelay(true);
        // Without this, a client that does not read its responses would occupy the connection until its maximum age.
        let _refused = SockRef::from(&socket).set_tcp_user_timeout(Some(UNACKED_TIMEOUT));
        let shared = Arc::clone(self);
        let accepted = AcceptedConnection { peer, router, age };
        connections.spawn(async move {
            shared.connection(socket, accepted).await;
            drop(place);
        });
    }

    /// Logs a failed connection task.
    fn log_task_failure(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            let server = self.server.protocol.name();
            error!(server, %error, "connection task failed; its connection is closed");
        }
    }

    async fn connection(self: &Arc<Self>, socket: TcpStream, accepted: AcceptedConnection) {
        let name = self.server.protocol.name();
        let Some(tls) = &self.server.tls else {
            return Box::pin(self.serve(socket, accepted)).await;
        };
        let acceptor = tls.acceptor(name, &self.server.stats);
        // The handshake is boxed, so that the task of a connection does not retain room for it.
        let handshake = Box::pin(acceptor.accept(socket));
        let handshake = timeout(self.server.limits.first_request, handshake);
        let mut stop = self.stop.clone();
        let peer = accepted.peer.clone();
        let shaken = tokio::select! {
            shaken = handshake => shaken,
            () = peer.ended() => return,
            () = stopped(&mut stop) => return,
        };
        match shaken {
            Ok(Ok(stream)) => Box::pin(self.serve(stream, accepted)).await,
            Ok(Err(error)) => {
                self.server.stats.count_handshake_failure(name);
                debug!(peer = %peer.address(), %error, "TLS handshake failed");
            }
            Err(_late) => {
                self.server.stats.count_handshake_failure(name);
                debug!(peer = %peer.address(), "TLS handshake timed out");
            }
        }
    }

    async fn serve<I>(self: &Arc<Self>, io: I, accepted: AcceptedConnection)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let AcceptedConnection { peer, router, age } = accepted;
        let io = TokioIo::new(FrameMonitor::new(io, peer.clone()));
        let responses = (self.server.protocol == Protocol::Http).then(Responses::new);
        let (shared, of) = (Arc::clone(self), (peer.clone(), responses.clone()));
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (peer, responses) = of.clone();
            peer.record_request();
            request.extensions_mut().insert(peer.clone());
            Arc::clone(&shared).answer(router.clone(), request, peer.address(), responses)
        });
        match self.server.protocol {
            Protocol::Grpc => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                limit_http2!(builder, GRPC_STREAMS);
                let connection = Box::pin(builder.serve_connection(io, service));
                self.drive(connection, &peer, responses.as_deref(), age).await;
            }
            Protocol::Http => {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                limit_http2!(builder.http2(), HTTP_STREAMS);
                builder
                    .http1()
                    .timer(TokioTimer::new())
                    .header_read_timeout(self.server.limits.first_request)
                    .max_buf_size(HTTP1_BUFFER);
                let connection = Box::pin(builder.serve_connection(io, service).into_owned());
                self.drive(connection, &peer, responses.as_deref(), age).await;
            }
        }
    }

    /// Handles one request. Over HTTP/2 on the readers' server, it waits for a slot.
    async fn answer(
        self: Arc<Self>,
        router: Router,
        request: Request<Incoming>,
        peer: SocketAddr,
        responses: Option<Arc<Responses>>,
    ) -> Result<Response, Infallible> {
        let Some(responses) = responses else {
            return router.oneshot(request.map(Body::new)).await;
        };
        if request.version() < Version::HTTP_2 {
            return self.answer_http(router, request, peer).await;
        }
        // A request that waits must not occupy the connection's window with a body that is read.
        let has_no_body = request.body().is_end_stream() || request.method().is_safe();
        let first = if has_no_body { responses.slot().await } else { None };
        let response = self.answer_http(router, request, peer).await?;
        let kind = response.headers().get(header::CONTENT_TYPE);
        if kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENT_STREAM)) {
            return Ok(response);
        }
        let slot = if first.is_some() { first } else { responses.slot().await };
        Ok(response.map(|body| responses.body(body, slot)))
    }

    /// Handles one request of a reader, with a minimum rate for its body.
    async fn answer_http(
        &self,
        router: Router,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response, Infallible> {
        let limits = &self.server.limits;
        if request.body().is_end_stream() {
            return router.oneshot(request.map(Body::new)).await;
        }
        let (version, path) = (request.version(), request.uri().path().to_owned());
        let is_late = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_late);
        let request = request.map(|body| Body::new(PacedBody::new(body, limits.body, flag)));
        let mut response = router.oneshot(request).await?;
        if is_late.load(Ordering::Relaxed) {
            self.server.stats.count_closed_connection("slow_body");
            if self.logs.slow.allow() {
                warn!(%peer, path, "request body too slow; closing its connection");
            }
            *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
            if version < Version::HTTP_2 {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
        }
        Ok(response)
    }

    /// Serves a connection until it ends. The connection is boxed, because its type depends on the protocol and on TLS, and the
    /// largest one would determine the memory of every connection.
    async fn drive<C>(
        &self,
        mut connection: Pin<Box<C>>,
        peer: &Peer,
        responses: Option<&Responses>,
        age: Duration,
    ) where
        C: GracefulConnection<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let limits = &self.server.limits;
        let mut stop = self.stop.clone();
        let mut timer = pin!(sleep(limits.first_request));
        let old = Instant::now() + age;
        let grpc = self.server.protocol == Protocol::Grpc;
        let mut phase = Phase::New;
        let mut progress = None;
        loop {
            let close = tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        self.record_cut(peer, error.into().as_ref());
                    }
                    return;
                }
                () = peer.ended() => return,
                () = timer.as_mut() => match phase {
                    Phase::New if !peer.has_sent_request() => {
                        self.server.stats.count_closed_connection("no_request");
                        return;
                    }
                    Phase::New | Phase::Open if Instant::now() >= old => true,
                    // Slots of the agents' server are for agents that report and clients that watch.
                    Phase::New | Phase::Open if grpc && !peer.has_streams() => {
                        self.server.stats.count_closed_connection("no_stream");
                        return;
                    }
                    Phase::New | Phase::Open => {
                        phase = Phase::Open;
                        let sent = mem::replace(&mut progress, responses.and_then(Responses::progress));
                        if sent.is_some() && sent == progress {
                            self.server.stats.count_closed_connection("not_reading");
                            return;
                        }
                        let check = if grpc { limits.first_request } else { limits.unread };
                        timer.as_mut().reset(old.min(Instant::now() + check));
                        false
                    }
                    Phase::Closing => return,
                },
                () = stopped(&mut stop), if phase != Phase::Closing => true,
            };
            if close {
                phase = Phase::Closing;
                connection.as_mut().graceful_shutdown();
                timer.as_mut().reset(Instant::now() + limits.grace);
            }
        }
    }

    /// Counts the end of a connection if the client's behavior caused it.
    fn record_cut(&self, peer: &Peer, error: &(dyn Error + 'static)) {
        if let Some(reason) = peer.flood().or_else(|| cut_reason(error)) {
            self.server.stats.count_closed_connection(reason);
            debug!(peer = %peer.address(), reason, error = chain(error), "connection cut");
        }
    }
}

/// Waits until the server is stopped or the sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _stopped = stop.wait_for(|stop| *stop).await;
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        match self {
            Self::Own { open, .. } => {
                open.dec();
            }
            Self::Reserve { shared, peer } => shared.reserve.leave(peer),
        }
    }
}
