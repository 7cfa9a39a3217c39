//! Reports of agents: valid, invalid, duplicate, early, late and missing messages.

use std::time::Duration;

use octavo_aggregator::ingest::PeerTimeouts;
use octavo_model::digest::Digest;
use octavo_store::store::StoreLimits;
use octavo_stream::messages::encode_from_agent;
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::to_agent::Message as Answer;
use octavo_stream::protocol::FromAgent;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::{
    AgentStream, Plan, TIME_LIMIT, acknowledged, big_parts, delta, hello, parts, post, second_hello,
};

#[tokio::test]
async fn reported_node_equals_what_readers_receive() {
    let site = Plan::default().start().await;
    let mut line = AgentStream::with_visible_status(&site, "n", parts(1)).await;
    assert_eq!(site.node("n").unwrap().parts, parts(1));
    let change = delta(2, &parts(1), &parts(2));
    assert_eq!(line.send(&change).await.unwrap(), acknowledged(2));
    let fleet = site.until(|fleet| fleet.revision == 2).await;
    let node = fleet.nodes.iter().next().unwrap();
    assert_eq!((&node.parts, node.connected), (&parts(2), true));
    drop(line);
    site.until(|fleet| fleet.nodes.iter().all(|node| !node.connected)).await;
    assert_eq!(site.metric("messages_total{kind=\"delta\"}"), 1);
}

#[tokio::test]
async fn duplicate_change_is_ignored_and_gap_requests_snapshot() {
    let site = Plan::default().start().await;
    let mut line = AgentStream::with_visible_status(&site, "n", parts(1)).await;
    let change = delta(2, &parts(1), &parts(2));
    line.send(&change).await.unwrap();
    for replayed in [change, FromAgent::Snapshot { seq: 1, parts: parts(9) }] {
        assert_eq!(line.send(&replayed).await.unwrap(), acknowledged(2));
    }
    let early = delta(4, &parts(2), &parts(4));
    let resync = line.send(&early).await.unwrap();
    assert!(matches!(resync, Answer::Resync(_)), "{resync:?}");
    let seq = 5;
    let whole = FromAgent::Snapshot { seq, parts: parts(5) };
    assert_eq!(line.send(&whole).await.unwrap(), acknowledged(5));
    let hash = Digest::from_number(7);
    let other = line.send(&FromAgent::Heartbeat { seq, hash }).await.unwrap();
    assert!(matches!(other, Answer::Resync(_)), "{other:?}");
    assert_eq!(site.metric("resyncs_total{reason=\"delta\"}"), 1);
    assert_eq!(site.metric("resyncs_total{reason=\"heartbeat\"}"), 1);
}

/// Asserts that a stream with this first message is refused with `code` and a text that contains `text`.
async fn refused_at_first(first: v1::FromAgent, code: Code, text: &str) {
    let site = Plan::default().start().await;
    let status = AgentStream::open(&mut site.client().await, first).await;
    let status = status.err().unwrap();
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(text), "{status:?}");
    assert!(site.store.view().fleet().nodes.is_empty());
}

#[tokio::test]
async fn stream_with_invalid_first_message_is_rejected_with_its_field() {
    let wrong = Code::InvalidArgument;
    let heartbeat = encode_from_agent(&FromAgent::Heartbeat { seq: 1, hash: Digest::default() });
    refused_at_first(heartbeat, wrong, "the first message of a stream must be a hello").await;
    refused_at_first(v1::FromAgent::default(), wrong, "message").await;
    refused_at_first(hello("Node_1", 1), wrong, "hello.node").await;
    refused_at_first(hello(&"n".repeat(300), 1), wrong, "hello.node").await;
    let snapshot =
        encode_from_agent(&FromAgent::Snapshot { seq: 1, parts: big_parts(1, 300 * 1024) });
    refused_at_first(snapshot, Code::ResourceExhausted, "too large").await;
}

#[tokio::test]
async fn invalid_message_ends_the_stream_and_changes_nothing() {
    let bent = parts(1).apply(&octavo_stream::protocol::Change {
        changed: vec![(
            "device/0000:07:00.0".parse().unwrap(),
            octavo_stream::protocol::Content::new(&b"\xff\xff"[..]),
        )],
        removed: Vec::new(),
    });
    for (message, code, text) in [
        (second_hello(), Code::InvalidArgument, "only the first message"),
        (delta(2, &parts(1), &bent), Code::InvalidArgument, "device/0000:07:00.0"),
        (delta(2, &parts(1), &big_parts(1, 300 * 1024)), Code::ResourceExhausted, "too large"),
    ] {
        let site = Plan::default().start().await;
        let mut line = AgentStream::with_visible_status(&site, "n", parts(1)).await;
        let status = line.send(&message).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(text), "{status:?}");
        let fleet = site.until(|fleet| fleet.nodes.iter().all(|node| !node.connected)).await;
        assert_eq!(fleet.nodes.iter().next().unwrap().parts, parts(1));
    }
}

#[tokio::test]
async fn many_small_changes_cannot_exceed_the_node_size_limit() {
    let site = Plan::default().start().await;
    let first = big_parts(1, 200 * 1024);
    let mut line = AgentStream::with_visible_status(&site, "n", first.clone()).await;
    let more = first.apply(&octavo_stream::protocol::Change {
        changed: vec![(
            "y/later".parse().unwrap(),
            octavo_stream::protocol::Content::new(vec![0; 60 * 1024]),
        )],
        removed: Vec::new(),
    });
    let status = line.send(&delta(2, &first, &more)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("bytes, and the limit is 262144"));
    assert_eq!(site.node("n").unwrap().parts, first);
}

