//! How connections are accepted and kept in bounds; the same for agents and for people.
//!
//! No peer can hold up another or use more than its share, whatever it sends or does not send: connections are counted,
//! a handshake and the first request have a deadline and a task of their own, and all of HTTP/2's windows, frames and
//! resets have a limit. hyper is used directly because those limits are not all reachable from above.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use prometheus_client::metrics::gauge::Gauge;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;
use tracing::{debug, warn};

use super::peer::Peer;
use super::stats::Stats;
use super::tls::Tls;

/// What a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 only, for few streams that last.
    Grpc,
    /// HTTP/1.1 and HTTP/2, for browsers and programs.
    Http,
}

/// How much of what a peer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of the server.
    pub connections: usize,
    /// How long a TLS handshake may take, and then the first request.
    pub first_word: Duration,
    /// About how old a connection gets before its peer is asked to make a new one; a tenth more or less, so that those
    /// of one moment do not end in one.
    pub age: Duration,
    /// How long a connection that is being closed may take to end what it is at.
    pub grace: Duration,
}

/// One server, ready to accept.
#[derive(Debug)]
pub struct Server {
    /// What it speaks.
    pub protocol: Protocol,
    /// What it answers.
    pub router: Router,
    /// Its certificate, unless it serves plaintext.
    pub tls: Option<Tls>,
    /// Its bounds.
    pub limits: Limits,
    /// Where it counts.
    pub stats: Stats,
}

/// What accepted connections have in common.
struct Shared {
    server: Server,
    slots: Arc<Semaphore>,
    open: Gauge,
    accepted: AtomicU64,
    stop: watch::Receiver<bool>,
}

/// A connection's place among the others, given back when it ends.
struct Place {
    _slot: OwnedSemaphorePermit,
    open: Gauge,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It may not have made a request yet.
    New,
    /// It made one. On the agents' server it is looked at again and again: one without a stream takes a place for nothing.
    Open,
    /// The peer was asked to go.
    Closing,
}

/// After `accept` itself failed, which is most often for want of file descriptors: others may be closed meanwhile.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A failure to accept is logged no more often: peers that make it happen shall not fill a disk.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// One stream of status, another while one is replaced, and a few that watch.
const GRPC_STREAMS: u32 = 8;
/// A page with what belongs to it, at once.
const HTTP_STREAMS: u32 = 64;
/// Streams reset because the peer broke the protocol, after which the connection ends. Guards against CVE-2025-8671.
const LOCAL_RESETS: usize = 128;
/// Streams that the peer reset before they were looked at. Guards against CVE-2023-44487.
const PENDING_RESETS: usize = 20;
/// What a peer may send before it is read, of a stream and of the connection.
const WINDOW: u32 = 64 * 1024;
const FRAME: u32 = 16 * 1024;
const HEADERS: u32 = 16 * 1024;
/// What is kept for a peer that does not read.
const SEND_BUFFER: usize = 16 * 1024;
/// How long a peer's kernel may take nothing of what is sent to it. Source: tcp(7), `TCP_USER_TIMEOUT`.
const UNREAD: Duration = Duration::from_secs(30);
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWER: Duration = Duration::from_secs(10);
/// The same for HTTP/1.1: request line and headers.
const HTTP1_BUFFER: usize = 16 * 1024;

/// The builders of hyper and hyper-util have the same methods and no trait for them.
macro_rules! limit_http2 {
    ($builder:expr, $streams:expr) => {
        $builder
            .timer(TokioTimer::new())
            .max_concurrent_streams($streams)
            .max_local_error_reset_streams(LOCAL_RESETS)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(FRAME)
            .max_header_list_size(HEADERS)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER)
    };
}

impl Protocol {
    /// The server's name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }

    /// What it is called in a TLS handshake, the preferred one first.
    pub fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Grpc => &[b"h2"],
            Self::Http => &[b"h2", b"http/1.1"],
        }
    }
}

impl Limits {
    /// The limits that ship. An agent's stream never ends by itself, so waiting for it would be in vain.
    pub fn new(protocol: Protocol, connections: usize) -> Self {
        Self {
            connections,
            first_word: Duration::from_secs(10),
            age: Duration::from_hours(1),
            grace: match protocol {
                Protocol::Grpc => Duration::from_secs(1),
                Protocol::Http => Duration::from_secs(4),
            },
        }
    }

    /// How old the connection of this number gets. Multiples of the golden ratio spread evenly, however many there are.
    fn age_of(&self, number: u64) -> Duration {
        let share = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let span = u128::from(share).saturating_mul((self.age / 5).as_nanos()) >> 32;
        let earliest = self.age.saturating_sub(self.age / 10);
        earliest.saturating_add(Duration::from_nanos(
            u64::try_from(span).unwrap_or(u64::MAX),
        ))
    }
}

