//! Audit trail: entries of the chain in the database.

use std::collections::BTreeSet;

use jiff::Timestamp;
use octavo_fleet::digest::sha256;
use octavo_ledger::audit::{
    AuditEvent, AuditQuery, AuditRecord, ChainHead, UsageEvent, export_line,
};
use octavo_ledger::{Container, Day, UsageState};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Error, Row};

use crate::connection::Database;
use crate::error::DatabaseError;
use crate::rows::{ALLOCATED, container, number};
use crate::statement::{ROWS_PER_STATEMENT, insert, text};

/// Usage of each container on a day ($1), by device, partition and state.
const USAGE: &str = "\
    SELECT d.node, d.uid AS device, d.type, h.namespace, h.pod, h.uid, h.container, h.claim, h.owner_kind, h.owner_name, h.team, \
           i.partition_uid, i.profile, CAST(CASE WHEN i.activity = 'idle' THEN 1 ELSE 0 END AS BIGINT) AS is_idle, \
           MIN(i.start_s) AS from_s, MAX(i.end_s) AS until_s, CAST(SUM(i.end_s - i.start_s) AS BIGINT) AS seconds, \
           CAST(SUM((i.end_s - i.start_s) * i.inferred) AS BIGINT) AS inferred_s \
    FROM ledger_interval i JOIN ledger_device d ON d.id = i.device JOIN ledger_holder h ON h.id = i.holder \
    WHERE i.day = $1 AND i.state = $2 \
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 \
    ORDER BY 15, 4, 5, 6, 7, 1, 2, 12, 13, 14";

/// Deletes the entries before the first one that is retained ($1). The last entry remains, because the chain continues from it.
const DELETE: &str = "DELETE FROM audit_entry WHERE seq < COALESCE(\
     (SELECT MIN(seq) FROM audit_entry WHERE time_s >= $1), (SELECT MAX(seq) FROM audit_entry))";

/// Maximum number of entries of a page, which are in memory at the same time.
const PAGE_ENTRIES: usize = 500;

/// Consecutive entries of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// The entries as lines of the export, each with a line feed.
    pub lines: String,
    /// Number of the first entry of the next page; `None` after the last page.
    pub next: Option<i64>,
}

impl Database {
    /// The head of the chain.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn audit_head(&self) -> Result<ChainHead, DatabaseError> {
        let read = async { head(&mut *self.pool.acquire().await?).await };
        read.await.map_err(DatabaseError::read)
    }

    /// Numbers of the first and the last entry in the time range of a query; `None` if there are no entries. The times of entries
    /// are not strictly ordered, because events can wait for the database. All entries between the first and the last one are in
    /// the range, so that an export is a part of the chain.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn audit_range(
        &self,
        query: &AuditQuery,
    ) -> Result<Option<(i64, i64)>, DatabaseError> {
        let from = query.from.unwrap_or(Timestamp::MIN).as_second();
        let until = query.until.unwrap_or(Timestamp::MAX).as_second();
        let statement = "SELECT (SELECT MIN(seq) FROM audit_entry WHERE time_s >= $1) AS first, \
             (SELECT MAX(seq) FROM audit_entry WHERE time_s < $2) AS last";
        let row = sqlx::query(statement).bind(from).bind(until).fetch_one(&self.pool).await;
        let bounds = row
            .and_then(|row| Ok(row.try_get::<Option<i64>, _>("first")?.zip(row.try_get("last")?)));
        Ok(bounds.map_err(DatabaseError::read)?.filter(|(first, last)| first <= last))
    }

    /// The next entries of a query, from entry `first` to entry `last`.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn audit_page(
        &self,
        query: &AuditQuery,
        (first, last): (i64, i64),
    ) -> Result<AuditPage, DatabaseError> {
        let namespace = query.namespace.as_deref();
        let filters = [("namespace", namespace), ("kind", query.kind.map(Into::into))];
        let filters = filters.into_iter().filter_map(|(column, value)| Some((column, value?)));
        let filters: Vec<(&str, &str)> = filters.collect();
        let conditions = filters.iter().zip(3_u8..);
        let conditions = conditions.map(|((column, _), at)| format!(" AND {column} = ${at}"));
        let statement = format!(
            "SELECT seq, entry, hash FROM audit_entry WHERE seq >= $1 AND seq <= $2{} ORDER BY seq LIMIT {PAGE_ENTRIES}",
            conditions.collect::<String>()
        );
        let mut sql = sqlx::query(AssertSqlSafe(statement)).bind(first).bind(last);
        for (_, value) in filters {
            sql = sql.bind(text(value));
        }
        let rows = sql.fetch_all(&self.pool).await.map_err(DatabaseError::read)?;
        let lines = rows.iter().map(line).collect::<Result<String, _>>();
        let last = rows.get(PAGE_ENTRIES.saturating_sub(1)).map(|row| row.try_get::<i64, _>("seq"));
        let last = last.transpose().map_err(DatabaseError::read)?;
        let next = last.map(|last| last.saturating_add(1));
        Ok(AuditPage { lines: lines.map_err(DatabaseError::read)?, next })
    }
}

