//! Reports of usage and cost as CSV, for spreadsheets.

use octavo_model::text::spreadsheet_text;

use crate::report::CostReport;

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

/// Converts a report to CSV (RFC 4180): a row for each group and currency, with the hours in each.
pub fn to_csv(report: &CostReport) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let names = report.by.iter().map(ToString::to_string);
    let header: Vec<String> = names.chain(COLUMNS.map(str::to_owned)).collect();
    let mut rows = vec![header];
    for item in &report.items {
        let values = report.by.iter().map(|by| {
            let value = item.group.get(by).map(String::as_str).unwrap_or_default();
            spreadsheet_text(value).into_owned()
        });
        let hours = item.usage.device_hours;
        let hours =
            [hours.used, hours.idle, hours.unallocated, hours.unknown, item.usage.unpriced_hours];
        let first: Vec<String> = values.chain(hours.map(|hours| hours.to_string())).collect();
        if item.usage.costs.is_empty() {
            rows.push(first.iter().cloned().chain([const { String::new() }; 6]).collect());
        }
        for cost in &item.usage.costs {
            let amounts = [cost.used, cost.idle, cost.unallocated, cost.unknown, cost.total];
            let amounts = amounts.iter().map(ToString::to_string);
            let currency = [cost.currency.to_string()];
            rows.push(first.iter().cloned().chain(currency).chain(amounts).collect());
        }
    }
    for row in rows {
        // A vector accepts all writes.
        let _written = writer.write_record(row);
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
