//! Lenient parsing of objects and files, and round trips.

use octavo_fleet::hardware_profile::Scheduling;
use octavo_fleet::hardware_profile::object::object;
use serde_json::json;

use super::*;

const FILE: &str = "\
apiVersion: infrastructure.opendatahub.io/v1
kind: HardwareProfile
metadata:
  name: large
  namespace: opendatahub
  annotations:
    opendatahub.io/display-name: Large
    opendatahub.io/disabled: \"true\"
    octavo.dev/type: nvidia-h200-141gb, nvidia-h100-80gb
    octavo.dev/memory-mib: \"143771\"
    unknown.example/x: y
spec:
  new: {field: 1}
  identifiers:
  - {displayName: GPU, identifier: nvidia.com/gpu, minCount: 1, maxCount: 8, defaultCount: 2, resourceType: Accelerator}
  - {displayName: Memory, identifier: memory, minCount: 1Gi, defaultCount: 64Gi}
  scheduling:
    type: Node
    node:
      nodeSelector: {octavo.dev/type: nvidia-h200-141gb}
      tolerations:
      - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
---
apiVersion: dashboard.opendatahub.io/v1
kind: AcceleratorProfile
metadata: {name: old, namespace: opendatahub}
spec: {displayName: Old, enabled: true, identifier: nvidia.com/gpu, tolerations: [{key: nvidia.com/gpu, operator: Exists}]}
---
apiVersion: dashboard.opendatahub.io/v1alpha1
kind: HardwareProfile
metadata: {name: large, namespace: opendatahub}
spec: {displayName: Dashboard, enabled: false, nodeSelector: {a: b}}
---
apiVersion: dashboard.opendatahub.io/v1alpha
kind: AcceleratorProfile
metadata: {name: oldest, namespace: opendatahub}
spec: {displayName: Oldest, enabled: true, identifier: amd.com/gpu}
---
apiVersion: dashboard.opendatahub.io/v1alpha1
kind: HardwareProfile
metadata: {name: pairs, namespace: opendatahub}
spec: {displayName: Pairs, enabled: true, nodeSelectors: [{key: a, value: b}, {key: c, value: d}]}
";

#[test]
fn all_profile_kinds_are_parsed_and_unknown_fields_ignored() {
    let all = parse(FILE).unwrap();
    let [large, old, dashboard, oldest, pairs] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!((large.shown(), large.is_disabled), ("Large", true));
    assert_eq!(large.annotations.types.len(), 2);
    assert_eq!(large.annotations.memory_mib, Some(143_771));
    let wants = large.requirements();
    assert_eq!(wants.amounts.get("nvidia.com/gpu"), 2);
    assert_eq!(wants.amounts.get("memory"), 64 << 30);
    assert_eq!(wants.selector["octavo.dev/type"], "nvidia-h200-141gb");
    assert_eq!(wants.tolerations.len(), 1);
    assert_eq!(old.requirements().amounts.get("nvidia.com/gpu"), 1);
    assert_eq!((old.shown(), old.is_disabled), ("Old", false));
    assert_eq!(dashboard.selector().unwrap()["a"], "b");
    assert!(dashboard.is_disabled);
    assert_eq!(oldest.requirements().amounts.get("amd.com/gpu"), 1);
    let selector = pairs.selector().unwrap();
    assert_eq!((&*selector["a"], &*selector["c"]), ("b", "d"));
    assert!(all.iter().all(|one| one.unreadable.is_empty()));
}

#[test]
fn written_profile_round_trips() {
    let mut all = parse(FILE).unwrap();
    let large = all.swap_remove(0);
    let written = yaml(&object(&large));
    assert_eq!(parse(&written).unwrap(), [large], "{written}");
    let queue = HardwareProfile {
        scheduling: Scheduling::Queue {
            local_queue: "team".to_owned(),
            priority_class: Some("high".to_owned()),
        },
        display_name: Some("Queue".to_owned()),
        key: ProfileKey { namespace: "a".to_owned(), name: "b".to_owned() },
        ..HardwareProfile::default()
    };
    assert_eq!(parse(&yaml(&object(&queue))).unwrap(), [queue]);
}

