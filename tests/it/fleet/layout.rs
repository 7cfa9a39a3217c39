//! A layout is applied to a node and reported by the API, the labels, the command line and the metrics.

use std::fs;

use nvml_sim::model::Slot;
use serde_json::{Value, json};

use crate::fleet_api::Api;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::promtool;

/// Two partitioned GPUs; a process uses one partition of the second.
pub(crate) const SHARED: &str = "
machine: shared
driver: 570.133.20
gpus:
  - board: A100_80GB
    count: 2
    mig: enabled
    instances:
      - {profile: 3g.40gb, start: 4}
processes:
  - {pid: 4711, gpu: 1, gi: 2, ci: 0, name: torchrun, memory_mib: 1000}
";

const LAYOUTS: &str = "
apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  first: [{devices: 0, mig: {1g.10gb: 2}}]
  both: [{devices: all, mig: {1g.10gb: 2}}]
";

/// An agent that applies a layout to the machine.
pub(crate) fn partition(machine: &Machine, to: &Aggregator, layout: &str) -> Program {
    let path = |name: &str| machine.path().join(name).display().to_string();
    fs::create_dir_all(path("proc")).unwrap();
    let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
    fs::write(path("proc/devices"), devices).unwrap();
    fs::write(path("layouts.yaml"), LAYOUTS).unwrap();
    machine.report(
        to,
        "shared",
        &[
            &format!("--layouts={}", path("layouts.yaml")),
            &format!("--layout={layout}"),
            &format!("--state-dir={}", path("state")),
            &format!("--proc-root={}", path("proc")),
            &format!("--pod-resources={}", path("no-kubelet/kubelet.sock")),
            "--metrics-listen=127.0.0.1:0",
        ],
    )
}

/// Number of GPU instances of a GPU.
fn instances(machine: &Machine, gpu: usize) -> usize {
    let world = machine.world();
    let mig = world.gpu(Slot(gpu)).unwrap().mig.as_ref().unwrap();
    mig.instances.len()
}

fn label(node: &Value) -> &Value {
    &node["labels"]["octavo.dev/layout-state"]
}

#[tokio::test]
async fn applied_layout_is_shown_as_applied() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let machine = Machine::new(SHARED);
    let mut agent = partition(&machine, &aggregator, "first");
    let metrics = agent.metrics();
    let api = Api::at(aggregator.http);
    let node = api.node("shared", |node| node["layout"]["state"] == "applied").await;
    let layout = &node["layout"];
    assert_eq!(
        (&layout["name"], &layout["byHand"], &node["state"]),
        (&json!("first"), &json!(false), &json!("ok"))
    );
    assert!(layout["plan"].is_string(), "{layout}");
    assert_eq!(layout["devices"].as_array().unwrap().len(), 1);
    assert_eq!(layout["devices"][0]["name"], "GPU 0");
    assert_eq!(layout["devices"][0]["state"], "applied");
    assert_eq!(label(&node), "applied");
    assert_eq!((instances(&machine, 0), instances(&machine, 1)), (2, 1));
    let found = |query: &str| {
        let path = format!("/api/v1/nodes?{query}");
        let api = api.clone();
        async move { api.get(&path).await.json()["total"].clone() }
    };
    assert_eq!(found("layoutState=applied&layout=first").await, 1);
    assert_eq!(found("layoutState=none,blocked").await, 0);
    assert_eq!(found("layout=both").await, 0);
    // Lists contain the node without its devices.
    let row = &api.nodes().await[0]["layout"];
    assert_eq!((&row["state"], &row["devices"]), (&json!("applied"), &Value::Null));

    let samples = [
        "octavo_applies_total{result=\"applied\"} 1",
        "octavo_applies_total{result=\"failed\"} 0",
        "octavo_instances_destroyed_total 1",
        "octavo_instances_created_total 2",
        "octavo_rollbacks_total 0",
        "octavo_drift_total 0",
        "octavo_apply_duration_seconds_count 1",
        "octavo_apply_hardware_seconds_count 1",
        "octavo_layout_state{state=\"applied\"} 1",
        "octavo_layout_state{state=\"blocked\"} 0",
    ];
    let text = Api::at(metrics).metrics_with(&samples).await;
    promtool::finds_no_fault(&text);
    assert_eq!(Api::at(metrics).get("/elsewhere").await.status, 404);
    assert!(agent.stop().success());
}

