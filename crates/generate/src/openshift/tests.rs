//! Tests of the machine sets and their autoscalers.

use super::*;
use crate::MachineSetList;
use crate::tests_support::{Fleet, cloud, objects};

fn existing() -> Vec<MachineSet> {
    let set = |name: &str, zone: &str, architecture: &str| {
        json!({
            "metadata": {
                "name": name, "namespace": "openshift-machine-api",
                "labels": {CLUSTER_LABEL: "demo-x7k2p"},
                "annotations": {"capacity.cluster-autoscaler.kubernetes.io/labels": format!("a=b,kubernetes.io/arch={architecture}")},
            },
            "spec": {"template": {"spec": {"providerSpec": {"value": {
                "ami": {"id": format!("ami-{architecture}")}, "instanceType": "m6i.xlarge",
                "marketType": "CapacityBlock", "capacityReservationId": "cr-1",
                "placement": {"availabilityZone": zone}, "subnet": {"id": format!("subnet-{zone}")},
            }}}}},
        })
    };
    let list = json!({"items": [
        set("arm-a", "z-a", "arm64"), set("worker-a", "z-a", "amd64"), set("worker-b", "z-b", "amd64"),
    ]});
    serde_json::from_value::<MachineSetList>(list).unwrap().items
}

fn generated(fleet: &Fleet) -> Generated {
    openshift(&Pools::new(&fleet.0, &fleet.1).unwrap(), &existing()).unwrap()
}

fn named_object(generated: &Generated, file: &str, name: &str) -> Value {
    let all = objects(generated, file);
    let found = all.iter().find(|one| one["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {all:?}")).clone()
}

#[test]
fn f1_gpu_machine_set_scales_from_zero_with_the_resources_of_its_nodes() {
    let mut fleet = cloud();
    // The system reserves other amounts on each node.
    fleet.1[1].allocatable = fleet.1[1].allocatable.clone().with("cpu", 47_500);
    let generated = generated(&fleet);
    let name = "nvidia-t4-16gb-g4dn.12xlarge-z-b";
    let set = named_object(&generated, "machine-sets.yaml", name);
    assert_eq!(set["spec"]["replicas"], 0);
    let annotation =
        |key: &str| set["metadata"]["annotations"][format!("{CAPACITY}/{key}")].clone();
    assert_eq!(annotation("cpu"), "47500m");
    assert_eq!(annotation("memory"), "512Gi");
    assert_eq!(annotation("maxPods"), "110");
    assert_eq!([annotation("gpu-count"), annotation("gpu-type")], ["4", GPU]);
    let labels = &set["spec"]["template"]["spec"]["metadata"]["labels"];
    let expected = json!({
        "cluster-api/accelerator": "nvidia-t4-16gb", "octavo.dev/sharing": "exclusive",
        "octavo.dev/type": "nvidia-t4-16gb", "workload": "serving",
    });
    assert_eq!(*labels, expected);
    // Labels for the prediction of the first node are those of the node.
    let predicted = annotation("labels");
    let predicted = predicted.as_str().unwrap().split(',').map(|one| one.split_once('=').unwrap());
    let predicted: serde_json::Map<String, Value> =
        predicted.map(|(key, value)| (key.to_owned(), json!(value))).collect();
    assert_eq!(Value::Object(predicted), expected);
    assert_eq!(set["spec"]["template"]["spec"]["taints"][0]["key"], GPU);
    let autoscaler = named_object(&generated, "machine-autoscalers.yaml", name);
    let spec = &autoscaler["spec"];
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(0), &json!(2)));
    assert_eq!(spec["scaleTargetRef"]["name"], name);
}