fn line(row: &AnyRow) -> Result<String, Error> {
    let (entry, hash): (String, String) = (row.try_get("entry")?, row.try_get("hash")?);
    Ok(export_line(&entry, &hash) + "\n")
}

async fn head(connection: &mut AnyConnection) -> Result<ChainHead, Error> {
    let statement = "SELECT seq, hash FROM audit_entry ORDER BY seq DESC LIMIT 1";
    let Some(row) = sqlx::query(statement).fetch_optional(connection).await? else {
        return Ok(ChainHead::default());
    };
    Ok(ChainHead { seq: row.try_get("seq")?, hash: row.try_get("hash")? })
}

/// Appends the events that the chain does not have.
pub(crate) async fn append(
    connection: &mut AnyConnection,
    records: &[&AuditRecord],
) -> Result<ChainHead, Error> {
    // The head is read each time: an earlier append can have succeeded although its confirmation was lost.
    let mut head = head(connection).await?;
    for batch in records.chunks(ROWS_PER_STATEMENT) {
        let mut known = known_sources(connection, batch).await?;
        let new: Vec<_> =
            batch.iter().filter(|record| known.insert(record.source.clone())).collect();
        if new.is_empty() {
            continue;
        }
        let table = "audit_entry (seq, time_s, kind, namespace, source, entry, hash)";
        let mut query = sqlx::query(AssertSqlSafe(insert(table, new.len(), "")));
        for record in new {
            let entry = head.append(record).map_err(|error| Error::Encode(error.into()))?;
            query = query
                .bind(entry.seq)
                .bind(record.time.as_second())
                .bind(<&str>::from(record.event.kind()))
                .bind(record.event.namespace().map(text))
                .bind(record.source.clone())
                .bind(entry.text)
                .bind(entry.hash);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(head)
}

/// Sources of the events that were appended before.
async fn known_sources(
    connection: &mut AnyConnection,
    records: &[&AuditRecord],
) -> Result<BTreeSet<String>, Error> {
    let numbers: Vec<String> = (1..=records.len()).map(|number| format!("${number}")).collect();
    let statement =
        format!("SELECT source FROM audit_entry WHERE source IN ({})", numbers.join(", "));
    let mut query = sqlx::query_scalar(AssertSqlSafe(statement));
    for record in records {
        query = query.bind(record.source.clone());
    }
    Ok(query.fetch_all(connection).await?.into_iter().collect())
}

/// Appends the usage of a day that is over. If late reports have changed a day that was closed before, only the changed usage is
/// appended.
pub(crate) async fn append_usage(
    connection: &mut AnyConnection,
    day: i64,
    now: Timestamp,
) -> Result<(), Error> {
    let rows = sqlx::query(USAGE).bind(day).bind(ALLOCATED).fetch_all(&mut *connection).await?;
    let day = Day(i32::try_from(day).unwrap_or(i32::MAX));
    let prefix = format!("usage/{}/", day.date());
    // Usage of a day is appended after the day.
    let statement = "SELECT COUNT(*) FROM (SELECT seq FROM audit_entry WHERE time_s >= $1 AND kind = 'usage' \
         AND source LIKE $2 LIMIT 1) AS earlier";
    let earlier: i64 = sqlx::query_scalar(statement)
        .bind(day.end())
        .bind(format!("{prefix}%"))
        .fetch_one(&mut *connection)
        .await?;
    let records = rows.iter().map(|row| {
        let usage = usage(row)?;
        let same = serde_json::to_string(&usage).map_err(|error| Error::Encode(error.into()))?;
        let source = format!("{prefix}{}", sha256(&[&same]));
        let event = AuditEvent::Usage(UsageEvent { corrected: earlier > 0, ..usage });
        Ok(AuditRecord { time: now, source, event })
    });
    let records: Vec<AuditRecord> = records.collect::<Result<_, Error>>()?;
    append(connection, &records.iter().collect::<Vec<_>>()).await.map(|_| ())
}

fn usage(row: &AnyRow) -> Result<UsageEvent, Error> {
    let Container { namespace, pod, uid, container, claim, owner, team } = container(row)?;
    let time = |column: &'static str| -> Result<Timestamp, Error> {
        let seconds = row.try_get(column)?;
        Timestamp::from_second(seconds).map_err(|error| Error::Decode(error.into()))
    };
    Ok(UsageEvent {
        namespace,
        pod,
        uid,
        container,
        claim,
        workload: owner.map(|owner| format!("{}/{}", owner.kind, owner.name)),
        team,
        node: row.try_get("node")?,
        device: row.try_get("device")?,
        type_name: row.try_get("type")?,
        partition: row.try_get("partition_uid")?,
        profile: row.try_get("profile")?,
        from: time("from_s")?,
        until: time("until_s")?,
        seconds: row.try_get("seconds")?,
        inferred_seconds: row.try_get("inferred_s")?,
        state: match number::<i64>(row, "is_idle")? {
            0 => UsageState::Used,
            _ => UsageState::Idle,
        },
        corrected: false,
    })
}

/// Deletes the entries of days before `first` from the front of the chain.
pub(crate) async fn delete_entries(
    connection: &mut AnyConnection,
    first: Day,
) -> Result<(), Error> {
    sqlx::query(DELETE).bind(first.start()).execute(connection).await.map(|_| ())
}
