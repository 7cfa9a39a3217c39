//! What agent and aggregator say to each other, as messages and back.
//!
//! Either end takes the other for hostile: whatever cannot be is an error that names the field, and nothing that is kept or
//! logged is longer than it need be. Of two parts with one key in a message the last is taken, in a snapshot as in a change.

mod error;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use self::error::{StreamError, StreamProblem};
use crate::domain::id::NodeName;
use crate::domain::stream::{
    Change, Content, Digest, FromAgent, Hello, PartKey, Parts, Run, ToAgent,
};
use crate::proto::v1;
use crate::proto::v1::from_agent::Message as Said;
use crate::proto::v1::to_agent::Message as Answer;

/// Parts of one message, and of one status: more than any node has devices.
pub const MOST_PARTS: usize = 1024;
/// The most bytes that a status may have, keys and contents together ([`Parts::size`]), and a message from an agent in which
/// it travels. An agent keeps below, an aggregator refuses what is above.
pub const LARGEST_STATUS: usize = 256 * 1024;
/// The longest boot id and version, and the longest reason that is kept, in characters.
const LONGEST: usize = 128;
/// The longest name of a node, in bytes.
const LONGEST_NAME: usize = 253;
/// The shortest and the longest that an agent can be asked to wait; what is asked beyond is cut.
const HOLD_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));

/// Who speaks, beside the run of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The node.
    pub node: NodeName,
    /// The agent's version.
    pub agent_version: String,
}

/// What an agent said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// First on every connection.
    Hello {
        /// Who it says it is.
        identity: Identity,
        /// What it takes this side to know.
        hello: Hello,
    },
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

/// What an agent says, as a message.
pub fn encode_from_agent(message: &FromAgent, identity: &Identity) -> v1::FromAgent {
    let said = match message {
        FromAgent::Hello(hello) => Said::Hello(v1::Hello {
            node: identity.node.to_string(),
            boot_id: hello.run.boot_id.clone(),
            agent_version: identity.agent_version.clone(),
            epoch: hello.run.epoch,
            seq: hello.seq,
            state_hash: hello.hash.get(),
        }),
        FromAgent::Snapshot { seq, parts } => Said::Snapshot(v1::Snapshot {
            seq: *seq,
            parts: parts.iter().map(part).collect(),
        }),
        FromAgent::Delta { seq, change, hash } => {
            let changed = change.changed.iter();
            Said::Delta(v1::Delta {
                seq: *seq,
                changed: changed.map(|(key, content)| part((key, content))).collect(),
                removed: change.removed.iter().map(ToString::to_string).collect(),
                state_hash: hash.get(),
            })
        }
        FromAgent::Heartbeat { seq, hash } => Said::Heartbeat(v1::Heartbeat {
            seq: *seq,
            state_hash: hash.get(),
        }),
    };
    v1::FromAgent {
        message: Some(said),
    }
}

/// A part as a message, which shares its bytes.
pub fn part((key, content): (&PartKey, &Content)) -> v1::Part {
    v1::Part {
        key: key.to_string(),
        content: Bytes::from_owner(Arc::clone(content.shared())),
    }
}

/// What the aggregator answers, as a message.
pub fn encode_to_agent(message: &ToAgent) -> v1::ToAgent {
    let answer = match message {
        ToAgent::Ack { seq } => Answer::Ack(v1::Ack { seq: *seq }),
        ToAgent::Resync { reason } => Answer::Resync(v1::Resync {
            reason: reason.clone().into_owned(),
        }),
        ToAgent::HoldOff {
            retry_after,
            reason,
        } => Answer::HoldOff(v1::HoldOff {
            retry_after_ms: u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            reason: reason.clone(),
        }),
    };
    v1::ToAgent {
        message: Some(answer),
    }
}

/// What an agent said.
pub fn parse_from_agent(message: v1::FromAgent) -> Result<Incoming, StreamError> {
    let said = message
        .message
        .ok_or_else(|| StreamError::new("message", StreamProblem::Empty))?;
    match said {
        Said::Hello(hello) => incoming_hello(hello).map_err(|error| error.within("hello")),
        Said::Snapshot(snapshot) => {
            incoming_snapshot(snapshot).map_err(|error| error.within("snapshot"))
        }
        Said::Delta(delta) => incoming_delta(delta).map_err(|error| error.within("delta")),
        Said::Heartbeat(heartbeat) => Ok(Incoming::Heartbeat {
            seq: numbered(heartbeat.seq).map_err(|error| error.within("heartbeat"))?,
            hash: Digest::from_number(heartbeat.state_hash),
        }),
    }
}

