//! Silent nodes: the shown status is never older than its age.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{MIXED, SINGLE};
use crate::fleet_api::{Api, TIME_LIMIT, pace};
use crate::machine::Machine;
use crate::process::Aggregator;

/// Rounding of the API, and clock adjustments during the test.
const ROUNDING: Duration = Duration::from_millis(50);

/// Polls a node until it satisfies `wanted`; checks I9 for each response. Returns all responses.
async fn watched(
    api: &Api,
    name: &str,
    bound: Duration,
    mut wanted: impl FnMut(&Value) -> bool,
) -> Vec<Value> {
    let mut seen = Vec::new();
    let mut pace = pace();
    let began = tokio::time::Instant::now();
    loop {
        pace.tick().await;
        assert!(began.elapsed() < TIME_LIMIT, "{:#?}", seen.last());
        let before = Timestamp::now();
        let answer = api.get(&format!("/api/v1/nodes/{name}")).await;
        let after = Timestamp::now();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let node = answer.json();
        let confirmed: Timestamp = node["lastConfirmed"].as_str().unwrap().parse().unwrap();
        let age = |at: Timestamp| at.duration_since(confirmed).try_into().unwrap_or_default();
        let (youngest, oldest): (Duration, Duration) = (age(before), age(after));
        let seconds = node["ageSeconds"].as_u64().unwrap();
        if node["state"] == "stale" {
            assert!(oldest + ROUNDING > bound, "{oldest:?}: {node}");
            assert!(seconds >= bound.as_secs(), "{node}");
        } else {
            assert!(youngest < bound + ROUNDING, "{youngest:?}: {node}");
            assert!(seconds <= bound.as_secs(), "{node}");
        }
        let done = wanted(&node);
        seen.push(node);
        if done {
            return seen;
        }
    }
}

/// Number of devices with unknown state, and of all devices.
async fn unknown(api: &Api) -> (u64, u64) {
    let types = api.get("/api/v1/types").await.json();
    let sum = |field: &str| {
        let types = types["items"].as_array().unwrap().iter();
        types.map(|one| one["devices"][field].as_u64().unwrap()).sum()
    };
    (sum("unknown"), sum("total"))
}

#[tokio::test]
async fn i9_node_of_killed_agent_becomes_stale_on_time_and_is_forgotten() {
    let bound = Duration::from_secs(4);
    let aggregator = Aggregator::start(&["--plaintext", "--stale-after=4s", "--forget-after=4s"]);
    let api = Api::at(aggregator.http);
    let machine = Machine::new(MIXED);
    let live = |node: &Value| node["state"] == "ok" && node["connected"] == true;
    let mut agent = machine.report(&aggregator, "n", &["--heartbeat=200ms"]);
    api.node("n", live).await;
    assert_eq!(unknown(&api).await, (0, 3));
    let mut events = api.events().await;
    agent.kill();
    // The end of the connection is reported long before the timeout of silence.
    let shown = events.next().await;
    assert_eq!(shown["node"]["connected"], false, "{shown}");
    assert_ne!(shown["node"]["state"], "stale", "{shown}");
    let seen = watched(&api, "n", bound, |node| node["state"] == "stale").await;
    assert!(seen.iter().all(|node| node["connected"] == false));
    let last = seen.last().unwrap();
    assert_eq!(last["devices"]["unknown"], 3);
    assert_eq!(last["inventory"]["devices"].as_array().map(Vec::len), Some(3));
    assert_eq!(unknown(&api).await, (3, 3));
    let shown = events.next().await;
    assert_eq!(shown["node"]["state"], "stale", "{shown}");

    let mut agent = machine.report(&aggregator, "n", &["--heartbeat=200ms"]);
    api.node("n", live).await;
    assert_eq!(unknown(&api).await, (0, 3));
    agent.kill();
    let gone = api.until("/api/v1/nodes/n", |answer| answer.status != 200).await;
    assert_eq!((gone.status, &gone.json()["type"]), (404, &json!("/problems/unknown-node")));
    assert_eq!(unknown(&api).await, (0, 0));
}

#[tokio::test]
async fn i8_hanging_driver_stops_no_heartbeat() {
    let bound = Duration::from_secs(3);
    let aggregator = Aggregator::start(&["--plaintext", "--stale-after=3s"]);
    let api = Api::at(aggregator.http);
    let machine = Machine::new(SINGLE);
    let arguments = ["--heartbeat=100ms", "--call-deadline=2s"];
    let _agent = machine.report(&aggregator, "n", &arguments);
    let before = api.node("n", |node| node["state"] == "ok").await;
    machine.faults("- {call: nvmlDeviceGetMigMode, hang: forever}\n");
    let stalled = api.node("n", |node| node["state"] == "nvml-stalled").await;
    assert_eq!(stalled["labels"], before["labels"]);
    assert_eq!(stalled["types"][0]["type"], before["types"][0]["type"]);
    assert!(stalled["inventory"].to_string().contains("nvmlDeviceGetMigMode"));
    // Longer than a node may be silent.
    let until = Timestamp::now() + bound + Duration::from_millis(500);
    let confirmed_late = |node: &Value| {
        let confirmed: Timestamp = node["lastConfirmed"].as_str().unwrap().parse().unwrap();
        confirmed > until
    };
    for node in watched(&api, "n", bound, confirmed_late).await {
        assert_eq!((&node["state"], &node["connected"]), (&json!("nvml-stalled"), &json!(true)));
    }
    machine.faults("[]");
    let after = api.node("n", |node| node["state"] == "ok").await;
    assert_eq!(after["inventory"], before["inventory"]);
}
