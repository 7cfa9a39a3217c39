//! Monthly reports of the shipped command, from the ledger of the shipped aggregator.

use std::fs;

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use octavo_database::LedgerWriter;
use octavo_ledger::{Activity, Day, Interval};
use serde_json::Value;
use tempfile::TempDir;

use super::budgets::{PRICES, cost, usage};
use crate::process::Aggregator;

/// Ten hours a day on each of the days of a month: `used` days with a process, then `idle` days without one.
fn days(month: Date, used: i32, idle: i32) -> Vec<Interval> {
    let first = Day::from_date(month).0;
    let day = |number: i32| {
        let mut interval = usage("GPU-1", "team-a", Day(first + number));
        if number >= used {
            interval.part.activity = Activity::Idle;
        }
        interval
    };
    (0..used + idle).map(day).collect()
}

/// An aggregator whose ledger has usage of the last two complete months, and the last of them.
async fn aggregator(files: &TempDir) -> (Aggregator, String) {
    let path = |name: &str| files.path().join(name).display().to_string();
    let ledger = format!("sqlite://{}", path("ledger.db"));
    let (mut writer, _) = LedgerWriter::open(&ledger.parse().unwrap()).await.unwrap();
    let this_month = Day::of(Timestamp::now().as_second()).first_of_month().date();
    let month = this_month.saturating_sub(1.month());
    let before = month.saturating_sub(1.month());
    let intervals = [days(before, 8, 0), days(month, 6, 4)].concat();
    writer.write(&intervals).await.unwrap();
    fs::write(path("prices.yaml"), PRICES).unwrap();
    let prices = format!("--price-book={}", path("prices.yaml"));
    let aggregator = Aggregator::start(&["--plaintext", "--ledger", &ledger, &prices]);
    (aggregator, month.strftime("--month=%Y-%m").to_string())
}

#[tokio::test]
async fn monthly_report_has_the_totals_of_the_cost_command() {
    let files = TempDir::new().unwrap();
    let (aggregator, month) = aggregator(&files).await;
    let (_, json, _) = cost(&aggregator, &[&month, "--by=team", "-o=json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["items"][0]["group"]["team"], "vision", "{report:#}");
    assert_eq!(report["items"][0]["costs"][0]["total"], "360.0000", "{report:#}");
    assert_eq!(report["total"]["deviceHours"]["total"], 100.0, "{report:#}");

    let (is_success, page, notes) = cost(&aggregator, &["report", &month]);
    assert!(is_success && notes.is_empty(), "{notes}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{page}");
    let (_, section) = page.split_once(">vision</h2>").unwrap();
    for text in [
        ">360.00 EUR</dd>",
        ">144.00 EUR</dd>",
        ">100.0</dd>",
        ">40 % of the device hours are idle</dd>",
        ">100 %</dd>",
        "team-a/Pod/train",
        "device hours 10.0 used</title>",
        "device hours 10.0 idle</title>",
    ] {
        assert!(section.contains(text), "{text}: {section}");
    }
    // The ledger begins in the month before.
    let is_whole = report["begins"].as_str().unwrap().ends_with("-01");
    assert_eq!(page.contains("+25 %; "), is_whole, "{page}");

    let (is_success, csv, notes) = cost(&aggregator, &["report", &month, "-o=csv"]);
    assert!(is_success && notes.is_empty(), "{notes}");
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("team,workload,type,used_hours,idle_hours,"), "{csv}");
    let row = "vision,team-a/Pod/train,nvidia-l4-24gb,60,40,0,0,0,EUR,216.0000,144.0000,0.0000,0.0000,360.0000";
    assert_eq!(lines[1..], [row], "{csv}");
}

#[tokio::test]
async fn monthly_report_of_an_unknown_team_has_a_note() {
    let files = TempDir::new().unwrap();
    let (aggregator, month) = aggregator(&files).await;
    let (is_success, page, notes) = cost(&aggregator, &["report", &month, "--team=<i>"]);
    assert!(is_success && notes.contains("the ledger has no such usage"), "{notes}");
    assert!(
        page.contains("no usage of team &#60;i&#62; in this month") && !page.contains("vision")
    );
    let (is_success, _, error) = cost(&aggregator, &["report"]);
    assert!(!is_success && error.contains("--month"), "{error}");
}
