//! Agents that clean up reach their Node at every tier and do not depend on missing objects.

use serde_json::{Value, json};

use crate::manifests::chart;

/// Renders cleanup agents: the spec of the pod, and whether the account may change nodes.
fn cleanup(tier: &str, sink: &str, more: &Value) -> (Value, bool) {
    let mut agent = json!({"cleanup": true, "labelSink": sink});
    let more = more.as_object().unwrap().clone();
    agent.as_object_mut().unwrap().extend(more);
    let all = chart::render_with(&json!({"tier": tier, "agent": agent}));
    let set = all.iter().find(|one| one["kind"] == "DaemonSet").unwrap();
    // `rollout status` refuses any other type, and nodes must not wait for each other.
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}});
    assert_eq!(set["spec"]["updateStrategy"], strategy);
    let spec = set["spec"]["template"]["spec"].clone();
    let has_access = all.iter().any(|one| {
        one["kind"] == "ClusterRoleBinding" && one["metadata"]["name"] == "octavo-agent"
    });
    (spec, has_access)
}

fn names(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn cleanup_reaches_node_for_every_tier_and_label_sink() {
    for (tier, sink, to) in [
        ("reporter", "", "node"),
        ("reporter", "stdout", "node"),
        ("reader", "", "node"),
        ("reader", "stdout", "node"),
        ("reader", "nodefeature", "nodefeature"),
        ("applier", "stdout", "node"),
        ("applier", "nodefeature", "nodefeature"),
    ] {
        let (pod, has_access) = cleanup(tier, sink, &json!({}));
        let sink = format!("--label-sink={to}");
        let expected = json!([sink, "--follow-node", "--cleanup=stay"]);
        assert_eq!(pod["containers"][0]["args"], expected, "{tier}");
        assert!(has_access, "{tier}");
        assert!(names(&pod["volumes"]).contains(&"api"), "{tier}");
        assert!(names(&pod["containers"][0]["volumeMounts"]).contains(&"api"), "{tier}");
    }
}

#[test]
fn cleanup_needs_no_layouts_driver_or_root() {
    let policy = json!({"updateStrategy": {"type": "OnDelete"}, "drain": {"policy": "node"}});
    let (pod, _) = cleanup("applier", "", &policy);
    assert_eq!(names(&pod["volumes"]), ["aggregator-ca", "aggregator-token", "api"]);
    assert_eq!(pod["runtimeClassName"], Value::Null);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let container = &pod["containers"][0];
    let capabilities = &container["securityContext"]["capabilities"];
    assert_eq!(*capabilities, json!({"drop": ["ALL"]}));
    assert!(!container["args"].to_string().contains("--layouts"));
    assert!(!container["env"].to_string().contains("NVIDIA"));
}
