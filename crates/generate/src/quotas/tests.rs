//! Tests of the quotas and limits.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tests_support::{Fleet, mixed, objects};

fn generated(fleet: &Fleet, namespaces: &[&str]) -> Generated {
    let pools = Pools::new(&fleet.0, &fleet.1).unwrap();
    let namespaces: Vec<String> = namespaces.iter().map(ToString::to_string).collect();
    let priorities = ["high".to_owned(), "low".to_owned()];
    quotas(&pools, &QuotaOptions { namespaces: &namespaces, priorities: &priorities })
}

#[test]
fn types_with_a_common_resource_share_a_quota() {
    let generated = generated(&mixed(), &["team-a"]);
    let quotas = objects(&generated, "resource-quotas.yaml");
    let shown: Vec<(&str, &Value)> = quotas
        .iter()
        .map(|one| (one["metadata"]["name"].as_str().unwrap(), &one["spec"]["hard"]))
        .collect();
    assert_eq!(
        shown,
        [
            ("amd-mi300x-192gb", &json!({"requests.amd.com/gpu": "64"})),
            (
                "aws-inferentia2-32gb",
                &json!({"requests.aws.amazon.com/neuron": "12", "requests.aws.amazon.com/neuroncore": "24"})
            ),
            (
                "nvidia-a100-80gb",
                &json!({"requests.nvidia.com/mig-1g.10gb": "16", "requests.nvidia.com/mig-3g.40gb": "2"})
            ),
            ("nvidia.com-gpu", &json!({"requests.nvidia.com/gpu": "19"})),
        ]
    );
    let note = Note::SharedResource {
        types: vec!["nvidia-h100-80gb".to_owned(), "nvidia-t4-16gb".to_owned()],
    };
    assert!(generated.notes.contains(&note), "{:?}", generated.notes);
}

#[test]
fn containers_get_no_device_by_default_and_at_most_those_of_one_node() {
    let generated = generated(&mixed(), &["team-a"]);
    let limits = objects(&generated, "limit-ranges.yaml");
    let [item] = limits[0]["spec"]["limits"].as_array().unwrap().as_slice() else {
        panic!("{limits:?}")
    };
    assert_eq!((&item["type"], &item["max"]["nvidia.com/gpu"]), (&json!("Container"), &json!("8")));
    let max = item["max"].as_object().unwrap();
    for defaults in ["default", "defaultRequest"] {
        let defaults = item[defaults].as_object().unwrap();
        assert!(defaults.keys().eq(max.keys()) && defaults.values().all(|count| count == "0"));
    }
}

#[test]
fn without_namespaces_only_priority_classes_are_generated() {
    let generated = generated(&mixed(), &[]);
    let counts = generated.files.iter().map(|file| (file.name, file.manifests.len()));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [("priority-classes.yaml", 2), ("resource-quotas.yaml", 0), ("limit-ranges.yaml", 0)]
    );
    let classes = objects(&generated, "priority-classes.yaml");
    assert_eq!(
        (&classes[0]["metadata"]["name"], &classes[0]["value"]),
        (&json!("high"), &json!(2000))
    );
}

proptest! {
    #[test]
    fn quotas_of_all_namespaces_add_up_to_the_resources_of_the_nodes(namespaces in 1..40_usize) {
        let names: Vec<String> = (0..namespaces).map(|number| format!("team-{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let fleet = mixed();
        let pools = Pools::new(&fleet.0, &fleet.1).unwrap();
        let quotas = objects(&generated(&fleet, &names), "resource-quotas.yaml");
        let resources = pools.all.iter().flat_map(|pool| pool.allocatable.accelerators());
        let resources: BTreeSet<&str> = resources.map(|(name, _)| name).collect();
        for resource in resources {
            let all = pools.all.iter().map(|pool| pool.allocatable.get(resource)).sum::<u64>();
            let key = format!("requests.{resource}");
            let shares = quotas.iter().filter_map(|quota| quota["spec"]["hard"][&key].as_str());
            let shares: Vec<u64> = shares.map(|share| share.parse().unwrap()).collect();
            prop_assert_eq!(shares.len(), namespaces);
            prop_assert_eq!(shares.iter().sum::<u64>(), all);
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
