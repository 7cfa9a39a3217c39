//! Export of the ledger in the FOCUS format, day by day.

use jiff::Timestamp;
use octavo_fleet::price::PriceBook;
use octavo_ledger::focus::{DIMENSIONS, OriginCharge, charges};
use octavo_ledger::report::price_changes;
use octavo_ledger::{Day, UsageQuery};

use super::{LedgerError, LedgerReader};
use crate::query::QueryError;
use crate::query::parse::set_each;

/// Maximum number of days of an export: a month.
const MAX_DAYS: i32 = 31;
const PARAMETERS: &str = "from, until";

/// Requested export: days in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FocusQuery {
    /// First day.
    pub from: Day,
    /// Day after the last one.
    pub until: Day,
}

impl LedgerReader {
    /// The origin charges of a day.
    ///
    /// # Errors
    /// Fails if the database cannot be read, or the day has too many groups.
    pub async fn focus_charges(
        &self,
        day: Day,
        prices: &PriceBook,
    ) -> Result<Vec<OriginCharge>, LedgerError> {
        let (from, until) = (day.start_time(), day.end_time());
        let query = UsageQuery {
            from,
            until,
            by: DIMENSIONS.to_vec(),
            filters: Vec::new(),
            price_changes: price_changes(prices, from, until),
        };
        let sums = self.sums(&query).await?;
        Ok(charges(day, &query, sums, prices))
    }
}

impl FocusQuery {
    /// Parses the parameters in `pairs`. Without them, the export covers the current month up to the day of `now`.
    ///
    /// # Errors
    /// Fails with the name of an unknown or invalid parameter.
    pub fn parse(
        pairs: impl IntoIterator<Item = (String, String)>,
        now: Timestamp,
    ) -> Result<Self, QueryError> {
        let today = Day::of(now.as_second());
        let mut query =
            Self { from: today.first_of_month(), until: Day(today.0.saturating_add(1)) };
        set_each(pairs, &[], |name, value| match name {
            "from" => set(&mut query.from, "from", value),
            "until" => set(&mut query.until, "until", value),
            _ => Err(QueryError::unknown(name, PARAMETERS)),
        })?;
        let days = query.until.0.saturating_sub(query.from.0);
        if (1..=MAX_DAYS).contains(&days) {
            return Ok(query);
        }
        let until = query.until.date().to_string();
        let wanted = format!("a date after from, by at most {MAX_DAYS} days");
        Err(QueryError::value("until", &until, &wanted))
    }

    /// The days.
    pub fn days(self) -> impl Iterator<Item = Day> {
        (self.from.0..self.until.0).map(Day)
    }
}

fn set(day: &mut Day, name: &'static str, value: &str) -> Result<(), QueryError> {
    if value.is_empty() {
        return Ok(());
    }
    let date = value.parse().ok().filter(|_| value.len() == "2026-11-01".len());
    let date = date.ok_or_else(|| QueryError::value(name, value, "a date such as 2026-11-01"))?;
    *day = Day::from_date(date);
    Ok(())
}
