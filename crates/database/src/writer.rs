//! Writer of the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use octavo_ledger::audit::{AuditRecord, ChainHead};
use octavo_ledger::{Container, Day, Device, Holder, Interval, MAX_PAST_SECONDS};
use octavo_toolkit::random::random;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe, Error, Transaction};

use crate::audit::{append, append_usage, delete_entries};
use crate::connection::{Database, DatabaseUrl};
use crate::error::DatabaseError;
use crate::rows::{self, ALLOCATED, Ids, LAST_INTERVALS, UNALLOCATED, UNKNOWN};
use crate::statement::{ROWS_PER_STATEMENT, insert, text};
use crate::sums::{CLOSE_DAY, OPEN_DAYS};

/// Clause for rows that an earlier attempt may have written.
const ON_KNOWN_ID: &str = "ON CONFLICT (id) DO NOTHING";

/// Number of days before the last one in the ledger that contain the last intervals of devices for which usage can arrive.
const RECOVERED_DAYS: i64 = MAX_PAST_SECONDS / 86_400 + 1;

/// The only writer of a ledger.
#[derive(Debug)]
pub struct LedgerWriter {
    database: Database,
    ids: Ids,
    /// Ids that may not be in the database: a transaction can succeed although its confirmation is lost, so it is repeated
    /// with the same ids.
    unconfirmed: Ids,
    last_device: i64,
    last_holder: i64,
    /// Identifies this writer; the first part of the token in the database.
    token: String,
}

impl LedgerWriter {
    /// Opens the database, creates its tables if necessary, and returns the last intervals of each device. From then on, no other
    /// program can write to it.
    ///
    /// # Errors
    /// Fails if the database cannot be opened, written or read.
    pub async fn open(url: &DatabaseUrl) -> Result<(Self, Vec<Interval>), DatabaseError> {
        let database = Database::create(url).await?;
        let token = format!("{:016x}", random());
        let claim = "INSERT INTO ledger_writer (id, token) VALUES (1, $1) \
             ON CONFLICT (id) DO UPDATE SET token = excluded.token";
        let claimed = sqlx::query(claim).bind(next_token(&token)).execute(&database.pool).await;
        claimed.map_err(DatabaseError::write)?;
        Self::read(database, token).await.map_err(DatabaseError::read)
    }

    /// Like [`Self::open`], but only if the last activity of the other program is still `observed`, as [`Self::activity`] returned it.
    /// Otherwise, the other program has not ended, and the result is `None`.
    ///
    /// # Errors
    /// Fails if the database cannot be opened, written or read.
    pub async fn take_over(
        url: &DatabaseUrl,
        observed: &str,
    ) -> Result<Option<(Self, Vec<Interval>)>, DatabaseError> {
        let database = Database::create(url).await?;
        let token = format!("{:016x}", random());
        let claim = sqlx::query("UPDATE ledger_writer SET token = $1 WHERE id = 1 AND token = $2")
            .bind(next_token(&token))
            .bind(observed.to_owned());
        let claimed = claim.execute(&database.pool).await.map_err(DatabaseError::write)?;
        if claimed.rows_affected() == 0 {
            return Ok(None);
        }
        Self::read(database, token).await.map(Some).map_err(DatabaseError::read)
    }

