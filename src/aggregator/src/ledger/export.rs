//! Exports the usage of each closed day as a Parquet file.
//!
//! The files are the only state: each contains the sum of its usage. A day whose file is missing, truncated, without a footer, or has
//! another sum than the ledger is exported. Damaged data pages are not found. The export has a connection and threads of its own, and
//! therefore does not delay the recording of usage.

use std::fs::{self, File};
use std::future::pending;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use octavo_database::{ClosedDay, Database, DatabaseError, DatabaseUrl, in_time};
use octavo_ledger::Day;
use octavo_model::backoff::Backoff;
use octavo_toolkit::error::chain;
use octavo_toolkit::files;
use octavo_toolkit::random::random;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{debug, error, info};

use super::metrics::LedgerMetrics;
use super::usage_file::{UsageFileWriter, exported_ppm_seconds};

/// Delays after failed exports.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_mins(10) };
/// Time limit of each query, and of closing the connection.
const QUERY_TIMEOUT: Duration = Duration::from_mins(1);
/// Name of the file of a day. Its directory is named for the day.
const FILE: &str = "usage.parquet";
/// Start of the name of a draft, which is an incomplete file. `DuckDB`, Spark, Trino and Hive ignore it.
const DRAFT_PREFIX: &str = ".usage.parquet.";
/// End of the name of a draft.
const DRAFT_SUFFIX: &str = ".tmp";
/// Time without a write after which a draft is removed. A younger one can be that of another aggregator.
const STALE_DRAFT_AGE: Duration = Duration::from_hours(1);

/// Exports closed days.
#[derive(Debug)]
pub(super) struct LedgerExporter {
    pub(super) url: DatabaseUrl,
    pub(super) directory: PathBuf,
    /// Notified after days are closed.
    pub(super) closed: Arc<Notify>,
    pub(super) metrics: LedgerMetrics,
}

/// A failed export.
#[derive(Debug, Error)]
enum ExportError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("cannot write {}", .path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the usage of {} changed during its export", .0.date())]
    Changed(Day),
}

impl LedgerExporter {
    /// Exports closed days, and tries again after a failure.
    pub(super) async fn run(self) {
        let mut failures = 0_u32;
        loop {
            match failures.checked_sub(1) {
                None => self.closed.notified().await,
                Some(earlier) => {
                    let _is_due = timeout(BACKOFF.delay(earlier), self.closed.notified()).await;
                }
            }
            match self.export_days().await {
                Ok(()) if std::mem::take(&mut failures) > 0 => {
                    info!("usage is exported again");
                }
                Ok(()) => {}
                Err(error) => {
                    self.metrics.count_export_failure();
                    if failures == 0 {
                        error!(error = %chain(&error), "cannot export usage; trying again");
                    }
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// Exports the days that are not exported. Returns the first error after an attempt for each day, unless the database does not
    /// respond.
    async fn export_days(&self) -> Result<(), ExportError> {
        let database = in_time(QUERY_TIMEOUT, Database::open(&self.url, 1)).await?;
        let result = self.export_from(&database).await;
        // A connection whose query does not end cannot be closed.
        let _closed = timeout(QUERY_TIMEOUT, database.close()).await;
        result
    }

    async fn export_from(&self, database: &Database) -> Result<(), ExportError> {
        let mut missing = Vec::new();
        for closed in in_time(QUERY_TIMEOUT, database.closed_days()).await? {
            let path = self.path(closed.day);
            if exported(path.clone()).await != Some(closed.ppm_seconds) {
                missing.push((closed, path));
            }
        }
        let mut pending_days = missing.len();
        let mut result = Ok(());
        self.metrics.set_pending_days(pending_days);
        for (closed, path) in missing {
            match export_day(database, closed, &path).await {
                Ok(()) => pending_days = pending_days.saturating_sub(1),
                // The query has the only connection, so the other days would fail, too.
                Err(error @ ExportError::Database(DatabaseError::Timeout(_))) => {
                    return result.and(Err(error));
                }
                Err(error) => result = result.and(Err(error)),
            }
            self.metrics.set_pending_days(pending_days);
        }
        result
    }

    fn path(&self, day: Day) -> PathBuf {
        self.directory.join(format!("day={}", day.date())).join(FILE)
    }
}

/// Seconds of all devices that the file at `path` contains, if it is complete. Removes stale drafts beside it.
async fn exported(path: PathBuf) -> Option<i64> {
    let exported = move || {
        remove_stale_drafts(path.parent()?);
        exported_ppm_seconds(&files::open(&path).ok()?)
    };
    blocking(exported).await
}

/// Removes the drafts that killed aggregators have left in the directory of a day. A draft that cannot be removed is tried again at the next
/// pass.
fn remove_stale_drafts(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let is_draft = |name: &str| name.starts_with(DRAFT_PREFIX) && name.ends_with(DRAFT_SUFFIX);
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        if entry.file_name().to_str().is_some_and(is_draft)
            && age.is_some_and(|age| age >= STALE_DRAFT_AGE)
        {
            let _is_removed = fs::remove_file(entry.path());
        }
    }
}

/// Writes the file of a day beside `path`, and moves it there.
async fn export_day(
    database: &Database,
    closed: ClosedDay,
    path: &Path,
) -> Result<(), ExportError> {
    let draft = path.with_file_name(format!("{DRAFT_PREFIX}{:016x}{DRAFT_SUFFIX}", random()));
    let result = write_day(database, closed, &draft).await;
    let path = path.to_owned();
    blocking(move || {
        let moved = result.and_then(|()| fs::rename(&draft, &path).map_err(failed(&path)));
        if moved.is_err() {
            // An incomplete file must not fill the disk.
            let _missing = fs::remove_file(&draft);
        }
        moved
    })
    .await?;
    debug!(day = %closed.day.date(), "usage exported");
    Ok(())
}

/// Writes the intervals of a day to `draft`.
async fn write_day(
    database: &Database,
    closed: ClosedDay,
    draft: &Path,
) -> Result<(), ExportError> {
    let path = draft.to_owned();
    let mut writer = blocking(move || create(&path)).await.map_err(failed(draft))?;
    let mut reader = database.day_reader(closed.day);
    loop {
        let batch = in_time(QUERY_TIMEOUT, reader.next_batch()).await?;
        if batch.is_empty() {
            break;
        }
        writer =
            blocking(move || writer.add(batch).map(|()| writer)).await.map_err(failed(draft))?;
    }
    if writer.ppm_seconds() != closed.ppm_seconds {
        return Err(ExportError::Changed(closed.day));
    }
    // The directory is not synced: the next pass finds a file that is missing after a power failure.
    blocking(move || writer.finish()?.sync_all()).await.map_err(failed(draft))
}

/// Creates a draft and the directory of its day. The directory of all days must exist: without its volume, the files would be written to
/// another one.
fn create(draft: &Path) -> io::Result<UsageFileWriter<File>> {
    let directory = draft.parent().unwrap_or(draft);
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    UsageFileWriter::new(File::create_new(draft)?)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::Write { path, source }
}

/// Runs `job` on another thread, because a volume can be slow or hang.
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(job).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime shuts down.
            Err(_cancelled) => pending().await,
        },
    }
}
