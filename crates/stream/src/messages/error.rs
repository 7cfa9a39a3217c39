//! Errors while parsing a message.

use octavo_model::id::ParseError;
use thiserror::Error;

use crate::protocol::PartKeyError;

/// An invalid message, with the field such as `snapshot.parts[3].key`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid field {field} of a message")]
pub struct StreamError {
    /// The field.
    pub field: String,
    /// Why it is invalid.
    #[source]
    pub problem: StreamProblem,
}

/// Why a field is invalid.
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
    #[error("{count} is more than the maximum of {}", super::MAX_PARTS)]
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
    pub(super) fn new(field: &str, problem: impl Into<StreamProblem>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }

    /// Prepends the parent's path.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}
