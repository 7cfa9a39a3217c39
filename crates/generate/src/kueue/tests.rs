//! Tests of the queues.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tests_support::{Fleet, GPU, add, mixed, objects};

fn generated(fleet: &Fleet, api: KueueApi, namespaces: &[&str]) -> Generated {
    let pools = Pools::new(&fleet.0, &fleet.1).unwrap();
    let namespaces: Vec<String> = namespaces.iter().map(ToString::to_string).collect();
    let priorities = ["high".to_owned(), "low".to_owned()];
    let options =
        KueueOptions { api, namespaces: &namespaces, priorities: &priorities, preferred: &[] };
    kueue(&pools, &options).unwrap()
}

#[test]
fn queue_has_a_quota_for_every_resource_of_every_flavor() {
    let generated = generated(&mixed(), KueueApi::V1Beta2, &["team-b", "team-a"]);
    let queues = objects(&generated, "cluster-queues.yaml");
    let spec = &queues[0]["spec"];
    let [group] = spec["resourceGroups"].as_array().unwrap().as_slice() else { panic!("{spec}") };
    let covered = json!([
        "cpu",
        "memory",
        "amd.com/gpu",
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-3g.40gb",
    ]);
    assert_eq!(group["coveredResources"], covered);
    let mut flavors = group["flavors"].as_array().unwrap().iter();
    let h100 = flavors.find(|flavor| flavor["name"] == "nvidia-h100-80gb").unwrap();
    let quotas: Vec<&str> = h100["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|quota| quota["nominalQuota"].as_str().unwrap())
        .collect();
    assert_eq!(quotas, ["128", "1Ti", "0", "0", "0", "16", "0", "0"]);
    let expression = &spec["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(expression["values"], json!(["team-a", "team-b"]));
    let local = objects(&generated, "local-queues.yaml");
    let namespaces: Vec<&Value> = local.iter().map(|one| &one["metadata"]["namespace"]).collect();
    assert_eq!(namespaces, ["team-a", "team-a", "team-b", "team-b"]);
}

fn flavors(queue: &Value) -> Vec<&str> {
    let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array().unwrap().iter();
    flavors.map(|flavor| flavor["name"].as_str().unwrap()).collect()
}

#[test]
fn p4_isolated_workloads_never_get_a_time_slice() {
    let mut fleet = mixed();
    let labels = [("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-SHARED")];
    let shared = [("nvidia.com/mig-1g.10gb.shared", 14)];
    add(&mut fleet, ("a100-shared", "nvidia-a100-80gb", "mig"), &labels, &shared);
    let generated = generated(&fleet, KueueApi::V1Beta2, &["team-a"]);
    let queues = objects(&generated, "cluster-queues.yaml");
    let [isolated, shared] = queues.as_slice() else { panic!("{queues:?}") };
    let names = ["accelerators", "accelerators-shared"];
    assert_eq!([&isolated["metadata"]["name"], &shared["metadata"]["name"]], names);
    assert_eq!(
        flavors(isolated),
        [
            "amd-mi300x-192gb-partitioned",
            "aws-inferentia2-32gb",
            "nvidia-a100-80gb-mig-1g.10gb",
            "nvidia-a100-80gb-mig-1g.10gb-3g.40gb",
            "nvidia-h100-80gb",
        ]
    );
    let sliced = ["nvidia-a100-80gb-mig-1g.10gb-time-slicing", "nvidia-t4-16gb-time-slicing"];
    assert_eq!(flavors(shared), sliced);
    let local = objects(&generated, "local-queues.yaml");
    let targets: Vec<_> = local.iter().map(|one| &one["spec"]["clusterQueue"]).collect();
    assert_eq!(targets, names);
}

#[test]
fn p4_preferred_types_are_tried_first_and_the_next_flavor_before_preemption() {
    let (rows, cluster) = mixed();
    let pools = Pools::new(&rows, &cluster).unwrap();
    let preferred = ["nvidia-h100-80gb".to_owned(), "nvidia-a100-80gb".to_owned()];
    let api = KueueApi::V1Beta2;
    let options = KueueOptions { api, namespaces: &[], priorities: &[], preferred: &preferred };
    let generated = kueue(&pools, &options).unwrap();
    let queue = &objects(&generated, "cluster-queues.yaml")[0];
    assert_eq!(flavors(queue)[..2], ["nvidia-h100-80gb", "nvidia-a100-80gb-mig-1g.10gb"]);
    assert_eq!(flavors(queue)[3], "amd-mi300x-192gb-partitioned");
    let next = json!({"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"});
    assert_eq!(queue["spec"]["flavorFungibility"], next);
}

#[test]
fn versions_differ_in_the_field_of_the_cohort() {
    for (api, version, cohort, absent) in [
        (KueueApi::V1Beta1, "kueue.x-k8s.io/v1beta1", "cohort", "cohortName"),
        (KueueApi::V1Beta2, "kueue.x-k8s.io/v1beta2", "cohortName", "cohort"),
    ] {
        let generated = generated(&mixed(), api, &[]);
        let queue = &objects(&generated, "cluster-queues.yaml")[0];
        assert_eq!(queue["spec"][cohort], QUEUE);
        assert!(queue["spec"].get(absent).is_none(), "{queue}");
        // Without namespaces, the selector matches all; an absent one would match none.
        assert_eq!(queue["spec"]["namespaceSelector"], json!({}));
        for file in &generated.files {
            for object in objects(&generated, file.name) {
                assert_eq!(object["apiVersion"], version);
            }
        }
    }
}

#[test]
fn first_priority_is_the_highest() {
    let generated = generated(&mixed(), KueueApi::V1Beta2, &[]);
    let classes = objects(&generated, "workload-priority-classes.yaml");
    let values: Vec<(&str, i64)> = classes
        .iter()
        .map(|one| (one["metadata"]["name"].as_str().unwrap(), one["value"].as_i64().unwrap()))
        .collect();
    assert_eq!(values, [("high", 2000), ("low", 1000)]);
}

#[test]
fn topology_has_the_levels_that_all_nodes_have() {
    let mut fleet = mixed();
    let none = generated(&fleet, KueueApi::V1Beta2, &[]);
    assert_eq!(objects(&none, "topologies.yaml"), [] as [Value; 0]);
    for node in &mut fleet.1 {
        for (key, value) in [
            ("kubernetes.io/hostname", node.name.as_str()),
            ("topology.kubernetes.io/zone", "a"),
            ("topology.kubernetes.io/region", "r"),
        ] {
            node.labels.insert(key.to_owned(), value.to_owned());
        }
    }
    fleet.1[0].labels.remove("topology.kubernetes.io/region");
    let some = generated(&fleet, KueueApi::V1Beta2, &[]);
    let levels = json!([
        {"nodeLabel": "topology.kubernetes.io/zone"},
        {"nodeLabel": "kubernetes.io/hostname"},
    ]);
    assert_eq!(objects(&some, "topologies.yaml")[0]["spec"]["levels"], levels);
    for flavor in objects(&some, "resource-flavors.yaml") {
        assert_eq!(flavor["spec"]["topologyName"], QUEUE);
    }
}

#[test]
fn i12_more_flavors_than_kueue_allows_are_an_error() {
    let mut fleet = Fleet::default();
    for number in 0..=MAX_FLAVORS {
        let kind = format!("type-{number}");
        add(&mut fleet, (&format!("node-{number}"), &kind, "exclusive"), &[], &[(GPU, 1)]);
    }
    let pools = Pools::new(&fleet.0, &fleet.1).unwrap();
    let options =
        KueueOptions { api: KueueApi::V1Beta2, namespaces: &[], priorities: &[], preferred: &[] };
    let error = kueue(&pools, &options).unwrap_err().to_string();
    assert_eq!(error, "65 flavors exceed Kueue's limit of 64; limit the types with --type");
}

proptest! {
    #[test]
    fn every_flavor_lists_all_covered_resources_and_quotas_are_the_resources_of_the_nodes(
        nodes in prop::collection::vec((0..4_u8, 1..3_usize, 1..9_u64), 1..12),
    ) {
        let resources = ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb"];
        let mut fleet = Fleet::default();
        for (at, (kind, units, count)) in nodes.iter().enumerate() {
            let units: Vec<(&str, u64)> =
                resources.iter().take(*units).map(|name| (*name, *count)).collect();
            let name = format!("node-{at}");
            add(&mut fleet, (&name, &format!("type-{kind}"), "exclusive"), &[], &units);
        }
        let generated = generated(&fleet, KueueApi::V1Beta2, &[]);
        let queue = &objects(&generated, "cluster-queues.yaml")[0];
        let group = &queue["spec"]["resourceGroups"][0];
        let covered = group["coveredResources"].as_array().unwrap();
        let flavors = group["flavors"].as_array().unwrap();
        prop_assert!(covered.len() <= MAX_RESOURCES && flavors.len() <= MAX_FLAVORS);
        for (at, name) in covered.iter().enumerate() {
            let mut sum = 0;
            for flavor in flavors {
                let quotas = flavor["resources"].as_array().unwrap();
                prop_assert_eq!(quotas.len(), covered.len());
                prop_assert_eq!(&quotas[at]["name"], name);
                let text = quotas[at]["nominalQuota"].as_str().unwrap();
                sum += text.parse::<octavo_fleet::cluster::Quantity>().unwrap().thousandths();
            }
            let name = name.as_str().unwrap();
            let scale = if name == CPU { 1 } else { 1000 };
            let all = fleet.1.iter().map(|node| node.allocatable.get(name) * scale);
            prop_assert_eq!(sum, all.sum::<u64>());
        }
        let listed: Vec<&Value> = flavors.iter().map(|flavor| &flavor["name"]).collect();
        let defined = objects(&generated, "resource-flavors.yaml");
        let defined: Vec<&Value> = defined.iter().map(|one| &one["metadata"]["name"]).collect();
        prop_assert_eq!(listed, defined);
    }
}
