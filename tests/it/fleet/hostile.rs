//! Newer, invalid and hostile peers: the shipped aggregator reports what is wrong, and other clients are unaffected.

use octavo_node::label_set::LabelSet;
use octavo_stream::messages::encode_from_agent;
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::proto::v1::to_agent::Message as Answer;
use octavo_stream::proto::v1::watch_event::Event;
use octavo_stream::protocol::{Content, FromAgent, Parts};
use octavo_stream::status;
use prost::Message;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::{MIXED, SINGLE, agreed};
use crate::agent_stream::{AgentStream, acknowledged, delta, hello, parts};
use crate::aggregator::{big_parts, post};
use crate::fleet_api::{Api, TIME_LIMIT};
use crate::machine::Machine;
use crate::process::{Aggregator, resident};
use crate::time_limits::within;

async fn connect(aggregator: &Aggregator) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", aggregator.grpc)).unwrap();
    endpoint.connect().await.unwrap()
}

async fn client(aggregator: &Aggregator) -> FleetClient<Channel> {
    FleetClient::new(connect(aggregator).await)
}

/// Messages of a newer agent: each has an unknown field.
#[derive(Clone, PartialEq, Message)]
struct NewerFromAgent {
    #[prost(message, optional, tag = "1")]
    hello: Option<v1::Hello>,
    #[prost(message, optional, tag = "2")]
    snapshot: Option<NewerSnapshot>,
    #[prost(uint64, tag = "1000")]
    sent_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct NewerSnapshot {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(message, repeated, tag = "2")]
    parts: Vec<NewerPart>,
    #[prost(string, tag = "1000")]
    remark: String,
}

#[derive(Clone, PartialEq, Message)]
struct NewerPart {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "2")]
    content: Vec<u8>,
    #[prost(double, tag = "1000")]
    weight: f64,
}

impl From<&Parts> for NewerFromAgent {
    fn from(parts: &Parts) -> Self {
        let parts = parts.iter().map(|(key, content)| NewerPart {
            key: key.to_string(),
            content: content.bytes().to_vec(),
            weight: 0.5,
        });
        let snapshot = NewerSnapshot { seq: 1, parts: parts.collect(), remark: "later".to_owned() };
        Self { hello: None, snapshot: Some(snapshot), sent_ms: 1 }
    }
}

/// The status with one part added or replaced.
fn with(parts: &Parts, key: &str, content: Vec<u8>) -> Parts {
    let known = parts.iter();
    let known = known.map(|(key, content)| (key.clone(), content.clone()));
    known.chain([(key.parse().unwrap(), Content::new(content))]).collect()
}

/// A real status of a machine in which the first device has an unknown condition.
async fn of_an_unknown_condition() -> (Parts, Parts) {
    let inventory = Machine::new(SINGLE).observe().await;
    let parts = status::encode(&inventory, &LabelSet::default(), None);
    let (key, content) = parts.iter().find(|(key, _)| key.as_str().starts_with("device/")).unwrap();
    let mut device = v1::Device::decode(content.bytes()).unwrap();
    device.condition.as_mut().unwrap().state = 77;
    let strange = with(&parts, key.as_str(), device.encode_to_vec());
    (parts, strange)
}

