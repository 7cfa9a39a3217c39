//! The aggregator's side of the protocol, for one node.

use std::time::Duration;

use octavo_model::digest::Digest;

use super::{AggregatorMessage, Change, Hello, Parts, Run};

/// The status of one node, and the run of its agent.
#[derive(Debug, Clone)]
pub struct Receiver {
    run: Run,
    /// Sequence number of the last accepted status; 0 before the first.
    seq: u64,
    parts: Parts,
    sync: SyncState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    /// `parts` is what the agent sent as `seq`.
    Same,
    /// `parts` differs or may differ from the agent's status; only a snapshot restores it.
    Lost,
}

/// Result of a greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// This agent represents the node from now on; send the answer.
    Welcome(AggregatorMessage),
    /// Another agent represents the node; send the answer and close the connection.
    Refused(AggregatorMessage),
}

/// Result of a status message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// A new status to validate, and then to accept with [`Receiver::take`].
    Status(ReceivedStatus),
    /// The agent has confirmed the known status; send the answer.
    Confirmed(AggregatorMessage),
    /// The message has no effect: a replay or a gap; send the answer.
    Nothing(AggregatorMessage),
}

/// A status that would replace the known one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedStatus {
    seq: u64,
    parts: Parts,
}

/// Delay before a rejected agent retries while another one represents its node.
const CLAIMED_RETRY: Duration = Duration::from_secs(30);

impl ReceivedStatus {
    /// Its parts.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }
}

impl Receiver {
    /// Creates the receiver of an unknown node for its first greeting; the answer requests a snapshot.
    pub fn new(hello: &Hello) -> (Self, AggregatorMessage) {
        let mut receiver =
            Self { run: hello.run.clone(), seq: 0, parts: Parts::default(), sync: SyncState::Lost };
        let answer = receiver.request_resync("this node is not known yet");
        (receiver, answer)
    }

    /// Handles the greeting of another connection. `alive`: whether the previous agent sent a message within the
    /// staleness bound.
    ///
    /// After a welcome, only messages of this connection may be passed to `self`: messages do not identify their run,
    /// and those still in flight on an older connection belong to another run.
    pub fn handle_hello(&mut self, hello: &Hello, alive: bool) -> Greeting {
        let same_run = hello.run == self.run;
        if alive && !same_run && hello.run.epoch <= self.run.epoch {
            return Greeting::Refused(AggregatorMessage::HoldOff {
                retry_after: CLAIMED_RETRY,
                reason: "another agent, which started later, reports this node".to_owned(),
            });
        }
        let known = same_run && self.sync == SyncState::Same;
        if known && hello.seq == self.seq && hello.hash == self.parts.hash() {
            return Greeting::Welcome(AggregatorMessage::Ack { seq: self.seq });
        }
        if !same_run {
            self.run = hello.run.clone();
            self.seq = 0;
        }
        Greeting::Welcome(self.request_resync("the receiver has a different state"))
    }

    /// Handles a complete status.
    pub fn snapshot(&self, seq: u64, parts: Parts) -> ReceiveOutcome {
        let wanted = self.sync == SyncState::Lost && seq == self.seq;
        if seq > self.seq || wanted {
            return ReceiveOutcome::Status(ReceivedStatus { seq, parts });
        }
        // Acknowledged even if the state is lost: an agent whose sequence numbers went back learns from this where to
        // continue.
        ReceiveOutcome::Nothing(AggregatorMessage::Ack { seq: self.seq })
    }

    /// Handles a change.
    pub fn delta(&mut self, seq: u64, change: &Change, hash: Digest) -> ReceiveOutcome {
        if seq <= self.seq {
            return ReceiveOutcome::Nothing(self.acknowledge());
        }
        if self.sync == SyncState::Lost || self.seq.checked_add(1) != Some(seq) {
            return ReceiveOutcome::Nothing(self.request_resync("a change is missing"));
        }
        let parts = self.parts.apply(change);
        if parts.hash() != hash {
            return ReceiveOutcome::Nothing(
                self.request_resync("the change leads to a different state"),
            );
        }
        ReceiveOutcome::Status(ReceivedStatus { seq, parts })
    }

    /// Handles a heartbeat. A late one refers to an earlier status and confirms nothing.
    pub fn heartbeat(&mut self, seq: u64, hash: Digest) -> ReceiveOutcome {
        if seq < self.seq {
            return ReceiveOutcome::Nothing(self.acknowledge());
        }
        if self.sync == SyncState::Same && seq == self.seq && hash == self.parts.hash() {
            return ReceiveOutcome::Confirmed(self.acknowledge());
        }
        ReceiveOutcome::Nothing(self.request_resync("the receiver has a different state"))
    }

    /// Accepts an offered status.
    pub fn take(&mut self, status: ReceivedStatus) -> AggregatorMessage {
        self.seq = status.seq;
        self.parts = status.parts;
        self.sync = SyncState::Same;
        self.acknowledge()
    }

    /// The last accepted status.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The run of the agent that represents the node.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The answer to a message without effect. An acknowledgement means that the status is known, so it is not sent
    /// in the lost state.
    fn acknowledge(&self) -> AggregatorMessage {
        match self.sync {
            SyncState::Same => AggregatorMessage::Ack { seq: self.seq },
            SyncState::Lost => resync("the receiver's state differs from the agent's"),
        }
    }

    fn request_resync(&mut self, reason: &'static str) -> AggregatorMessage {
        self.sync = SyncState::Lost;
        resync(reason)
    }
}

fn resync(reason: &'static str) -> AggregatorMessage {
    AggregatorMessage::Resync { reason: reason.into() }
}
