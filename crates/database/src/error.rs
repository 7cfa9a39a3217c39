//! Errors of the database.

use thiserror::Error;

/// A URL that names no supported database.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not the URL of a ledger: use sqlite:///PATH or postgres://USER:PASSWORD@HOST/DATABASE"
)]
pub struct InvalidUrl(pub(crate) String);

/// A failed access to the database.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The database cannot be opened.
    #[error("cannot open the ledger {url}")]
    Open {
        /// URL without password.
        url: String,
        /// The cause.
        source: sqlx::Error,
    },
    /// A statement failed.
    #[error("cannot {action} the ledger")]
    Statement {
        /// `read` or `write`.
        action: &'static str,
        /// The cause.
        source: sqlx::Error,
    },
    /// Another program wrote to it since it was opened.
    #[error("another program writes to the ledger: only one aggregator may use it with --ledger")]
    OtherWriter(#[source] sqlx::Error),
}

impl DatabaseError {
    pub(crate) fn read(source: sqlx::Error) -> Self {
        Self::Statement { action: "read", source }
    }

    pub(crate) fn write(source: sqlx::Error) -> Self {
        let is_duplicate =
            source.as_database_error().is_some_and(|error| error.is_unique_violation());
        if is_duplicate {
            Self::OtherWriter(source)
        } else {
            Self::Statement { action: "write", source }
        }
    }
}