#[test]
fn i12_invalid_fields_are_reported_by_path_and_others_are_retained() {
    let long = "x".repeat(5000);
    for (spec, message) in [
        (json!(7), "spec is 7, but must be an object"),
        (json!({"identifiers": {}}), "spec.identifiers is an object, but must be a list"),
        (json!({"identifiers": [3]}), "spec.identifiers[0] is 3, but must be an object"),
        (json!({"identifiers": [{}]}), "spec.identifiers[0].identifier is missing"),
        (
            json!({"identifiers": [{"identifier": "cpu", "minCount": "much", "defaultCount": 1}]}),
            "spec.identifiers[0].minCount is \"much\", but must be an amount",
        ),
        (
            json!({"identifiers": [{"identifier": "cpu", "minCount": 1}]}),
            "spec.identifiers[0].defaultCount is missing",
        ),
        (
            json!({"identifiers": [{"identifier": "cpu", "minCount": null, "defaultCount": 1}]}),
            "spec.identifiers[0].minCount is missing",
        ),
        (json!({"scheduling": []}), "spec.scheduling is a list"),
        (json!({"scheduling": {"type": "Elsewhere"}}), "spec.scheduling.type is \"Elsewhere\""),
        (json!({"scheduling": {}}), "spec.scheduling.type is nothing, but must be Node or Queue"),
        (
            json!({"scheduling": {"type": "Queue"}}),
            "spec.scheduling.kueue.localQueueName is missing",
        ),
        (
            json!({"scheduling": {"type": "Node", "node": {"nodeSelector": {"a": 1}}}}),
            "spec.scheduling.node.nodeSelector[a] is 1, but must be a string",
        ),
        (
            json!({"scheduling": {"type": "Node", "node": {"tolerations": [long]}}}),
            "spec.scheduling.node.tolerations[0] is \"xxx",
        ),
    ] {
        let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        let profile = read(ProfileKind::Hardware, &object);
        assert_eq!(profile.key.to_string(), "b/a");
        let problem = profile.unreadable.first().unwrap();
        assert!(problem.contains(message), "{problem}");
        assert!(problem.len() < 300, "{problem}");
    }
    // Parsing succeeds for any JSON value.
    for object in [json!(null), json!([]), json!({"metadata": 1, "spec": null})] {
        for kind in ProfileKind::ALL {
            assert_eq!(read(kind, &object).key, ProfileKey::default());
        }
    }
}

#[test]
fn i12_memory_per_object_is_bounded() {
    let items: Vec<Value> = (0..5000).map(|_| json!("x".repeat(3000))).collect();
    let object = json!({"spec": {"identifiers": items, "scheduling": {"type": "Node", "node": {"tolerations": items}}}});
    let profile = read(ProfileKind::Hardware, &object);
    assert_eq!(profile.unreadable.len(), 10);
    let length: usize = profile.unreadable.iter().map(String::len).sum();
    assert!(length < 3000, "{length}");
}

#[test]
fn i12_invalid_file_is_rejected_with_document_number() {
    let head = "apiVersion: infrastructure.opendatahub.io/v1\nkind: HardwareProfile\n";
    for (text, message) in [
        ("a: [", "not YAML"),
        ("apiVersion: v1\nkind: Pod\n", "document 1 is not a HardwareProfile"),
        (head, "document 1 has no metadata.name"),
        (
            &format!("{head}metadata: {{name: a}}\n---\n{head}metadata: {{name: a}}\n"),
            "document 2 repeats /a",
        ),
        (
            &format!("{head}metadata: {{name: a}}\nspec: {{identifiers: 3}}\n"),
            "document 1, /a: spec.identifiers is 3",
        ),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    assert_eq!(parse("").unwrap(), []);
}
