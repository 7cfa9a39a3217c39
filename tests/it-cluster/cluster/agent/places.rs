//! Labels on the Node and in the NodeFeature: their owners, the writes of a restart, and cleanup.

use serde_json::{Value, json};

use super::{NODE_WRITTEN, Rig};
use crate::cluster::Api;
use crate::fleet_api::Api as Readers;
use crate::process::Program;
use crate::time_limits::{Finish, until, until_async};

const FOUR: &str = "- {board: H100_80GB_SXM, count: 4}\n";

#[test]
fn agent_restart_writes_nothing_and_each_change_is_written_once() {
    let api = Api::fresh();
    let rig = Rig::new(&api, FOUR);
    let mut agent = rig.start(&[]);
    agent.expect_log(NODE_WRITTEN);
    rig.await_label("octavo.dev/count", "4");
    let before = rig.writes();
    assert_eq!(before.len(), 1, "{before:?}");
    agent.kill();
    let mut agent = rig.start(&["--log-level=debug"]);
    // The agent has read the Node, and scanned the hardware several times.
    agent.expect_log("device found");
    agent.expect_log("the Node is up to date");
    assert_eq!(rig.writes(), before);
    rig.machine.machine.change(|world| world.lose_gpu(world.slot_of_index(0).unwrap()));
    agent.expect_log(NODE_WRITTEN);
    assert_eq!(rig.writes().len(), 2);
}

#[test]
fn keys_of_other_owners_are_reported_and_adopted_after_release() {
    let rig = Rig::new(Api::shared(), FOUR);
    let theirs =
        ["label", "node", rig.name(), "nvidia.com/gpu.count=3", "--field-manager=nfd-master"];
    rig.api.kubectl(&theirs);
    let mut agent = rig.start(&[]);
    agent.expect_log(NODE_WRITTEN);
    rig.await_label("octavo.dev/count", "4");
    let of = |key: &str| rig.get()["metadata"]["labels"][key].clone();
    assert_eq!(of("nvidia.com/gpu.count"), "3");
    let shown = rig.await_event("KeysLeftToOthers");
    assert!(shown.contains("nvidia.com/gpu.count (nfd-master)"), "{shown}");
    let expected = json!([{"key": "nvidia.com/gpu.count", "owner": "nfd-master"}]);
    let left = || rig.status()["leftToOthers"].clone();
    until("the key that is left to its owner", left, |left| *left == expected);
    // A user overrides an own label and reverts it.
    rig.label(&["octavo.dev/type=mine"]);
    rig.label(&["nvidia.com/gpu.count-"]);
    rig.await_label("nvidia.com/gpu.count", "4");
    assert_eq!(of("octavo.dev/type"), "mine");
    rig.label(&["octavo.dev/type-"]);
    rig.await_label("octavo.dev/type", "nvidia-h100-80gb");
}

#[test]
fn cleanup_removes_own_fields_and_keeps_foreign_fields() {
    let rig = Rig::new(Api::shared(), FOUR);
    rig.label(&[
        "octavo.dev/layout=no-such-layout",
        "nvidia.com/gpu.deploy.dcgm=paused-for-octavo",
    ]);
    let mut agent = rig.start(&["--taint-not-ready", "--compat=mig-manager"]);
    agent.expect_log("1 taints");
    rig.await_label("octavo.dev/count", "4");
    agent.kill();
    let cleaned = rig.agent(&["--label-sink=node", "--cleanup"]).finish();
    assert!(cleaned.status.success(), "{cleaned:?}");
    let node = rig.get();
    // The label that selects the layout belongs to the user.
    let retained = ["octavo.dev/layout"].map(|key| (key.to_owned(), "no-such-layout".to_owned()));
    assert_eq!(rig.labels("octavo.dev/"), retained);
    assert_eq!(rig.labels("type.octavo.dev/"), []);
    assert_eq!(
        rig.labels("nvidia.com/"),
        [("nvidia.com/gpu.deploy.dcgm".to_owned(), "true".to_owned())]
    );
    assert!(node["spec"].get("taints").is_none(), "{}", node["spec"]);
    let managers = node["metadata"]["managedFields"].as_array().unwrap();
    let ours = managers.iter().filter(|entry| entry["manager"] == "octavo-agent");
    assert_eq!(ours.count(), 0, "{managers:?}");
    let again = rig.agent(&["--label-sink=node", "--cleanup"]).finish();
    assert!(again.status.success(), "{again:?}");
}

