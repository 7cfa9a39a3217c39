//! The gRPC service: agents report, other clients watch.
//!
//! The next message of an agent's stream is read only after the answer to the previous one was sent. There is neither a
//! queue nor a task per agent, so an agent that does not read its answers is not read either, and uses only its
//! connection's buffers. The store's sweep ends such a connection, a silent one, and one whose node another agent
//! reports.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use octavo_access::guard::Guard;
use octavo_store::peer::{ActiveStream, Peer};
use octavo_store::stats::Stats;
use octavo_store::store::shared_store::SharedStore;
use octavo_store::store::{HelloOutcome, ReportPermit, Store, StoreError};
use octavo_stream::messages::{MAX_STATUS_BYTES, encode_to_agent, parse_from_agent};
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_server::{Fleet, FleetServer};
use octavo_stream::protocol::{AggregatorMessage, FromAgent};
use octavo_toolkit::error::chain;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::debug;

use super::auth::{AuthError, Gate};
use super::watch::{WatchEvents, WatchSession};

/// The gRPC service.
#[derive(Debug)]
pub struct IngestService {
    store: Arc<SharedStore>,
    gate: Gate,
    stats: Stats,
    timeouts: PeerTimeouts,
    watchers: Arc<Semaphore>,
    /// Authorizes watchers.
    read_guard: Guard,
}

/// Time limits for peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerTimeouts {
    /// Time to send a hello after opening a stream.
    pub hello: Duration,
    /// Time to read a message, while watching the fleet.
    pub read: Duration,
}

/// Answers to one agent.
#[derive(Debug)]
pub struct AnswerStream {
    next: Option<AggregatorMessage>,
    /// `None` once the stream is about to end.
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    store: Arc<SharedStore>,
    stats: Stats,
    permit: ReportPermit,
    messages: Streaming<v1::FromAgent>,
    /// Whether the last poll answered a message.
    has_answered: bool,
    /// A message that waits until other streams have run; boxed, because an agent rarely sends one before the answer.
    waiting: Option<Box<v1::FromAgent>>,
    /// Held so that the store can end the connection.
    _peer: Arc<Peer>,
    _live: ActiveStream,
}

/// Maximum number of watch streams. Each may hold an old snapshot, which limits their number.
const MAX_WATCHERS: usize = 64;

impl Default for PeerTimeouts {
    fn default() -> Self {
        Self { hello: Duration::from_secs(10), read: Duration::from_secs(30) }
    }
}

impl IngestService {
    /// Creates a service that writes reports of agents that `gate` admits to `store`.
    pub fn new(store: Arc<SharedStore>, gate: Gate, stats: Stats, timeouts: PeerTimeouts) -> Self {
        Self {
            store,
            gate,
            timeouts,
            watchers: Arc::new(Semaphore::new(MAX_WATCHERS)),
            read_guard: Guard::open(stats.clone()),
            stats,
        }
    }

    /// Restricts watching to clients that `read_guard` authorizes.
    #[must_use]
    pub fn with_readers(self, readers: Guard) -> Self {
        Self { read_guard: readers, ..self }
    }

    /// Converts the service to a router.
    pub fn into_router(self) -> Router {
        let service = FleetServer::new(self).max_decoding_message_size(MAX_STATUS_BYTES);
        Routes::new(service).prepare().into_axum_router()
    }

    fn refuse_agent(&self, peer: &Peer, refused: &AuthError) -> Status {
        // Logged at debug level, because unauthenticated clients could fill a disk. The agent logs the same error.
        debug!(peer = %peer.address(), reason = %refused, "agent rejected");
        self.refused(refused.label(), refused.status())
    }

    fn refused(&self, word: &'static str, status: Status) -> Status {
        self.stats.refused(word);
        status
    }
}

#[tonic::async_trait]
impl Fleet for IngestService {
    type ReportStream = AnswerStream;
    type WatchStream = WatchEvents;