#[test]
fn f1_settings_of_the_cloud_come_from_the_machine_set_of_the_zone_and_architecture() {
    let set = named_object(
        &generated(&cloud()),
        "machine-sets.yaml",
        "nvidia-t4-16gb-g4dn.xlarge-spot-z-a",
    );
    let provider = &set["spec"]["template"]["spec"]["providerSpec"]["value"];
    let expected = json!({
        "ami": {"id": "ami-amd64"}, "instanceType": "g4dn.xlarge", "spotMarketOptions": {},
        "placement": {"availabilityZone": "z-a"}, "subnet": {"id": "subnet-z-a"},
    });
    assert_eq!(*provider, expected);
    let selector = &set["spec"]["selector"]["matchLabels"];
    assert_eq!(selector[CLUSTER_LABEL], "demo-x7k2p");
    assert_eq!(selector[MACHINE_SET_LABEL], set["metadata"]["name"]);
    let labels = set["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
    assert!(selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value));
}

#[test]
fn f1_pools_that_the_autoscaler_cannot_predict_have_one_machine() {
    let generated = generated(&cloud());
    for name in ["aws-inferentia2-32gb-z-a", "nvidia-a100-80gb-mig-1g.10gb-z-a"] {
        let set = named_object(&generated, "machine-sets.yaml", name);
        assert_eq!(set["spec"]["replicas"], 1);
        let annotations = set["metadata"]["annotations"].as_object().unwrap();
        assert!(!annotations.keys().any(|key| key.contains("gpu")), "{annotations:?}");
        let autoscaler = named_object(&generated, "machine-autoscalers.yaml", name);
        assert_eq!(autoscaler["spec"]["minReplicas"], 1);
    }
    let notes = generated.notes.iter().filter(|note| matches!(note, Note::NotFromZero { .. }));
    assert_eq!(notes.count(), 2);
    // Replicas of a time-sliced GPU are predicted.
    let shared = named_object(&generated, "machine-sets.yaml", "nvidia-l4-24gb-time-slicing-z-a");
    assert_eq!(shared["spec"]["replicas"], 0);
}

#[test]
fn f1_gpus_are_limited_by_type_to_those_of_the_nodes() {
    let cluster = named_object(&generated(&cloud()), "cluster-autoscaler.yaml", "default");
    let expected = json!([
        {"type": "nvidia-l4-24gb", "min": 0, "max": 4},
        {"type": "nvidia-t4-16gb", "min": 0, "max": 9},
    ]);
    assert_eq!(cluster["spec"]["resourceLimits"]["gpus"], expected);
}

#[test]
fn f1_machine_sets_are_never_deleted_by_argo_cd() {
    for set in objects(&generated(&cloud()), "machine-sets.yaml") {
        let options = &set["metadata"]["annotations"][NEVER_DELETED.0];
        assert_eq!(options, "Prune=false,Delete=false");
    }
}

#[test]
fn f1_nodes_without_a_machine_set_are_excluded_with_a_note() {
    let (rows, cluster) = cloud();
    let pools = Pools::new(&rows, &cluster).unwrap();
    let generated = openshift(&pools, &existing()[..2]).unwrap();
    let notes: Vec<String> = generated.notes.iter().map(ToString::to_string).collect();
    let expected = "excluded: t4-b, t4-c: no machine set of --machine-sets is in the zone z-b with the \
                    architecture amd64";
    assert!(notes.iter().any(|note| note == expected), "{notes:?}");
    let error = openshift(&pools, &existing()[..1]).unwrap_err();
    assert!(matches!(error, GenerateError::NoNodes(_)), "{error}");
}

#[test]
fn i12_name_that_is_too_long_for_a_label_is_an_error() {
    let (rows, mut cluster) = cloud();
    for node in &mut cluster {
        node.labels.insert("topology.kubernetes.io/zone".to_owned(), "z".repeat(60));
    }
    let pools = Pools::new(&rows, &cluster).unwrap();
    let mut sets = existing();
    for set in &mut sets {
        let provider = &mut set.spec.template.spec.provider_spec.value;
        provider["placement"]["availabilityZone"] = json!("z".repeat(60));
    }
    let error = openshift(&pools, &sets).unwrap_err().to_string();
    assert!(error.contains("has more than 63 characters"), "{error}");
}
