//! Tests of the gate with a fake API server, in paused time; the cluster tests use a real one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::aggregator::asking::{MOST_AT_ONCE, MOST_BAD, MOST_PENDING, PATIENCE, PAUSE};

/// Fake API server that takes a second for each review. It accepts agents' tokens, `node.<node>.x`, and rejects those
/// of other accounts.
#[derive(Debug, Clone, Default)]
struct Server(Arc<State>);

#[derive(Debug, Default)]
struct State {
    asked: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    away: AtomicBool,
}

const TAKES: Duration = Duration::from_secs(1);

#[tonic::async_trait]
impl Ask for Server {
    async fn ask(&self, token: &Token) -> Result<Review, ReviewError> {
        let state = &self.0;
        state.asked.fetch_add(1, Ordering::Relaxed);
        let now = state.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        state.most_at_once.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(TAKES).await;
        state.at_once.fetch_sub(1, Ordering::Relaxed);
        if state.away.load(Ordering::Relaxed) {
            return Err(ReviewError::Late);
        }
        let mut parts = token.expose().split('.');
        let (kind, node) = (parts.next().unwrap(), parts.next().unwrap());
        Ok(Review {
            authenticated: kind == "node",
            error: "unknown".to_owned(),
            username: rule().account.username(),
            audiences: vec!["octavo".to_owned()],
            nodes: vec![node.to_owned()],
        })
    }
}

impl Server {
    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::Relaxed)
    }

    fn is_away(&self, away: bool) {
        self.0.away.store(away, Ordering::Relaxed);
    }
}

fn rule() -> Rule {
    Rule {
        account: "octavo-system/octavo-agent".parse().unwrap(),
        audience: "octavo".parse().unwrap(),
    }
}

fn gate() -> (Server, Gate) {
    let server = Server::default();
    let ask = Box::new(server.clone());
    (server, Gate::checked(rule(), ask, Stats::default()))
}

fn shows(token: &str) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    let value = format!("Bearer {token}").parse().unwrap();
    metadata.insert("authorization", value);
    metadata
}

async fn admit(gate: &Gate, token: &str) -> Result<String, Refused> {
    let node = gate.admit(&shows(token)).await?;
    Ok(node.unwrap().to_string())
}

