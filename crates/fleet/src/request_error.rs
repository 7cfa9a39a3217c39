//! Error of a request document.

use thiserror::Error;

/// An invalid request. The field is named as in the API.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct RequestError {
    /// Field name.
    pub field: &'static str,
    /// The problem, and what would be valid.
    pub problem: String,
}

impl RequestError {
    /// Creates an error for a field.
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}
