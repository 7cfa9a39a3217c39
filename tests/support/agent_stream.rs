//! An agent's side of the stream to the aggregator.

use octavo_model::inventory::{Inventory, NvmlState};
use octavo_node::label_set::LabelSet;
use octavo_stream::messages::encode_from_agent;
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::proto::v1::to_agent::Message as Answer;
use octavo_stream::protocol::{FromAgent, Parts};
use octavo_stream::status;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::time_limits::TIME_LIMIT;

/// The agent side of a stream.
pub(crate) struct AgentStream {
    pub(crate) to: mpsc::Sender<v1::FromAgent>,
    pub(crate) from: Streaming<v1::ToAgent>,
}

impl AgentStream {
    pub(crate) async fn open(
        client: &mut FleetClient<Channel>,
        first: v1::FromAgent,
    ) -> Result<Self, Status> {
        let (to, messages) = mpsc::channel(1);
        to.send(first).await.unwrap();
        let answers = client.report(ReceiverStream::new(messages)).await?;
        Ok(Self { to, from: answers.into_inner() })
    }

    pub(crate) async fn receive(&mut self) -> Result<Option<Answer>, Status> {
        let answer = timeout(TIME_LIMIT, self.from.message()).await.unwrap()?;
        Ok(answer.map(|answer| answer.message.unwrap()))
    }

    /// Sends a message and returns the answer.
    pub(crate) async fn send(&mut self, message: &FromAgent) -> Result<Answer, Status> {
        self.to.send(encode_from_agent(message)).await.unwrap();
        Ok(self.receive().await?.unwrap())
    }

    /// A stream on which these parts were acknowledged as the first status.
    pub(crate) async fn with_first_status(
        client: &mut FleetClient<Channel>,
        node: &str,
        parts: Parts,
    ) -> Self {
        let mut line = Self::open(client, hello(node, 1)).await.unwrap();
        assert!(matches!(line.receive().await, Ok(Some(Answer::Resync(_)))));
        let snapshot = FromAgent::Snapshot { seq: 1, parts };
        assert_eq!(line.send(&snapshot).await.unwrap(), acknowledged(1));
        line
    }
}

pub(crate) fn acknowledged(seq: u64) -> Answer {
    Answer::Ack(v1::Ack { seq })
}

pub(crate) fn hello(node: &str, epoch: u64) -> v1::FromAgent {
    let hello = v1::Hello {
        node: node.to_owned(),
        boot_id: "b".to_owned(),
        agent_version: "1.2.3".to_owned(),
        epoch,
        seq: 0,
        state_hash: 0,
    };
    v1::FromAgent { message: Some(v1::from_agent::Message::Hello(hello)) }
}

/// A status that differs with `number`.
pub(crate) fn parts(number: u64) -> Parts {
    let inventory = Inventory {
        nvml: NvmlState::Absent { reason: format!("reason {number}") },
        ..Inventory::default()
    };
    status::encode(&inventory, &LabelSet::default(), None)
}

/// The delta between two statuses.
pub(crate) fn delta(seq: u64, from: &Parts, to: &Parts) -> FromAgent {
    FromAgent::Delta { seq, change: from.change_to(to), hash: to.hash() }
}
