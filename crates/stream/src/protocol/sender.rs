//! The agent's side of the protocol.

use super::{AggregatorMessage, Change, FromAgent, Hello, Identity, Parts, Run};

/// Tracks the statuses sent to the aggregator, and determines the next message.
#[derive(Debug, Clone)]
pub struct Sender {
    identity: Identity,
    run: Run,
    /// Sequence number of the last status sent; 0 before the first.
    seq: u64,
    /// The last status sent.
    sent: Parts,
    /// The current status; successive changes are combined.
    latest: Parts,
    link: LinkState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    /// Not connected.
    Down,
    /// The aggregator has not answered the greeting, or has not acknowledged `sent`.
    Waiting,
    /// The aggregator has acknowledged `sent`.
    Idle,
}

impl Sender {
    /// Creates a sender that has not sent anything yet.
    pub fn new(identity: Identity, run: Run) -> Self {
        Self {
            identity,
            run,
            seq: 0,
            sent: Parts::default(),
            latest: Parts::default(),
            link: LinkState::Down,
        }
    }

    /// Handles a new connection; returns its first message.
    #[must_use = "the message must be sent"]
    pub fn connected(&mut self) -> FromAgent {
        self.link = LinkState::Waiting;
        FromAgent::Hello(Hello {
            identity: self.identity.clone(),
            run: self.run.clone(),
            seq: self.seq,
            hash: self.sent.hash(),
        })
    }

    /// Handles the loss of the connection.
    pub fn disconnected(&mut self) {
        self.link = LinkState::Down;
    }

    /// Updates the current status; returns the message to send, if any.
    #[must_use = "the message must be sent"]
    pub fn set_status(&mut self, latest: Parts) -> Option<FromAgent> {
        self.latest = latest;
        self.next_delta()
    }

    /// Handles a message from the aggregator; returns the message to send, if any. The caller must handle a hold-off.
    #[must_use = "the message must be sent"]
    pub fn handle_message(&mut self, message: &AggregatorMessage) -> Option<FromAgent> {
        match (message, self.link) {
            (_, LinkState::Down) | (AggregatorMessage::HoldOff { .. }, _) => None,
            (AggregatorMessage::Ack { seq }, _) if *seq == self.seq => {
                self.link = LinkState::Idle;
                self.next_delta()
            }
            // Acknowledges a status that was not sent according to our state: the machine was restored from an
            // earlier image.
            (AggregatorMessage::Ack { seq }, _) if *seq > self.seq => {
                self.seq = *seq;
                Some(self.snapshot())
            }
            // Acknowledges an earlier status.
            (AggregatorMessage::Ack { .. }, _) => None,
            (AggregatorMessage::Resync { .. }, _) => Some(self.snapshot()),
        }
    }

    /// Returns the heartbeat to send; `None` without a connection or before the first status.
    pub fn heartbeat(&self) -> Option<FromAgent> {
        (self.link != LinkState::Down && self.seq > 0)
            .then(|| FromAgent::Heartbeat { seq: self.seq, hash: self.sent.hash() })
    }

    /// Returns whether the aggregator has the current status.
    pub fn is_in_sync(&self) -> bool {
        self.link == LinkState::Idle && self.sent == self.latest
    }

    /// The status that the aggregator has; `None` if it is not known to have the last one sent.
    pub fn acknowledged(&self) -> Option<&Parts> {
        (self.link == LinkState::Idle).then_some(&self.sent)
    }

    fn snapshot(&mut self) -> FromAgent {
        self.send_latest();
        FromAgent::Snapshot { seq: self.seq, parts: self.sent.clone() }
    }

    fn next_delta(&mut self) -> Option<FromAgent> {
        if self.link != LinkState::Idle {
            return None;
        }
        let change: Change = self.sent.change_to(&self.latest);
        if change.is_empty() {
            return None;
        }
        self.send_latest();
        Some(FromAgent::Delta { seq: self.seq, change, hash: self.sent.hash() })
    }

    fn send_latest(&mut self) {
        self.seq = self.seq.saturating_add(1);
        self.sent = self.latest.clone();
        self.link = LinkState::Waiting;
    }
}
