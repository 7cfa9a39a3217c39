//! Tests of the access of namespaces. The policies are tested on a real API server.

use serde_json::json;

use super::*;
use crate::tests_support::{mixed, objects};

fn rules(text: &str) -> AccessRules {
    serde_json::from_str::<AccessRules>(text).unwrap().checked().unwrap()
}

const RULES: &str = r#"{"apiVersion": "octavo.dev/v1", "kind": "AccessRules",
    "namespaces": {"team-a": ["nvidia-h100-80gb", "nvidia-a100-80gb", "nvidia-b200-180gb"], "team-b": []},
    "others": ["nvidia-t4-16gb"]}"#;

fn generated() -> Generated {
    let (rows, cluster) = mixed();
    access(&Pools::new(&rows, &cluster).unwrap(), &rules(RULES), "octavo-system")
}

#[test]
fn f7_resources_are_forbidden_or_need_a_type_depending_on_the_types_that_offer_them() {
    let parameters = objects(&generated(), "access-parameters.yaml");
    let data = |name: &str| {
        let mut all = parameters.iter();
        all.find(|one| one["metadata"]["name"] == name).unwrap()["data"].clone()
    };
    let team_a = json!({
        "types": "nvidia-a100-80gb,nvidia-b200-180gb,nvidia-h100-80gb",
        "forbidden": "amd.com/gpu,aws.amazon.com/neuron,aws.amazon.com/neuroncore",
        // T4 offer it too. Only A100 offer the partitions, but so may the nodes that no pool contains.
        "selected": "nvidia.com/gpu,nvidia.com/mig-1g.10gb,nvidia.com/mig-3g.40gb",
        "classes": "nvidia-a100-80gb.octavo.dev,nvidia-b200-180gb.octavo.dev,nvidia-h100-80gb.octavo.dev",
    });
    assert_eq!(data("octavo-access-team-a"), team_a);
    assert_eq!(data("octavo-access-team-b")["selected"], "");
    assert_eq!(data("octavo-access")["types"], "nvidia-t4-16gb");
    let quotas = objects(&generated(), "resource-quotas.yaml");
    let namespaces: Vec<_> = quotas.iter().map(|one| &one["metadata"]["namespace"]).collect();
    assert_eq!(namespaces, ["team-a", "team-b"]);
    assert_eq!(quotas[0]["spec"]["hard"]["requests.amd.com/gpu"], "0");
    assert!(quotas[0]["spec"]["hard"].get("requests.nvidia.com/gpu").is_none());
}

#[test]
fn f7_each_namespace_has_bindings_and_the_rest_one_that_excludes_the_named_ones() {
    let bindings = objects(&generated(), "admission-policy-bindings.yaml");
    assert_eq!(bindings.len(), 6);
    let rest = &bindings[1];
    assert_eq!(rest["metadata"]["name"], "octavo-access-pods");
    let expression = &rest["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(expression["operator"], "NotIn");
    assert_eq!(expression["values"], json!(["team-a", "team-b", "kube-system", "octavo-system"]));
    let without = RULES.replace(r#""others": ["nvidia-t4-16gb"]"#, r#""others": null"#);
    let (rows, cluster) = mixed();
    let pools = Pools::new(&rows, &cluster).unwrap();
    let generated = access(&pools, &rules(&without), "octavo-system");
    assert_eq!(objects(&generated, "admission-policy-bindings.yaml").len(), 4);
}

#[test]
fn f7_types_without_nodes_are_reported_and_have_a_class() {
    let generated = generated();
    let absent = Note::AbsentType { type_name: "nvidia-b200-180gb".to_owned() };
    assert!(generated.notes.contains(&absent), "{:?}", generated.notes);
    let classes = objects(&generated, "device-classes.yaml");
    let names: Vec<_> =
        classes.iter().map(|one| one["metadata"]["name"].as_str().unwrap()).collect();
    let types = ["nvidia-a100-80gb", "nvidia-b200-180gb", "nvidia-h100-80gb", "nvidia-t4-16gb"];
    assert_eq!(names, types.map(|name| format!("{name}.octavo.dev")));
}

#[test]
fn i12_invalid_rules_are_errors() {
    let error = |text: &str| serde_json::from_str::<AccessRules>(text).unwrap_err().to_string();
    assert!(error(&RULES.replace("AccessRules", "Layouts")).contains("unknown variant `Layouts`"));
    assert!(error(&RULES.replace("others", "other")).contains("unknown field `other`"));
    assert!(error(&RULES.replace("nvidia-t4-16gb", "NVIDIA T4")).contains("NVIDIA T4"));
    let name = RULES.replace("team-b", "Team B");
    let error = serde_json::from_str::<AccessRules>(&name).unwrap().checked().unwrap_err();
    assert_eq!(error.to_string(), "namespaces: \"Team B\" is not the name of a namespace");
}