#[tokio::test]
async fn node_beyond_fleet_limit_is_rejected() {
    let fleet = StoreLimits {
        stale_after: Duration::from_hours(1),
        forget_after: Duration::from_hours(1),
        max_nodes: 1,
        history_bytes: 0,
    };
    let plan = Plan { fleet, ..Plan::default() };
    let site = plan.start().await;
    let _first = AgentStream::with_visible_status(&site, "n", parts(1)).await;
    let status = AgentStream::open(&mut site.client().await, hello("m", 1)).await;
    assert_eq!(status.err().unwrap().code(), Code::ResourceExhausted);
    assert_eq!(site.metric("refusals_total{reason=\"too_many_nodes\"}"), 1);
}

#[tokio::test]
async fn stream_without_hello_ends_at_its_deadline() {
    let plan = Plan {
        time_limits: PeerTimeouts { hello: Duration::from_secs(1), ..PeerTimeouts::default() },
        ..Plan::default()
    };
    let site = plan.start().await;
    let (_to, messages) = mpsc::channel(1);
    let mut client = site.client().await;
    let answer = client.report(ReceiverStream::new(messages));
    let status = timeout(TIME_LIMIT, answer).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    // A stream that ends immediately has no hello either.
    let no_hello = client.report(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(no_hello.code(), Code::InvalidArgument);
    assert_eq!(site.metric("refusals_total{reason=\"no_hello\"}"), 2);
}

#[tokio::test]
async fn later_of_two_agents_with_one_node_name_is_accepted() {
    let site = Plan::default().start().await;
    let mut older = AgentStream::with_visible_status(&site, "n", parts(1)).await;
    let mut newer = AgentStream::open(&mut site.client().await, hello("n", 2)).await.unwrap();
    assert!(matches!(newer.receive().await, Ok(Some(Answer::Resync(_)))));
    let Ok(Some(Answer::HoldOff(hold_off))) = older.receive().await else {
        panic!("the older stream receives no hold-off");
    };
    assert!(hold_off.reason.contains("superseded"), "{hold_off:?}");
    assert_eq!(older.receive().await.unwrap(), None, "the older stream does not end");
    let mut again = AgentStream::open(&mut site.client().await, hello("n", 1)).await.unwrap();
    assert!(matches!(again.receive().await, Ok(Some(Answer::HoldOff(_)))));
    assert_eq!(again.receive().await.unwrap(), None);
    let whole = FromAgent::Snapshot { seq: 1, parts: parts(2) };
    assert_eq!(newer.send(&whole).await.unwrap(), acknowledged(1));
}

#[tokio::test]
async fn agent_that_reads_no_answers_is_disconnected() {
    let fleet = StoreLimits {
        stale_after: Duration::from_secs(2),
        forget_after: Duration::from_hours(1),
        max_nodes: 9,
        history_bytes: 0,
    };
    let plan = Plan { fleet, ..Plan::default() };
    let site = plan.start().await;
    let channel = site.endpoint().initial_stream_window_size(100);
    let channel = channel.connect().await.unwrap();
    let mut client = super::FleetClient::new(channel);
    let line = AgentStream::open(&mut client, hello("n", 1)).await.unwrap();
    let snapshot = FromAgent::Snapshot { seq: 1, parts: parts(1) };
    line.to.send(encode_from_agent(&snapshot)).await.unwrap();
    let heartbeat = encode_from_agent(&FromAgent::Heartbeat { seq: 1, hash: parts(1).hash() });
    // Fewer messages than HTTP/2 itself treats as a flood.
    for _ in 0..60 {
        line.to.send(heartbeat.clone()).await.unwrap();
    }
    site.until(|fleet| fleet.nodes.len() == 1).await;
    site.until(|fleet| fleet.nodes.iter().all(|node| !node.connected)).await;
    timeout(TIME_LIMIT, line.to.closed()).await.unwrap();
    assert_eq!(site.metric("connections_cut_total{reason=\"silent\"}"), 1);
    // The answers fit the window, so the server buffered none.
    assert!(site.metric("messages_total{kind=\"heartbeat\"}") < 20);
}

#[tokio::test]
async fn agent_that_floods_without_reading_is_disconnected_immediately() {
    let site = Plan::default().start().await;
    let channel = site.endpoint().initial_stream_window_size(100);
    let mut client = super::FleetClient::new(channel.connect().await.unwrap());
    let line = AgentStream::open(&mut client, hello("n", 1)).await.unwrap();
    let heartbeat = encode_from_agent(&FromAgent::Heartbeat { seq: 1, hash: Digest::default() });
    let flood = async { while line.to.send(heartbeat.clone()).await.is_ok() {} };
    timeout(TIME_LIMIT, flood).await.unwrap();
    // Other agents are still served.
    let _line = AgentStream::with_visible_status(&site, "m", parts(1)).await;
}

const INVALID_ARGUMENT: &str = "3";
const RESOURCE_EXHAUSTED: &str = "8";

#[tokio::test]
async fn invalid_message_bytes_are_an_invalid_argument() {
    let site = Plan::default().start().await;
    for (body, code) in [
        // The length prefix announces ten bytes and two follow.
        (&[0, 0, 0, 0, 10, 1, 2][..], INVALID_ARGUMENT),
        // A field without its end.
        (&[0, 0, 0, 0, 3, 0x0a, 0xff, 0xff], INVALID_ARGUMENT),
        (&[0, 0, 0, 0, 2, 0xff, 0xff], INVALID_ARGUMENT),
        (&[0, 0xff, 0xff, 0xff, 0xff], RESOURCE_EXHAUSTED),
        (&[7, 0, 0, 0, 0], INVALID_ARGUMENT),
    ] {
        let (status, message) = post(site.address, body).await;
        assert_eq!(status, code, "{body:?}: {message}");
    }
    assert!(site.store.view().fleet().nodes.is_empty());
}
