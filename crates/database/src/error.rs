//! Errors of the database.

use std::time::Duration;

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
    /// The database did not respond in time.
    #[error("the ledger did not respond within {0:?}")]
    Timeout(Duration),
    /// Another program has opened it for writing since.
    #[error("another program writes to the ledger: only one aggregator may use it with --ledger")]
    OtherWriter,
}

impl DatabaseError {
    pub(crate) fn read(source: sqlx::Error) -> Self {
        Self::Statement { action: "read", source }
    }

    pub(crate) fn write(source: sqlx::Error) -> Self {
        Self::Statement { action: "write", source }
    }
}
