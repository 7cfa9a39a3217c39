//! Tests of the node pools.

use serde_json::{Value, json};

use super::*;
use crate::tests_support::{Fleet, cloud, mixed, objects};

fn generated(fleet: &Fleet) -> Generated {
    karpenter(&Pools::new(&fleet.0, &fleet.1).unwrap(), "gpu").unwrap()
}

fn node_pool(fleet: &Fleet, name: &str) -> Value {
    let mut all = objects(&generated(fleet), "node-pools.yaml").into_iter();
    all.find(|one| one["metadata"]["name"] == name).unwrap()
}

#[test]
fn f1_node_pool_has_the_instances_labels_taints_and_limits_of_its_nodes() {
    let pool = node_pool(&cloud(), "nvidia-t4-16gb");
    let spec = &pool["spec"]["template"]["spec"];
    let values = |key: &str| {
        let mut all = spec["requirements"].as_array().unwrap().iter();
        all.find(|one| one["key"] == key).unwrap()["values"].clone()
    };
    assert_eq!(values("node.kubernetes.io/instance-type"), json!(["g4dn.12xlarge", "g4dn.xlarge"]));
    assert_eq!(values("topology.kubernetes.io/zone"), json!(["z-a", "z-b"]));
    assert_eq!(values("karpenter.sh/capacity-type"), json!(["on-demand", "spot"]));
    assert_eq!(spec["nodeClassRef"]["name"], "gpu");
    let taint = json!({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"});
    assert_eq!(spec["taints"], json!([taint]));
    // The node on another cloud is not counted.
    assert_eq!(pool["spec"]["limits"], json!({"cpu": "192", "nvidia.com/gpu": "9"}));
    let labels = json!({
        "octavo.dev/sharing": "exclusive", "octavo.dev/type": "nvidia-t4-16gb", "workload": "serving",
    });
    assert_eq!(pool["spec"]["template"]["metadata"]["labels"], labels);
}

#[test]
fn f1_spot_is_used_only_where_nodes_are_spot_instances_today() {
    let pool = node_pool(&cloud(), "nvidia-l4-24gb-time-slicing");
    let requirement = &pool["spec"]["template"]["spec"]["requirements"][0];
    assert_eq!(requirement["key"], "karpenter.sh/capacity-type");
    assert_eq!(requirement["values"], json!(["on-demand"]));
}

#[test]
fn f1_partitions_are_added_to_new_nodes_by_an_overlay() {
    let generated = generated(&cloud());
    let overlays = objects(&generated, "node-overlays.yaml");
    let [overlay] = overlays.as_slice() else { panic!("{overlays:?}") };
    assert_eq!(overlay["metadata"]["name"], "nvidia-a100-80gb-mig-1g.10gb-p4de.24xlarge");
    assert_eq!(overlay["spec"]["capacity"], json!({"nvidia.com/mig-1g.10gb": "56"}));
    let pool = json!({
        "key": "karpenter.sh/nodepool", "operator": "In", "values": ["nvidia-a100-80gb-mig-1g.10gb"],
    });
    assert_eq!(overlay["spec"]["requirements"][0], pool);
    let notes: Vec<String> = generated.notes.iter().map(ToString::to_string).collect();
    let has = |text: &str| notes.iter().any(|note| note.contains(text));
    assert!(has("nodes of nvidia-a100-80gb-mig-1g.10gb only with its alpha"), "{notes:?}");
    assert!(has("new node of nvidia-l4-24gb-time-slicing, not its replicas"), "{notes:?}");
    // Karpenter does not know partitions, and a limit of them would never be reached.
    let pool = node_pool(&cloud(), "nvidia-a100-80gb-mig-1g.10gb");
    assert_eq!(pool["spec"]["limits"], json!({"cpu": "64"}));
    // An agent applies this layout to new nodes.
    let labels = json!({
        "octavo.dev/layout": "small", "octavo.dev/sharing": "mig", "octavo.dev/type": "nvidia-a100-80gb",
    });
    assert_eq!(pool["spec"]["template"]["metadata"]["labels"], labels);
}

#[test]
fn f1_nodes_in_use_are_not_replaced() {
    for pool in objects(&generated(&cloud()), "node-pools.yaml") {
        assert_eq!(pool["spec"]["disruption"]["consolidationPolicy"], "WhenEmpty");
        assert_eq!(pool["spec"]["template"]["spec"]["expireAfter"], "Never");
    }
}

#[test]
fn f1_fleet_without_ec2_instances_is_an_error_with_the_reason() {
    let (rows, cluster) = mixed();
    let error = karpenter(&Pools::new(&rows, &cluster).unwrap(), "gpu").unwrap_err().to_string();
    assert!(error.contains("no node can be used"), "{error}");
    let GenerateError::NoNodes(notes) =
        karpenter(&Pools::new(&rows, &cluster).unwrap(), "gpu").unwrap_err()
    else {
        panic!("another error")
    };
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    assert!(
        notes.iter().any(|note| note.contains("no EC2 instance type in the label")),
        "{notes:?}"
    );
}
