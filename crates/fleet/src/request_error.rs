//! Error of a request document.

use strum::VariantArray;
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

    /// Creates an error for a value that is none of the words of `T`.
    pub(crate) fn unknown_value<T>(field: &'static str, text: &str) -> Self
    where
        T: VariantArray + Copy + Into<&'static str>,
    {
        let words: Vec<&str> = T::VARIANTS.iter().map(|word| (*word).into()).collect();
        let text: String = text.chars().take(40).collect();
        Self::new(field, format!("{text:?} is not one of {}", words.join(", ")))
    }
}
