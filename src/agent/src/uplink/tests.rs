//! Tests of the uplink against a scripted aggregator.
//!
//! Tests of timing run in memory with tokio's paused clock; tests of sockets and certificates use real ones.

mod fake_aggregator;
mod sockets;

use octavo_model::inventory::{Inventory, Machine};
use octavo_node::label_set::LabelSet;
use octavo_stream::protocol::{AggregatorMessage, FromAgent, Greeting, ReceiveOutcome, Receiver};
use octavo_stream::status;
use tokio::task::JoinHandle;

use self::fake_aggregator::{FakeAggregator, MemoryConnector, Peer, identity};
use super::*;

const HEARTBEAT: Duration = Duration::from_secs(10);

fn this_one() -> Run {
    Run { epoch: 7, boot_id: "boot".to_owned() }
}

/// A node that is identified by a word.
fn inventory(word: &str) -> Inventory {
    Inventory {
        machine: Machine { product_name: Some(word.to_owned()), vgpu: None, bus_error: None },
        ..Inventory::default()
    }
}

fn put(outbox: &mut Outbox, word: &str) {
    outbox.put(&inventory(word), &LabelSet::default(), None);
}

/// A running uplink that has `word` to report, and the aggregator it reports to.
fn reporting(word: &str) -> (FakeAggregator, Outbox, JoinHandle<()>) {
    let (fake, service) = FakeAggregator::new();
    let (mut outbox, uplink) =
        Uplink::new(MemoryConnector(service), identity(), this_one(), HEARTBEAT);
    put(&mut outbox, word);
    (fake, outbox, tokio::spawn(uplink.run()))
}

/// Returns the word of the status that the aggregator has.
fn known(receiver: &Receiver) -> String {
    let status = status::decode(receiver.parts()).unwrap();
    status.inventory.machine.product_name.unwrap()
}

/// Handles the agent's next message as the aggregator does, and answers.
async fn take(peer: &mut Peer, receiver: &mut Receiver) -> FromAgent {
    let incoming = peer.receive().await;
    let offer = match incoming.clone() {
        FromAgent::Hello(hello) => panic!("{hello:?} again"),
        FromAgent::Snapshot { seq, parts } => receiver.snapshot(seq, parts),
        FromAgent::Delta { seq, change, hash } => receiver.delta(seq, &change, hash),
        FromAgent::Heartbeat { seq, hash } => receiver.heartbeat(seq, hash),
    };
    let answer = match offer {
        ReceiveOutcome::Status(status) => receiver.take(status),
        ReceiveOutcome::Confirmed(answer) | ReceiveOutcome::Nothing(answer) => answer,
    };
    peer.send(&answer).await;
    incoming
}

