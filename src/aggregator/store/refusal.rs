//! What the store does not take, and why.

use thiserror::Error;

use crate::domain::id::NodeName;
use crate::wire::status::StatusError;

/// Why something an agent said was refused. Nothing has changed.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The fleet is full, and no node of it is both stale and disconnected.
    #[error("node {node}: this aggregator keeps {most} nodes and has as many")]
    TooManyNodes {
        /// The node that came too late.
        node: NodeName,
        /// The bound.
        most: usize,
    },
    /// An agent introduced itself twice.
    #[error("hello: it is said once, at the beginning of a stream")]
    SecondHello,
    /// A status is too big.
    #[error("node {node}: the status has {found} {what}, {most} is the limit")]
    TooBig {
        /// The node.
        node: NodeName,
        /// What there is too much of.
        what: &'static str,
        /// How much.
        found: usize,
        /// The bound.
        most: usize,
    },
    /// A status is not one.
    #[error("node {node}: the status cannot be used")]
    Status {
        /// The node.
        node: NodeName,
        /// Where and why.
        source: Box<StatusError>,
    },
}

impl Refusal {
    /// In one word, for counting.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TooManyNodes { .. } => "too_many_nodes",
            Self::SecondHello => "second_hello",
            Self::TooBig { .. } => "too_big",
            Self::Status { .. } => "bad_status",
        }
    }

    /// Whether there is too much of something that would be right if there were less.
    pub fn is_too_much(&self) -> bool {
        match self {
            Self::TooManyNodes { .. } | Self::TooBig { .. } => true,
            Self::SecondHello | Self::Status { .. } => false,
        }
    }
}
