//! Usage ledger: the shipped agent and aggregator, with SQLite and a PostgreSQL server.

mod audit;
mod budgets;
mod export;
mod focus;
pub(crate) mod opencost;
mod plans;
mod postgres;
mod reports;
mod unavailable;

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::postgres::Postgres;
use crate::fleet_api::{Api, TIME_LIMIT, pace};
use crate::process::{Aggregator, Program};
use crate::record::uid;
use crate::usage::rig::{CgroupLayout, Rig};

const TYPE: &str = "nvidia-l4-24gb";
const PRICES: &str = "apiVersion: octavo.dev/v1
kind: PriceBook
currency: EUR
prices:
- {type: nvidia-l4-24gb, perHour: \"3.6\"}
";

/// Two GPUs, their agent, and the aggregator with a ledger.
struct Site {
    rig: Rig,
    agent: Option<Program>,
    aggregator: Aggregator,
    _files: TempDir,
}

impl Site {
    fn start(ledger: &str, files: TempDir) -> Self {
        let prices = files.path().join("prices.yaml");
        fs::write(&prices, PRICES).unwrap();
        let aggregator = Aggregator::start(&[
            "--plaintext",
            "--ledger",
            ledger,
            "--ledger-write-interval=200ms",
            "--stale-after=3s",
            "--opencost-metrics",
            "--price-book",
            prices.to_str().unwrap(),
        ]);
        let rig = Rig::new("- {board: L4}\n- {board: L4}\n");
        let mut site = Self { rig, agent: None, aggregator, _files: files };
        site.start_agent();
        site
    }

    fn start_agent(&mut self) {
        let aggregator = format!("http://{}", self.aggregator.grpc);
        let more = [
            "--aggregator",
            &aggregator,
            "--aggregator-plaintext",
            "--node-name=gpu-1",
            "--heartbeat=1s",
            "--metrics-listen=127.0.0.1:0",
        ];
        let mut command = self.rig.agent("{replicas: 1}", &more);
        self.agent = Some(Program::start(&mut command));
    }

    /// Allocates the first GPU to a pod with a process.
    fn start_pod(&self, pod: &str, pid: u32) {
        self.rig.kubelet.give(pod, "nvidia.com/gpu", &[self.rig.gpu(0)]);
        self.rig.assign_to_pod(pid, pod, CgroupLayout::V2Systemd);
        self.rig.add_process(pid, 0, None, 1024);
    }

    /// Metrics of the agent.
    async fn agent_metrics(&mut self) -> Api {
        let mut agent = self.agent.take().unwrap();
        let address = spawn_blocking(move || (agent.metrics(), agent));
        let (address, agent) = address.await.unwrap();
        self.agent = Some(agent);
        Api::at(address)
    }

    /// The report, once it satisfies `wanted`.
    async fn report(&self, parameters: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let api = Api::at(self.aggregator.http);
        let path = format!("/api/v1/cost?{parameters}");
        let mut last = None;
        let reading = async {
            let mut pace = pace();
            loop {
                pace.tick().await;
                let answer = api.get(&path).await;
                let document: Value = serde_json::from_str(&answer.body).unwrap();
                if answer.status == 200 && wanted(&document) {
                    return document;
                }
                last = Some(document);
            }
        };
        let found = timeout(TIME_LIMIT, reading).await;
        found.unwrap_or_else(|_late| panic!("{path} stays {last:#?}"))
    }

    /// Hours of all devices until a time, once later usage is written too.
    async fn complete_hours(&self, until: &str) -> f64 {
        let parameters = format!("until={until}");
        let total = |report: &Value| hours(&report["total"], "total");
        let reading = async {
            let mut pace = pace();
            loop {
                pace.tick().await;
                let all = total(&self.report("", |_| true).await);
                let whole = total(&self.report(&parameters, |_| true).await);
                if all > whole + 2.0 / 3600.0 {
                    return whole;
                }
            }
        };
        timeout(TIME_LIMIT, reading).await.unwrap()
    }
}

fn hours(usage: &Value, state: &str) -> f64 {
    usage["deviceHours"][state].as_f64().unwrap()
}

/// Usage of a group; the total of all with an empty name.
fn group<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    let items = report["items"].as_array().unwrap();
    items.iter().find(|item| item["group"].as_object().unwrap().values().any(|value| value == name))
}