/// Accepts a node's first connection, up to its first status.
async fn first(fake: &mut FakeAggregator) -> (Peer, Receiver) {
    let mut peer = fake.peer().await;
    let hello = peer.greeting().await;
    assert_eq!((hello.seq, &hello.run), (0, &this_one()));
    let (mut receiver, answer) = Receiver::new(&hello);
    peer.send(&answer).await;
    let incoming = take(&mut peer, &mut receiver).await;
    assert!(matches!(incoming, FromAgent::Snapshot { seq: 1, .. }), "{incoming:?}");
    (peer, receiver)
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_followed_by_deltas_until_shutdown() {
    let (mut fake, mut outbox, uplink) = reporting("one");
    let (mut peer, mut receiver) = first(&mut fake).await;
    assert_eq!(known(&receiver), "one");
    put(&mut outbox, "two");
    let incoming = take(&mut peer, &mut receiver).await;
    assert!(matches!(incoming, FromAgent::Delta { seq: 2, .. }), "{incoming:?}");
    assert_eq!(known(&receiver), "two");

    drop(outbox);
    assert!(peer.sees_the_end().await);
    drop(peer);
    uplink.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn i8_heartbeats_continue_without_scans() {
    let (mut fake, outbox, _uplink) = reporting("one");
    let (mut peer, mut receiver) = first(&mut fake).await;
    let start = Instant::now();
    for beats in 1..=20 {
        let incoming = take(&mut peer, &mut receiver).await;
        assert!(matches!(incoming, FromAgent::Heartbeat { seq: 1, .. }), "{incoming:?}");
        let (least, most) = (HEARTBEAT * 9 * beats / 10, HEARTBEAT * 11 * beats / 10);
        let passed = start.elapsed();
        assert!((least..=most + HEARTBEAT / 100).contains(&passed), "{beats}: {passed:?}");
    }
    drop(outbox);
}

#[tokio::test(start_paused = true)]
async fn known_state_is_not_resent_after_reconnect() {
    let (mut fake, mut outbox, _uplink) = reporting("one");
    let (peer, mut receiver) = first(&mut fake).await;
    drop(peer);
    let mut peer = fake.peer().await;
    let Greeting::Welcome(answer) = receiver.handle_hello(&peer.greeting().await, true) else {
        panic!("the same agent is rejected");
    };
    assert_eq!(answer, AggregatorMessage::Ack { seq: 1 });
    // Something changes while the answer is on its way.
    put(&mut outbox, "two");
    peer.send(&answer).await;
    let incoming = take(&mut peer, &mut receiver).await;
    assert!(matches!(incoming, FromAgent::Delta { seq: 2, .. }), "{incoming:?}");
    assert_eq!(known(&receiver), "two");
}

#[tokio::test(start_paused = true)]
async fn silent_aggregator_is_disconnected_after_three_heartbeats() {
    let (mut fake, _outbox, _uplink) = reporting("one");
    // Silent from the beginning, and silent after a good start.
    let mut silent = fake.peer().await;
    silent.greeting().await;
    let start = Instant::now();
    let mut peer = fake.peer().await;
    let waited = start.elapsed();
    assert!((HEARTBEAT * 3..HEARTBEAT * 5).contains(&waited), "{waited:?}");

    let hello = peer.greeting().await;
    let (mut receiver, answer) = Receiver::new(&hello);
    peer.send(&answer).await;
    take(&mut peer, &mut receiver).await;
    let mut beats = 0;
    let start = Instant::now();
    while !peer.sees_the_end_or_a_heartbeat().await {
        beats += 1;
    }
    assert_eq!(beats, 3);
    fake.peer().await;
    let waited = start.elapsed();
    assert!((HEARTBEAT * 3..HEARTBEAT * 5).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honored_with_jitter() {
    let (mut fake, _outbox, _uplink) = reporting("one");
    let mut waits = Vec::new();
    let mut peer = fake.peer().await;
    for _ in 0..8 {
        peer.greeting().await;
        let start = Instant::now();
        peer.send(&AggregatorMessage::HoldOff {
            retry_after: Duration::from_secs(100),
            reason: "too many at once".to_owned(),
        })
        .await;
        peer = fake.peer().await;
        waits.push(start.elapsed().as_millis());
    }
    assert!(waits.iter().all(|wait| (100_000..151_000).contains(wait)), "{waits:?}");
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 4, "agents reconnect at the same time: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_status_is_retried_with_backoff() {
    let (mut fake, _outbox, _uplink) = reporting("one");
    let start = Instant::now();
    for _ in 0..12 {
        let mut peer = fake.peer().await;
        let hello = peer.greeting().await;
        peer.send(&Receiver::new(&hello).1).await;
        let incoming = peer.receive().await;
        assert!(matches!(incoming, FromAgent::Snapshot { .. }), "{incoming:?}");
        peer.refuses(tonic::Status::invalid_argument("device/7 is no address")).await;
    }
    // Eleven waits of at least a tenth of 1, 2, 4, 8, 16, 30, 30 … s, and at most the whole.
    let passed = start.elapsed();
    let bounds = Duration::from_secs(21)..Duration::from_secs(212);
    assert!(bounds.contains(&passed), "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_agent_reconnects_with_backoff() {
    for code in
        [tonic::Code::Unauthenticated, tonic::Code::PermissionDenied, tonic::Code::Unavailable]
    {
        let (mut fake, service) = FakeAggregator::new();
        let service = service.closed(tonic::Status::new(code, "no"));
        let (mut outbox, uplink) =
            Uplink::new(MemoryConnector(service), identity(), this_one(), HEARTBEAT);
        put(&mut outbox, "one");
        let uplink = tokio::spawn(uplink.run());
        let start = Instant::now();
        let mut times = 0;
        while start.elapsed() < Duration::from_hours(1) {
            fake.peer().await;
            times += 1;
        }
        // Waits are 16.5 s on average and 3 s at least, after the first few.
        assert!((100..=500).contains(&times), "{code:?}: {times}");
        drop(outbox);
        uplink.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_immediate_while_connecting() {
    let (mut fake, outbox, uplink) = reporting("one");
    let mut peer = fake.peer().await;
    peer.greeting().await;
    peer.send(&AggregatorMessage::HoldOff {
        retry_after: Duration::from_mins(5),
        reason: "later".to_owned(),
    })
    .await;
    assert!(peer.sees_the_end().await);
    let start = Instant::now();
    drop(outbox);
    uplink.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn reason_is_logged_once_until_a_success() {
    let mut log = ConnectionLog { aggregator: "a".to_owned(), logged: BTreeSet::new() };
    let is_logged: Vec<bool> =
        ["broken", "refused", "broken", "refused"].map(|reason| log.is_new(reason)).to_vec();
    assert_eq!(is_logged, [true, true, false, false]);
    log.connected();
    assert!(log.is_new("broken"));
    for number in 0..1000 {
        assert!(log.is_new(&number.to_string()));
        assert!(log.logged.len() <= MAX_LOGGED_REASONS);
    }
}
