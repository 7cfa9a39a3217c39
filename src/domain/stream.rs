//! How a node's status gets to the aggregator and stays the same there: the protocol, without I/O.
//!
//! ```text
//!   agent                                    aggregator
//!   Sender  -- Hello(epoch, seq, hash) ---->  Receiver     who I am, what you should know
//!           <-- Ack(seq) | Resync | HoldOff --             you are right | tell me all | not now
//!           -- Snapshot(seq, parts) -------->              all of it
//!           -- Delta(seq, change, hash) ---->              what changed
//!           -- Heartbeat(seq, hash) -------->              nothing changed
//! ```
//!
//! A status is a set of [`Parts`], each hashed over its very bytes. `seq` grows by one with each status sent, so a replay
//! is seen and does nothing, and a gap is seen and asks for a snapshot; a hash that differs does the same, so the two
//! sides cannot disagree for longer than one heartbeat. At most one status is under way: what changes meanwhile is kept
//! as the latest state and not as a queue, so memory is bounded on both sides whatever the other does.
//!
//! Called by the agent's uplink ([`Sender`]) and by the aggregator's store ([`Receiver`]), which move the messages.

mod backoff;
mod parts;
mod receiver;
mod sender;

pub use backoff::Backoff;
pub use parts::{Change, Content, Digest, PartKey, PartKeyError, Parts};
pub use receiver::{Greeting, Offer, Receiver, Status};
pub use sender::Sender;

use std::borrow::Cow;
use std::time::Duration;

/// What an agent says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromAgent {
    /// First on every connection.
    Hello(Hello),
    /// The whole status.
    Snapshot {
        /// Its number.
        seq: u64,
        /// All of it.
        parts: Parts,
    },
    /// What changed since the status before.
    Delta {
        /// One more than that of the status before.
        seq: u64,
        /// The change.
        change: Change,
        /// Of the status that results.
        hash: Digest,
    },
    /// The status that was sent last still holds.
    Heartbeat {
        /// Its number.
        seq: u64,
        /// Its hash.
        hash: Digest,
    },
}

/// Which run of an agent speaks, and what it takes the aggregator to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Which run of the agent.
    pub run: Run,
    /// The last status it sent, 0 for none.
    pub seq: u64,
    /// Of that status.
    pub hash: Digest,
}

/// One life of an agent. Of two that claim one node, the one that started later is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// When it started, in microseconds since 1970 by the node's clock.
    pub epoch: u64,
    /// The node's boot id; tells two agents with one epoch apart.
    pub boot_id: String,
}

/// What the aggregator answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToAgent {
    /// It has this status.
    Ack {
        /// Its number.
        seq: u64,
    },
    /// It does not have what the agent thinks it has.
    Resync {
        /// Why, for a log.
        reason: Cow<'static, str>,
    },
    /// The agent shall go away and come back.
    HoldOff {
        /// Not before this time is over.
        retry_after: Duration,
        /// Why, for a person.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
