//! Export in the FOCUS format, of the shipped aggregator and command.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::{Site, hours};
use crate::fleet_api::Api;
use crate::process::Aggregator;
use crate::time_limits::Finish;

type Row = BTreeMap<String, String>;

fn rows(text: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.unwrap()).collect()
}

fn sum(rows: &[Row], column: &str) -> f64 {
    rows.iter().map(|row| row[column].parse::<f64>().unwrap()).sum()
}

/// Asserts that the export has the hours and the cost of the report, and that the command prints the same rows.
pub(super) async fn is_conserved(site: &Site) {
    let before = site.report("", |_| true).await;
    let answer = Api::at(site.aggregator.http).get("/api/v1/cost/focus").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let exported = rows(&answer.body);
    let after = site.report("", |_| true).await;
    let exported_hours = sum(&exported, "PricingQuantity");
    let total = |report| hours(report, "total");
    let range = total(&before["total"]) - 1e-5..=total(&after["total"]) + 1e-5;
    assert!(range.contains(&exported_hours), "{exported_hours} in {range:?}:\n{}", answer.body);
    assert!((sum(&exported, "EffectiveCost") - exported_hours * 3.6).abs() < 1e-6);
    assert!(sum(&exported, "BilledCost").abs() < f64::EPSILON);
    let pods: BTreeSet<&str> =
        exported.iter().map(|row| row["AllocatedResourceName"].as_str()).collect();
    assert_eq!(pods, BTreeSet::from(["", "team/other", "team/train"]));
    let is_one = |row: &Row| row["ResourceName"] == "gpu-1" && row["BillingCurrency"] == "EUR";
    assert!(exported.iter().all(is_one), "{}", answer.body);

    let server = format!("--server=http://{}", site.aggregator.http);
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    let printed = command.args(["cost", "-o", "focus", &server]).finish();
    assert!(printed.status.success(), "{printed:?}");
    let printed = rows(std::str::from_utf8(&printed.stdout).unwrap());
    assert!(sum(&printed, "PricingQuantity") >= exported_hours - 1e-6);
    assert_eq!(printed[0].keys().collect::<Vec<_>>(), exported[0].keys().collect::<Vec<_>>());
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    let filtered = command.args(["cost", "-o", "focus", "--team=vision", &server]).finish();
    let error = String::from_utf8_lossy(&filtered.stderr).into_owned();
    assert!(!filtered.status.success() && error.contains("from, until"), "{filtered:?}");
}

pub(super) async fn errors_name_the_parameter(api: &Api) {
    for (parameters, text) in [
        ("from=2026-11-01T12:00:00Z", "a date such as 2026-11-01"),
        ("from=2026-11-02&until=2026-11-02", "at most 31 days"),
        ("from=2026-11-01&until=2026-12-03", "at most 31 days"),
        ("by=node", "unknown parameter"),
    ] {
        let answer = api.get(&format!("/api/v1/cost/focus?{parameters}")).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.body.contains(text), "{}", answer.body);
    }
    let answer = api.get("/api/v1/cost/focus?from=2026-11-01&until=2026-11-02").await;
    assert_eq!(answer.status, 404, "{}", answer.body);
    assert!(answer.body.contains("start it with --price-book"), "{}", answer.body);
}

#[tokio::test]
async fn focus_without_ledger_names_the_flag() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let answer = Api::at(aggregator.http).get("/api/v1/cost/focus").await;
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("start it with --ledger"), "{}", answer.body);
}
