//! Sums of usage.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use jiff::Timestamp;
use octavo_ledger::{Activity, Day, Dimension, UsageQuery, UsageState, UsageSum};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Error, Row};
use tokio_stream::StreamExt;

use crate::connection::Database;
use crate::error::DatabaseError;
use crate::rows::{ALLOCATED, UNALLOCATED, number, price_key, word};

/// Columns of the groups of the sums of a day, in the tables that they come from.
macro_rules! daily_columns {
    () => {
        "d.type, d.instance_type, d.region, d.purchase_option, h.namespace, h.team, i.state, i.activity, i.method, \
         i.profile, i.inferred"
    };
}

/// Seconds of an interval within the range $5 to $6.
macro_rules! seconds_in_range {
    () => {
        "(CASE WHEN i.end_s < $6 THEN i.end_s ELSE $6 END - CASE WHEN i.start_s > $5 THEN i.start_s ELSE $5 END)"
    };
}

/// The days with intervals from $1 to $2, without those that are summed up from $3 to before $4. Their number is small, so
/// that the intervals of each are found by their key: a condition for the summed up days would read all intervals. Without
/// intervals, the first day is NULL, and there are none.
pub(crate) const OPEN_DAYS: &str = "WITH RECURSIVE days (day, until) AS (\
     SELECT CASE WHEN $1 > first THEN $1 ELSE first END, CASE WHEN $2 < last THEN $2 ELSE last END \
     FROM (SELECT (SELECT MIN(day) FROM ledger_interval) AS first, (SELECT MAX(day) FROM ledger_interval) AS last) AS bounds \
     UNION ALL SELECT day + 1, until FROM days WHERE day < until\
     ), open_days (day) AS (SELECT day FROM days WHERE day <= until \
     AND NOT (day >= $3 AND day < $4 AND day IN (SELECT day FROM ledger_closed_day))) ";

/// The columns of groups.
macro_rules! group_columns {
    () => {
        "type, instance_type, region, purchase_option, namespace, team, state, activity, method, profile, inferred"
    };
}

/// Intervals of a day with their devices and holders.
macro_rules! intervals_of_day {
    () => {
        " FROM ledger_interval i JOIN ledger_device d ON d.id = i.device LEFT JOIN ledger_holder h ON h.id = i.holder \
         WHERE i.day = $1 "
    };
}

/// Sums up the intervals of a day: adds the groups that are new, and then the sums.
pub(crate) const CLOSE_DAY: [&str; 2] = [
    concat!(
        "INSERT INTO ledger_group (id, ",
        group_columns!(),
        ") SELECT (SELECT COALESCE(MAX(id), 0) FROM ledger_group) + ROW_NUMBER() OVER (ORDER BY n.activity), n.* FROM (SELECT ",
        daily_columns!(),
        intervals_of_day!(),
        "EXCEPT SELECT ",
        group_columns!(),
        " FROM ledger_group) AS n"
    ),
    concat!(
        "INSERT INTO ledger_day (day, group_id, ppm_s, percent_s, measured_s) \
         SELECT s.day, g.id, s.ppm_s, s.percent_s, s.measured_s FROM (SELECT i.day, ",
        daily_columns!(),
        ", CAST(SUM((i.end_s - i.start_s) * i.ppm) AS BIGINT) AS ppm_s, \
         CAST(SUM(i.percent_s * i.ppm / 1000000) AS BIGINT) AS percent_s, \
         CAST(SUM(i.measured_s * i.ppm / 1000000) AS BIGINT) AS measured_s",
        intervals_of_day!(),
        "GROUP BY i.day, ",
        daily_columns!(),
        ") AS s JOIN ledger_group g ON g.state = s.state AND g.activity = s.activity AND g.method = s.method \
         AND g.inferred = s.inferred AND g.namespace IS NOT DISTINCT FROM s.namespace \
         AND g.team IS NOT DISTINCT FROM s.team AND g.profile IS NOT DISTINCT FROM s.profile \
         AND g.type IS NOT DISTINCT FROM s.type AND g.instance_type IS NOT DISTINCT FROM s.instance_type \
         AND g.region IS NOT DISTINCT FROM s.region AND g.purchase_option IS NOT DISTINCT FROM s.purchase_option"
    ),
];