fn incoming_hello(hello: v1::Hello) -> Result<Incoming, StreamError> {
    if hello.node.len() > LONGEST_NAME {
        return Err(StreamError::new("node", StreamProblem::TooLong));
    }
    let node = hello.node.parse();
    Ok(Incoming::Hello {
        identity: Identity {
            node: node.map_err(|error| StreamError::new("node", error))?,
            agent_version: short("agent_version", hello.agent_version)?,
        },
        hello: Hello {
            run: Run {
                epoch: hello.epoch,
                boot_id: short("boot_id", hello.boot_id)?,
            },
            seq: hello.seq,
            hash: Digest::from_number(hello.state_hash),
        },
    })
}

fn incoming_snapshot(snapshot: v1::Snapshot) -> Result<Incoming, StreamError> {
    few("parts", snapshot.parts.len())?;
    Ok(Incoming::Snapshot {
        seq: numbered(snapshot.seq)?,
        parts: incoming_parts("parts", snapshot.parts)?
            .into_iter()
            .collect(),
    })
}

fn incoming_delta(delta: v1::Delta) -> Result<Incoming, StreamError> {
    few("changed", delta.changed.len())?;
    few("removed", delta.removed.len())?;
    let removed = delta.removed.iter().enumerate();
    let removed = removed.map(|(number, text)| {
        text.parse()
            .map_err(|error| StreamError::new(&format!("removed[{number}]"), error))
    });
    Ok(Incoming::Delta {
        seq: numbered(delta.seq)?,
        change: Change {
            removed: removed.collect::<Result<_, _>>()?,
            changed: incoming_parts("changed", delta.changed)?,
        },
        hash: Digest::from_number(delta.state_hash),
    })
}

fn incoming_parts(
    field: &str,
    parts: Vec<v1::Part>,
) -> Result<Vec<(PartKey, Content)>, StreamError> {
    let numbered = parts.into_iter().enumerate();
    let parts = numbered.map(|(number, part)| {
        let place = || format!("{field}[{number}].key");
        let key = part.key.parse();
        let key = key.map_err(|error| StreamError::new(&place(), error))?;
        Ok((key, Content::new(part.content.as_ref())))
    });
    parts.collect()
}

fn few(field: &str, count: usize) -> Result<(), StreamError> {
    if count > MOST_PARTS {
        return Err(StreamError::new(field, StreamProblem::TooMany { count }));
    }
    Ok(())
}

/// A status has a number from 1.
fn numbered(seq: u64) -> Result<u64, StreamError> {
    if seq == 0 {
        return Err(StreamError::new("seq", StreamProblem::Unnumbered));
    }
    Ok(seq)
}

fn short(field: &str, text: String) -> Result<String, StreamError> {
    if text.chars().nth(LONGEST).is_some() {
        return Err(StreamError::new(field, StreamProblem::TooLong));
    }
    if text.chars().any(char::is_control) {
        return Err(StreamError::new(field, StreamProblem::Control));
    }
    Ok(text)
}

/// What the aggregator answered. Reasons are for a log, so they are made fit for one.
pub fn parse_to_agent(message: v1::ToAgent) -> Result<ToAgent, StreamError> {
    let answer = message
        .message
        .ok_or_else(|| StreamError::new("message", StreamProblem::Empty))?;
    Ok(match answer {
        Answer::Ack(ack) => ToAgent::Ack { seq: ack.seq },
        Answer::Resync(resync) => ToAgent::Resync {
            reason: Cow::Owned(tamed(&resync.reason)),
        },
        Answer::HoldOff(hold_off) => ToAgent::HoldOff {
            retry_after: Duration::from_millis(hold_off.retry_after_ms)
                .clamp(HOLD_OFF.0, HOLD_OFF.1),
            reason: tamed(&hold_off.reason),
        },
    })
}

/// The beginning of a text, without what a terminal could take for a command.
fn tamed(text: &str) -> String {
    let text = text.chars().take(LONGEST);
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
