//! Watches of the fleet: a snapshot, then changes, within the limits of the watcher.

use std::time::Duration;

use octavo_aggregator::ingest::PeerTimeouts;
use octavo_store::store::StoreLimits;
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::watch_event::Event;
use tokio::time::timeout;
use tonic::{Code, Streaming};

use super::{
    AgentStream, FleetClient, Plan, Site, TIME_LIMIT, acknowledged, big_parts, delta, parts,
};
use crate::time_limits::until_async;

async fn next(events: &mut Streaming<v1::WatchEvent>) -> Event {
    let event = timeout(TIME_LIMIT, events.message()).await.unwrap();
    event.unwrap().unwrap().event.unwrap()
}

/// The next node event.
async fn node(events: &mut Streaming<v1::WatchEvent>) -> v1::NodeStatus {
    match next(events).await {
        Event::Node(node) => node,
        other @ (Event::Removed(_) | Event::Synced(_)) => panic!("a node, and not {other:?}"),
    }
}

async fn watch(site: &Site, nodes: &[&str]) -> Streaming<v1::WatchEvent> {
    let nodes = nodes.iter().map(|&name| name.to_owned()).collect();
    let request = v1::WatchRequest { nodes, ..v1::WatchRequest::default() };
    site.client().await.watch(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn watcher_receives_snapshot_and_then_changes() {
    let site = Plan::default().start().await;
    let mut a = AgentStream::with_visible_status(&site, "a", parts(1)).await;
    let _b = AgentStream::with_visible_status(&site, "b", parts(2)).await;
    let mut events = watch(&site, &[]).await;
    let first = node(&mut events).await;
    assert_eq!((first.name.as_str(), first.connected), ("a", true));
    assert_eq!(first.parts.len(), parts(1).len());
    assert!(!first.stale && first.confirmed_ms > 0);
    assert_eq!(node(&mut events).await.name, "b");
    assert_eq!(next(&mut events).await, Event::Synced(v1::Synced { revision: 2 }));
    a.send(&delta(2, &parts(1), &parts(3))).await.unwrap();
    let changed = node(&mut events).await;
    let content = changed.parts.iter().find(|part| part.key == "node").unwrap();
    let expected = parts(3);
    assert_eq!(content.content, expected.get("node").unwrap().bytes());
    drop(a);
    let gone = node(&mut events).await;
    assert_eq!((gone.name.as_str(), gone.connected), ("a", false));
    assert_eq!(site.metric("watchers"), 1);
}

#[tokio::test]
async fn watcher_of_some_nodes_receives_only_those() {
    let site = Plan::default().start().await;
    let mut a = AgentStream::with_visible_status(&site, "a", parts(1)).await;
    let mut b = AgentStream::with_visible_status(&site, "b", parts(1)).await;
    let mut events = watch(&site, &["b"]).await;
    assert_eq!(node(&mut events).await.name, "b");
    assert!(matches!(next(&mut events).await, Event::Synced(_)));
    a.send(&delta(2, &parts(1), &parts(2))).await.unwrap();
    b.send(&delta(2, &parts(1), &parts(2))).await.unwrap();
    assert_eq!(node(&mut events).await.name, "b");
    let nodes = vec!["b".to_owned(), "Not A Name".to_owned()];
    let wrong = v1::WatchRequest { nodes, ..v1::WatchRequest::default() };
    let status = site.client().await.watch(wrong).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("nodes[1]"), "{status:?}");
}

#[tokio::test]
async fn synced_is_repeated_on_request() {
    let site = Plan::default().start().await;
    let request = v1::WatchRequest { nodes: Vec::new(), heartbeat_ms: 1 };
    let mut events = site.client().await.watch(request).await.unwrap().into_inner();
    let synced = |revision| Event::Synced(v1::Synced { revision });
    assert_eq!(next(&mut events).await, synced(0));
    assert_eq!(next(&mut events).await, synced(0));
    let _a = AgentStream::with_visible_status(&site, "a", parts(1)).await;
    let first_node = async || match next(&mut events).await {
        Event::Node(node) => Some(node.name),
        Event::Removed(_) | Event::Synced(_) => None,
    };
    let name = until_async("a node", first_node, Option::is_some).await;
    assert_eq!(name.as_deref(), Some("a"));
    assert_eq!(next(&mut events).await, synced(1));
}

/// A node whose agent is silent, with a watcher.
async fn silent(forget_after: Duration) -> (Site, AgentStream, Streaming<v1::WatchEvent>) {
    let plan = Plan {
        fleet: StoreLimits {
            stale_after: Duration::from_secs(1),
            forget_after,
            max_nodes: 9,
            history_bytes: 0,
        },
        ..Plan::default()
    };
    let site = plan.start().await;
    let mut events = watch(&site, &[]).await;
    assert!(matches!(next(&mut events).await, Event::Synced(_)));
    let line = AgentStream::with_first_status(&mut site.client().await, "n", parts(1)).await;
    (site, line, events)
}

#[tokio::test]
async fn becoming_stale_is_a_change() {
    let (_site, _line, mut events) = silent(Duration::from_hours(1)).await;
    let is_stale = async || match next(&mut events).await {
        Event::Node(node) => node.stale,
        Event::Removed(_) | Event::Synced(_) => panic!("it is still there"),
    };
    until_async("a stale node", is_stale, |stale| *stale).await;
}

#[tokio::test]
async fn being_forgotten_is_a_change() {
    // A watcher that saw the node receives its removal, and may miss changes before that.
    let (_site, _line, mut events) = silent(Duration::from_secs(3)).await;
    let removed = async || match next(&mut events).await {
        Event::Node(_) => None,
        Event::Removed(name) => Some(name),
        Event::Synced(_) => panic!("a second sync event"),
    };
    let removed = until_async("a removal", removed, Option::is_some).await;
    assert_eq!(removed.as_deref(), Some("n"));
}

/// A watcher with a window that fits one event at a time.
async fn slow_watcher(site: &Site) -> Streaming<v1::WatchEvent> {
    let channel = site
        .endpoint()
        .initial_stream_window_size(1024)
        .initial_connection_window_size(65_535)
        .connect()
        .await
        .unwrap();
    let request = v1::WatchRequest::default();
    let mut client = FleetClient::new(channel);
    client.watch(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn slow_watcher_receives_fewer_changes_and_the_latest() {
    const CHANGES: u64 = 40;
    let site = Plan::default().start().await;
    let big = |number| big_parts(number, 20 * 1024);
    let mut line = AgentStream::with_visible_status(&site, "n", big(1)).await;
    let mut events = slow_watcher(&site).await;
    for number in 2..=CHANGES {
        let change = delta(number, &big(number - 1), &big(number));
        assert_eq!(line.send(&change).await.unwrap(), acknowledged(number));
        site.until(|fleet| fleet.revision >= number).await;
    }
    let last = big(CHANGES);
    let last = last.get("x/later").unwrap();
    let mut seen = 0;
    loop {
        if let Event::Node(node) = next(&mut events).await {
            seen += 1;
            if node.parts.iter().any(|part| part.content == last.bytes()) {
                break;
            }
        }
    }
    assert!(seen < 10, "{seen} of {CHANGES} changes were retained for it");
}

#[tokio::test]
async fn watcher_that_does_not_read_is_disconnected() {
    let plan = Plan {
        time_limits: PeerTimeouts { read: Duration::from_millis(100), ..PeerTimeouts::default() },
        ..Plan::default()
    };
    let site = plan.start().await;
    let mut lines = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        lines.push(AgentStream::with_visible_status(&site, name, big_parts(1, 60 * 1024)).await);
    }
    let mut events = slow_watcher(&site).await;
    // The server detects the stall by itself; later reads of the watcher end with an error.
    let mut change = 2;
    let began = tokio::time::Instant::now();
    while site.metric("connections_cut_total{reason=\"not_reading\"}") == 0 {
        assert!(began.elapsed() < TIME_LIMIT, "the connection was not closed");
        let (from, to) = (big_parts(change - 1, 60 * 1024), big_parts(change, 60 * 1024));
        lines[0].send(&delta(change, &from, &to)).await.unwrap();
        change += 1;
    }
    let read_all = async { while let Ok(Some(_)) = events.message().await {} };
    timeout(TIME_LIMIT, read_all).await.unwrap();
}

#[tokio::test]
async fn number_of_watchers_is_limited() {
    let site = Plan::default().start().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(watch(&site, &[]).await);
    }
    let request = v1::WatchRequest::default();
    let status = site.client().await.watch(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
}