/// Intervals of [`OPEN_DAYS`] within a range ($5 to $6).
const DETAILS: &str = concat!(
    "SELECT i.day, ",
    daily_columns!(),
    ", h.pod, h.owner_kind, h.owner_name, d.node, ",
    seconds_in_range!(),
    " * i.ppm AS ppm_s, i.percent_s * i.ppm / 1000000 * ",
    seconds_in_range!(),
    " / (i.end_s - i.start_s) AS percent_s, i.measured_s * i.ppm / 1000000 * ",
    seconds_in_range!(),
    " / (i.end_s - i.start_s) AS measured_s \
     FROM open_days o JOIN ledger_interval i ON i.day = o.day JOIN ledger_device d ON d.id = i.device \
     LEFT JOIN ledger_holder h ON h.id = i.holder WHERE i.start_s < $6 AND i.end_s > $5"
);

/// Sums of the days that are completely within a range ($3 to $4), by group and by day, or for all days together.
fn day_sums(by_day: bool) -> String {
    let sums = if by_day {
        "SELECT group_id, day, ppm_s, percent_s, measured_s FROM ledger_day WHERE day >= $3 AND day < $4"
    } else {
        "SELECT n.id AS group_id, 0 AS day, CAST(SUM(ppm_s) AS BIGINT) AS ppm_s, CAST(SUM(percent_s) AS BIGINT) AS percent_s, \
         CAST(SUM(measured_s) AS BIGINT) AS measured_s FROM ledger_group n \
         JOIN ledger_day t ON t.group_id = n.id AND t.day >= $3 AND t.day < $4 GROUP BY n.id"
    };
    format!(
        "SELECT s.day, {}, NULL AS pod, NULL AS owner_kind, NULL AS owner_name, NULL AS node, \
         s.ppm_s, s.percent_s, s.measured_s FROM ({sums}) AS s JOIN ledger_group g ON g.id = s.group_id",
        group_columns!()
    )
}

/// Maximum number of sums that [`Database::usage`] returns.
pub const MAX_SUMS: usize = 50_000;

/// Number of the parameters of the range.
const RANGE_PARAMETERS: usize = 6;

