//! The aggregator's side, for one node.

use std::time::Duration;

use super::{Change, Digest, Hello, Parts, Run, ToAgent};

/// What is known of one node, and of which run of its agent.
#[derive(Debug, Clone)]
pub struct Receiver {
    run: Run,
    /// Of the last status taken; 0 before the first.
    seq: u64,
    parts: Parts,
    sync: Sync,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// `parts` is what the agent sent as `seq`.
    Same,
    /// It is not, or not known to be: only a snapshot helps.
    Lost,
}

/// What a greeting comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// This agent speaks for the node from now on; the answer is to be sent.
    Welcome(ToAgent),
    /// Another agent does; the answer is to be sent and the connection ended.
    Refused(ToAgent),
}

/// What a status message comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// A status to be looked at, and then taken with [`Receiver::take`].
    Status(Status),
    /// What is known was confirmed by the agent just now; the answer is to be sent.
    Confirmed(ToAgent),
    /// Nothing comes of it, be it a replay or a gap; the answer is to be sent.
    Nothing(ToAgent),
}

/// A status that would follow the known one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    seq: u64,
    parts: Parts,
}

/// How long an agent is sent away while another one speaks for its node.
const CLAIMED_RETRY: Duration = Duration::from_secs(30);

impl Status {
    /// All of it.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }
}

impl Receiver {
    /// A node of which nothing is known yet, greeted by `hello`; what it has to say is asked for.
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

    /// Another connection greets. `alive`: whether the agent known so far was heard within the bound of staleness.
    ///
    /// From a welcome on, only what comes on this connection may be given to `self`: messages do not say which run they are
    /// of, and what is still under way on an older connection is of another one.
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

    /// The agent sent its whole status.
    pub fn snapshot(&self, seq: u64, parts: Parts) -> Offer {
        let wanted = self.sync == Sync::Lost && seq == self.seq;
        if seq > self.seq || wanted {
            return Offer::Status(Status { seq, parts });
        }
        // Also where all is lost: an agent that numbers lower than it once did learns from this where to go on.
        Offer::Nothing(ToAgent::Ack { seq: self.seq })
    }

    /// The agent sent what changed.
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

    /// The agent says that nothing changed. One that is late, and so of an earlier status, confirms nothing.
    pub fn heartbeat(&mut self, seq: u64, hash: Digest) -> Offer {
        if seq < self.seq {
            return Offer::Nothing(self.standing());
        }
        if self.sync == Sync::Same && seq == self.seq && hash == self.parts.hash() {
            return Offer::Confirmed(self.standing());
        }
        Offer::Nothing(self.lost("the state known here is another one"))
    }

    /// Makes an offered status the known one.
    pub fn take(&mut self, status: Status) -> ToAgent {
        self.seq = status.seq;
        self.parts = status.parts;
        self.sync = Sync::Same;
        self.standing()
    }

    /// The status that was taken last.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The run of the agent that speaks for the node.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// What answers a message that is of no use. An acknowledgement says that the status is known here, so there is none
    /// while it is not.
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