#[tokio::test]
async fn cleanup_stay_becomes_ready_when_done_and_writes_nothing_again() {
    let rig = Rig::new(Api::shared(), FOUR);
    let mut agent = rig.start(&[]);
    rig.await_label("octavo.dev/count", "4");
    agent.kill();
    let mut cleaner = rig.start(&["--cleanup=stay", "--metrics-listen=127.0.0.1:0"]);
    let readers = Readers::at(cleaner.metrics());
    cleaner.expect_log("all fields of this agent removed from the Node");
    let ready = async || readers.get("/readyz").await.status;
    until_async("/readyz", ready, |status| *status == 200).await;
    assert_eq!(rig.labels("octavo.dev/"), []);
    let version = rig.get()["metadata"]["resourceVersion"].clone();
    assert!(cleaner.stop().success());
    assert_eq!(rig.get()["metadata"]["resourceVersion"], version);
}

#[test]
fn oneshot_agent_exits_after_node_update_or_reports_failure() {
    let rig = Rig::new(Api::shared(), FOUR);
    let once = rig.agent(&["--label-sink=node", "--oneshot"]).finish();
    assert!(once.status.success(), "{once:?}");
    assert_eq!(rig.get()["metadata"]["labels"]["octavo.dev/count"], "4");
    assert!(!rig.labels("nvidia.com/").is_empty());
}

/// The kinds of node-feature-discovery with the fields that the API server needs. Source: node-feature-discovery
/// v0.18.3, `deployment/base/nfd-crds/nfd-api-crds.yaml`.
const NODE_FEATURES: &str = r#"{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "nodefeatures.nfd.k8s-sigs.io",
               "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}},
  "spec": {
    "group": "nfd.k8s-sigs.io", "scope": "Namespaced",
    "names": {"kind": "NodeFeature", "listKind": "NodeFeatureList", "plural": "nodefeatures", "singular": "nodefeature"},
    "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
      "type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "properties": {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "features": {"type": "object", "required": ["attributes", "flags", "instances"], "properties": {
          "attributes": {"type": "object", "additionalProperties": {"type": "object", "required": ["elements"],
            "properties": {"elements": {"type": "object", "additionalProperties": {"type": "string"}}}}},
          "flags": {"type": "object", "additionalProperties": {"type": "object", "required": ["elements"],
            "properties": {"elements": {"type": "object", "additionalProperties": {"type": "object"}}}}},
          "instances": {"type": "object", "additionalProperties": {"type": "object", "required": ["elements"],
            "properties": {"elements": {"type": "array", "items": {"type": "object", "required": ["attributes"],
              "properties": {"attributes": {"type": "object", "additionalProperties": {"type": "string"}}}}}}}}
        }}}}}}}}]
  }
}"#;

fn feature(api: &Api, node: &str) -> Option<Value> {
    let name = format!("octavo-{node}");
    let output = api.try_kubectl(&["get", "nodefeature", &name, "-o", "json"]);
    serde_json::from_slice(&output.stdout).ok()
}

#[test]
fn node_feature_has_labels_and_devices_and_is_removed_by_cleanup() {
    let api = Api::fresh();
    api.apply(NODE_FEATURES);
    api.kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd/nodefeatures.nfd.k8s-sigs.io",
        "--timeout=60s",
    ]);
    let rig = Rig::new(&api, FOUR);
    let start =
        || Program::start(&mut rig.agent(&["--label-sink=nodefeature", "--log-level=debug"]));
    let mut agent = start();
    agent.expect_log("NodeFeature updated");
    let object = feature(&api, rig.name()).unwrap();
    assert_eq!(object["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"], rig.name());
    assert_eq!(object["spec"]["labels"]["octavo.dev/type"], "nvidia-h100-80gb");
    let devices =
        object["spec"]["features"]["instances"]["octavo.device"]["elements"].as_array().unwrap();
    assert_eq!(devices.len(), 4);
    assert_eq!(devices[0]["attributes"]["type"], "nvidia-h100-80gb");
    agent.kill();
    let mut agent = start();
    agent.expect_log("the NodeFeature is up to date");
    assert_eq!(
        feature(&api, rig.name()).unwrap()["metadata"]["resourceVersion"],
        object["metadata"]["resourceVersion"]
    );
    // Only the object is written: node-feature-discovery writes the Node.
    assert_eq!(rig.labels("octavo.dev/"), []);
    agent.kill();
    let cleaned = rig.agent(&["--label-sink=nodefeature", "--cleanup"]).finish();
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert_eq!(feature(&api, rig.name()), None);
}
