//! Connections to the database.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{AnyPool, Executor};
use tokio::time::timeout;

use crate::error::{DatabaseError, InvalidUrl};

/// Time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of each connection to SQLite. With a write-ahead log, readers and the writer do not wait for each other, and a
/// transaction is on disk when it ends. Temporary data stays in memory, because containers have no writable directory for it. The
/// cache of 16 MiB holds the indexes that a report reads repeatedly.
const SQLITE_SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 5000; \
     PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384";

/// Settings of each connection to PostgreSQL. A client can give up or disappear, and its statement or transaction must not remain: closing
/// a day takes longest. The limit for locks is that of SQLite.
///
/// The planner does not know the number of days whose intervals a report reads, and estimates that they are many. With the default cost of
/// random pages, which is that of hard disks, it reads the intervals of all days. The intervals of a day are next to each other, so a
/// random page costs little more than the next one. Compiling a statement with `jit` takes longer than most reports.
///
/// Values that an administrator has set for the server, the database or the role remain, and servers without `jit` are supported.
const POSTGRES_SETTINGS: &str = "SET statement_timeout = '5min'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '1min'; \
     SELECT set_config(name, '1.1', false) FROM pg_settings WHERE name = 'random_page_cost' AND source = 'default'; \
     SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'jit' AND source = 'default'";

/// Address of a database. Its text does not contain the password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    url: String,
    is_sqlite: bool,
}

/// A pool of connections. Clones share it.
#[derive(Debug, Clone)]
pub struct Database {
    pub(crate) pool: AnyPool,
    is_sqlite: bool,
}

impl FromStr for DatabaseUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let is_sqlite = text.starts_with("sqlite:///");
        let is_postgres = text.starts_with("postgres://") || text.starts_with("postgresql://");
        if !is_sqlite && !is_postgres {
            return Err(InvalidUrl(text.chars().take(40).collect()));
        }
        Ok(Self { url: text.to_owned(), is_sqlite })
    }
}

impl DatabaseUrl {
    /// Returns whether it is a file, which only processes with the same volume can share.
    pub fn is_sqlite(&self) -> bool {
        self.is_sqlite
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        // Parameters can contain a password too.
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let location = rest.rsplit_once('@').map_or(rest, |(_, location)| location);
        write!(f, "{scheme}://{location}")
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Database {
    /// Connects to the database and creates its tables if they do not exist.
    ///
    /// # Errors
    /// Fails if the database cannot be reached, or the tables cannot be created.
    pub async fn create(url: &DatabaseUrl) -> Result<Self, DatabaseError> {
        let full = if url.is_sqlite { with_creation(&url.url) } else { url.url.clone() };
        let fail = |source| DatabaseError::Open { url: url.to_string(), source };
        let database = Self::connect(&full, url.is_sqlite, 1).await.map_err(fail)?;
        let schema = sqlx::raw_sql(include_str!("schema.sql"));
        database.pool.execute(schema).await.map_err(fail)?;
        Ok(database)
    }

    /// Connects readers to a database that a writer has created.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn open(url: &DatabaseUrl, max_connections: u32) -> Result<Self, DatabaseError> {
        let fail = |source| DatabaseError::Open { url: url.to_string(), source };
        Self::connect(&url.url, url.is_sqlite, max_connections).await.map_err(fail)
    }

    async fn connect(url: &str, is_sqlite: bool, max: u32) -> Result<Self, sqlx::Error> {
        install_default_drivers();
        let options = AnyPoolOptions::new().max_connections(max).acquire_timeout(CONNECT_TIMEOUT);
        let settings = if is_sqlite { SQLITE_SETTINGS } else { POSTGRES_SETTINGS };
        let options = options.after_connect(move |connection, _| {
            Box::pin(async move { connection.execute(sqlx::raw_sql(settings)).await.map(|_| ()) })
        });
        Ok(Self { pool: options.connect(url).await?, is_sqlite })
    }

    /// Size of the database in bytes.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn bytes(&self) -> Result<u64, DatabaseError> {
        let statement = if self.is_sqlite {
            "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        } else {
            "SELECT pg_database_size(current_database())"
        };
        let bytes: i64 = sqlx::query_scalar(statement)
            .fetch_one(&self.pool)
            .await
            .map_err(DatabaseError::read)?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Fails if `access` takes longer than `limit`: a server that does not respond must not stop its clients.
///
/// # Errors
/// The error of the access, or [`DatabaseError::Timeout`].
pub async fn in_time<T>(
    limit: Duration,
    access: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    timeout(limit, access).await.unwrap_or(Err(DatabaseError::Timeout(limit)))
}

/// Adds the parameter that creates the file if it does not exist.
fn with_creation(url: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}mode=rwc")
}
