//! Changes of a node are recorded by the aggregator and reported by the API and the command line.

use std::process::Command;

use nvml_sim::model::Slot;
use serde_json::Value;
use tempfile::TempDir;

use super::MIXED;
use super::layout::{SHARED, partition};
use crate::fleet_api::Api;
use crate::machine::Machine;
use crate::process::Aggregator;
use crate::time_limits::{Finish, until_async};

/// Words of the recorded changes, newest first.
fn lines(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter().map(|item| {
        let part = |name: &str| item[name].as_str().unwrap_or("-");
        [part("kind"), part("object"), part("from"), part("to")].join(" ")
    });
    items.collect()
}

/// Waits until the record of a node has these lines and returns it.
async fn recorded(api: &Api, node: &str, expected: &[&str]) -> Value {
    let path = format!("/api/v1/nodes/{node}/changes");
    let answer = api.until(&path, |answer| {
        answer.status == 200 && {
            let lines = lines(&answer.json());
            expected.iter().all(|one| lines.iter().any(|line| line == one))
        }
    });
    answer.await.json()
}

#[tokio::test]
async fn changes_of_devices_driver_and_agent_are_recorded() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let machine = Machine::new(MIXED);
    let agent = machine.report(&aggregator, "mixed", &[]);
    let node = api.node("mixed", |node| node["devices"]["inUse"] == 1).await;
    let list = api.get("/api/v1/nodes/mixed/changes").await.json();
    let since = list["since"].as_str().unwrap();
    assert!(since <= node["lastConfirmed"].as_str().unwrap(), "{list}");

    machine.change(|world| {
        let gpu = world.gpu(Slot(2))?;
        let smallest = gpu.gi_profile(0)?;
        let (profile, compute) = (smallest.id, smallest.full_compute_profile().unwrap().id);
        let instance = world.create_gi(Slot(2), profile, None)?;
        world.create_ci(Slot(2), instance, compute, None)
    });
    let partitioned = "partitions GPU 2 1x 3g.40gb 1x 1g.10gb, 1x 3g.40gb";
    recorded(&api, "mixed", &[partitioned]).await;
    machine.change(|world| world.lose_gpu(Slot(1)));
    let failed = "device-health GPU 1 ok failing";
    let list = recorded(&api, "mixed", &[partitioned, failed]).await;
    let newest = &list["items"][0];
    assert_eq!(
        (&newest["kind"], &newest["needsAttention"]),
        (&"device-health".into(), &true.into())
    );
    assert!(newest["message"].as_str().unwrap().starts_with("failing: "), "{newest}");
    assert_eq!((&newest["count"], &newest["firstTime"]), (&1.into(), &newest["time"]));

    machine.change(|world| {
        world.processes.clear();
        world.reload_driver(Some("580.95.05"))
    });
    let driver = "driver NVIDIA driver 570.133.20 580.95.05";
    recorded(&api, "mixed", &[driver]).await;
    assert!(agent.stop().success());
    recorded(&api, "mixed", &["connection - connected disconnected"]).await;
    let _agent = machine.report(&aggregator, "mixed", &[]);
    let restarted = ["connection - disconnected connected", "agent Agent - restarted"];
    let list = recorded(&api, "mixed", &restarted).await;
    // The devices are the same as before the restart.
    assert!(!lines(&list).iter().any(|line| line.starts_with("device ")), "{list}");

    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["node", "mixed", "--changes", "--server"])
        .arg(format!("http://{}", aggregator.http))
        .finish();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("TIME "), "{table}");
    assert!(table.contains("GPU 2: 1x 3g.40gb -> 1x 1g.10gb, 1x 3g.40gb"), "{table}");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("the record begins at "), "{notes}");
}

#[tokio::test]
async fn layout_is_recorded_and_audited_from_blocked_to_applied() {
    let files = TempDir::new().unwrap();
    let ledger = format!("--ledger=sqlite://{}", files.path().join("ledger.db").display());
    let aggregator = Aggregator::start(&["--plaintext", &ledger]);
    let api = Api::at(aggregator.http);
    let machine = Machine::new(SHARED);
    let _agent = partition(&machine, &aggregator, "both");
    api.node("shared", |node| node["layout"]["state"] == "blocked").await;
    machine.change(|world| {
        world.processes.clear();
        Ok(())
    });
    api.node("shared", |node| node["layout"]["state"] == "applied").await;
    let list = recorded(&api, "shared", &["partitions GPU 1 1x 3g.40gb 2x 1g.10gb"]).await;
    let states: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["kind"] == "layout-state")
        .collect();
    assert_eq!(states[0]["to"], "applied", "{list}");

    // Each change is one entry of the audit trail.
    let read = async || {
        let exported = api.get("/api/v1/audit?kind=node").await.body;
        let entries = exported.lines().map(|line| serde_json::from_str(line).unwrap());
        entries.collect::<Vec<Value>>()
    };
    let is_applied = |entries: &Vec<Value>| {
        entries.iter().any(|entry| entry["property"] == "partitions")
            && entries.iter().any(|entry| entry["after"] == "applied")
    };
    let entries = until_async("entries of the node", read, is_applied).await;
    let of = |property: &str| {
        let same = entries.iter().filter(|entry| entry["property"] == property);
        same.map(|entry| [&entry["node"], &entry["object"], &entry["before"], &entry["after"]])
            .collect::<Vec<_>>()
    };
    let partitions = ["shared", "GPU 1", "1x 3g.40gb", "2x 1g.10gb"].map(Value::from);
    let changes = of("partitions");
    let of_gpu: Vec<_> = changes.iter().filter(|change| change[1] == "GPU 1").collect();
    assert_eq!(of_gpu, [&partitions.each_ref()], "{entries:#?}");
    let states = of("layout-state");
    assert_eq!(states.last().unwrap()[3], "applied", "{entries:#?}");
    // No entry is missing or repeated.
    assert!(states.windows(2).all(|pair| pair[0][3] == pair[1][2]), "{entries:#?}");
}

#[tokio::test]
async fn changes_of_an_unknown_node_are_not_found() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let answer = api.get("/api/v1/nodes/nothing/changes").await;
    assert_eq!((answer.status, &answer.json()["kind"]), (404, &Value::Null));
    let answer = api.get("/api/v1/nodes/nothing/changes?limit=1").await;
    assert_eq!((answer.status, &answer.json()["parameter"]), (400, &"limit".into()));
}
