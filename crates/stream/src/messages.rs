//! Encoding and decoding of the messages between agent and aggregator.
//!
//! Each side treats the other as untrusted. An invalid message is an error that names the field, and the length of
//! everything that is stored or logged is limited. If a message has two parts with the same key, the last one applies,
//! in a snapshot as well as in a delta.

mod watched;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use octavo_model::digest::Digest;
use octavo_model::id::{NodeName, ParseError};
use thiserror::Error;

pub use self::watched::{WatchedEvent, WatchedNode, parse_watch_event};
use crate::proto::v1;
use crate::proto::v1::from_agent::Message as AgentMessage;
use crate::proto::v1::to_agent::Message as Answer;
use crate::protocol::{
    AggregatorMessage, Change, Content, FromAgent, Hello, Identity, PartKey, PartKeyError, Run,
};

/// Maximum number of parts of a message and of a status: more than the number of devices of any node.
pub const MAX_PARTS: usize = 1024;
/// Maximum size of a status in bytes, counting keys and contents ([`Parts::size`](crate::protocol::Parts::size)), and of the message that carries it.
/// An agent stays below it; an aggregator rejects anything above it.
pub const MAX_STATUS_BYTES: usize = 256 * 1024;
/// Maximum number of characters of a boot ID, a version, and a stored reason.
const MAX_TEXT_CHARS: usize = 128;
/// Maximum length of a node name, in bytes.
const MAX_NODE_NAME_BYTES: usize = 253;
/// Minimum and maximum delay that an agent can be asked to wait. Other values are clamped.
const HOLD_OFF_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));

/// Encodes a message of an agent.
pub fn encode_from_agent(message: &FromAgent) -> v1::FromAgent {
    let content = match message {
        FromAgent::Hello(hello) => AgentMessage::Hello(v1::Hello {
            node: hello.identity.node.to_string(),
            boot_id: hello.run.boot_id.clone(),
            agent_version: hello.identity.agent_version.clone(),
            epoch: hello.run.epoch,
            seq: hello.seq,
            state_hash: hello.hash.get(),
        }),
        FromAgent::Snapshot { seq, parts } => AgentMessage::Snapshot(v1::Snapshot {
            seq: *seq,
            parts: parts.iter().map(part).collect(),
        }),
        FromAgent::Delta { seq, change, hash } => {
            let changed = change.changed.iter();
            AgentMessage::Delta(v1::Delta {
                seq: *seq,
                changed: changed.map(|(key, content)| part((key, content))).collect(),
                removed: change.removed.iter().map(ToString::to_string).collect(),
                state_hash: hash.get(),
            })
        }
        FromAgent::Heartbeat { seq, hash } => {
            AgentMessage::Heartbeat(v1::Heartbeat { seq: *seq, state_hash: hash.get() })
        }
    };
    v1::FromAgent { message: Some(content) }
}

/// Encodes a part. The message shares the part's bytes.
pub fn part((key, content): (&PartKey, &Content)) -> v1::Part {
    v1::Part { key: key.to_string(), content: Bytes::from_owner(Arc::clone(content.shared())) }
}

/// Encodes a message of the aggregator.
pub fn encode_to_agent(message: &AggregatorMessage) -> v1::ToAgent {
    let answer = match message {
        AggregatorMessage::Ack { seq } => Answer::Ack(v1::Ack { seq: *seq }),
        AggregatorMessage::Resync { reason } => {
            Answer::Resync(v1::Resync { reason: reason.clone().into_owned() })
        }
        AggregatorMessage::HoldOff { retry_after, reason } => Answer::HoldOff(v1::HoldOff {
            retry_after_ms: u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            reason: reason.clone(),
        }),
    };
    v1::ToAgent { message: Some(answer) }
}

/// Parses a message of an agent.
pub fn parse_from_agent(message: v1::FromAgent) -> Result<FromAgent, StreamError> {
    match required(message.message)? {
        AgentMessage::Hello(hello) => incoming_hello(hello).map_err(|error| error.within("hello")),
        AgentMessage::Snapshot(snapshot) => {
            incoming_snapshot(snapshot).map_err(|error| error.within("snapshot"))
        }
        AgentMessage::Delta(delta) => incoming_delta(delta).map_err(|error| error.within("delta")),
        AgentMessage::Heartbeat(heartbeat) => Ok(FromAgent::Heartbeat {
            seq: check_seq(heartbeat.seq).map_err(|error| error.within("heartbeat"))?,
            hash: Digest::from_number(heartbeat.state_hash),
        }),
    }
}

