//! The custom resource definition: its rules in CEL, its defaults and its columns.

use serde_json::{Value, json};

use super::rig::{install, policy};
use crate::cluster::Api;

/// The specs that the API server refuses, with a part of its message.
fn refused() -> Vec<(Value, &'static str)> {
    let with = |fields: Value| {
        let mut spec = json!({"nodeSelector": {"matchLabels": {"pool": "a"}}, "layout": "serving"});
        for (key, value) in fields.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    let demand =
        |fields: Value| json!({"nodeSelector": {"matchLabels": {"pool": "a"}}, "demand": fields});
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let window = |window: Value| with(json!({"rollout": {"windows": [window]}}));
    vec![
        (
            json!({"nodeSelector": {"matchLabels": {"pool": "a"}}}),
            "set at least one of layout, demand, nodeLabels and taints",
        ),
        (json!({"nodeSelector": {}, "layout": "serving"}), "select nodes by at least one label"),
        (with(json!({"nodeLabels": {"octavo.dev/layout": "x"}})), "are reserved"),
        (with(json!({"nodeLabels": {"nvidia.com/mig.config": "x"}})), "are reserved"),
        (with(json!({"nodeLabels": {"node.kubernetes.io/x": "x"}})), "are reserved"),
        (
            with(json!({"nodeLabels": {"node-role.kubernetes.io/control-plane": ""}})),
            "are reserved",
        ),
        (with(json!({"nodeLabels": {"pool": "b"}})), "own nodeSelector"),
        (with(json!({"taints": [taint("octavo.dev/not-ready")]})), "are reserved"),
        (with(json!({"taints": [taint("gpu"), taint("gpu")]})), "Duplicate value"),
        (with(json!({"rollout": {"maxUnavailable": 0}})), "use at least 1"),
        (with(json!({"rollout": {"maxUnavailable": "0%"}})), "use at least 1"),
        (with(json!({"rollout": {"nodeDeadline": "soon"}})), "should match"),
        (with(json!({"rollout": {"onFailure": "Panic"}})), "Unsupported value"),
        (with(json!({"layout": "a b"})), "should match"),
        (with(json!({"layout": "demand-cbf29ce484"})), "are reserved"),
        (with(json!({"demand": {}})), "either a layout or demand"),
        (demand(json!({"mode": "Auto"})), "Unsupported value"),
        (demand(json!({"hold": "0s"})), "use at least 1s"),
        (demand(json!({"changesPerHour": 0})), "greater than or equal to 1"),
        (with(json!({"drain": {"scope": "all"}})), "Unsupported value"),
        (with(json!({"drain": {"timeout": "5m"}})), "Required value"),
        (with(json!({"drain": {"scope": "node", "timeout": "0s"}})), "use at least 1s"),
        (
            json!({"nodeSelector": {"matchLabels": {"pool": "a"}}, "nodeLabels": {"a": "b"}, "drain": {"scope": "node"}}),
            "a drain requires a layout",
        ),
        (window(json!({"start": "24:00", "duration": "1h"})), "should match"),
        (window(json!({"start": "22:00", "duration": "25h"})), "open for at most 24h"),
        (
            window(json!({"start": "22:00", "duration": "6h", "days": ["Someday"]})),
            "Unsupported value",
        ),
    ]
}

#[test]
fn i12_definition_refuses_invalid_policies_and_sets_defaults() {
    let api = Api::fresh();
    install(&api);
    let create = |name: &str, spec: &Value| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), policy(name, spec).to_string()).unwrap();
        api.try_kubectl(&["create", "-f", file.path().to_str().unwrap()])
    };
    for (spec, message) in refused() {
        let output = create("refused", &spec);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(message), "{spec}\n{text}");
    }
    let spec = json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
        "layout": "serving",
        "nodeLabels": {"node-role.kubernetes.io/gpu": "", "mig-profile": "1g.10gb"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
        "drain": {"scope": "affected"},
        "rollout": {"maxUnavailable": "10%", "windows": [{"days": ["Mon"], "start": "22:00", "duration": "6h", "timeZone": "Europe/Berlin"}]},
    });
    let output = create("accepted", &spec);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stored: Value =
        serde_json::from_str(&api.kubectl(&["get", "apol", "accepted", "-o", "json"])).unwrap();
    assert_eq!(stored["spec"]["revisionHistoryLimit"], 10);
    assert_eq!(stored["spec"]["rollout"]["nodeDeadline"], "30m");
    assert_eq!(stored["spec"]["drain"]["timeout"], "10m");
    let columns = api.kubectl(&["get", "acceleratorpolicies"]);
    let columns: Vec<&str> = columns.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        columns,
        ["NAME", "LAYOUT", "DEMAND", "NODES", "APPLIED", "UPDATING", "FAILED", "STATE", "AGE"]
    );
    // Every field of the types is known to the server: unknown ones would be removed.
    let read: octavo_policy::PolicySpec = serde_json::from_value(stored["spec"].clone()).unwrap();
    assert_eq!(read, serde_json::from_value(spec).unwrap());
}