/// Asserts that the states add up to the hours of the devices, and that the cost is that of the hours.
#[track_caller]
fn is_conserved(usage: &Value) {
    let states = ["used", "idle", "unallocated", "unknown"].map(|state| hours(usage, state));
    assert!((states.iter().sum::<f64>() - hours(usage, "total")).abs() < 1e-5, "{usage:#}");
    for (state, hours) in ["used", "idle", "unallocated", "unknown"].iter().zip(states) {
        let cost: f64 = usage["costs"][0][*state].as_str().unwrap().parse().unwrap();
        assert!((cost - hours * 3.6).abs() < 1e-4, "{state}: {usage:#}");
    }
}

/// The life of a ledger: usage, a killed aggregator, a killed agent, the end of a pod.
async fn life(ledger: &str, files: TempDir) {
    let mut site = Site::start(ledger, files);
    site.start_pod("train", 101);
    let is_used = |report: &Value| {
        group(report, "team").is_some_and(|usage| hours(usage, "used") > 2.0 / 3600.0)
    };
    let before = site.report("by=namespace,type", is_used).await;
    let used = group(&before, "team").unwrap();
    assert_eq!(used["group"]["type"], TYPE, "{before:#}");
    is_conserved(&before["total"]);

    site.aggregator.kill();
    site.aggregator.restart();
    // The restarted aggregator continues: nothing that was written is lost, and the same pod had the device in between.
    let used_before = hours(used, "used");
    let has_more = |report: &Value| {
        group(report, "team").is_some_and(|usage| hours(usage, "used") > used_before + 1.0 / 3600.0)
    };
    let after = site.report("by=namespace,type", has_more).await;
    is_conserved(&after["total"]);

    let mut agent = site.agent.take().unwrap();
    agent.kill();
    let api = Api::at(site.aggregator.http);
    // A busy aggregator can find the agent stale before it handles its last message, so the age of that message counts. The ledger
    // counts in seconds, so the gap must be longer than the age of a stale node.
    let mut pace = pace();
    loop {
        let node = api.node("gpu-1", |node| node["state"] == "stale").await;
        let confirmed: Timestamp = node["lastConfirmed"].as_str().unwrap().parse().unwrap();
        if Timestamp::now().duration_since(confirmed).as_secs() >= 5 {
            break;
        }
        pace.tick().await;
    }
    // While no agent reports, another pod gets the device.
    site.rig.kubelet.end_pod("train");
    site.start_pod("other", 102);
    site.start_agent();
    let is_other = |report: &Value| {
        group(report, "team/other").is_some_and(|usage| hours(usage, "used") > 0.0)
            && hours(&report["total"], "unknown") > 0.0
    };
    let gap = site.report("by=pod", is_other).await;
    is_conserved(&gap["total"]);
    let of_train = hours(group(&gap, "team/train").unwrap(), "used");

    site.rig.kubelet.end_pod("other");
    let free = hours(&gap["total"], "unallocated");
    let is_free = |report: &Value| hours(&report["total"], "unallocated") > free + 4.0 / 3600.0;
    let end = site.report("by=pod", is_free).await;
    is_conserved(&end["total"]);
    assert!((hours(group(&end, "team/train").unwrap(), "used") - of_train).abs() < 1e-6, "{end:#}");

    // The same usage by every property has the same sum.
    let until = end["until"].as_str().unwrap();
    let whole = site.complete_hours(until).await;
    for by in ["namespace", "team", "type", "profile", "method", "day", "workload", "node", "pod"] {
        let report = site.report(&format!("by={by}&until={until}"), |_| true).await;
        assert!(
            (hours(&report["total"], "total") - whole).abs() < 2.0 / 3600.0,
            "{by}: {report:#}"
        );
        is_conserved(&report["total"]);
    }
    focus::is_conserved(&site).await;
    let metrics = api.get("/metrics").await.body;
    let bytes = metrics.lines().find(|line| line.starts_with("octavo_ledger_size_bytes"));
    assert!(bytes.is_some_and(|line| !line.ends_with(" 0")), "days are not closed: {metrics}");
    let uid = uid("train");
    assert!(!end.to_string().contains(&uid), "reports do not name UIDs");
}

