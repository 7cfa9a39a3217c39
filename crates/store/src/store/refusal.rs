//! Refusals of the store.

use octavo_model::id::NodeName;
use octavo_stream::status::StatusError;
use thiserror::Error;

/// Reason why a message was refused. A refusal changes nothing.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The fleet is full, and no node is both stale and disconnected.
    #[error(
        "node {node} rejected: the aggregator already stores its maximum of {most} nodes (--max-nodes)"
    )]
    TooManyNodes {
        /// The refused node.
        node: NodeName,
        /// Limit.
        most: usize,
    },
    /// Repeated hello.
    #[error("hello: only the first message of a stream can be a hello message")]
    SecondHello,
    /// Status that exceeds a limit.
    #[error("node {node}: the status has {found} {what}, and the limit is {most}")]
    TooBig {
        /// The node.
        node: NodeName,
        /// What exceeds the limit.
        what: &'static str,
        /// Actual amount.
        found: usize,
        /// Limit.
        most: usize,
    },
    /// Invalid status.
    #[error("node {node}: invalid status")]
    Status {
        /// The node.
        node: NodeName,
        /// Position and reason.
        source: Box<StatusError>,
    },
}

impl StoreError {
    /// Value of the metrics label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::TooManyNodes { .. } => "too_many_nodes",
            Self::SecondHello => "second_hello",
            Self::TooBig { .. } => "too_big",
            Self::Status { .. } => "bad_status",
        }
    }

    /// Returns whether the message exceeds a limit but is otherwise valid.
    pub fn is_limit_exceeded(&self) -> bool {
        match self {
            Self::TooManyNodes { .. } | Self::TooBig { .. } => true,
            Self::SecondHello | Self::Status { .. } => false,
        }
    }
}