impl Database {
    /// Sums up the usage in a range; `None` if there are more than [`MAX_SUMS`].
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn usage(&self, query: &UsageQuery) -> Result<Option<Vec<UsageSum>>, DatabaseError> {
        let mut sums = Vec::new();
        let add = |sum| {
            sums.push(sum);
            if sums.len() > MAX_SUMS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // Without a limit, the database would send the other rows before the connection can be used again.
        let statement = format!("{} LIMIT {}", statement(query), MAX_SUMS.saturating_add(1));
        let is_complete = self.visit_rows(query, statement, add).await?.is_continue();
        Ok(is_complete.then_some(sums))
    }

    /// Sums up the usage in a range, and passes each sum to `visit` until it breaks. The sums of a group come one after the other, and so
    /// do the groups of a value of the first property. Only a few sums are in memory at the same time.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn visit_usage(
        &self,
        query: &UsageQuery,
        visit: impl FnMut(UsageSum) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, DatabaseError> {
        self.visit_rows(query, statement(query), visit).await
    }

    /// Passes each row of the statement for a query to `visit` until it breaks.
    async fn visit_rows(
        &self,
        query: &UsageQuery,
        statement: String,
        mut visit: impl FnMut(UsageSum) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, DatabaseError> {
        let (from, until) = (query.from.as_second(), query.until.as_second());
        if from >= until {
            return Ok(ControlFlow::Continue(()));
        }
        let (first, last) = (Day::of(from), Day::of(until.saturating_sub(1)));
        let (full_from, full_until) = if query.needs_details() {
            (0, 0)
        } else {
            // Days that are completely within the range.
            let full_from = if first.start() == from { first.0 } else { first.0.saturating_add(1) };
            (full_from, Day::of(until).0)
        };
        let mut sql = sqlx::query(AssertSqlSafe(statement))
            .bind(i64::from(first.0))
            .bind(i64::from(last.0))
            .bind(i64::from(full_from))
            .bind(i64::from(full_until))
            .bind(from)
            .bind(until);
        for (_, value) in &query.filters {
            sql = sql.bind(value.clone());
        }
        let mut rows = sql.fetch(&self.pool);
        while let Some(row) = rows.try_next().await.map_err(DatabaseError::read)? {
            let sum = sum(&row, &query.by).map_err(DatabaseError::read)?;
            if visit(sum).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The first day with usage by pod, workload and node; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn first_detailed_day(&self) -> Result<Option<Day>, DatabaseError> {
        self.day("SELECT MIN(day) FROM ledger_interval").await
    }

    /// Start of the first day with usage; `None` in an empty ledger.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn first_day(&self) -> Result<Option<Day>, DatabaseError> {
        let statement = "SELECT MIN(day) FROM (SELECT MIN(day) AS day FROM ledger_interval \
             UNION ALL SELECT MIN(day) AS day FROM ledger_day) AS days";
        self.day(statement).await
    }

    async fn day(&self, statement: &'static str) -> Result<Option<Day>, DatabaseError> {
        let day: Option<i64> = sqlx::query_scalar(statement)
            .fetch_one(&self.pool)
            .await
            .map_err(DatabaseError::read)?;
        Ok(day.and_then(|day| i32::try_from(day).ok()).map(Day))
    }
}

/// The statement for a query. All texts of the request are parameters. The rows are in the order of all columns of their group, because
/// SQLite sorts them a second time for another order.
fn statement(query: &UsageQuery) -> String {
    let mut groups: Vec<String> = query.by.iter().map(|one| expression(*one).to_owned()).collect();
    groups.push(period(&query.price_changes));
    let days = query.by.iter().chain(query.filters.iter().map(|(dimension, _)| dimension));
    let by_day = !query.price_changes.is_empty() || days.copied().any(|one| one == Dimension::Day);
    let days = day_sums(by_day);
    let columns = "type, instance_type, region, purchase_option, state, activity, inferred";
    let named: Vec<String> =
        groups.iter().enumerate().map(|(at, group)| format!("{group} AS g{at}")).collect();
    let positions: Vec<String> = (1..=groups.len()).map(|at| at.to_string()).collect();
    let positions = positions.join(", ");
    let mut filters = String::new();
    for (at, (dimension, _)) in query.filters.iter().enumerate() {
        let number = at.saturating_add(RANGE_PARAMETERS + 1);
        // A write to a String cannot fail.
        let _ignored = write!(filters, " AND {} = ${number}", expression(*dimension));
    }
    format!(
        "{OPEN_DAYS}SELECT {}, {columns}, CAST(SUM(ppm_s) AS BIGINT) AS ppm_s, CAST(SUM(percent_s) AS BIGINT) AS percent_s, \
         CAST(SUM(measured_s) AS BIGINT) AS measured_s \
         FROM ({DETAILS} UNION ALL {days}) AS parts WHERE 1 = 1{filters} GROUP BY {positions}, {columns} ORDER BY {positions}, {columns}",
        named.join(", "),
    )
}

/// Expression for the value of a property.
fn expression(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Namespace => "namespace",
        Dimension::Team => "team",
        Dimension::Type => "type",
        Dimension::Profile => "profile",
        Dimension::Method => "method",
        Dimension::Day => "CAST(day AS TEXT)",
        Dimension::Workload => {
            "namespace || '/' || COALESCE(owner_kind || '/' || owner_name, 'Pod/' || pod)"
        }
        Dimension::Node => "node",
        Dimension::Pod => "namespace || '/' || pod",
    }
}

/// Expression for the number of price changes before a day.
fn period(changes: &[Timestamp]) -> String {
    if changes.is_empty() {
        return "0".to_owned();
    }
    let mut text = "CASE".to_owned();
    for (number, change) in changes.iter().enumerate() {
        let _ignored = write!(text, " WHEN day < {} THEN {number}", Day::of(change.as_second()).0);
    }
    format!("{text} ELSE {} END", changes.len())
}

fn sum(row: &AnyRow, by: &[Dimension]) -> Result<UsageSum, Error> {
    let values = by.iter().enumerate().map(|(at, dimension)| {
        let value: Option<String> = row.try_get(at)?;
        Ok(match dimension {
            Dimension::Day => value.and_then(|day| Some(Day(day.parse().ok()?).date().to_string())),
            Dimension::Namespace
            | Dimension::Team
            | Dimension::Type
            | Dimension::Profile
            | Dimension::Method
            | Dimension::Workload
            | Dimension::Node
            | Dimension::Pod => value,
        })
    });
    let activity: Activity = word(row, "activity")?;
    Ok(UsageSum {
        values: values.collect::<Result<_, Error>>()?,
        period: usize::try_from(row.try_get::<i64, _>(by.len())?).unwrap_or_default(),
        price_key: price_key(row)?,
        state: match (row.try_get::<i64, _>("state")?, activity) {
            (ALLOCATED, Activity::Idle) => UsageState::Idle,
            (ALLOCATED, Activity::Active | Activity::Unknown) => UsageState::Used,
            (UNALLOCATED, _) => UsageState::Unallocated,
            _ => UsageState::Unknown,
        },
        inferred: number::<i64>(row, "inferred")? != 0,
        ppm_seconds: row.try_get("ppm_s")?,
        percent_seconds: row.try_get("percent_s")?,
        measured_seconds: row.try_get("measured_s")?,
    })
}
