//! Reports of usage and cost as CSV, for spreadsheets.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::price::Currency;
use octavo_model::text::spreadsheet_text;

use crate::report::{Cost, CostReport, Usage};
use crate::usage::Dimension;

const COLUMNS: [&str; 11] = [
    "used_hours",
    "idle_hours",
    "unallocated_hours",
    "unknown_hours",
    "unpriced_hours",
    "currency",
    "used_cost",
    "idle_cost",
    "unallocated_cost",
    "unknown_cost",
    "total_cost",
];

/// Converts a report to CSV (RFC 4180): a row for each group and currency, with the hours in each. A compared type has a column with
/// the cost, and one with the reason why there is none. The last rows are the groups that the report does not list.
pub fn to_csv(report: &CostReport) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let names = report.by.iter().map(ToString::to_string);
    let compared =
        report.total.alternatives.iter().flat_map(|one| {
            [format!("{}_cost", one.type_name), format!("{}_reason", one.type_name)]
        });
    let header = names.chain(COLUMNS.map(str::to_owned)).chain(compared);
    let mut rows: Vec<Vec<String>> = vec![header.collect()];
    for item in &report.items {
        let values = report.by.iter().map(|by| value(&item.group, *by));
        rows.extend(usage_rows(values.collect(), &item.usage));
    }
    let labeled = label_column(&report.by);
    for omitted in &report.omitted {
        let label = omitted.label(&report.by);
        let values = report.by.iter().map(|by| {
            if Some(*by) == labeled { label.clone() } else { value(&omitted.group, *by) }
        });
        rows.extend(usage_rows(values.collect(), &omitted.usage));
    }
    for row in rows {
        // A vector accepts all writes.
        let _written = writer.write_record(row);
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The property whose column has the number of omitted groups: the workload, or else the last one.
pub fn label_column(by: &[Dimension]) -> Option<Dimension> {
    by.iter().find(|one| **one == Dimension::Workload).or_else(|| by.last()).copied()
}

/// Cell of a property.
fn value(group: &BTreeMap<Dimension, String>, by: Dimension) -> String {
    spreadsheet_text(group.get(&by).map(String::as_str).unwrap_or_default()).into_owned()
}

/// Rows of usage that begin with these cells.
fn usage_rows(values: Vec<String>, usage: &Usage) -> impl Iterator<Item = Vec<String>> {
    let hours = usage.device_hours;
    let hours = [hours.used, hours.idle, hours.unallocated, hours.unknown, usage.unpriced_hours];
    let first: Vec<String> =
        values.into_iter().chain(hours.map(|hours| hours.to_string())).collect();
    money(usage).into_iter().map(move |money| first.iter().cloned().chain(money).collect())
}

/// Columns of a group with amounts of money: a row for each currency, and at least one.
fn money(usage: &Usage) -> Vec<Vec<String>> {
    let all = usage.alternatives.iter().flat_map(|one| &one.costs).chain(&usage.costs);
    let mut currencies: BTreeSet<Option<&Currency>> =
        all.map(|cost| Some(&cost.currency)).collect();
    if currencies.is_empty() {
        currencies.insert(None);
    }
    let rows = currencies.into_iter().map(|currency| {
        let in_currency =
            |costs: &[Cost]| costs.iter().find(|cost| Some(&cost.currency) == currency).cloned();
        let own = in_currency(&usage.costs).map(|cost| {
            [cost.used, cost.idle, cost.unallocated, cost.unknown, cost.total]
                .map(|one| one.to_string())
        });
        let others = usage.alternatives.iter().flat_map(|one| {
            let total = in_currency(&one.costs).map(|cost| cost.total.to_string());
            let reason = one.reason.map(|reason| reason.to_string());
            [total.unwrap_or_default(), reason.unwrap_or_default()]
        });
        let currency = currency.map(ToString::to_string).unwrap_or_default();
        std::iter::once(currency).chain(own.unwrap_or_default()).chain(others).collect()
    });
    rows.collect()
}
