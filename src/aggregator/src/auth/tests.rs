//! Tests of the gate with a fake API server, in paused time; the cluster tests use a real one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use octavo_access::cached_lookup::{
    LOOKUP_TIMEOUT, MAX_CONCURRENT, MAX_DENIALS, MAX_PENDING, PAUSE,
};
use octavo_fleet::credential::{Caller, NODE_CLAIM};
use tokio::time::Instant;

use super::*;

/// Fake API server that takes a second for each review. It accepts agents' tokens, `node.<node>.x`, and rejects those
/// of other accounts.
#[derive(Debug, Clone, Default)]
struct Server(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requests: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    away: AtomicBool,
}

const TAKES: Duration = Duration::from_secs(1);

#[tonic::async_trait]
impl ReviewToken for Server {
    async fn ask(&self, token: &Token) -> Result<TokenReview, ReviewError> {
        let state = &self.0;
        state.requests.fetch_add(1, Ordering::Relaxed);
        let now = state.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        state.most_at_once.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(TAKES).await;
        state.at_once.fetch_sub(1, Ordering::Relaxed);
        if state.away.load(Ordering::Relaxed) {
            return Err(ReviewError::TimedOut);
        }
        let mut parts = token.expose().split('.');
        let (kind, node) = (parts.next().unwrap(), parts.next().unwrap());
        Ok(TokenReview {
            authenticated: kind == "node",
            error: "unknown".to_owned(),
            audiences: vec!["octavo".to_owned()],
            caller: Caller {
                user: rule().account.username(),
                extra: [(NODE_CLAIM.to_owned(), vec![node.to_owned()])].into(),
                ..Caller::default()
            },
        })
    }
}

impl Server {
    fn requests(&self) -> usize {
        self.0.requests.load(Ordering::Relaxed)
    }

    fn is_away(&self, away: bool) {
        self.0.away.store(away, Ordering::Relaxed);
    }
}

fn rule() -> AcceptanceRule {
    AcceptanceRule {
        account: "octavo-system/octavo-agent".parse().unwrap(),
        audience: "octavo".parse().unwrap(),
    }
}

fn gate() -> (Server, Gate) {
    let server = Server::default();
    let ask = Box::new(server.clone());
    (server, Gate::with_reviewer(rule(), ask, Stats::default()))
}

fn metadata_with_token(token: &str) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    let value = format!("Bearer {token}").parse().unwrap();
    metadata.insert("authorization", value);
    metadata
}

async fn admit(gate: &Gate, token: &str) -> Result<String, AuthError> {
    let node = gate.admit(&metadata_with_token(token)).await?;
    Ok(node.unwrap().to_string())
}