impl Server {
    /// Accepts until `stop` is true or gone, then waits until every connection has ended or used up its grace.
    pub async fn run(self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let most = u32::try_from(self.limits.connections).unwrap_or(u32::MAX);
        let slots = Arc::new(Semaphore::new(self.limits.connections));
        let shared = Arc::new(Shared {
            slots: Arc::clone(&slots),
            open: self.stats.connections(self.protocol.name()),
            accepted: AtomicU64::new(0),
            stop: stop.clone(),
            server: self,
        });
        let mut said: Option<Instant> = None;
        loop {
            tokio::select! {
                () = stopped(&mut stop) => break,
                accepted = listener.accept() => match accepted {
                    Ok((socket, address)) => shared.admit(socket, address),
                    Err(error) => {
                        if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
                            said = Some(Instant::now());
                            let server = shared.server.protocol.name();
                            warn!(
                                "the {server} server cannot accept a connection and goes on trying: {error}; if there are too many open files, raise the limit (ulimit -n) above twice --max-connections, or lower that"
                            );
                        }
                        sleep(ACCEPT_AGAIN).await;
                    }
                }
            }
        }
        drop(listener);
        let _all_ended = slots.acquire_many(most).await;
    }
}

impl Shared {
    fn admit(self: &Arc<Self>, socket: TcpStream, address: SocketAddr) {
        let name = self.server.protocol.name();
        let stats = &self.server.stats;
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            stats.turned_away(name);
            return;
        };
        stats.accepted(name);
        self.open.inc();
        let place = Place {
            _slot: slot,
            open: self.open.clone(),
        };
        // Small answers shall not wait for more. A socket that refuses is as good as closed.
        let _refused = socket.set_nodelay(true);
        // One that takes nothing of what it asked for would make us keep it until the connection is old.
        let _refused = SockRef::from(&socket).set_tcp_user_timeout(Some(UNREAD));
        let number = self.accepted.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            shared.connection(socket, Peer::new(address), number).await;
            drop(place);
        });
    }

    async fn connection(&self, socket: TcpStream, peer: Peer, number: u64) {
        let name = self.server.protocol.name();
        let Some(tls) = &self.server.tls else {
            return self.speak(socket, peer, number).await;
        };
        let acceptor = tls.acceptor(name, &self.server.stats);
        let handshake = timeout(self.server.limits.first_word, acceptor.accept(socket));
        let mut stop = self.stop.clone();
        let shaken = tokio::select! {
            shaken = handshake => shaken,
            () = stopped(&mut stop) => return,
        };
        match shaken {
            Ok(Ok(stream)) => self.speak(stream, peer, number).await,
            Ok(Err(error)) => {
                self.server.stats.handshake_failed(name);
                debug!(peer = %peer.address(), "TLS handshake: {error}");
            }
            Err(_late) => {
                self.server.stats.handshake_failed(name);
                debug!(peer = %peer.address(), "TLS handshake: it did not come in time");
            }
        }
    }

    async fn speak<I>(&self, io: I, peer: Peer, number: u64)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(io);
        let (router, of) = (self.server.router.clone(), peer.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            of.speaks();
            request.extensions_mut().insert(of.clone());
            router.clone().oneshot(request)
        });
        match self.server.protocol {
            Protocol::Grpc => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                limit_http2!(builder, GRPC_STREAMS);
                let connection = builder.serve_connection(io, service);
                self.drive(connection, &peer, number).await;
            }
            Protocol::Http => {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                limit_http2!(builder.http2(), HTTP_STREAMS);
                builder
                    .http1()
                    .timer(TokioTimer::new())
                    .header_read_timeout(self.server.limits.first_word)
                    .max_buf_size(HTTP1_BUFFER);
                let connection = builder.serve_connection(io, service).into_owned();
                self.drive(connection, &peer, number).await;
            }
        }
    }

    async fn drive<C: GracefulConnection>(&self, connection: C, peer: &Peer, number: u64) {
        let limits = &self.server.limits;
        let mut stop = self.stop.clone();
        let mut connection = pin!(connection);
        let mut timer = pin!(sleep(limits.first_word));
        let old = Instant::now() + limits.age_of(number);
        let grpc = self.server.protocol == Protocol::Grpc;
        let mut phase = Phase::New;
        loop {
            let close = tokio::select! {
                _ended = connection.as_mut() => return,
                () = peer.ended() => return,
                () = timer.as_mut() => match phase {
                    Phase::New if !peer.spoke() => {
                        self.server.stats.cut("no_request");
                        return;
                    }
                    Phase::New | Phase::Open if Instant::now() >= old => true,
                    // An agent's place is for one that reports, and for who follows the fleet.
                    Phase::New | Phase::Open if grpc && !peer.has_streams() => {
                        self.server.stats.cut("no_stream");
                        return;
                    }
                    Phase::New | Phase::Open => {
                        phase = Phase::Open;
                        let look = Instant::now() + limits.first_word;
                        timer.as_mut().reset(if grpc { old.min(look) } else { old });
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
}

/// Waits until the server is told to stop, or nobody is left who could tell it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _stopped = stop.wait_for(|stop| *stop).await;
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_moment_end_spread_over_a_fifth_of_their_age() {
        let limits = Limits::new(Protocol::Grpc, 1);
        let mut ages: Vec<Duration> = (0..1000).map(|number| limits.age_of(number)).collect();
        ages.sort();
        assert!(ages[0] >= Duration::from_mins(54) && ages[999] <= Duration::from_mins(66));
        let widest = ages.windows(2).map(|pair| pair[1].abs_diff(pair[0])).max();
        assert!(widest < Some(Duration::from_secs(2)), "{widest:?}");
    }
}
