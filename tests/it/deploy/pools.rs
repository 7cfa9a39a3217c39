//! At most one agent per node: for any labels, exactly one `DaemonSet` selects a node, or none if it has no
//! accelerator.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::manifests::chart;

type Labels = BTreeMap<String, String>;

/// True if the scheduler places a pod of this template on a node with these labels.
fn takes(daemon_set: &Value, labels: &Labels) -> bool {
    let pod = &daemon_set["spec"]["template"]["spec"];
    let selector = pod["nodeSelector"].as_object().into_iter().flatten();
    let mut selector =
        selector.map(|(key, value)| labels.get(key).map(String::as_str) == value.as_str());
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let any_term = terms.as_array().is_none_or(|terms| terms.iter().any(|term| fits(term, labels)));
    selector.all(|one| one) && any_term
}

fn fits(term: &Value, labels: &Labels) -> bool {
    term["matchExpressions"].as_array().unwrap().iter().all(|one| {
        let value = labels.get(one["key"].as_str().unwrap());
        let among = || {
            let values = one["values"].as_array().unwrap();
            values.iter().any(|one| one.as_str() == value.map(String::as_str))
        };
        match one["operator"].as_str().unwrap() {
            "In" => among(),
            "NotIn" => !among(),
            "Exists" => value.is_some(),
            other => panic!("{other} is not supported by this test"),
        }
    })
}

fn daemon_sets(values: &Value) -> Vec<Value> {
    let mut all = chart::render_with(values);
    all.retain(|object| object["kind"] == "DaemonSet");
    all
}

fn name(daemon_set: &Value) -> String {
    daemon_set["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Labels of a node: some for a GPU, and some that pools select.
fn labels() -> impl Strategy<Value = Labels> {
    let present = select(vec![
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.present",
        "nvidia.com/gpu.present",
    ]);
    let gpu = proptest::collection::btree_map(present, select(vec!["true", "false"]), 0..3);
    let pool = proptest::collection::btree_map(
        select(vec!["example.com/a", "example.com/b"]),
        select(vec!["1", "2", "3"]),
        0..3,
    );
    (gpu, pool).prop_map(|(gpu, pool)| {
        let linux = [("kubernetes.io/os", "linux")];
        let all = gpu.into_iter().chain(pool).chain(linux);
        all.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    })
}

/// Pools with overlapping label values.
fn pools() -> impl Strategy<Value = Vec<(String, Vec<String>, bool)>> {
    let values = proptest::sample::subsequence(vec!["1", "2", "3"], 1..=3);
    let values = values.prop_map(|all| all.into_iter().map(str::to_owned).collect());
    let key = select(vec!["example.com/a".to_owned(), "example.com/b".to_owned()]);
    proptest::collection::vec((key, values, any::<bool>()), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]
    #[test]
    fn every_node_matches_at_most_one_daemon_set(
        pools in pools(),
        everywhere in any::<bool>(),
        nodes in proptest::collection::vec(labels(), 64),
    ) {
        let word = |everywhere: bool| if everywhere { "all" } else { "labelled" };
        let listed: Vec<Value> = pools.iter().enumerate().map(|(index, (key, values, everywhere))| json!({
            "name": format!("p{index}"), "match": {"key": key, "values": values}, "agent": {"nodes": word(*everywhere)},
        })).collect();
        let all = daemon_sets(&json!({"tier": "reader", "agent": {"nodes": word(everywhere)}, "pools": listed}));
        prop_assert_eq!(all.len(), pools.len() + 1);
        for node in nodes {
            let pool = pools.iter().position(|(key, values, _)| node.get(key).is_some_and(|value| values.contains(value)));
            let gpu = node.iter().any(|(key, value)| key.ends_with(".present") && value == "true");
            let (of, anyway) = match pool {
                Some(index) => (format!("octavo-agent-p{index}"), pools[index].2),
                None => ("octavo-agent".to_owned(), everywhere),
            };
            let expected = if gpu || anyway { vec![of] } else { vec![] };
            let took: Vec<String> = all.iter().filter(|one| takes(one, &node)).map(name).collect();
            prop_assert_eq!(took, expected, "{:?}", node);
        }
    }
}

#[test]
fn value_is_one_argument_regardless_of_yaml_syntax() {
    let values = json!({
        "tier": "applier",
        "agent": {
            "layout": "a: b", "compat": "mig-manager", "devicePluginConfigs": ["a: 1", "b # c"],
            "drain": {"policy": "affected", "deadline": "0h0m1s"},
        },
    });
    let all = daemon_sets(&values);
    let arguments = &all[0]["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments: Vec<&str> =
        arguments.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    for expected in
        ["--layout=a: b", "--device-plugin-configs=a: 1,b # c", "--drain-deadline=0h0m1s"]
    {
        assert!(arguments.contains(&expected), "{arguments:?}");
    }
}

#[test]
fn pool_inherits_values_it_does_not_override() {
    let values: Value =
        serde_saphyr::from_str(&fs::read_to_string(chart::values("pools")).unwrap()).unwrap();
    let all = daemon_sets(&values);
    let of = |wanted: &str| {
        let found = all.iter().find(|one| name(one) == wanted).unwrap();
        found["spec"]["template"]["spec"].clone()
    };
    let arguments = |pod: &Value| pod["containers"][0]["args"].to_string();
    let training = of("octavo-agent-training");
    // Unset fields of `drain` are inherited.
    for flag in [
        "--layout=all-balanced",
        "--drain=node",
        "--drain-deadline=10m",
        "--usage-interval=1m",
        "--dcgm-metrics",
    ] {
        assert!(arguments(&training).contains(flag), "{training:#}");
    }
    assert_eq!(training["containers"][0]["resources"], json!({"limits": {"memory": "1Gi"}}));
    let serving = of("octavo-agent-serving");
    assert!(arguments(&serving).contains("--taint-not-ready"), "{serving:#}");
    assert!(!arguments(&serving).contains("--drain"), "{serving:#}");
    assert!(arguments(&serving).contains("--sharing=embedded"), "{serving:#}");
    assert!(!arguments(&training).contains("--sharing"), "{training:#}");
    // Empty or disabled values override the inherited ones.
    for flag in ["--usage-interval", "--dcgm-metrics"] {
        assert!(!arguments(&serving).contains(flag), "{serving:#}");
    }
    let lab = of("octavo-agent-lab");
    assert_eq!(arguments(&lab), r#"["--label-sink=stdout"]"#);
    assert_eq!(lab["tolerations"], Value::Null);
    // Selectors of pools do not overlap.
    let mut selectors: Vec<String> =
        all.iter().map(|one| one["spec"]["selector"].to_string()).collect();
    selectors.sort();
    selectors.dedup();
    assert_eq!(selectors.len(), 4);
}
