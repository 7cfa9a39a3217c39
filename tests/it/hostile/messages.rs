//! Agents whose messages are too large, invalid, repeated or untrue.

use std::sync::LazyLock;

use octavo_stream::messages::{MAX_PARTS, encode_from_agent};
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::proto::v1::to_agent::Message as Answer;
use octavo_stream::protocol::{Content, FromAgent, Parts};
use prost::Message;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{Site, Target};
use crate::agent_stream::{AgentStream, acknowledged, delta, hello, parts};
use crate::aggregator::{big_parts, post};

/// A message of groups within groups, each in an unknown field.
static NESTED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    const DEPTH: u32 = 100_000;
    let mut message = vec![0];
    message.extend(DEPTH.to_be_bytes());
    // Field 15, the start of a group.
    message.extend(vec![0x7b; usize::try_from(DEPTH).unwrap()]);
    message
});

async fn client(Target { grpc, .. }: Target) -> FleetClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{grpc}")).unwrap();
    FleetClient::new(endpoint.connect().await.unwrap())
}

/// A status with another part.
fn with(parts: &Parts, key: &str, content: Vec<u8>) -> Parts {
    let known = parts.iter().map(|(key, content)| (key.clone(), content.clone()));
    known.chain([(key.parse().unwrap(), Content::new(content))]).collect()
}

/// The status of a node with as many labels as possible.
pub(super) fn with_labels(node: usize) -> Parts {
    with(&parts(1), "labels", labels(node, 2400))
}

/// A new agent reports this status. Returns the refusal.
pub(super) async fn report_status(
    target: Target,
    node: &str,
    status: &Parts,
) -> Result<Answer, Status> {
    let mut client = client(target).await;
    let mut line = AgentStream::open(&mut client, hello(node, 1)).await?;
    line.receive().await?;
    let (seq, parts) = (1, status.clone());
    line.send(&FromAgent::Snapshot { seq, parts }).await
}

#[tokio::test]
async fn i10_giant_and_nested_messages() {
    let mut site = Site::start(&[]).await;
    let counted = [
        "refusals_total{reason=\"unreadable\"}",
        "refusals_total{reason=\"bad_message\"}",
        "refusals_total{reason=\"bad_status\"}",
        "refusals_total{reason=\"too_big\"}",
    ];
    site.withstand("Giant and nested messages", &counted, async |target| {
        assert_eq!(post(target.grpc, &NESTED).await.0, "3");
        assert_eq!(post(target.grpc, &[0, 0xff, 0xff, 0xff, 0xff]).await.0, "8");
        let refusal = report_status(target, "giant", &big_parts(1, 300 * 1024)).await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
        let mut many = parts(1);
        for number in 0..=MAX_PARTS {
            many = with(&many, &format!("x/{number}"), Vec::new());
        }
        let refusal = report_status(target, "giant", &many).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
        let nested = with(&parts(1), "device/0000:07:00.0", NESTED[5..].to_vec());
        let refusal = report_status(target, "giant", &nested).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
        // A status that grows change by change.
        let mut client = client(target).await;
        let first = big_parts(1, 200 * 1024);
        let mut line = AgentStream::with_first_status(&mut client, "grows", first.clone()).await;
        let more = with(&first, "y/later", vec![0; 60 * 1024]);
        let refusal = line.send(&delta(2, &first, &more)).await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
    })
    .await;
    site.finish().await;
}

/// The part `labels` with this many labels.
fn labels(node: usize, count: usize) -> Vec<u8> {
    let labels = (0..count).map(|number| (format!("octavo.dev/{node}-{number}"), "v".repeat(63)));
    v1::Labels { labels: labels.collect() }.encode_to_vec()
}

#[tokio::test]
async fn i10_label_bombs() {
    const NODES: usize = 20;
    let mut site = Site::start(&[]).await;
    let counted =
        ["refusals_total{reason=\"unreadable\"}", "refusals_total{reason=\"bad_status\"}"];
    site.withstand("Label bombs", &counted, async |target| {
        // As many different labels as a status can have, on several nodes.
        let mut nodes = JoinSet::new();
        for node in 0..NODES {
            let status = with_labels(node);
            nodes.spawn(
                async move { report_status(target, &format!("bomb-{node}"), &status).await },
            );
        }
        while let Some(answer) = nodes.join_next().await {
            // A node of the round before is known already.
            let answer = answer.unwrap();
            assert!(answer.is_ok(), "{answer:?}");
        }
        let status = with(&parts(1), "labels", labels(0, 10_000));
        let refusal = report_status(target, "bomb", &status).await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
        let wrong = [("octavo.dev/x".to_owned(), "v".repeat(100_000))];
        let wrong = v1::Labels { labels: wrong.into() }.encode_to_vec();
        let status = with(&parts(1), "labels", wrong);
        let refusal = report_status(target, "bomb", &status).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
    })
    .await;
    site.finish().await;
}