#[tokio::test]
async fn i12_message_from_newer_agent_is_read_and_forwarded_completely() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let (known, strange) = of_an_unknown_condition().await;
    let mut node = known.get("node").unwrap().bytes().to_vec();
    // Field 1000, a number.
    node.extend([0xc0, 0x3e, 0x01]);
    let newer = with(&with(&known, "node", node), "power/rails", vec![0xff; 9]);
    let greeting = NewerFromAgent {
        hello: Some(v1::Hello {
            node: "newer".to_owned(),
            epoch: 1,
            agent_version: "9.0.0".to_owned(),
            ..v1::Hello::default()
        }),
        snapshot: None,
        sent_ms: 1,
    };
    let mut grpc = Grpc::new(connect(&aggregator).await);
    grpc.ready().await.unwrap();
    let reported = tokio_stream::iter([greeting, NewerFromAgent::from(&newer)]);
    let codec = ProstCodec::<NewerFromAgent, v1::ToAgent>::default();
    let path = PathAndQuery::from_static("/octavo.v1.Fleet/Report");
    let request = tonic::Request::new(reported);
    let answers = grpc.streaming(request, path, codec).await.unwrap();
    let mut answers = answers.into_inner();
    let mut next = async || {
        let answer = within("an answer", answers.message()).await;
        answer.unwrap().unwrap().message.unwrap()
    };
    assert!(matches!(next().await, Answer::Resync(_)));
    assert_eq!(next().await, acknowledged(1));

    let nodes = vec!["newer".to_owned()];
    let watch = client(&aggregator)
        .await
        .watch(v1::WatchRequest { nodes, ..v1::WatchRequest::default() })
        .await;
    let first = watch.unwrap().into_inner().message().await.unwrap().unwrap();
    let Some(Event::Node(node_event)) = first.event else {
        panic!("{first:?} is not a node");
    };
    let node_event: Parts = node_event
        .parts
        .iter()
        .map(|part| (part.key.parse().unwrap(), Content::new(&*part.content)))
        .collect();
    assert_eq!(node_event, newer);
    let shown = api.node("newer", |node| node["agentVersion"] == "9.0.0").await;
    assert_eq!(shown["devices"]["free"], 1, "{shown}");

    // An unknown enum value could mean anything, so the status is rejected and the last one stays.
    let mut line =
        AgentStream::with_first_status(&mut client(&aggregator).await, "strange", known.clone())
            .await;
    let status = line.send(&delta(2, &known, &strange)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for place in ["device/0000:", "condition.state", "77"] {
        assert!(status.message().contains(place), "{status:?}");
    }
    let shown = api.node("strange", |node| node["connected"] == false).await;
    assert_eq!(shown["inventory"]["devices"][0]["condition"], json!({"state": "working"}));
}

#[tokio::test]
async fn later_of_two_agents_with_one_node_name_wins_and_the_other_reports_why() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let (first, second) = (Machine::new(SINGLE), Machine::new(MIXED));
    let mut earlier = first.report(&aggregator, "claimed", &[]);
    agreed(&api, "claimed", &first).await;
    let _later = second.report(&aggregator, "claimed", &[]);
    let reported = earlier.expect_log("cannot report to the aggregator");
    assert!(
        reported.contains(
            "the aggregator requested a delay: superseded: another connection reports this node"
        ),
        "{reported}"
    );
    agreed(&api, "claimed", &second).await;
    let mut claim =
        AgentStream::open(&mut client(&aggregator).await, hello("claimed", 1)).await.unwrap();
    let answer = claim.receive().await.unwrap().unwrap();
    assert!(matches!(answer, Answer::HoldOff(_)), "{answer:?}");
    agreed(&api, "claimed", &second).await;
}

/// State that a hostile client must not change.
async fn lasting(api: &Api) -> Vec<Value> {
    let mut nodes = api.nodes().await;
    nodes.retain(|node| node["name"] != "hostile");
    for node in &mut nodes {
        let fields = node.as_object_mut().unwrap();
        fields.retain(|field, _| field != "lastConfirmed" && field != "ageSeconds");
    }
    nodes
}

const ODD_NAMES: [&str; 8] = ["", ".", "../up", "Upper", "new\nline", "-a", "n\u{f6}de", "a b"];

const KINDS: usize = 10;

