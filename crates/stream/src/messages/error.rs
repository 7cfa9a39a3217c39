//! Errors while parsing a message.

use octavo_model::id::IdError;
use thiserror::Error;

use crate::protocol::PartKeyError;

/// An invalid message, with the field such as `snapshot.parts[3].key`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} of a message cannot be")]
pub struct StreamError {
    field: String,
    #[source]
    problem: StreamProblem,
}

/// Why a field is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StreamProblem {
    /// The message is empty or of a kind that this version does not know.
    #[error("it says nothing that this version understands")]
    UnknownMessage,
    /// An invalid node name.
    #[error(transparent)]
    Name(#[from] IdError),
    /// An invalid part key.
    #[error(transparent)]
    Key(#[from] PartKeyError),
    /// Too many parts.
    #[error("{count} are more than {}", super::MAX_PARTS)]
    TooMany {
        /// Number of parts.
        count: usize,
    },
    /// A text is too long.
    #[error("it is too long")]
    TooLong,
    /// A text contains control characters.
    #[error("it has control characters")]
    ControlCharacters,
    /// The sequence number is zero.
    #[error("a status is numbered from 1")]
    ZeroSequenceNumber,
}

impl StreamError {
    /// The field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Why it is invalid.
    pub fn problem(&self) -> &StreamProblem {
        &self.problem
    }

    pub(super) fn new(field: &str, problem: impl Into<StreamProblem>) -> Self {
        Self {
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// Prepends the parent's path.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}