#[tokio::test]
async fn foreign_changes_are_reverted_and_counted() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let machine = Machine::new(SHARED);
    let mut agent = partition(&machine, &aggregator, "first");
    let metrics = agent.metrics();
    let api = Api::at(aggregator.http);
    let node = api.node("shared", |node| node["layout"]["state"] == "applied").await;
    machine.change(|world| {
        let mig = world.gpu(Slot(0))?.mig.as_ref();
        let first = mig.unwrap().instances[0].id;
        world.destroy_ci(Slot(0), first, 0)?;
        world.destroy_gi(Slot(0), first)
    });
    let plan = node["layout"]["plan"].clone();
    let node = api
        .node("shared", |node| {
            node["layout"]["plan"] != plan && node["layout"]["state"] == "applied"
        })
        .await;
    assert_eq!((instances(&machine, 0), label(&node)), (2, &json!("applied")));
    let samples = ["octavo_drift_total 1", "octavo_applies_total{result=\"applied\"} 2"];
    Api::at(metrics).metrics_with(&samples).await;
}

#[tokio::test]
async fn device_in_use_blocks_layout_and_blocker_is_shown() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let machine = Machine::new(SHARED);
    let mut agent = partition(&machine, &aggregator, "both");
    let metrics = agent.metrics();
    let line = agent.expect_log("GPU 1: blocked: ");
    assert!(line.ends_with(" reason=blocked"), "{line}");
    let api = Api::at(aggregator.http);
    let node = api
        .node("shared", |node| {
            let devices = &node["layout"]["devices"];
            devices[0]["state"] == "applied" && devices[1]["state"] == "blocked"
        })
        .await;
    assert_eq!(
        (&node["layout"]["state"], &node["state"], label(&node)),
        (&json!("blocked"), &json!("attention"), &json!("blocked"))
    );
    for text in
        [&node["layout"]["devices"][1]["message"], &node["layout"]["message"], &node["reason"]]
    {
        let text = text.as_str().unwrap();
        assert!(text.contains("is in use: ") && text.contains("pid 4711"), "{text}");
    }
    assert_eq!(instances(&machine, 1), 1, "an instance in use was destroyed");
    let samples = [
        "octavo_layout_state{state=\"blocked\"} 1",
        "octavo_layout_info{layout=\"both\",reason=\"blocked\"} 1",
        "octavo_blocker_devices{namespace=\"\",pod=\"\"} 1",
    ];
    let text = Api::at(metrics).metrics_with(&samples).await;
    let blocked =
        text.lines().find_map(|line| line.strip_prefix("octavo_blocked_seconds_total ")).unwrap();
    assert!(blocked.parse::<f64>().unwrap() > 0.0, "{blocked}");

    // When the process ends, the layout is applied to both GPUs.
    machine.change(|world| {
        world.processes.clear();
        Ok(())
    });
    let node = api.node("shared", |node| node["layout"]["state"] == "applied").await;
    assert_eq!((&node["state"], label(&node)), (&json!("ok"), &json!("applied")));
    assert_eq!(node["reason"], Value::Null);
    let applied = "octavo_layout_info{layout=\"both\",reason=\"applied\"} 1";
    let text = Api::at(metrics).metrics_with(&[applied]).await;
    assert!(!text.contains("octavo_blocker_devices{"), "{text}");
    drop(agent);
}

#[tokio::test]
async fn layout_without_effect_is_reported() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let machine = Machine::new(SHARED);
    let _agent = partition(&machine, &aggregator, "nosuch");
    let api = Api::at(aggregator.http);
    let node = api.node("shared", |node| node["layout"]["message"].is_string()).await;
    assert!(node["reason"].as_str().unwrap().contains("nosuch"), "{node}");
    assert_eq!((label(&node), &node["state"]), (&json!("failed"), &json!("attention")));
}