/// One attempt of this kind.
async fn attempt(kind: usize, number: usize, on: &Aggregator, strange: &Parts) {
    let refused = async |first| {
        let refusal = AgentStream::open(&mut client(on).await, first).await.err();
        refusal.unwrap().code()
    };
    match kind {
        // Ten bytes announced and two sent; a field without its end; four gigabytes announced.
        0 => assert_eq!(post(on.grpc, &[0, 0, 0, 0, 10, 1, 2]).await.0, "3"),
        1 => assert_eq!(post(on.grpc, &[0, 0, 0, 0, 3, 0x0a, 0xff, 0xff]).await.0, "3"),
        2 => assert_eq!(post(on.grpc, &[0, 0xff, 0xff, 0xff, 0xff]).await.0, "8"),
        3 => {
            let seq = 1;
            let parts = big_parts(1, 300 * 1024);
            let first = encode_from_agent(&FromAgent::Snapshot { seq, parts });
            assert_eq!(refused(first).await, Code::ResourceExhausted);
        }
        4 => {
            let first = hello(ODD_NAMES[number % ODD_NAMES.len()], 1);
            assert_eq!(refused(first).await, Code::InvalidArgument);
        }
        5 => {
            let mut client = client(on).await;
            let mut line = AgentStream::open(&mut client, hello("hostile", 1)).await.unwrap();
            let _welcome = line.receive().await.unwrap().unwrap();
            let snapshot = FromAgent::Snapshot { seq: 1, parts: parts(1) };
            // The second is a replay, and so is the first after an earlier attempt.
            assert_eq!(line.send(&snapshot).await.unwrap(), acknowledged(1));
            assert_eq!(line.send(&snapshot).await.unwrap(), acknowledged(1));
            let refusal = line.send(&delta(2, &parts(1), strange)).await.unwrap_err();
            assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
        }
        6 => {
            // A node that sends only its name.
            let mut client = client(on).await;
            let ghost = hello(&format!("ghost-{number}"), 1);
            let mut line = AgentStream::open(&mut client, ghost).await.unwrap();
            assert!(matches!(line.receive().await, Ok(Some(Answer::Resync(_)))));
        }
        7 | 8 => {
            let to = if kind == 7 { on.grpc } else { on.http };
            let mut socket = TcpStream::connect(to).await.unwrap();
            let noise: Vec<u8> =
                (0..2000).map(|at| u8::try_from((at * number) % 251).unwrap()).collect();
            // The server may close the connection before all is written or read.
            let _closed = socket.write_all(&noise).await;
            let _closed = socket.shutdown().await;
            let _closed = timeout(TIME_LIMIT, socket.read_to_end(&mut Vec::new())).await.unwrap();
        }
        _ => {
            let mut socket = TcpStream::connect(on.http).await.unwrap();
            let request = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
            // The response is never read.
            let _closed = socket.write_all(request).await;
        }
    }
}

#[tokio::test]
async fn i10_two_thousand_hostile_peers_change_nothing_and_leak_nothing() {
    const TIMES: usize = 200;
    // Several times the slack of an allocator, and less than a leak of 4 KiB per peer.
    const GROWTH_KIB: u64 = 7 * 1024;
    // The clients of this test send no heartbeats, however long it takes.
    let aggregator = Aggregator::start(&["--plaintext", "--stale-after=1h"]);
    let api = Api::at(aggregator.http);
    let machine = Machine::new(SINGLE);
    let _agent = machine.report(&aggregator, "real", &[]);
    agreed(&api, "real", &machine).await;
    let mut other =
        AgentStream::with_first_status(&mut client(&aggregator).await, "other", parts(1)).await;
    api.list(|nodes| nodes.len() == 2).await;
    let (_, strange) = of_an_unknown_condition().await;
    for kind in 0..KINDS {
        attempt(kind, 1, &aggregator, &strange).await;
    }
    let (before, nodes) = (resident(aggregator.id()), lasting(&api).await);
    for kind in 0..KINDS {
        for number in 0..TIMES {
            attempt(kind, number, &aggregator, &strange).await;
        }
        assert_eq!(api.get("/healthz").await.status, 200);
        assert_eq!(lasting(&api).await, nodes, "after kind {kind}");
    }
    let grown = resident(aggregator.id()).saturating_sub(before);
    assert!(grown < GROWTH_KIB, "{grown} KiB more than before");
    // Other agents are still received.
    let change = delta(2, &parts(1), &parts(2));
    assert_eq!(other.send(&change).await.unwrap(), acknowledged(2));
    agreed(&api, "real", &machine).await;
}