    /// Reads the last intervals and ids. The caller has claimed the ledger in a committed transaction: a transaction of another program
    /// that ends after these reads would add seconds and ids that this writer assigns again.
    async fn read(database: Database, token: String) -> Result<(Self, Vec<Interval>), Error> {
        let pool = &database.pool;
        let max = async |statement: &'static str| -> Result<i64, Error> {
            sqlx::query_scalar(statement).fetch_one(pool).await
        };
        let last_device = max("SELECT COALESCE(MAX(id), 0) FROM ledger_device").await?;
        let last_holder = max("SELECT COALESCE(MAX(id), 0) FROM ledger_holder").await?;
        let last_day = max("SELECT COALESCE(MAX(day), 0) FROM ledger_interval").await?;
        let since = last_day.saturating_sub(RECOVERED_DAYS);
        let found = sqlx::query(LAST_INTERVALS).bind(since).fetch_all(pool).await?;
        let mut ids = Ids::default();
        let last = found.iter().map(|row| rows::interval(row, &mut ids));
        let last = last.collect::<Result<_, _>>()?;
        let unconfirmed = Ids::default();
        Ok((Self { database, ids, unconfirmed, last_device, last_holder, token }, last))
    }

    /// Writes intervals in one transaction: all of them or none. Without intervals, it only shows other programs that this writer has not
    /// ended. The ids of their holders remain in memory until [`Self::forget_unused`].
    ///
    /// # Errors
    /// Fails if the database cannot be written. The caller can try again.
    pub async fn write(&mut self, intervals: &[Interval]) -> Result<(), DatabaseError> {
        if intervals.is_empty() {
            return self.begin().await?.commit().await.map_err(DatabaseError::write);
        }
        self.assign_ids(intervals);
        let mut transaction = self.begin().await?;
        let write = async {
            insert_devices(&mut transaction, &self.unconfirmed.devices).await?;
            insert_holders(&mut transaction, &self.unconfirmed.holders).await?;
            self.insert_intervals(&mut transaction, intervals).await?;
            // The sums of a day are no longer true if an interval of it changes.
            let days: BTreeSet<Day> = intervals.iter().map(Interval::day).collect();
            for day in days {
                reopen(&mut transaction, day).await?;
            }
            transaction.commit().await
        };
        write.await.map_err(DatabaseError::write)?;
        self.unconfirmed = Ids::default();
        Ok(())
    }

    /// Forgets the holders that `intervals` do not contain: they have ended, or get a new id. `intervals` are all that were last written,
    /// possibly in several transactions.
    pub fn forget_unused(&mut self, intervals: &[Interval]) {
        let used: BTreeSet<&Arc<Container>> =
            intervals.iter().filter_map(|interval| interval.part.holder.container()).collect();
        self.ids.holders.retain(|container, _| used.contains(container));
    }

    /// Begins a transaction, unless another program has opened the ledger for writing.
    async fn begin(&self) -> Result<Transaction<'static, Any>, DatabaseError> {
        let check = async {
            let mut transaction = self.database.pool.begin().await?;
            let check =
                sqlx::query("UPDATE ledger_writer SET token = $1 WHERE id = 1 AND token LIKE $2");
            let check = check.bind(next_token(&self.token)).bind(format!("{}/%", self.token));
            let done = check.execute(&mut *transaction).await?;
            Ok((transaction, done.rows_affected()))
        };
        match check.await.map_err(DatabaseError::write)? {
            (transaction, 1) => Ok(transaction),
            (_, _) => Err(DatabaseError::OtherWriter),
        }
    }

    /// Sums up the days before that of `now` that are not yet summed up, and appends their usage to the audit trail.
    ///
    /// # Errors
    /// Fails if the database cannot be written. The caller can try again.
    pub async fn close_days(&mut self, now: Timestamp) -> Result<(), DatabaseError> {
        let today = Day::of(now.as_second());
        let statement = format!(
            "{OPEN_DAYS}SELECT day FROM open_days o \
             WHERE EXISTS (SELECT 1 FROM ledger_interval i WHERE i.day = o.day) ORDER BY day"
        );
        let (first, last) = (i64::from(i32::MIN), i64::from(today.0));
        let days = sqlx::query_scalar(AssertSqlSafe(statement))
            .bind(first)
            .bind(last.saturating_sub(1))
            .bind(first)
            .bind(last);
        let days: Vec<i64> =
            days.fetch_all(&self.database.pool).await.map_err(DatabaseError::read)?;
        for day in days {
            let mut transaction = self.begin().await?;
            let close = async {
                for statement in CLOSE_DAY {
                    sqlx::query(statement).bind(day).execute(&mut *transaction).await?;
                }
                append_usage(&mut transaction, day, now).await?;
                let closed = sqlx::query("INSERT INTO ledger_closed_day (day) VALUES ($1)");
                closed.bind(day).execute(&mut *transaction).await?;
                transaction.commit().await
            };
            close.await.map_err(DatabaseError::write)?;
        }
        Ok(())
    }

    /// Appends events to the audit trail in one transaction: all of them or none. Events that were appended before are ignored. Returns
    /// the head of the chain.
    ///
    /// # Errors
    /// Fails if the database cannot be written. The caller can try again.
    pub async fn append(
        &mut self,
        records: impl IntoIterator<Item = &AuditRecord>,
    ) -> Result<ChainHead, DatabaseError> {
        let mut transaction = self.begin().await?;
        let records: Vec<&AuditRecord> = records.into_iter().collect();
        let write = async {
            let head = append(&mut transaction, &records).await?;
            transaction.commit().await?;
            Ok(head)
        };
        write.await.map_err(DatabaseError::write)
    }

    /// Deletes the intervals of summed up days before `details`, and the sums and audit entries of days before `sums`.
    ///
    /// # Errors
    /// Fails if the database cannot be written. The caller can try again.
    pub async fn delete_before(&mut self, details: Day, sums: Day) -> Result<(), DatabaseError> {
        let mut transaction = self.begin().await?;
        let delete = async {
            delete_entries(&mut transaction, sums).await?;
            let mut deleted = 0_u64;
            for (statement, day) in [
                (
                    "DELETE FROM ledger_interval WHERE day < $1 \
                     AND day IN (SELECT day FROM ledger_closed_day)",
                    details,
                ),
                ("DELETE FROM ledger_day WHERE day < $1", sums),
                ("DELETE FROM ledger_interval WHERE day < $1", sums),
                ("DELETE FROM ledger_closed_day WHERE day < $1", sums),
            ] {
                let statement = sqlx::query(statement).bind(i64::from(day.0));
                let done = statement.execute(&mut *transaction).await?;
                deleted = deleted.saturating_add(done.rows_affected());
            }
            if deleted > 0 {
                // With NOT IN, PostgreSQL reads all intervals for each holder once they exceed its memory for a statement.
                let unused = "DELETE FROM ledger_holder WHERE id IN (SELECT id FROM ledger_holder \
                     EXCEPT SELECT holder FROM ledger_interval WHERE holder IS NOT NULL)";
                sqlx::query(unused).execute(&mut *transaction).await?;
            }
            transaction.commit().await
        };
        delete.await.map_err(DatabaseError::write)?;
        // A deleted holder must not be referred to again.
        self.ids.holders.clear();
        Ok(())
    }

    /// Text that changes with each transaction of the program that writes to the ledger.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn activity(&self) -> Result<String, DatabaseError> {
        let statement = "SELECT token FROM ledger_writer WHERE id = 1";
        let token = sqlx::query_scalar(statement).fetch_one(&self.database.pool).await;
        token.map_err(DatabaseError::read)
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Assigns ids to new devices and holders.
    fn assign_ids(&mut self, intervals: &[Interval]) {
        for interval in intervals {
            if !self.ids.devices.contains_key(&interval.device) {
                self.last_device = self.last_device.saturating_add(1);
                for ids in [&mut self.ids, &mut self.unconfirmed] {
                    ids.devices.insert(Arc::clone(&interval.device), self.last_device);
                }
            }
            if let Some(container) = interval.part.holder.container()
                && !self.ids.holders.contains_key(container)
            {
                self.last_holder = self.last_holder.saturating_add(1);
                for ids in [&mut self.ids, &mut self.unconfirmed] {
                    ids.holders.insert(Arc::clone(container), self.last_holder);
                }
            }
        }
    }

    async fn insert_intervals(
        &self,
        connection: &mut AnyConnection,
        intervals: &[Interval],
    ) -> Result<(), Error> {
        for batch in intervals.chunks(ROWS_PER_STATEMENT) {
            let statement = insert(
                "ledger_interval (day, device, start_s, slot, end_s, holder, state, activity, method, \
                 partition_uid, profile, ppm, inferred, percent_s, measured_s)",
                batch.len(),
                "ON CONFLICT (day, device, start_s, slot) DO UPDATE SET end_s = excluded.end_s, \
                 percent_s = excluded.percent_s, measured_s = excluded.measured_s",
            );
            let mut query = sqlx::query(AssertSqlSafe(statement));
            for interval in batch {
                query = self.bind_interval(query, interval);
            }
            query.execute(&mut *connection).await?;
        }
        Ok(())
    }

    fn bind_interval<'q>(
        &self,
        query: Query<'q, Any, AnyArguments>,
        interval: &Interval,
    ) -> Query<'q, Any, AnyArguments> {
        let part = &interval.part;
        let device = self.ids.devices.get(&interval.device).copied();
        let (state, holder) = match &part.holder {
            Holder::Container(container) => (ALLOCATED, self.ids.holders.get(container).copied()),
            Holder::Unallocated => (UNALLOCATED, None),
            Holder::Unknown => (UNKNOWN, None),
        };
        query
            .bind(i64::from(interval.day().0))
            .bind(device)
            .bind(interval.start)
            .bind(i64::from(interval.slot))
            .bind(interval.end)
            .bind(holder)
            .bind(state)
            .bind(part.activity.to_string())
            .bind(part.method.to_string())
            .bind(part.partition.as_deref().map(text))
            .bind(part.profile.as_deref().map(text))
            .bind(i64::from(part.ppm))
            .bind(i64::from(interval.inferred))
            .bind(interval.utilization.percent_seconds)
            .bind(interval.utilization.seconds)
    }
}