#[tokio::test(start_paused = true)]
async fn accepted_token_is_cached_for_a_minute() {
    let (server, gate) = gate();
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) {
        assert_eq!(admit(&gate, "node.a.x").await.unwrap(), "a");
        assert_eq!(server.requests(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::advance(TAKES).await;
    assert_eq!(admit(&gate, "node.a.x").await.unwrap(), "a");
    assert_eq!(server.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn denied_token_is_reviewed_at_most_every_five_seconds() {
    let (server, gate) = gate();
    let start = Instant::now();
    for _ in 0..6000 {
        let refused = admit(&gate, "bad.a.x").await.unwrap_err();
        assert_eq!(
            (refused.label(), refused.status().code()),
            ("unauthenticated", Code::Unauthenticated)
        );
        assert!(!refused.status().message().contains("bad.a.x"));
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    // One minute, plus the time of the reviews themselves.
    let most = start.elapsed().as_secs() / 5 + 1;
    assert!(u64::try_from(server.requests()).unwrap() <= most, "{}", server.requests());
    assert!(server.requests() > 5, "the token is not reviewed again: {}", server.requests());
}

#[tokio::test(start_paused = true)]
async fn malformed_token_is_refused_without_a_review() {
    let (server, gate) = gate();
    let long = format!("Bearer a.b.{}", "c".repeat(20_000));
    for text in ["", "Bearer", "Bearer ", "Basic a.b.c", "Bearer secret", "Bearer a.b.c d", &long] {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", text.parse().unwrap());
        let status = gate.admit(&metadata).await.unwrap_err().status();
        assert_eq!(status.code(), Code::Unauthenticated, "{text}");
        assert!(!status.message().contains("secret"));
    }
    let two = {
        let mut metadata = metadata_with_token("node.a.x");
        metadata.append("authorization", "Bearer node.b.x".parse().unwrap());
        metadata
    };
    assert_eq!(gate.admit(&two).await, Err(AuthError::InvalidAuthorization));
    let none = gate.admit(&MetadataMap::new()).await.unwrap_err();
    assert!(none.status().message().contains("--aggregator-token"));
    assert_eq!(server.requests(), 0);
    // The scheme is case-insensitive. Source: RFC 9110, section 11.1.
    let mut metadata = MetadataMap::new();
    metadata.insert("authorization", "bearer node.a.x".parse().unwrap());
    assert!(gate.admit(&metadata).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_review() {
    let (server, gate) = gate();
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let gate = gate.clone();
        all.spawn(async move { admit(&gate, "node.a.x").await });
    }
    // The first requester disconnects; the others still receive their answer.
    let metadata = metadata_with_token("node.b.x");
    let mut first = Box::pin(gate.admit(&metadata));
    assert!(poll_once(&mut first).await.is_none());
    let second = tokio::spawn({
        let gate = gate.clone();
        async move { admit(&gate, "node.b.x").await }
    });
    drop(first);
    assert_eq!(second.await.unwrap().unwrap(), "b");
    for node in all.join_all().await {
        assert_eq!(node.unwrap(), "a");
    }
    assert_eq!(server.requests(), 2);
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        let polled = std::pin::Pin::new(&mut *future).poll(cx);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn reviews_and_waiting_time_are_bounded() {
    let (server, gate) = gate();
    let mut all = tokio::task::JoinSet::new();
    let start = Instant::now();
    for number in 0..10_000 {
        let gate = gate.clone();
        all.spawn(async move { admit(&gate, &format!("bad.{number}.x")).await });
    }
    let mut unchecked = 0;
    for refused in all.join_all().await {
        unchecked += usize::from(refused == Err(AuthError::ReviewUnavailable));
    }
    assert!(start.elapsed() <= LOOKUP_TIMEOUT, "{:?}", start.elapsed());
    assert_eq!(server.0.most_at_once.load(Ordering::Relaxed), MAX_CONCURRENT);
    assert!(unchecked >= 10_000 - MAX_PENDING, "{unchecked}");
    assert!(server.requests() <= MAX_CONCURRENT * 9, "{}", server.requests());
    // Unknown tokens evicted no accepted one.
    let (bad, pending) = gate.0.as_ref().unwrap().lookup.sizes();
    assert!(bad <= MAX_DENIALS && pending <= MAX_PENDING);
}

#[tokio::test(start_paused = true)]
async fn cached_tokens_are_accepted_while_the_api_server_is_down() {
    let (server, gate) = gate();
    admit(&gate, "node.a.x").await.unwrap();
    server.is_away(true);
    let refused = admit(&gate, "node.b.x").await.unwrap_err();
    assert_eq!((refused.label(), refused.status().code()), ("unchecked", Code::Unavailable));
    assert_eq!(server.requests(), 2);
    for _ in 0..1000 {
        assert_eq!(admit(&gate, "node.a.x").await.unwrap(), "a");
        assert_eq!(admit(&gate, "node.b.x").await, Err(AuthError::ReviewUnavailable));
        assert_eq!(admit(&gate, "node.c.x").await, Err(AuthError::ReviewUnavailable));
    }
    assert_eq!(server.requests(), 2, "the unavailable API server receives requests");
    tokio::time::advance(PAUSE).await;
    assert_eq!(admit(&gate, "node.b.x").await, Err(AuthError::ReviewUnavailable));
    assert_eq!(server.requests(), 3);
    server.is_away(false);
    tokio::time::advance(PAUSE).await;
    assert_eq!(admit(&gate, "node.b.x").await.unwrap(), "b", "a failed review rejects the token");
    // After a minute, the cached grant has expired too.
    server.is_away(true);
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(admit(&gate, "node.a.x").await, Err(AuthError::ReviewUnavailable));
}

#[tokio::test]
async fn gate_without_auth_accepts_every_agent() {
    assert_eq!(Gate::without_auth().admit(&MetadataMap::new()).await, Ok(None));
}
