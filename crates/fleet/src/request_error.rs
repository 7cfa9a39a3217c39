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

    /// Creates an error for a value that is none of `words`.
    pub(crate) fn unknown_value(field: &'static str, text: &str, words: &[&str]) -> Self {
        let text: String = text.chars().take(40).collect();
        Self::new(field, format!("{text:?} is not one of {}", words.join(", ")))
    }
}
