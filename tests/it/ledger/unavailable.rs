//! Ledgers that another program writes to, or that a database server locks.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use super::postgres::Postgres;
use super::{Site, group, hours, is_conserved};
use crate::fleet_api::{Api, pace};
use crate::process::Aggregator;

fn used_seconds(report: &Value) -> f64 {
    group(report, "team/train").map_or(0.0, |usage| hours(usage, "used") * 3600.0)
}

fn until_time(report: &Value) -> Timestamp {
    report["until"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn f5_ledger_is_taken_over_after_its_other_writer_has_ended() {
    let files = TempDir::new().unwrap();
    let ledger = format!("sqlite://{}", files.path().join("ledger.db").display());
    let mut site = Site::start(&ledger, files);
    site.start_pod("train", 101);
    let before = site.report("by=pod", |report| used_seconds(report) > 0.0).await;

    let mut other =
        Aggregator::start(&["--plaintext", "--ledger", &ledger, "--ledger-write-interval=200ms"]);
    let waits = "usage waits in memory until the ledger can be written";
    let line = site.aggregator.expect_log(waits);
    assert!(line.contains("another program writes to the ledger"), "{line}");
    // No agent reports to the other one. It runs for longer than ten write intervals.
    let until = Timestamp::now() + Duration::from_secs(4);
    let mut pace = pace();
    while Timestamp::now() < until {
        pace.tick().await;
    }
    let log = other.kill();
    assert!(!log.iter().any(|line| line.contains(waits)), "the first one took over: {log:#?}");
    site.aggregator.expect_log("taking it over");
    site.aggregator.expect_log("the ledger can be written again");

    let used = used_seconds(&before);
    let after = site.report("by=pod", |report| used_seconds(report) > used + 5.0).await;
    is_conserved(&after["total"]);
    let elapsed = until_time(&after).duration_since(until_time(&before)).as_secs_f64();
    let more = used_seconds(&after) - used;
    assert!((elapsed - more).abs() < 3.0, "{more} s of {elapsed} s: {after:#}");
    assert_eq!(after["total"]["inferredHours"], 0.0, "{after:#}");
    let unknown = |report: &Value| hours(&report["total"], "unknown");
    assert!((unknown(&after) - unknown(&before)).abs() < 1e-6, "{after:#}");
}

#[tokio::test]
async fn locked_tables_of_postgresql_delay_reports_and_writes_for_a_limited_time() {
    let server = Postgres::start();
    let mut site = Site::start(&server.url(), TempDir::new().unwrap());
    site.start_pod("train", 101);
    let before = site.report("by=pod", |report| used_seconds(report) > 0.0).await;

    let lock = server.transaction("LOCK TABLE ledger_interval IN ACCESS EXCLUSIVE MODE");
    let line = site.aggregator.expect_log("usage waits in memory until the ledger can be written");
    assert!(line.contains("lock timeout"), "{line}");
    let answer = Api::at(site.aggregator.http).get("/api/v1/cost").await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.body.contains("lock timeout"), "{}", answer.body);

    drop(lock);
    site.aggregator.expect_log("the ledger can be written again");
    let used = used_seconds(&before);
    let after = site.report("by=pod", |report| used_seconds(report) > used + 5.0).await;
    is_conserved(&after["total"]);
}