#[tokio::test]
async fn usage_while_the_aggregator_is_stopped_is_accounted_for_later() {
    let files = TempDir::new().unwrap();
    let ledger = format!("sqlite://{}", files.path().join("ledger.db").display());
    let mut site = Site::start(&ledger, files);
    let metrics = site.agent_metrics().await;
    site.start_pod("train", 101);
    let is_used = |report: &Value| group(report, "team/train").is_some();
    let before = site.report("by=pod", is_used).await;

    site.aggregator.kill();
    let stopped = Timestamp::now();
    for (pod, next, pid) in [("train", "short", 102), ("short", "last", 103)] {
        site.rig.kubelet.end_pod(pod);
        site.start_pod(next, pid);
        let allocated = format!(
            "octavo_container_allocated{{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"{next}\",container=\"main\"}} 1.0"
        );
        metrics.metrics_with(&[&allocated]).await;
        // The ledger counts in seconds.
        let until = Timestamp::now() + Duration::from_secs(3);
        let mut pace = pace();
        while Timestamp::now() < until {
            pace.tick().await;
        }
    }
    site.aggregator.restart();
    // It is killed again before or after it has written the usage.
    let api = Api::at(site.aggregator.http);
    api.node("gpu-1", |node| node["state"] != "stale").await;
    site.aggregator.kill();
    site.aggregator.restart();
    let elapsed = Timestamp::now().duration_since(stopped).as_secs_f64();

    let has_last = |report: &Value| group(report, "team/last").is_some();
    let after = site.report("by=pod", has_last).await;
    is_conserved(&after["total"]);
    let short = hours(group(&after, "team/short").unwrap(), "used") * 3600.0;
    assert!((2.0..elapsed).contains(&short), "{short} s: {after:#}");
    assert_eq!(after["total"]["inferredHours"], 0.0, "{after:#}");
    let unknown = |report: &Value| hours(&report["total"], "unknown");
    assert!((unknown(&after) - unknown(&before)).abs() < 1e-6, "{after:#}");
}

#[tokio::test]
async fn f5_ledger_in_sqlite_accounts_for_every_second() {
    let files = TempDir::new().unwrap();
    let ledger = format!("sqlite://{}", files.path().join("ledger.db").display());
    life(&ledger, files).await;
}

#[tokio::test]
async fn f5_ledger_in_postgresql_accounts_for_every_second() {
    let server = Postgres::start();
    life(&server.url(), TempDir::new().unwrap()).await;
}

#[tokio::test]
async fn report_without_ledger_names_the_flag() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let answer = Api::at(aggregator.http).get("/api/v1/cost").await;
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("start it with --ledger"), "{}", answer.body);
}

#[tokio::test]
async fn aggregator_serves_while_the_ledger_cannot_be_opened() {
    let mut aggregator =
        Aggregator::start(&["--plaintext", "--ledger=sqlite:///proc/nowhere/ledger.db"]);
    aggregator.expect_log("no usage is recorded until the ledger can be opened");
    let api = Api::at(aggregator.http);
    let answer = api.get("/api/v1/cost").await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(!Path::new("/proc/nowhere").exists());
    assert_eq!(api.get("/api/v1/nodes").await.status, 200);
    focus::errors_name_the_parameter(&api).await;
    for (parameters, text) in [
        ("by=planet", "up to four of namespace, team"),
        ("from=yesterday", "a date such as 2026-11-01"),
        ("from=2026-11-02&until=2026-11-01", "a time after from"),
        ("planet=earth", "unknown parameter"),
        ("limit=0", "1 to 10000"),
        ("compare=a,b,c,d,e,f,g,h,i", "more than 8 values"),
        ("compare=nvidia-l440s-48gb", "did you mean nvidia-l40s-48gb?"),
        ("compare=planet", "`octavo catalog search` finds names"),
    ] {
        let answer = api.get(&format!("/api/v1/cost?{parameters}")).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.body.contains(text), "{}", answer.body);
    }
}
