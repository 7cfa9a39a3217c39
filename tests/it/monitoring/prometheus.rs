//! Alerts and dashboard queries in a Prometheus that scrapes our programs.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use super::dashboard::{filled, queries};
use super::rules;
use super::served::{RunningFleet, running};
use crate::fleet_api::{Api, TIME_LIMIT, pace};
use crate::process::Program;

/// The scrape configuration of docs/operations/monitoring.md for an agent in its own pod.
const CONFIGURATION: &str = "
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [RULES]
scrape_configs:
- job_name: octavo-agent
  honor_labels: true
  static_configs:
  - {targets: ['AGENT'], labels: {node: shared, namespace: octavo-system, pod: octavo-agent-x2v5k}}
- job_name: octavo-aggregator
  static_configs: [{targets: ['AGGREGATOR']}]
";

/// A Prometheus; stopped when dropped.
struct Prometheus {
    api: Api,
    _program: Program,
    _directory: TempDir,
}

impl Prometheus {
    fn start(running: &RunningFleet) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let configuration = CONFIGURATION
            .replace("RULES", super::rules().to_str().unwrap())
            .replace("AGENT", &running.agent.to_string())
            .replace("AGGREGATOR", &running.aggregator.http.to_string());
        let file = directory.path().join("prometheus.yaml");
        fs::write(&file, configuration).unwrap();
        // It does not report a chosen port, so it gets one of an address that only this test uses.
        let mut address: SocketAddr = running.aggregator.http;
        address.set_port(0);
        let free = TcpListener::bind(address).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut program = Program::start(
            Command::new("prometheus")
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
                .arg(format!("--web.listen-address={address}")),
        );
        program.expect_log("Server is ready to receive web requests");
        Self { api: Api::at(address), _program: program, _directory: directory }
    }

    async fn query(&self, query: &str) -> Value {
        let mut encoded = String::new();
        for byte in query.bytes() {
            write!(encoded, "%{byte:02X}").unwrap();
        }
        let answer = self.api.get(&format!("/api/v1/query?query={encoded}")).await;
        let answer = answer.json();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].clone()
    }

    /// The first series of a query, once there is one.
    async fn first(&self, query: &str) -> Value {
        let mut pace = pace();
        let found = async {
            loop {
                pace.tick().await;
                if let Some(first) = self.query(query).await.get(0) {
                    return first.clone();
                }
            }
        };
        let found = timeout(TIME_LIMIT, found).await;
        found.unwrap_or_else(|_late| panic!("{query} has no series"))
    }

    /// The alerts once exactly `pending` are pending and all were evaluated.
    async fn alerts(&self, pending: &[&str]) -> Vec<Value> {
        let mut pace = pace();
        let mut rules = Vec::new();
        let looked = async {
            loop {
                pace.tick().await;
                let answer = self.api.get("/api/v1/rules").await.json();
                let groups = answer["data"]["groups"].as_array().unwrap();
                let of = |group: &Value| group["rules"].as_array().unwrap().clone();
                rules = groups.iter().flat_map(of).collect();
                let states = rules.iter().filter(|rule| rule["state"] != "inactive");
                let now: Vec<&str> = states.filter_map(|rule| rule["name"].as_str()).collect();
                if now == pending && rules.iter().all(|rule| rule["health"] == "ok") {
                    break;
                }
            }
        };
        let late = timeout(TIME_LIMIT, looked).await.is_err();
        assert!(!late, "{rules:#?}");
        rules
    }
}

#[tokio::test]
async fn blocked_node_is_shown_with_its_blocker() {
    let running = running(&[]).await;
    let prometheus = Prometheus::start(&running);
    let info = prometheus.first("octavo_layout_info").await;
    let metric = &info["metric"];
    assert_eq!(
        (&metric["node"], &metric["layout"], &metric["reason"]),
        (&"shared".into(), &"both".into(), &"blocked".into())
    );
    // The process belongs to no pod.
    let blocker = prometheus.first("octavo_blocker_devices").await;
    let metric = &blocker["metric"];
    assert_eq!(blocker["value"][1], "1");
    assert_eq!(
        (&metric["node"], &metric["pod"], &metric["namespace"]),
        (&"shared".into(), &Value::Null, &Value::Null)
    );
    assert_eq!(prometheus.first("up{job=\"octavo-agent\"}").await["metric"]["node"], "shared");
    prometheus.first("up{job=\"octavo-aggregator\"} == 1").await;
    let pending = ["OctavoNodeNotInLayout", "OctavoLayoutBlocked"];
    let alerts = prometheus.alerts(&pending).await;
    assert_eq!(alerts.len(), rules::alerts().len());
    let mut found = alerts.iter().filter(|alert| alert["name"] == pending[0]);
    let reported = &found.next().unwrap()["alerts"][0]["annotations"]["description"];
    let reported = reported.as_str().unwrap();
    assert!(reported.starts_with("The current reason is blocked;"), "{reported}");
    for (query, _) in queries() {
        prometheus.query(&filled(&query)).await;
    }
    let table = queries()
        .into_iter()
        .map(|(query, _)| query)
        .find(|query| query.contains("reason) (octavo_layout_info"));
    let rows = prometheus.query(&filled(&table.unwrap())).await;
    assert_eq!(rows[0]["metric"]["reason"], "blocked");
}
