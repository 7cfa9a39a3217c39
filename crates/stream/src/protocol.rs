//! Protocol that replicates a node's status to the aggregator, without I/O.
//!
//! ```text
//!   agent                                    aggregator
//!   Sender  -- Hello(epoch, seq, hash) ---->  Receiver     identity and last status sent
//!           <-- Ack(seq) | Resync | HoldOff --             confirmed | send all | retry later
//!           -- Snapshot(seq, parts) -------->              complete status
//!           -- Delta(seq, change, hash) ---->              change
//!           -- Heartbeat(seq, hash) -------->              unchanged
//! ```
//!
//! A status is a set of [`Parts`], each hashed over its exact bytes. `seq` increases by one with each status sent. A
//! replay is therefore detected and ignored, and a gap is detected and answered with a request for a snapshot. A
//! different hash also requests a snapshot, so the two sides cannot differ for longer than one heartbeat. At most one
//! status is in flight. Changes in the meantime update the latest state instead of a queue, so memory is bounded on
//! both sides whatever the peer does.
//!
//! The agent's uplink uses [`Sender`] and the aggregator's store uses [`Receiver`]; both transport the messages.

mod backoff;
mod parts;
mod receiver;
mod sender;

use std::borrow::Cow;
use std::time::Duration;

use octavo_model::digest::Digest;
use octavo_model::id::NodeName;

pub use backoff::Backoff;
pub use parts::{Change, Content, PartKey, PartKeyError, Parts};
pub use receiver::{Greeting, ReceiveOutcome, ReceivedStatus, Receiver};
pub use sender::Sender;

/// A message from an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromAgent {
    /// The first message on every connection.
    Hello(Hello),
    /// The complete status.
    Snapshot {
        /// Its sequence number.
        seq: u64,
        /// All its parts.
        parts: Parts,
    },
    /// The change since the previous status.
    Delta {
        /// The sequence number of the previous status plus one.
        seq: u64,
        /// The change.
        change: Change,
        /// Hash of the resulting status.
        hash: Digest,
    },
    /// The status sent last is still current.
    Heartbeat {
        /// Its sequence number.
        seq: u64,
        /// Its hash.
        hash: Digest,
    },
}

/// Identity of an agent and its run, and the status it last sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The claimed identity, which the receiver must authenticate.
    pub identity: Identity,
    /// The run of the agent.
    pub run: Run,
    /// Sequence number of the last status sent, 0 for none.
    pub seq: u64,
    /// Hash of that status.
    pub hash: Digest,
}

/// Identity of an agent, independent of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the node.
    pub node: NodeName,
    /// The agent's version.
    pub agent_version: String,
}

/// One run of an agent. If two claim one node, the one that started later is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Start time by the node's clock, in microseconds since 1970.
    pub epoch: u64,
    /// The node's boot id; distinguishes two agents with the same epoch.
    pub boot_id: String,
}

/// A message from the aggregator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AggregatorMessage {
    /// The aggregator has this status.
    Ack {
        /// Its sequence number.
        seq: u64,
    },
    /// The aggregator does not have the status that the agent assumes.
    Resync {
        /// Reason, for the log.
        reason: Cow<'static, str>,
    },
    /// The agent must disconnect and retry later.
    HoldOff {
        /// Minimum delay before the retry.
        retry_after: Duration,
        /// Human-readable reason.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
