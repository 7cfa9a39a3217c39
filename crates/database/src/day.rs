//! Intervals of a day, in batches.

use octavo_ledger::{Day, Interval};
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::connection::Database;
use crate::error::DatabaseError;
use crate::rows::{INTERVALS_OF_DAY, Ids, interval, number};

/// Maximum number of intervals in a batch.
const BATCH: i64 = 5000;

/// Closed days whose intervals are not deleted. The first condition limits the sums that are read.
const CLOSED_DAYS: &str = "SELECT s.day, CAST(SUM(s.ppm_s) AS BIGINT) AS ppm_s FROM ledger_day s \
     WHERE s.day >= (SELECT MIN(day) FROM ledger_interval) \
     AND EXISTS (SELECT 1 FROM ledger_interval i WHERE i.day = s.day) GROUP BY s.day ORDER BY s.day";

/// A day that is over and summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedDay {
    /// The day.
    pub day: Day,
    /// Seconds of all devices, in parts per million. Late usage increases them: written intervals are never shortened.
    pub ppm_seconds: i64,
}

/// Reads the intervals of a day in the order of devices and time.
#[derive(Debug)]
pub struct DayReader<'a> {
    database: &'a Database,
    day: Day,
    /// Device, start and slot of the last interval that was read.
    after: (i64, i64, i64),
}

impl Database {
    /// The closed days that have intervals, in ascending order.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn closed_days(&self) -> Result<Vec<ClosedDay>, DatabaseError> {
        let rows = sqlx::query(CLOSED_DAYS).fetch_all(&self.pool).await;
        let rows = rows.map_err(DatabaseError::read)?;
        let day = |row: &AnyRow| {
            Ok(ClosedDay { day: Day(number(row, "day")?), ppm_seconds: row.try_get("ppm_s")? })
        };
        rows.iter().map(day).collect::<Result<_, _>>().map_err(DatabaseError::read)
    }

    /// Reads the intervals of a day.
    pub fn day_reader(&self, day: Day) -> DayReader<'_> {
        DayReader { database: self, day, after: (0, 0, 0) }
    }
}

impl DayReader<'_> {
    /// The next intervals; none after the last one. Batches are separate transactions: usage that is written in between can be
    /// missing.
    ///
    /// # Errors
    /// Fails if the database cannot be read. The next call tries again.
    pub async fn next_batch(&mut self) -> Result<Vec<Interval>, DatabaseError> {
        let (device, start, slot) = self.after;
        let rows = sqlx::query(INTERVALS_OF_DAY)
            .bind(i64::from(self.day.0))
            .bind(device)
            .bind(start)
            .bind(slot)
            .bind(BATCH)
            .fetch_all(&self.database.pool)
            .await
            .map_err(DatabaseError::read)?;
        let mut ids = Ids::default();
        let intervals = rows.iter().map(|row| interval(row, &mut ids));
        let intervals: Vec<Interval> =
            intervals.collect::<Result<_, _>>().map_err(DatabaseError::read)?;
        if let Some(last) = intervals.last() {
            let device = ids.devices.get(&last.device).copied().unwrap_or_default();
            self.after = (device, last.start, last.slot.into());
        }
        Ok(intervals)
    }
}
