//! Messages of the status stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use octavo_model::digest::Digest;
use octavo_node::label_set::LabelSet;
use octavo_store::clock::Moment;
use octavo_store::fleet::{Fleet, Node};
use octavo_store::peer::Peer;
use octavo_store::stats::Stats;
use octavo_store::store::{HelloOutcome, ReportPermit, Store, StoreLimits};
use octavo_stream::messages::{
    MAX_PARTS, WatchedEvent, encode_from_agent, encode_to_agent, parse_from_agent, parse_to_agent,
    parse_watch_event, part,
};
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::watch_event::Event;
use octavo_stream::protocol::{AggregatorMessage, FromAgent, Hello, Identity, Parts, Run};
use octavo_stream::status;
use prost::Message;
use tokio::sync::watch;

use crate::fuzz::fuzzer::{Outcome, Target};
use crate::fuzz::mutation::{Syntax, fields, sequence};
use crate::fuzz::seeds::{files, machines};

/// Messages of the aggregator to an agent.
pub(super) fn aggregator_messages() -> Target {
    let seeds = [
        AggregatorMessage::Ack { seq: 7 },
        AggregatorMessage::Resync { reason: "a change is missing".into() },
        AggregatorMessage::HoldOff {
            retry_after: Duration::from_secs(30),
            reason: "another agent reports this node".to_owned(),
        },
    ];
    let seeds = seeds.map(|message| encode_to_agent(&message).encode_to_vec());
    Target::new(Syntax::Protobuf, seeds, |input| {
        let Ok(message) = v1::ToAgent::decode(input) else {
            return Outcome::Rejected("no message".to_owned());
        };
        let parsed = parse_to_agent(message);
        if let Ok(message) = &parsed {
            assert_eq!(parse_to_agent(encode_to_agent(message)).as_ref(), Ok(message));
        }
        Outcome::from_result(&parsed)
    })
}

/// Events of a watch stream, as an aggregator receives them from another one.
pub(super) fn watch_events() -> Target {
    let event = |event| v1::WatchEvent { event: Some(event) }.encode_to_vec();
    let nodes = machines().into_iter().map(|inventory| {
        let parts = status::encode(&inventory, &LabelSet::default(), None);
        event(Event::Node(v1::NodeStatus {
            name: "node".to_owned(),
            boot_id: "boot".to_owned(),
            agent_version: "0.1.0".to_owned(),
            connected: true,
            stale: false,
            confirmed_ms: 1,
            parts: parts.iter().map(part).collect(),
        }))
    });
    let others = [Event::Removed("node".to_owned()), Event::Synced(v1::Synced { revision: 7 })];
    let seeds: Vec<Vec<u8>> = nodes.chain(others.map(event)).collect();
    Target::new(Syntax::Protobuf, seeds, |input| {
        let Ok(event) = v1::WatchEvent::decode(input) else {
            return Outcome::Rejected("no event".to_owned());
        };
        let parsed = parse_watch_event(event);
        if let Ok(WatchedEvent::Node(node)) = &parsed {
            let parts: Parts =
                node.parts.iter().map(|(key, content)| (key.clone(), content.clone())).collect();
            assert_eq!(parts.hash(), node.parts.hash());
            assert!(node.parts.len() <= MAX_PARTS);
        }
        Outcome::from_result(&parsed)
    })
}

/// A sequence of messages of an agent, in the store. The state after changes is that of a complete status, and can be encoded and
/// decoded.
pub(super) fn status() -> Target {
    let recorded = String::from_utf8(files(&["tests/fixtures/stream"]).concat()).unwrap();
    let recorded = recorded.lines().filter(|line| !line.starts_with('#')).map(unhex);
    let mut seeds = vec![sequence(recorded)];
    for inventory in machines() {
        let parts = status::encode(&inventory, &LabelSet::default(), None);
        seeds.push(sequence(
            snapshot(&parts).map(|message| encode_from_agent(&message).encode_to_vec()),
        ));
    }
    Target::new(Syntax::Protobuf, seeds, |input| {
        let messages =
            fields(input).into_iter().map(|field| v1::FromAgent::decode(&input[field.value]));
        let mut stream = Stream::new();
        let mut outcome = Outcome::Rejected("no messages".to_owned());
        for message in messages {
            let Ok(message) = message else {
                return Outcome::Rejected("no message".to_owned());
            };
            outcome = match parse_from_agent(message) {
                Ok(message) => stream.send(message),
                Err(error) => Outcome::Rejected(octavo_toolkit::error::chain(&error)),
            };
        }
        stream.node().map_or(outcome, |node| {
            check_node(&node);
            Outcome::Accepted
        })
    })
}

fn unhex(line: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    line.as_bytes().chunks(2).map(digits).collect()
}

fn hello() -> Hello {
    Hello {
        identity: Identity { node: "node".parse().unwrap(), agent_version: "0.1.0".to_owned() },
        run: Run { epoch: 1, boot_id: "boot".to_owned() },
        seq: 0,
        hash: Digest::default(),
    }
}

