//! Chart of device hours by day.

use std::collections::BTreeMap;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use octavo_ledger::Dimension;
use octavo_ledger::report::{CostItem, CostReport, Hours, Usage};
use octavo_model::text::join;

use super::rows::{hours, states};

/// Maximum number of days in the chart: the last ones.
const MAX_DAYS: usize = 366;
/// Share of the width of a day that its column has.
const COLUMN_SHARE: f64 = 0.8;

/// Device hours by day.
#[derive(Debug)]
pub(super) struct DailyUsage {
    /// Description for screen readers.
    pub(super) label: String,
    /// Upper end of the scale.
    pub(super) top: String,
    pub(super) first: String,
    pub(super) last: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<DayRow>,
}

/// Column of a day, with its states from the bottom.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) title: String,
    pub(super) parts: Vec<Part>,
}

/// Rectangle; position and size in percent.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) kind: &'static str,
    pub(super) fill: Option<&'static str>,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) width: String,
    pub(super) height: String,
}

/// Row of the table of days.
#[derive(Debug)]
pub(super) struct DayRow {
    pub(super) day: String,
    /// Used, idle, unallocated, unknown and total device hours.
    pub(super) hours: Vec<String>,
    pub(super) cost: String,
}

impl DailyUsage {
    /// Chart of a report by day; `None` for less than two days, which compare nothing.
    pub(super) fn new(report: &CostReport) -> Option<Self> {
        let days = days(report);
        let (first, last) = (days.first()?, days.last()?);
        if first == last {
            return None;
        }
        let usage: BTreeMap<&str, &CostItem> = report
            .items
            .iter()
            .filter_map(|item| Some((item.group.get(&Dimension::Day)?.as_str(), item)))
            .collect();
        let most = usage.values().map(|item| item.usage.device_hours.total).fold(0.0, f64::max);
        let names: Vec<String> = days.iter().map(ToString::to_string).collect();
        let width = 100.0 / f64::from(u32::try_from(days.len()).unwrap_or(u32::MAX));
        let of = names.iter().filter_map(|day| Some((day, &usage.get(day.as_str())?.usage)));
        let mut columns = Vec::new();
        for (number, day) in (0_u32..).zip(&names) {
            if let Some(item) = usage.get(day.as_str()) {
                let x = f64::from(number) * width;
                columns.push(Column::new(day, &item.usage.device_hours, (x, width, most)));
            }
        }
        Some(Self {
            label: format!(
                "Device hours by day from {first} to {last}; at most {} on one day",
                hours(most)
            ),
            top: hours(most),
            first: first.to_string(),
            last: last.to_string(),
            columns,
            rows: of.map(|(day, usage)| DayRow::new(day, usage)).collect(),
        })
    }
}

/// The days from the first with usage to the end of the report.
fn days(report: &CostReport) -> Vec<Date> {
    let known = report.items.iter().filter_map(|item| item.group.get(&Dimension::Day));
    let known = known.filter_map(|day| day.parse::<Date>().ok());
    let Some(first) = known.min() else {
        return Vec::new();
    };
    let end = report.until.checked_sub(1.nanosecond()).unwrap_or(Timestamp::MAX);
    let last = end.to_zoned(TimeZone::UTC).date();
    let earliest = i32::try_from(MAX_DAYS).unwrap_or(i32::MAX).saturating_sub(1);
    let first = first.max(last.saturating_sub(earliest.days()));
    first.series(1.day()).take_while(|day| *day <= last).take(MAX_DAYS).collect()
}

impl Column {
    fn new(day: &str, of: &Hours, (x, width, most): (f64, f64, f64)) -> Self {
        let mut below = 0.0;
        let mut parts = Vec::new();
        let mut words = Vec::new();
        for ((kind, fill, word), part) in states(of) {
            if part > 0.0 && most > 0.0 {
                let height = part / most * 100.0;
                below += height;
                parts.push(Part {
                    kind,
                    fill,
                    x: format!("{:.3}", x + width * (1.0 - COLUMN_SHARE) / 2.0),
                    y: format!("{:.2}", (100.0 - below).max(0.0)),
                    width: format!("{:.3}", width * COLUMN_SHARE),
                    height: format!("{:.2}", (height - 0.6).max(0.2)),
                });
                words.push(format!("{} {word}", hours(part)));
            }
        }
        Self { title: format!("{day}: device hours {}", join(words, ", ")), parts }
    }
}

impl DayRow {
    fn new(day: &str, usage: &Usage) -> Self {
        let of = &usage.device_hours;
        let total = std::iter::once(of.total);
        let all = states(of).into_iter().map(|(_, part)| part).chain(total);
        Self {
            day: day.to_owned(),
            hours: all.map(hours).collect(),
            cost: usage.shown_costs(|cost| cost.total),
        }
    }
}