#[tokio::test(start_paused = true)]
async fn a_good_token_counts_for_a_minute_and_is_asked_about_once_in_it() {
    let (server, gate) = gate();
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) {
        assert_eq!(admit(&gate, "node.a.x").await.unwrap(), "a");
        assert_eq!(server.asked(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::advance(TAKES).await;
    assert_eq!(admit(&gate, "node.a.x").await.unwrap(), "a");
    assert_eq!(server.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_bad_token_is_asked_about_once_in_five_seconds_however_often_it_comes() {
    let (server, gate) = gate();
    let start = Instant::now();
    for _ in 0..6000 {
        let refused = admit(&gate, "bad.a.x").await.unwrap_err();
        assert_eq!(
            (refused.word(), refused.status().code()),
            ("unauthenticated", Code::Unauthenticated)
        );
        assert!(!refused.status().message().contains("bad.a.x"));
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    // One minute, plus the time of the reviews themselves.
    let most = start.elapsed().as_secs() / 5 + 1;
    assert!(
        u64::try_from(server.asked()).unwrap() <= most,
        "{}",
        server.asked()
    );
    assert!(
        server.asked() > 5,
        "it is asked about again: {}",
        server.asked()
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_a_token_is_refused_without_a_question() {
    let (server, gate) = gate();
    let long = format!("Bearer a.b.{}", "c".repeat(20_000));
    for text in [
        "",
        "Bearer",
        "Bearer ",
        "Basic a.b.c",
        "Bearer secret",
        "Bearer a.b.c d",
        &long,
    ] {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", text.parse().unwrap());
        let status = gate.admit(&metadata).await.unwrap_err().status();
        assert_eq!(status.code(), Code::Unauthenticated, "{text}");
        assert!(!status.message().contains("secret"));
    }
    let two = {
        let mut metadata = shows("node.a.x");
        metadata.append("authorization", "Bearer node.b.x".parse().unwrap());
        metadata
    };
    assert_eq!(gate.admit(&two).await, Err(Refused::NotBearer));
    let none = gate.admit(&MetadataMap::new()).await.unwrap_err();
    assert!(none.status().message().contains("--aggregator-token"));
    assert_eq!(server.asked(), 0);
    // The scheme is case-insensitive. Source: RFC 9110, section 11.1.
    let mut metadata = MetadataMap::new();
    metadata.insert("authorization", "bearer node.a.x".parse().unwrap());
    assert!(gate.admit(&metadata).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_many_show_at_once_is_one_review() {
    let (server, gate) = gate();
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let gate = gate.clone();
        all.spawn(async move { admit(&gate, "node.a.x").await });
    }
    // The first requester disconnects; the others still receive their answer.
    let metadata = shows("node.b.x");
    let mut first = Box::pin(gate.admit(&metadata));
    assert!(futures_poll(&mut first).await.is_none());
    let second = tokio::spawn({
        let gate = gate.clone();
        async move { admit(&gate, "node.b.x").await }
    });
    drop(first);
    assert_eq!(second.await.unwrap().unwrap(), "b");
    for node in all.join_all().await {
        assert_eq!(node.unwrap(), "a");
    }
    assert_eq!(server.asked(), 2);
}

async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
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
async fn however_many_tokens_come_few_reviews_run_and_nobody_waits_for_ever() {
    let (server, gate) = gate();
    let mut all = tokio::task::JoinSet::new();
    let start = Instant::now();
    for number in 0..10_000 {
        let gate = gate.clone();
        all.spawn(async move { admit(&gate, &format!("bad.{number}.x")).await });
    }
    let mut unchecked = 0;
    for refused in all.join_all().await {
        unchecked += usize::from(refused == Err(Refused::Unchecked));
    }
    assert!(start.elapsed() <= PATIENCE, "{:?}", start.elapsed());
    assert_eq!(server.0.most_at_once.load(Ordering::Relaxed), MOST_AT_ONCE);
    assert!(unchecked >= 10_000 - MOST_PENDING, "{unchecked}");
    assert!(server.asked() <= MOST_AT_ONCE * 9, "{}", server.asked());
    // Unknown tokens evicted no accepted one.
    let (bad, pending) = gate.0.as_ref().unwrap().asking.sizes();
    assert!(bad <= MOST_BAD && pending <= MOST_PENDING);
}

#[tokio::test(start_paused = true)]
async fn while_the_api_server_is_away_known_tokens_count_others_wait_and_it_is_asked_once_a_second()
{
    let (server, gate) = gate();
    admit(&gate, "node.a.x").await.unwrap();
    server.is_away(true);
    let refused = admit(&gate, "node.b.x").await.unwrap_err();
    assert_eq!(
        (refused.word(), refused.status().code()),
        ("unchecked", Code::Unavailable)
    );
    assert_eq!(server.asked(), 2);
    for _ in 0..1000 {
        assert_eq!(admit(&gate, "node.a.x").await.unwrap(), "a");
        assert_eq!(admit(&gate, "node.b.x").await, Err(Refused::Unchecked));
        assert_eq!(admit(&gate, "node.c.x").await, Err(Refused::Unchecked));
    }
    assert_eq!(server.asked(), 2, "it is left alone");
    tokio::time::advance(PAUSE).await;
    assert_eq!(admit(&gate, "node.b.x").await, Err(Refused::Unchecked));
    assert_eq!(server.asked(), 3);
    server.is_away(false);
    tokio::time::advance(PAUSE).await;
    assert_eq!(
        admit(&gate, "node.b.x").await.unwrap(),
        "b",
        "no answer is not a bad one"
    );
    // After a minute, the cached grant has expired too.
    server.is_away(true);
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(admit(&gate, "node.a.x").await, Err(Refused::Unchecked));
}

#[tokio::test]
async fn an_open_gate_asks_nobody() {
    assert_eq!(Gate::open().admit(&MetadataMap::new()).await, Ok(None));
}