/// Token in the database for the next transaction of a writer.
fn next_token(token: &str) -> String {
    format!("{token}/{:016x}", random())
}

async fn insert_devices(
    connection: &mut AnyConnection,
    devices: &BTreeMap<Arc<Device>, i64>,
) -> Result<(), Error> {
    let devices: Vec<_> = devices.iter().collect();
    for batch in devices.chunks(ROWS_PER_STATEMENT) {
        let table = "ledger_device (id, node, uid, type, instance_type, region, purchase_option)";
        let mut query = sqlx::query(AssertSqlSafe(insert(table, batch.len(), ON_KNOWN_ID)));
        for (device, id) in batch {
            query = query
                .bind(**id)
                .bind(device.node.to_string())
                .bind(text(&device.id))
                .bind(device.price_key.as_ref().map(|key| key.type_name.to_string()))
                .bind(device.price_key.as_ref().and_then(|key| key.instance_type.clone()))
                .bind(device.price_key.as_ref().and_then(|key| key.region.clone()))
                .bind(device.price_key.as_ref().map(|key| key.option.to_string()));
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

async fn insert_holders(
    connection: &mut AnyConnection,
    holders: &BTreeMap<Arc<Container>, i64>,
) -> Result<(), Error> {
    let holders: Vec<_> = holders.iter().collect();
    for batch in holders.chunks(ROWS_PER_STATEMENT) {
        let table = "ledger_holder (id, namespace, pod, uid, container, claim, owner_kind, owner_name, team)";
        let mut query = sqlx::query(AssertSqlSafe(insert(table, batch.len(), ON_KNOWN_ID)));
        for (holder, id) in batch {
            query = query
                .bind(**id)
                .bind(text(&holder.namespace))
                .bind(text(&holder.pod))
                .bind(text(&holder.uid))
                .bind(text(&holder.container))
                .bind(holder.claim.as_deref().map(text))
                .bind(holder.owner.as_ref().map(|owner| owner.kind.clone()))
                .bind(holder.owner.as_ref().map(|owner| owner.name.clone()))
                .bind(holder.team.as_deref().map(text));
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Removes the sums of a day.
async fn reopen(connection: &mut AnyConnection, day: Day) -> Result<(), Error> {
    for statement in
        ["DELETE FROM ledger_day WHERE day = $1", "DELETE FROM ledger_closed_day WHERE day = $1"]
    {
        sqlx::query(statement).bind(i64::from(day.0)).execute(&mut *connection).await?;
    }
    Ok(())
}
