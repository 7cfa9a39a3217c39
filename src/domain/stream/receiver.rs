//! The aggregator's side of the protocol, for one node.

use std::time::Duration;

use super::{Change, Digest, Hello, Parts, Run, ToAgent};

/// The status of one node, and the run of its agent.
#[derive(Debug, Clone)]
pub struct Receiver {
    run: Run,
    /// Sequence number of the last accepted status; 0 before the first.
    seq: u64,
    parts: Parts,
    sync: Sync,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// `parts` is what the agent sent as `seq`.
    Same,
    /// `parts` differs or may differ from the agent's status; only a snapshot restores it.
    Lost,
}

/// Result of a greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// This agent represents the node from now on; send the answer.
    Welcome(ToAgent),
    /// Another agent represents the node; send the answer and close the connection.
    Refused(ToAgent),
}

/// Result of a status message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// A new status to validate, and then to accept with [`Receiver::take`].
    Status(Status),
    /// The agent has confirmed the known status; send the answer.
    Confirmed(ToAgent),
    /// The message has no effect: a replay or a gap; send the answer.
    Nothing(ToAgent),
}

/// A status that would replace the known one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    seq: u64,
    parts: Parts,
}

/// Delay before a rejected agent retries while another one represents its node.
const CLAIMED_RETRY: Duration = Duration::from_secs(30);

impl Status {
    /// Its parts.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }
}

impl Receiver {
    /// Creates the receiver of an unknown node for its first greeting; the answer requests a snapshot.
    pub fn new(hello: &Hello) -> (Self, ToAgent) {
        let mut receiver = Self {
            run: hello.run.clone(),
            seq: 0,
            parts: Parts::default(),
            sync: Sync::Lost,
        };
        let answer = receiver.lost("this node is not known here yet");
        (receiver, answer)
    }

    /// Handles the greeting of another connection. `alive`: whether the previous agent sent a message within the
    /// staleness bound.
    ///
    /// After a welcome, only messages of this connection may be passed to `self`: messages do not identify their run,
    /// and those still in flight on an older connection belong to another run.
    pub fn greeted(&mut self, hello: &Hello, alive: bool) -> Greeting {
        let same_run = hello.run == self.run;
        if alive && !same_run && hello.run.epoch <= self.run.epoch {
            return Greeting::Refused(ToAgent::HoldOff {
                retry_after: CLAIMED_RETRY,
                reason: "another agent, which started later, speaks for this node".to_owned(),
            });
        }
        let known = same_run && self.sync == Sync::Same;
        if known && hello.seq == self.seq && hello.hash == self.parts.hash() {
            return Greeting::Welcome(ToAgent::Ack { seq: self.seq });
        }
        if !same_run {
            self.run = hello.run.clone();
            self.seq = 0;
        }
        Greeting::Welcome(self.lost("the state known here is another one"))
    }

    /// Handles a complete status.
    pub fn snapshot(&self, seq: u64, parts: Parts) -> Offer {
        let wanted = self.sync == Sync::Lost && seq == self.seq;
        if seq > self.seq || wanted {
            return Offer::Status(Status { seq, parts });
        }
        // Acknowledged even if the state is lost: an agent whose sequence numbers went back learns from this where to
        // continue.
        Offer::Nothing(ToAgent::Ack { seq: self.seq })
    }

    /// Handles a change.
    pub fn delta(&mut self, seq: u64, change: &Change, hash: Digest) -> Offer {
        if seq <= self.seq {
            return Offer::Nothing(self.standing());
        }
        if self.sync == Sync::Lost || self.seq.checked_add(1) != Some(seq) {
            return Offer::Nothing(self.lost("a change is missing"));
        }
        let parts = self.parts.with(change);
        if parts.hash() != hash {
            return Offer::Nothing(self.lost("the change leads to another state"));
        }
        Offer::Status(Status { seq, parts })
    }

    /// Handles a heartbeat. A late one refers to an earlier status and confirms nothing.
    pub fn heartbeat(&mut self, seq: u64, hash: Digest) -> Offer {
        if seq < self.seq {
            return Offer::Nothing(self.standing());
        }
        if self.sync == Sync::Same && seq == self.seq && hash == self.parts.hash() {
            return Offer::Confirmed(self.standing());
        }
        Offer::Nothing(self.lost("the state known here is another one"))
    }

    /// Accepts an offered status.
    pub fn take(&mut self, status: Status) -> ToAgent {
        self.seq = status.seq;
        self.parts = status.parts;
        self.sync = Sync::Same;
        self.standing()
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
    fn standing(&self) -> ToAgent {
        match self.sync {
            Sync::Same => ToAgent::Ack { seq: self.seq },
            Sync::Lost => resync("the state known here is not the agent's"),
        }
    }

    fn lost(&mut self, reason: &'static str) -> ToAgent {
        self.sync = Sync::Lost;
        resync(reason)
    }
}

fn resync(reason: &'static str) -> ToAgent {
    ToAgent::Resync {
        reason: reason.into(),
    }
}