    async fn report(
        &self,
        request: Request<Streaming<v1::FromAgent>>,
    ) -> Result<Response<AnswerStream>, Status> {
        let peer = Arc::new(peer(&request)?);
        // Authentication comes before reading any message.
        let proven = self.gate.admit(request.metadata()).await;
        let proven = proven.map_err(|refused| self.refuse_agent(&peer, &refused))?;
        let mut messages = request.into_inner();
        let first = timeout(self.timeouts.hello, messages.message())
            .await
            .map_err(|_late| {
                let message = format!("no hello message within {:?}", self.timeouts.hello);
                self.refused("no_hello", Status::deadline_exceeded(message))
            })?
            .map_err(|status| self.refused("unreadable", read_error(&status)))?
            .ok_or_else(|| {
                let message = "the stream ended before the hello message";
                self.refused("no_hello", Status::invalid_argument(message))
            })?;
        let first = parse_from_agent(first).map_err(|error| {
            self.refused("bad_message", Status::invalid_argument(chain(&error)))
        })?;
        let FromAgent::Hello(hello) = first else {
            let message = "the first message of a stream must be a hello message";
            return Err(self.refused("no_hello", Status::invalid_argument(message)));
        };
        if let Some(proven) = proven.filter(|proven| *proven != hello.identity.node) {
            let reported = hello.identity.node;
            return Err(self.refuse_agent(&peer, &AuthError::OtherNode { reported, proven }));
        }
        let welcome = self
            .store
            .with(|store, now| store.accept_hello(&hello, &peer, now))
            .map_err(|refusal| self.refused(refusal.label(), status(&refusal)))?;
        Ok(Response::new(match welcome {
            HelloOutcome::HoldOff(answer) => AnswerStream { next: Some(answer), session: None },
            HelloOutcome::Accepted(permit, answer) => AnswerStream {
                next: Some(answer),
                session: Some(Session {
                    store: Arc::clone(&self.store),
                    stats: self.stats.clone(),
                    permit,
                    messages,
                    has_answered: false,
                    waiting: None,
                    _live: peer.open_stream(),
                    _peer: peer,
                }),
            },
        }))
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<WatchEvents>, Status> {
        let address = peer(&request)?.address().ip();
        let right = self.read_guard.authorize_watch(request.metadata().as_ref(), address);
        let right =
            right.await.map_err(|refused| self.refused(refused.label(), refused.status()))?;
        let place = Arc::clone(&self.watchers).try_acquire_owned();
        let place = place.map_err(|_full| {
            let message =
                format!("too many Watch streams: the limit is {MAX_WATCHERS}; retry later");
            self.refused("too_many_watchers", Status::resource_exhausted(message))
        })?;
        let watching = WatchSession {
            peer: peer(&request)?,
            view: self.store.view(),
            stats: self.stats.clone(),
            read_timeout: self.timeouts.read,
        };
        let events = watching
            .start((place, right), &request.into_inner())
            .map_err(|status| self.refused("bad_filter", status))?;
        Ok(Response::new(events))
    }
}

impl Stream for AnswerStream {
    type Item = Result<v1::ToAgent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(answer) = self.next.take() {
            return Poll::Ready(Some(Ok(encode_to_agent(&answer))));
        }
        let Some(session) = &mut self.session else {
            return Poll::Ready(None);
        };
        match ready!(session.poll_answer(cx)) {
            Some(Ok(Reply::Answer(answer))) => Poll::Ready(Some(Ok(encode_to_agent(&answer)))),
            Some(Ok(Reply::Superseded)) => {
                self.session = None;
                Poll::Ready(Some(Ok(encode_to_agent(&Store::superseded()))))
            }
            Some(Err(status)) => {
                self.session = None;
                Poll::Ready(Some(Err(status)))
            }
            None => {
                self.session = None;
                Poll::Ready(None)
            }
        }
    }
}

enum Reply {
    Answer(AggregatorMessage),
    Superseded,
}

impl Session {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Reply, Status>>> {
        if Pin::new(&mut self.permit.superseded).poll(cx).is_ready() {
            return Poll::Ready(Some(Ok(Reply::Superseded)));
        }
        let has_answered = mem::take(&mut self.has_answered);
        let message = match self.waiting.take() {
            Some(message) => *message,
            None => match ready!(Pin::new(&mut self.messages).poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(status)) => return Poll::Ready(Some(Err(self.unreadable(&status)))),
                Some(Ok(message)) => message,
            },
        };
        // Other streams run between two messages, because even a small one can cause much work.
        if has_answered {
            self.waiting = Some(Box::new(message));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_answered = true;
        Poll::Ready(Some(self.answer(message)))
    }

    /// Converts the error of a message, and counts it as a refusal, unless the connection is broken and cannot receive an
    /// answer.
    fn unreadable(&self, status: &Status) -> Status {
        let status = read_error(status);
        if status.code() != Code::Unknown && status.code() != Code::Cancelled {
            self.stats.refused("unreadable");
        }
        status
    }

    fn answer(&self, message: v1::FromAgent) -> Result<Reply, Status> {
        let message = parse_from_agent(message).map_err(|error| {
            self.stats.refused("bad_message");
            Status::invalid_argument(chain(&error))
        })?;
        let answer = self
            .store
            .with(|store, now| store.handle_message(&self.permit, message, now))
            .map_err(|refusal| {
                self.stats.refused(refusal.label());
                status(&refusal)
            })?;
        Ok(answer.map_or(Reply::Superseded, Reply::Answer))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.store.with(|store, now| store.disconnected(&self.permit, now));
    }
}

fn peer<T>(request: &Request<T>) -> Result<Peer, Status> {
    let peer = request.extensions().get::<Peer>().cloned();
    peer.ok_or_else(|| Status::internal("the request has no connection information"))
}

fn status(refusal: &StoreError) -> Status {
    let code =
        if refusal.is_limit_exceeded() { Code::ResourceExhausted } else { Code::InvalidArgument };
    Status::new(code, chain(refusal))
}

/// Maps tonic's status codes, which assume a client: on a server, an unreadable message is the peer's error, not an
/// internal one.
fn read_error(status: &Status) -> Status {
    let message = status.message();
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(message),
        Code::Internal => Status::invalid_argument(message),
        code @ (Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated) => Status::new(code, message),
    }
}
