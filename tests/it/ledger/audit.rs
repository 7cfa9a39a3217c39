//! Audit of the shipped aggregator and command: appended, exported, verified and modified.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use jiff::Timestamp;
use octavo_database::{DatabaseUrl, LedgerWriter};
use octavo_fleet::price::{PriceKey, PurchaseOption};
use octavo_ledger::{Container, Day, Device, DeviceState, Holder, MeasuredPart, Part, Recorder};
use serde_json::Value;
use tempfile::TempDir;

use super::TYPE;
use super::postgres::Postgres;
use crate::fleet_api::Api;
use crate::process::Aggregator;
use crate::time_limits::{Finish, until_async};

/// Writes the usage of a device by a pod in the last hour of yesterday.
async fn write_yesterday(ledger: &str) {
    let url: DatabaseUrl = ledger.parse().unwrap();
    let open = async || LedgerWriter::open(&url).await.ok();
    let opened = until_async("the database", open, Option::is_some).await;
    let (mut writer, _) = opened.unwrap();
    let price_key = PriceKey::new(TYPE.parse().unwrap(), PurchaseOption::default());
    let device = Device {
        node: "gpu-1".parse().unwrap(),
        id: "GPU-1".to_owned(),
        price_key: Some(price_key),
    };
    let container = Container {
        namespace: "team".to_owned(),
        pod: "train".to_owned(),
        uid: "uid-train".to_owned(),
        container: "main".to_owned(),
        ..Container::default()
    };
    let part = Part::whole(Holder::Container(Arc::new(container)));
    let state = DeviceState { device, parts: vec![MeasuredPart::new(part, None)] };
    let today = Day::of(Timestamp::now().as_second()).start();
    let mut recorder = Recorder::default();
    for at in [today - 3600, today] {
        recorder.observe(&state.device.node, at, 3600, vec![state.clone()]);
    }
    writer.write(&recorder.take_changed()).await.unwrap();
    writer.database().close().await;
}

/// Entries of this kind, once there are `count`.
async fn entries(api: &Api, kind: &str, count: usize) -> Vec<Value> {
    let read = async || {
        let answer = api.get(&format!("/api/v1/audit?kind={kind}")).await;
        let lines = if answer.status == 200 { answer.body } else { String::new() };
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    until_async(kind, read, |found| found.len() == count).await
}

/// Sends a request that is refused, because a browser marked it as one of another site.
async fn is_refused(api: &Api) {
    let mut other = api.clone();
    other.headers.push_str("Sec-Fetch-Site: cross-site\r\n");
    assert_eq!(other.whole("POST", "/api/v1/profiles", "{}").await.status, 403);
}

fn octavo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octavo")).args(arguments).finish()
}

/// Asserts that the export is verified with this hash.
#[track_caller]
fn is_verified(file: &Path, hash: &str) -> String {
    let verified = octavo(&["audit", "verify", file.to_str().unwrap(), "--hash", hash]);
    assert!(verified.status.success(), "{verified:?}");
    String::from_utf8(verified.stdout).unwrap()
}

/// Asserts that a modified export is rejected with this error.
#[track_caller]
fn is_rejected(file: &Path, lines: &[String], arguments: &[&str], error: &str) {
    fs::write(file, lines.join("\n") + "\n").unwrap();
    let file = file.to_str().unwrap();
    let rejected = octavo(&[&["audit", "verify", file], arguments].concat());
    assert_eq!(rejected.status.code(), Some(1), "{rejected:?}");
    let printed = String::from_utf8(rejected.stderr).unwrap();
    assert!(printed.contains(&format!("{file}{error}")), "{printed}");
}