/// The messages of an agent that reports these parts.
fn snapshot(parts: &Parts) -> [FromAgent; 2] {
    [FromAgent::Hello(hello()), FromAgent::Snapshot { seq: 1, parts: parts.clone() }]
}

/// A store and the stream of one agent.
struct Stream {
    store: Store,
    fleet: watch::Receiver<Fleet>,
    peer: Arc<Peer>,
    permit: Option<ReportPermit>,
    seq: u64,
}

const NOW: u64 = 1000;

impl Stream {
    fn new() -> Self {
        let limits = StoreLimits {
            stale_after: Duration::from_secs(10),
            forget_after: Duration::from_secs(100),
            max_nodes: 4,
            history_bytes: 1 << 16,
        };
        let (store, fleet) = Store::new(limits, Stats::default());
        let peer = Arc::new(Peer::new(SocketAddr::from(([127, 0, 0, 1], 1))));
        Self { store, fleet, peer, permit: None, seq: 0 }
    }

    /// Sends a message after a check that it can be encoded. Sequence numbers and hashes are corrected, so that changes of changed
    /// messages are accepted.
    fn send(&mut self, message: FromAgent) -> Outcome {
        let encoded = encode_from_agent(&message);
        assert_eq!(encoded.encoded_len(), encoded.encode_to_vec().len());
        assert_eq!(parse_from_agent(encoded).as_ref(), Ok(&message));
        let now = Moment::from_millis(NOW);
        let next = self.seq.saturating_add(1);
        let message = match message {
            FromAgent::Hello(hello) if self.permit.is_none() => {
                let accepted = self.store.accept_hello(&hello, &self.peer, now);
                if let Ok(HelloOutcome::Accepted(permit, _)) = accepted {
                    self.permit = Some(permit);
                }
                return Outcome::Accepted;
            }
            FromAgent::Snapshot { parts, .. } => FromAgent::Snapshot { seq: next, parts },
            FromAgent::Delta { change, hash, .. } => {
                let hash = self.node().map_or(hash, |node| node.parts.apply(&change).hash());
                FromAgent::Delta { seq: next, change, hash }
            }
            other @ (FromAgent::Hello(_) | FromAgent::Heartbeat { .. }) => other,
        };
        let Some(permit) = &self.permit else {
            return Outcome::Rejected("no hello".to_owned());
        };
        match self.store.handle_message(permit, message, now) {
            Ok(Some(AggregatorMessage::Ack { seq })) => {
                self.seq = seq;
                Outcome::Accepted
            }
            Ok(answer) => Outcome::Rejected(format!("{answer:?}")),
            Err(error) => Outcome::Rejected(octavo_toolkit::error::chain(&error)),
        }
    }

    fn node(&mut self) -> Option<Arc<Node>> {
        self.store.publish(Moment::from_millis(NOW));
        self.fleet.borrow().nodes.iter().next().cloned()
    }
}

fn check_node(node: &Node) {
    assert!(node.parts.len() <= 2 * MAX_PARTS, "{} parts", node.parts.len());
    let mut complete = Stream::new();
    for message in snapshot(&node.parts) {
        complete.send(message);
    }
    let other = complete.node().unwrap();
    assert_eq!(node.labels, other.labels);
    assert_eq!(node.devices, other.devices);
    assert_eq!(node.summary, other.summary);
    assert_eq!(node.usage, other.usage);
    assert_eq!(node.samples, other.samples);
    let now = Moment::from_millis(NOW);
    let _ = (node.state(now), node.problems(now), node.counts(now), node.short_reason(now));
    let status = node.status().unwrap();
    let mut parts: Vec<_> =
        status::encode(&status.inventory, &status.labels, status.layout.as_ref())
            .iter()
            .map(|(key, content)| (key.clone(), content.clone()))
            .collect();
    parts.extend(status.sharing.as_ref().map(status::encode_sharing));
    parts.extend(status.usage.as_ref().map(status::encode_usage));
    let again = status::decode(&parts.into_iter().collect());
    assert_eq!(again.unwrap(), status);
    let past = node.past_usage();
    let (_, content) = status::encode_past_usage(&past);
    assert_eq!(status::decode_past_usage(&content).unwrap(), past);
}

/// A fleet with one node of each recorded machine. Its store has ended.
pub(super) fn fleet() -> watch::Receiver<Fleet> {
    let mut stream = Stream::new();
    let now = Moment::from_millis(NOW);
    for (number, inventory) in machines().iter().enumerate() {
        let parts = status::encode(inventory, &LabelSet::default(), None);
        let mut hello = hello();
        hello.identity.node = format!("node-{number}").parse().unwrap();
        let Ok(HelloOutcome::Accepted(permit, _)) =
            stream.store.accept_hello(&hello, &stream.peer, now)
        else {
            break;
        };
        let [_, message] = snapshot(&parts);
        stream.store.handle_message(&permit, message, now).unwrap();
    }
    stream.store.publish(now);
    stream.fleet
}
