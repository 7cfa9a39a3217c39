//! Ingest without sockets: decoding of messages, the store, and encoding of acknowledgements, on one thread.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_store::clock::Moment;
use octavo_store::peer::Peer;
use octavo_store::stats::Stats;
use octavo_store::store::{HelloOutcome, ReportPermit, Store, StoreLimits};
use octavo_stream::messages::{encode_from_agent, encode_to_agent, parse_from_agent};
use octavo_stream::proto::v1;
use octavo_stream::protocol::{AggregatorMessage, FromAgent, Identity, Parts, Run, Sender};
use prost::Message;

use crate::simulated_agents::name;

const ROUNDS: usize = 1000;

/// Returns the deltas per CPU second. Each of `count` agents reports `parts`, and then the variants in turn.
pub(crate) fn deltas_per_cpu_second(count: usize, parts: &Parts, variants: &[(u32, Parts)]) -> f64 {
    let limits = StoreLimits {
        stale_after: Duration::from_mins(1),
        forget_after: Duration::from_mins(1),
        max_nodes: count,
        history_bytes: 0,
    };
    let (mut store, _readers) = Store::new(limits, Stats::default());
    let (messages, first) = messages(parts, variants);
    let peer = Arc::new(Peer::new(([127, 0, 0, 1], 1).into()));
    let permits: Vec<ReportPermit> =
        (0..count).map(|number| connect(&mut store, number, &peer, &first)).collect();
    let (start, cpu) = (Instant::now(), thread_cpu());
    for message in &messages {
        for permit in &permits {
            let now = Moment::after_start(start.elapsed());
            let answer = handle(&mut store, permit, message, now);
            assert!(matches!(answer, AggregatorMessage::Ack { .. }));
            std::hint::black_box(encode_to_agent(&answer).encode_to_vec());
        }
    }
    (ROUNDS * count) as f64 / thread_cpu().saturating_sub(cpu).as_secs_f64()
}

/// Returns the deltas of one agent, and its snapshot. Those of other agents are the same.
fn messages(parts: &Parts, variants: &[(u32, Parts)]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut sender = sender(0);
    let encode = |message: &FromAgent| encode_from_agent(message).encode_to_vec();
    let _not_connected = sender.set_status(parts.clone());
    let _hello = sender.connected();
    let resync = AggregatorMessage::Resync { reason: "unknown".into() };
    let first = encode(&sender.handle_message(&resync).unwrap());
    assert_eq!(sender.handle_message(&AggregatorMessage::Ack { seq: 1 }), None);
    let deltas = (0..ROUNDS).map(|round| {
        let (_, status) = &variants[round % variants.len()];
        let delta = sender.set_status(status.clone()).unwrap();
        let FromAgent::Delta { seq, .. } = &delta else { unreachable!("not a delta: {delta:?}") };
        assert_eq!(sender.handle_message(&AggregatorMessage::Ack { seq: *seq }), None);
        encode(&delta)
    });
    (deltas.collect(), first)
}

fn connect(store: &mut Store, number: usize, peer: &Arc<Peer>, first: &[u8]) -> ReportPermit {
    let FromAgent::Hello(hello) = sender(number).connected() else { unreachable!("not a hello") };
    let outcome = store.accept_hello(&hello, peer, Moment::default()).unwrap();
    let HelloOutcome::Accepted(permit, _) = outcome else { unreachable!("refused") };
    handle(store, &permit, first, Moment::default());
    permit
}

fn handle(
    store: &mut Store,
    permit: &ReportPermit,
    message: &[u8],
    now: Moment,
) -> AggregatorMessage {
    let message = parse_from_agent(v1::FromAgent::decode(message).unwrap()).unwrap();
    store.handle_message(permit, message, now).unwrap().unwrap()
}

fn sender(number: usize) -> Sender {
    let identity =
        Identity { node: name(number).parse().unwrap(), agent_version: "0.0.0".to_owned() };
    Sender::new(
        identity,
        Run { epoch: 1, boot_id: "3f0a7c0e-0000-4000-8000-000000000000".to_owned() },
    )
}

fn thread_cpu() -> Duration {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(schedstat.split_whitespace().next().unwrap().parse().unwrap())
}
