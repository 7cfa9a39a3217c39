//! Chart of device hours by day.

use std::collections::BTreeMap;

use jiff::civil::Date;
use octavo_ledger::Dimension;
use octavo_ledger::report::{CostItem, Hours, Usage};
use octavo_model::text::join;

use crate::text::{hours, states};

/// Share of the width of a day that its column has.
const COLUMN_SHARE: f64 = 0.8;

/// Device hours by day.
#[derive(Debug)]
pub struct DailyUsage {
    /// Description for screen readers.
    pub label: String,
    /// Upper end of the scale.
    pub top: String,
    /// First day of the chart.
    pub first: String,
    /// Last day of the chart.
    pub last: String,
    /// Days with usage.
    pub columns: Vec<Column>,
    /// The same days as a table.
    pub rows: Vec<DayRow>,
}

/// Column of a day, with its states from the bottom.
#[derive(Debug)]
pub struct Column {
    /// Day and its device hours.
    pub title: String,
    /// Rectangles of the states.
    pub parts: Vec<Part>,
}

/// Rectangle; position and size in percent.
#[derive(Debug)]
pub struct Part {
    /// CSS class.
    pub kind: &'static str,
    /// Fill pattern.
    pub fill: Option<&'static str>,
    /// Left edge.
    pub x: String,
    /// Upper edge.
    pub y: String,
    /// Width.
    pub width: String,
    /// Height.
    pub height: String,
}

/// Row of the table of days.
#[derive(Debug)]
pub struct DayRow {
    /// Date in UTC.
    pub day: String,
    /// Used, idle, unallocated, unknown and total device hours.
    pub hours: Vec<String>,
    /// Cost in each currency.
    pub cost: String,
}

impl DailyUsage {
    /// Chart of these days; `None` for less than two, which compare nothing. Each item is the usage of a day.
    pub fn new<'a>(items: impl IntoIterator<Item = &'a CostItem>, days: &[Date]) -> Option<Self> {
        let (first, last) = (days.first()?, days.last()?);
        if first == last {
            return None;
        }
        let items = items.into_iter();
        let usage: BTreeMap<&str, &CostItem> = items
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
