//! Why a message says nothing.

use thiserror::Error;

use crate::domain::id::IdError;
use crate::domain::stream::PartKeyError;

/// A message that cannot be, with its field such as `snapshot.parts[3].key`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} of a message cannot be")]
pub struct StreamError {
    field: String,
    #[source]
    problem: StreamProblem,
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StreamProblem {
    /// Nothing is said, or something that only a newer version understands.
    #[error("it says nothing that this version understands")]
    Empty,
    /// A name that no node can have.
    #[error(transparent)]
    Name(#[from] IdError),
    /// A key that no part can have.
    #[error(transparent)]
    Key(#[from] PartKeyError),
    /// More parts than any node has.
    #[error("{count} are more than {}", super::MOST_PARTS)]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A text that is longer than what stands there.
    #[error("it is too long")]
    TooLong,
    /// A text with control characters.
    #[error("it has control characters")]
    Control,
    /// A status without a number.
    #[error("a status is numbered from 1")]
    Unnumbered,
}

impl StreamError {
    /// The field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &StreamProblem {
        &self.problem
    }

    pub(super) fn new(field: &str, problem: impl Into<StreamProblem>) -> Self {
        Self {
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// The same error seen from the message that holds it.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}