#[tokio::test]
async fn i10_replayed_sequence_numbers() {
    let mut site = Site::start(&[]).await;
    let counted = ["refusals_total{reason=\"replayed\"}", "resyncs_total{reason=\"delta\"}"];
    site.withstand("Replayed sequence numbers", &counted, async |target| {
        let mut client = client(target).await;
        let mut line = AgentStream::open(&mut client, hello("replays", 1)).await.unwrap();
        let _welcome = line.receive().await.unwrap();
        let whole = |seq, number| FromAgent::Snapshot { seq, parts: parts(number) };
        let first = line.send(&whole(1, 1)).await.unwrap();
        let Answer::Ack(v1::Ack { seq }) = first else { panic!("{first:?}") };
        for number in 0..100 {
            assert_eq!(line.send(&whole(1, number)).await.unwrap(), acknowledged(seq));
            let old = delta(seq, &parts(1), &parts(number));
            assert_eq!(line.send(&old).await.unwrap(), acknowledged(seq));
        }
        // Far ahead, and then back.
        let ahead = line.send(&delta(u64::MAX, &parts(1), &parts(2))).await.unwrap();
        assert!(matches!(ahead, Answer::Resync(_)), "{ahead:?}");
        assert_eq!(line.send(&whole(seq, 1)).await.unwrap(), acknowledged(seq));
    })
    .await;
    site.finish().await;
}

/// Claims a node with this start time, and reports as it until another agent takes over. Ignores refusals.
async fn claim(target: Target, epoch: u64) {
    let mut client = client(target).await;
    let Ok(mut line) = AgentStream::open(&mut client, hello("claimed", epoch)).await else {
        return;
    };
    let whole = encode_from_agent(&FromAgent::Snapshot { seq: 1, parts: parts(epoch) });
    while let Ok(Some(Answer::Resync(_) | Answer::Ack(_))) = line.receive().await {
        if line.to.send(whole.clone()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn i10_peers_that_claim_the_same_node() {
    let mut site = Site::start(&[]).await;
    let counted = ["refusals_total{reason=\"claimed\"}", "refusals_total{reason=\"superseded\"}"];
    site.withstand("Identity theft", &counted, async |target| {
        let mut peers = JoinSet::new();
        // Each later one takes the node from the one before, and the last ones are too early.
        for epoch in (1..=8).chain(1..=8) {
            peers.spawn(claim(target, epoch));
            tokio::task::yield_now().await;
        }
        while peers.len() > 1 {
            peers.join_next().await;
        }
    })
    .await;
    site.finish().await;
}

#[tokio::test]
async fn i10_start_time_in_the_future() {
    let mut site = Site::start(&["--stale-after=3s"]).await;
    let target = site.target();
    let counted = ["refusals_total{reason=\"claimed\"}", "refusals_total{reason=\"superseded\"}"];
    site.withstand("Start time in the future", &counted, async |target| {
        let mut owner = client(target).await;
        let Ok(mut owner) = AgentStream::open(&mut owner, hello("owned", 1)).await else { return };
        let _answer = owner.receive().await;
        let mut claimant = client(target).await;
        let claimant = AgentStream::open(&mut claimant, hello("owned", u64::MAX)).await;
        // The owner receives the reason, and cannot return while the other one reports.
        while !matches!(owner.receive().await, Ok(Some(Answer::HoldOff(_)) | None) | Err(_)) {}
        let mut owner = client(target).await;
        let answer = AgentStream::open(&mut owner, hello("owned", 1)).await;
        let answer = answer.unwrap().receive().await.unwrap();
        assert!(matches!(answer, Some(Answer::HoldOff(_))), "{answer:?}");
        drop(claimant);
    })
    .await;
    // The node belongs to its owner again when the other agent has sent nothing for long enough.
    let returned = async || {
        let mut owner = client(target).await;
        let mut owner = AgentStream::open(&mut owner, hello("owned", 1)).await.unwrap();
        owner.receive().await.unwrap()
    };
    let is_welcome = |answer: &Option<Answer>| matches!(answer, Some(Answer::Resync(_)));
    crate::time_limits::until_async("the owner", returned, is_welcome).await;
    site.finish().await;
}
