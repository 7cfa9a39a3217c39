//! The agent's side.

use super::{Change, FromAgent, Hello, Parts, Run, ToAgent};

/// Knows what the aggregator was told and what is to be told next.
#[derive(Debug, Clone)]
pub struct Sender {
    run: Run,
    /// Of the status that was sent last; 0 before the first.
    seq: u64,
    /// That status.
    sent: Parts,
    /// What shall be known; several changes in a row are one.
    latest: Parts,
    line: Line,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// No connection.
    Down,
    /// The aggregator has not answered the greeting, or has not acknowledged `sent`.
    Waiting,
    /// The aggregator has `sent`.
    Idle,
}

impl Sender {
    /// A sender that has said nothing yet.
    pub fn new(run: Run) -> Self {
        Self {
            run,
            seq: 0,
            sent: Parts::default(),
            latest: Parts::default(),
            line: Line::Down,
        }
    }

    /// A connection is there: the message to begin with.
    #[must_use = "the message is to be sent"]
    pub fn connected(&mut self) -> FromAgent {
        self.line = Line::Waiting;
        FromAgent::Hello(Hello {
            run: self.run.clone(),
            seq: self.seq,
            hash: self.sent.hash(),
        })
    }

    /// The connection is gone.
    pub fn disconnected(&mut self) {
        self.line = Line::Down;
    }

    /// The status is now `latest`; perhaps that is to be sent.
    #[must_use = "the message is to be sent"]
    pub fn observed(&mut self, latest: Parts) -> Option<FromAgent> {
        self.latest = latest;
        self.next_delta()
    }

    /// The aggregator spoke; perhaps something is to be sent. A hold-off is the caller's to obey.
    #[must_use = "the message is to be sent"]
    pub fn received(&mut self, message: &ToAgent) -> Option<FromAgent> {
        match (message, self.line) {
            (_, Line::Down) | (ToAgent::HoldOff { .. }, _) => None,
            (ToAgent::Ack { seq }, _) if *seq == self.seq => {
                self.line = Line::Idle;
                self.next_delta()
            }
            // Of a status that this one does not know to have sent: the machine was put back in time, agent and all.
            (ToAgent::Ack { seq }, _) if *seq > self.seq => {
                self.seq = *seq;
                Some(self.snapshot())
            }
            // Of a status before.
            (ToAgent::Ack { .. }, _) => None,
            (ToAgent::Resync { .. }, _) => Some(self.snapshot()),
        }
    }

    /// It is time to say that all is as it was. Nothing where nobody listens or nothing was ever sent.
    pub fn heartbeat(&self) -> Option<FromAgent> {
        (self.line != Line::Down && self.seq > 0).then(|| FromAgent::Heartbeat {
            seq: self.seq,
            hash: self.sent.hash(),
        })
    }

    /// Whether the aggregator has the latest status.
    pub fn is_in_sync(&self) -> bool {
        self.line == Line::Idle && self.sent == self.latest
    }

    fn snapshot(&mut self) -> FromAgent {
        self.send_latest();
        FromAgent::Snapshot {
            seq: self.seq,
            parts: self.sent.clone(),
        }
    }

    fn next_delta(&mut self) -> Option<FromAgent> {
        if self.line != Line::Idle {
            return None;
        }
        let change: Change = self.sent.change_to(&self.latest);
        if change.is_empty() {
            return None;
        }
        self.send_latest();
        Some(FromAgent::Delta {
            seq: self.seq,
            change,
            hash: self.sent.hash(),
        })
    }

    fn send_latest(&mut self) {
        self.seq = self.seq.saturating_add(1);
        self.sent = self.latest.clone();
        self.line = Line::Waiting;
    }
}