fn incoming_hello(hello: v1::Hello) -> Result<FromAgent, StreamError> {
    Ok(FromAgent::Hello(Hello {
        identity: Identity {
            node: node_name("node", &hello.node)?,
            agent_version: check_text("agent_version", hello.agent_version)?,
        },
        run: Run { epoch: hello.epoch, boot_id: check_text("boot_id", hello.boot_id)? },
        seq: hello.seq,
        hash: Digest::from_number(hello.state_hash),
    }))
}

fn incoming_snapshot(snapshot: v1::Snapshot) -> Result<FromAgent, StreamError> {
    check_count("parts", snapshot.parts.len())?;
    Ok(FromAgent::Snapshot {
        seq: check_seq(snapshot.seq)?,
        parts: incoming_parts("parts", snapshot.parts)?.into_iter().collect(),
    })
}

fn incoming_delta(delta: v1::Delta) -> Result<FromAgent, StreamError> {
    check_count("changed", delta.changed.len())?;
    check_count("removed", delta.removed.len())?;
    let removed = delta.removed.iter().enumerate();
    let removed = removed.map(|(number, text)| {
        text.parse().map_err(|error| StreamError::new(&format!("removed[{number}]"), error))
    });
    Ok(FromAgent::Delta {
        seq: check_seq(delta.seq)?,
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

fn node_name(field: &str, name: &str) -> Result<NodeName, StreamError> {
    if name.len() > MAX_NODE_NAME_BYTES {
        return Err(StreamError::new(field, StreamProblem::TooLong));
    }
    name.parse().map_err(|error: ParseError| StreamError::new(field, error))
}

fn required<T>(message: Option<T>) -> Result<T, StreamError> {
    message.ok_or_else(|| StreamError::new("message", StreamProblem::UnknownMessage))
}

fn check_count(field: &str, count: usize) -> Result<(), StreamError> {
    if count > MAX_PARTS {
        return Err(StreamError::new(field, StreamProblem::TooMany { count }));
    }
    Ok(())
}

/// Checks that a sequence number is at least 1.
fn check_seq(seq: u64) -> Result<u64, StreamError> {
    if seq == 0 {
        return Err(StreamError::new("seq", StreamProblem::ZeroSequenceNumber));
    }
    Ok(seq)
}

fn check_text(field: &str, text: String) -> Result<String, StreamError> {
    if text.chars().nth(MAX_TEXT_CHARS).is_some() {
        return Err(StreamError::new(field, StreamProblem::TooLong));
    }
    if text.chars().any(char::is_control) {
        return Err(StreamError::new(field, StreamProblem::ControlCharacters));
    }
    Ok(text)
}

/// Parses a message of the aggregator. Reasons are sanitized for logging.
pub fn parse_to_agent(message: v1::ToAgent) -> Result<AggregatorMessage, StreamError> {
    Ok(match required(message.message)? {
        Answer::Ack(ack) => AggregatorMessage::Ack { seq: ack.seq },
        Answer::Resync(resync) => {
            AggregatorMessage::Resync { reason: Cow::Owned(sanitize(&resync.reason)) }
        }
        Answer::HoldOff(hold_off) => AggregatorMessage::HoldOff {
            retry_after: Duration::from_millis(hold_off.retry_after_ms)
                .clamp(HOLD_OFF_RANGE.0, HOLD_OFF_RANGE.1),
            reason: sanitize(&hold_off.reason),
        },
    })
}

/// Shortens a text and replaces control characters, which a terminal could interpret.
fn sanitize(text: &str) -> String {
    let text = text.chars().take(MAX_TEXT_CHARS);
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// An invalid message, with the field such as `snapshot.parts[3].key`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid field {field} of a message")]
pub struct StreamError {
    /// The field.
    pub field: String,
    /// Reason why it is invalid.
    #[source]
    pub problem: StreamProblem,
}

/// Reason why a field is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StreamProblem {
    /// The message is empty or of a kind that this version does not know.
    #[error("it contains nothing that this version supports")]
    UnknownMessage,
    /// An invalid node name.
    #[error(transparent)]
    Name(#[from] ParseError),
    /// An invalid part key.
    #[error(transparent)]
    Key(#[from] PartKeyError),
    /// Too many parts.
    #[error("{count} is more than the maximum of {}", MAX_PARTS)]
    TooMany {
        /// Number of parts.
        count: usize,
    },
    /// A text is too long.
    #[error("it is too long")]
    TooLong,
    /// A text contains control characters.
    #[error("it contains control characters")]
    ControlCharacters,
    /// The sequence number is zero.
    #[error("the sequence numbers of a status start at 1")]
    ZeroSequenceNumber,
}

impl StreamError {
    fn new(field: &str, problem: impl Into<StreamProblem>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }

    /// Prepends the parent's path.
    fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}

#[cfg(test)]
mod tests;