async fn life(ledger: &str, directory: &TempDir) {
    write_yesterday(ledger).await;
    let arguments = ["--plaintext", "--ledger", ledger, "--ledger-write-interval=200ms"];
    let mut aggregator = Aggregator::start(&arguments);
    let api = Api::at(aggregator.http);
    let usage = entries(&api, "usage", 1).await.remove(0);
    for (field, value) in [
        ("namespace", "team"),
        ("pod", "train"),
        ("uid", "uid-train"),
        ("node", "gpu-1"),
        ("device", "GPU-1"),
        ("type", TYPE),
        ("state", "used"),
    ] {
        assert_eq!(usage[field], value, "{usage:#}");
    }
    assert_eq!((&usage["seconds"], &usage["corrected"]), (&3600.into(), &false.into()));
    // Only the first of a client is recorded.
    for _ in 0..3 {
        is_refused(&api).await;
    }
    let refusal = entries(&api, "refusal", 1).await.remove(0);
    assert_eq!(
        (&refusal["verb"], &refusal["object"]),
        (&"POST".into(), &"/api/v1/profiles".into())
    );

    // A killed aggregator has stored what it shows, and appends nothing twice.
    aggregator.kill();
    aggregator.restart();
    let noted = aggregator.expect_log("last audit entry");
    let noted = noted.split("hash=").nth(1).unwrap().trim_matches('"').to_owned();
    is_refused(&api).await;
    entries(&api, "refusal", 2).await;
    entries(&api, "usage", 1).await;

    let server = format!("--server=http://{}", aggregator.http);
    let exported = octavo(&["audit", "export", &server]);
    assert!(exported.status.success(), "{exported:?}");
    let file = directory.path().join("audit.jsonl");
    fs::write(&file, &exported.stdout).unwrap();
    let text = is_verified(&file, &noted);
    assert!(text.contains("3 entries, no errors\nfirst: entry 1 at"), "{text}");
    let hash = text.lines().find_map(|line| line.strip_prefix("last hash: ")).unwrap();
    is_verified(&file, hash);

    let lines = String::from_utf8(exported.stdout).unwrap();
    let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    let changed: Vec<String> = lines.iter().map(|line| line.replace("train", "other")).collect();
    is_rejected(&file, &changed, &[], ":1: error: the entry or its hash was changed");
    let removed = [&lines[..1], &lines[2..]].concat();
    is_rejected(&file, &removed, &[], ":2: error: entry 2 is expected, but this is entry 3");
    is_rejected(&file, &lines[..2], &["--hash", hash], ": error: no entry has the hash");
    let filtered = octavo(&["audit", "export", &server, "--namespace=team", "--kind=usage"]);
    let filtered = String::from_utf8(filtered.stdout).unwrap();
    assert_eq!(filtered.lines().collect::<Vec<_>>(), [&lines[0]]);
    let tomorrow = Day(Day::of(Timestamp::now().as_second()).0 + 1).date();
    let later = octavo(&["audit", "export", &server, "--from", &tomorrow.to_string()]);
    assert!(later.status.success() && later.stdout.is_empty(), "{later:?}");
    let metrics = api.get("/metrics").await.body;
    assert!(metrics.contains("octavo_ledger_audit_last_entry 3\n"), "{metrics}");
}

#[tokio::test]
async fn f6_audit_in_sqlite_is_exported_and_modifications_are_found() {
    let directory = TempDir::new().unwrap();
    let ledger = format!("sqlite://{}", directory.path().join("ledger.db").display());
    life(&ledger, &directory).await;
}

#[tokio::test]
async fn f6_audit_in_postgresql_is_exported_and_modifications_are_found() {
    let server = Postgres::start();
    life(&server.url(), &TempDir::new().unwrap()).await;
}

/// A PostgreSQL server and an aggregator that writes only events to its ledger. This trigger runs before each attempt to append.
async fn with_trigger(body: &str) -> (Postgres, Aggregator) {
    let server = Postgres::start();
    let ledger = format!("--ledger={}", server.url());
    let mut aggregator = Aggregator::start(&["--plaintext", &ledger, "--ledger-write-interval=1h"]);
    aggregator.expect_log("recording the usage of devices");
    server.sql(&format!(
        "CREATE SEQUENCE attempts; \
         CREATE FUNCTION delay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$; \
         CREATE TRIGGER delay BEFORE INSERT ON audit_entry FOR EACH STATEMENT EXECUTE FUNCTION delay()"
    ));
    is_refused(&Api::at(aggregator.http)).await;
    (server, aggregator)
}

#[tokio::test]
async fn f6_event_that_cannot_be_appended_is_repeated_at_shutdown() {
    // A sequence also counts the attempts that are rolled back.
    let refuse = "IF nextval('attempts') < 4 THEN RAISE EXCEPTION 'no space'; END IF;";
    let (server, mut aggregator) = with_trigger(refuse).await;
    let line = aggregator.expect_log("audit events wait in memory until the ledger can be written");
    assert!(line.contains("no space"), "{line}");
    let entries = || server.sql("SELECT COUNT(*) FROM audit_entry").trim().to_owned();
    assert_eq!(entries(), "0");
    assert!(aggregator.stop().success());
    assert_eq!(entries(), "1");
    assert_eq!(server.sql("SELECT last_value FROM attempts").trim(), "4");
}

#[tokio::test]
async fn f6_append_that_does_not_end_delays_the_aggregator_for_a_limited_time() {
    let (_server, mut aggregator) = with_trigger("PERFORM pg_sleep(3600);").await;
    let line = aggregator.expect_log("audit events wait in memory until the ledger can be written");
    assert!(line.contains("did not respond within 10s"), "{line}");
    // The exit code reports that a task did not end in time.
    assert_eq!(aggregator.stop().code(), Some(1));
}

#[tokio::test]
async fn audit_errors_name_the_parameter() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let answer = api.get("/api/v1/audit").await;
    assert_eq!(answer.status, 404, "{}", answer.body);
    assert!(answer.body.contains("start it with --ledger"), "{}", answer.body);
    for (parameters, text) in [
        ("kind=gossip", "one of change, refusal, usage, node, policy"),
        ("from=yesterday", "a date such as 2026-11-01"),
        ("node=gpu-1", "unknown parameter"),
    ] {
        let answer = api.get(&format!("/api/v1/audit?{parameters}")).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.body.contains(text), "{}", answer.body);
    }
}
