//! Reasons why nothing is generated.

use thiserror::Error;

use crate::note::Note;

/// Reason why nothing was generated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GenerateError {
    /// No node can be used.
    #[error(
        "no node can be used{}; check --type and `octavo nodes`",
        first_note(.0)
    )]
    NoNodes(Vec<Note>),
    /// A limit of the target is exceeded.
    #[error("{count} {what} exceed Kueue's limit of {limit}; limit the types with --type")]
    TooMany {
        /// Kind of the objects, in the plural.
        what: &'static str,
        /// Number of them.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The name of an object is too long.
    #[error(
        "{name} has more than {limit} characters, so that it cannot name a machine set; limit the \
         types with --type"
    )]
    LongName {
        /// The name.
        name: String,
        /// Maximum length.
        limit: usize,
    },
}

fn first_note(notes: &[Note]) -> String {
    notes.first().map_or_else(String::new, |note| format!(": {note}"))
}
