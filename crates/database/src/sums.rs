//! Sums of usage.

use std::fmt::Write as _;

use jiff::Timestamp;
use octavo_ledger::{Activity, Day, Dimension, UsageQuery, UsageState, UsageSum};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Error, Row};

use crate::connection::Database;
use crate::error::DatabaseError;
use crate::rows::{ALLOCATED, UNALLOCATED, number, price_key, word};

/// Columns of the sums of a day, except the sums themselves.
macro_rules! daily_columns {
    () => {
        "d.type, d.instance_type, d.region, d.purchase_option, h.namespace, h.team, i.state, i.activity, i.method, \
         i.profile, i.inferred"
    };
}

/// Seconds of an interval within the range $1 to $2.
macro_rules! seconds_in_range {
    () => {
        "(CASE WHEN i.end_s < $2 THEN i.end_s ELSE $2 END - CASE WHEN i.start_s > $1 THEN i.start_s ELSE $1 END)"
    };
}

/// Sums up the intervals of a day.
pub(crate) const CLOSE_DAY: &str = concat!(
    "INSERT INTO ledger_day SELECT i.day, ",
    daily_columns!(),
    ", CAST(SUM((i.end_s - i.start_s) * i.ppm) AS BIGINT), CAST(SUM(i.percent_s * i.ppm / 1000000) AS BIGINT), \
     CAST(SUM(i.measured_s * i.ppm / 1000000) AS BIGINT) \
     FROM ledger_interval i JOIN ledger_device d ON d.id = i.device LEFT JOIN ledger_holder h ON h.id = i.holder \
     WHERE i.day = $1 GROUP BY i.day, ",
    daily_columns!()
);

/// Intervals within a range ($1 to $2), without those of the days that are summed up ($3 to $4).
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
     FROM ledger_interval i JOIN ledger_device d ON d.id = i.device LEFT JOIN ledger_holder h ON h.id = i.holder \
     WHERE i.day >= $5 AND i.day <= $6 AND i.start_s < $2 AND i.end_s > $1 \
     AND NOT (i.day >= $3 AND i.day < $4 AND i.day IN (SELECT day FROM ledger_closed_day))"
);

/// Sums of the days that are completely within a range ($3 to $4).
const DAYS: &str = "SELECT day, type, instance_type, region, purchase_option, namespace, team, state, activity, method, \
     profile, inferred, NULL AS pod, NULL AS owner_kind, NULL AS owner_name, NULL AS node, ppm_s, percent_s, measured_s \
     FROM ledger_day WHERE day >= $3 AND day < $4";

/// Maximum number of sums of a query, which are in memory at the same time.
pub const MAX_SUMS: usize = 50_000;

/// Number of the parameters of the range.
const RANGE_PARAMETERS: usize = 6;

impl Database {
    /// Sums up the usage in a range; `None` if there are more than [`MAX_SUMS`].
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn usage(&self, query: &UsageQuery) -> Result<Option<Vec<UsageSum>>, DatabaseError> {
        let (from, until) = (query.from.as_second(), query.until.as_second());
        if from >= until {
            return Ok(Some(Vec::new()));
        }
        let (first, last) = (Day::of(from), Day::of(until.saturating_sub(1)));
        let (full_from, full_until) = if query.needs_details() {
            (0, 0)
        } else {
            // Days that are completely within the range.
            let full_from = if first.start() == from { first.0 } else { first.0.saturating_add(1) };
            (full_from, Day::of(until).0)
        };
        let statement = statement(query);
        let mut sql = sqlx::query(AssertSqlSafe(statement))
            .bind(from)
            .bind(until)
            .bind(i64::from(full_from))
            .bind(i64::from(full_until))
            .bind(i64::from(first.0))
            .bind(i64::from(last.0));
        for (_, value) in &query.filters {
            sql = sql.bind(value.clone());
        }
        let rows = sql.fetch_all(&self.pool).await.map_err(DatabaseError::read)?;
        if rows.len() > MAX_SUMS {
            return Ok(None);
        }
        let rows = rows.iter().map(|row| sum(row, &query.by));
        rows.collect::<Result<_, _>>().map(Some).map_err(DatabaseError::read)
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

/// The statement for a query. All texts of the request are parameters.
fn statement(query: &UsageQuery) -> String {
    let mut groups: Vec<String> = query.by.iter().map(|one| expression(*one).to_owned()).collect();
    groups.push(period(&query.price_changes));
    let columns = "type, instance_type, region, purchase_option, state, activity, inferred";
    let named: Vec<String> =
        groups.iter().enumerate().map(|(at, group)| format!("{group} AS g{at}")).collect();
    let positions: Vec<String> = (1..=groups.len()).map(|at| at.to_string()).collect();
    let mut filters = String::new();
    for (at, (dimension, _)) in query.filters.iter().enumerate() {
        let number = at.saturating_add(RANGE_PARAMETERS + 1);
        // A write to a String cannot fail.
        let _ignored = write!(filters, " AND {} = ${number}", expression(*dimension));
    }
    format!(
        "SELECT {}, {columns}, CAST(SUM(ppm_s) AS BIGINT) AS ppm_s, CAST(SUM(percent_s) AS BIGINT) AS percent_s, \
         CAST(SUM(measured_s) AS BIGINT) AS measured_s \
         FROM ({DETAILS} UNION ALL {DAYS}) AS parts WHERE 1 = 1{filters} GROUP BY {}, {columns} LIMIT {}",
        named.join(", "),
        positions.join(", "),
        MAX_SUMS + 1,
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
