//! What an agent may do and what not, line by line: the agent's pod is on node-a.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::place::Verdict::{self, Done, NoRight, Refused};
use super::place::{Ask, event, node};

/// The subject, the request, and its expected outcome.
pub(super) type Row = (String, Ask, Verdict);

pub(super) const OWN: &str = "/api/v1/nodes/node-a";
pub(super) const OTHER: &str = "/api/v1/nodes/node-b";

pub(super) fn labels(of: &str, labels: &Value) -> Ask {
    Ask::patch(of, json!({"metadata": {"labels": labels}}))
}

fn row(what: &str, ask: Ask, verdict: Verdict) -> Row {
    (what.to_owned(), ask, verdict)
}

/// A label of the own node is set, or removed.
fn label((key, value, verdict): (&str, Option<&str>, Verdict)) -> Row {
    let what = format!("the label {key} becomes {value:?}");
    (what, labels(OWN, &json!({key: value})), verdict)
}

/// An annotation of the own node is set, or removed.
fn annotation((key, value, verdict): (&str, Option<&str>, Verdict)) -> Row {
    let what = format!("the annotation {key} becomes {value:?}");
    let patch = json!({"metadata": {"annotations": {key: value}}});
    (what, Ask::patch(OWN, patch), verdict)
}

/// The own node is server-side applied with this label.
fn applied(key: &str, verdict: Verdict) -> Row {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-a", "labels": {key: "8"}},
    });
    (format!("{key} is applied"), Ask::apply(OWN, node), verdict)
}

/// All sets of labels that the agent is known to publish.
fn published() -> impl Iterator<Item = (String, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/labels");
    let machines = fs::read_dir(directory).unwrap();
    let files = machines.flat_map(|machine| fs::read_dir(machine.unwrap().path()).unwrap());
    files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "labels"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let pairs = text.lines().filter_map(|line| line.split_once('='));
            let set: Map<String, Value> =
                pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect();
            assert!(!set.is_empty(), "{}", path.display());
            (path.display().to_string(), Value::Object(set))
        })
}

/// Labels that it may write.
pub(super) fn its_labels() -> Vec<Row> {
    let mut rows: Vec<Row> =
        published().map(|(file, set)| (file, labels(OWN, &set), Done)).collect();
    assert!(rows.len() >= 20, "only {} sets of labels", rows.len());
    rows.push(applied("octavo.dev/count", Done));
    rows.push(applied("type.octavo.dev/nvidia-h200-141gb", Done));
    let more = [
        ("octavo.dev/count", Some("2"), Done),
        ("octavo.dev/count", None, Done),
        ("octavo.dev/layout-state", Some("applied"), Done),
        ("nvidia.com/mig.config.state", Some("success"), Done),
        ("nvidia.com/gfd.timestamp", Some("1"), Done),
        ("nvidia.com/gpu.clique", Some("7b968a6d.1"), Done),
        ("nvidia.com/mig-1g.24gb-me.count", Some("1"), Done),
        ("nvidia.com/vgpu.host-driver-version", Some("570.1"), Done),
        ("nvidia.com/vgpu.host-driver-branch", Some("r570"), Done),
    ];
    rows.extend(more.map(label));
    rows
}

/// Labels of others.
pub(super) fn foreign_labels() -> Vec<Row> {
    let refused = Refused("not allowed to make this change to these labels");
    let layout = Refused("labels: octavo.dev/layout.");
    let config = Refused("labels: nvidia.com/mig.config.");
    let mut rows: Vec<Row> = [
        ("person", Some("2"), Refused("labels: person.")),
        ("person", None, Refused("labels: person.")),
        ("octavo.dev/layout", Some("mine"), layout),
        ("octavo.dev/layout", None, layout),
        ("nvidia.com/mig.config", Some("mine"), config),
        ("nvidia.com/mig.config", None, config),
        ("node-role.kubernetes.io/control-plane", Some(""), refused),
        ("topology.kubernetes.io/zone", Some("1"), refused),
        ("nvidia.com/gpu.present", Some("true"), refused),
        ("nvidia.com/gpu.workload.config", Some("1"), refused),
        ("nvidia.com/gpu.counts", Some("1"), refused),
        ("nvidia.com/gpu.slices.xi", Some("1"), refused),
        ("nvidia.com/mig.config.state.more", Some("1"), refused),
        ("nvidia.com/mig-.count", Some("1"), refused),
        ("nvidia.com/mig-1g.10gb.owner", Some("1"), refused),
        ("nvidia.com/cuda.driver-version", Some("1"), refused),
        ("nvidia.com/vgpu.owner", Some("1"), refused),
        ("octavo.dev", Some("1"), refused),
        ("octavo.device/count", Some("1"), refused),
        ("octavo.dev.example/count", Some("1"), refused),
        ("not-octavo.dev/count", Some("1"), refused),
        ("not.type.octavo.dev/count", Some("1"), refused),
        ("other.octavo.dev/count", Some("1"), refused),
    ]
    .map(label)
    .into();
    let mixed = labels(OWN, &json!({"octavo.dev/count": "2", "person": "2"}));
    let what = "a foreign label among its own";
    rows.push(row(what, mixed, Refused("labels: person.")));
    rows.push(applied("octavo.dev/layout", layout));
    rows.push(applied("person", Refused("labels: person.")));
    rows
}

/// Switches of the GPU Operator's operands, as they are on the node: DCGM is on, NVSM off, the plugin was paused by us, the
/// exporter by mig-manager, and validator has no label.
pub(super) fn switches() -> Vec<Row> {
    let (ours, theirs) = (Some("paused-for-octavo"), Some("paused-for-mig-change"));
    let (on, off) = (Some("true"), Some("false"));
    let refused = Refused("labels: nvidia.com/gpu.deploy.");
    let operands = [
        ("dcgm", ours, Done),
        ("dcgm", off, refused),
        ("dcgm", theirs, refused),
        ("dcgm", None, refused),
        ("device-plugin", on, Done),
        ("device-plugin", off, refused),
        ("device-plugin", theirs, refused),
        ("device-plugin", None, refused),
        ("nvsm", on, refused),
        ("nvsm", ours, refused),
        ("nvsm", None, refused),
        ("dcgm-exporter", on, refused),
        ("dcgm-exporter", ours, refused),
        ("dcgm-exporter", None, refused),
        ("validator", on, refused),
        ("validator", ours, refused),
    ];
    let mut rows: Vec<Row> = operands
        .iter()
        .map(|(name, value, verdict)| {
            let key = format!("nvidia.com/gpu.deploy.{name}");
            label((&key, *value, *verdict))
        })
        .collect();
    let config = "nvidia.com/device-plugin.config";
    rows.push(label((config, Some("two"), Refused(config))));
    rows.push(label((config, Some("octavo-a-1"), Refused(config))));
    rows.push(label((config, None, Refused(config))));
    rows
}

/// Annotations and owners.
pub(super) fn annotations_and_owners() -> Vec<Row> {
    let foreign = Refused("not allowed to change these annotations");
    let mut rows: Vec<Row> = [
        ("octavo.dev/status", Some("new"), Done),
        ("octavo.dev/status", None, Done),
        ("person", Some("2"), foreign),
        ("person", None, foreign),
        ("cluster-autoscaler.kubernetes.io/x", Some("1"), foreign),
        ("type.octavo.dev/x", Some("1"), foreign),
        ("octavo.dev/log-level", Some("trace"), foreign),
        ("octavo.dev/log-level", None, foreign),
    ]
    .map(annotation)
    .into();
    let mine = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "2"}]);
    for (field, value) in [
        ("finalizers", json!(["person.example/keep", "a.example/b"])),
        ("finalizers", json!(null)),
        ("ownerReferences", mine),
        ("ownerReferences", json!(null)),
    ] {
        let ask = Ask::patch(OWN, json!({"metadata": {field: value}}));
        rows.push((format!("{field} become {value}"), ask, Refused(field)));
    }
    rows
}

/// Taints and the rest of the spec; other nodes.
pub(super) fn spec() -> Vec<Row> {
    let theirs = json!({"key": "person", "value": "1", "effect": "NoSchedule"});
    let ours = json!({"key": "octavo.dev/not-ready", "effect": "NoSchedule"});
    let harder = json!({"key": "octavo.dev/not-ready", "effect": "NoExecute"});
    let changed = json!({"key": "person", "value": "2", "effect": "NoSchedule"});
    let added = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    let alike = json!({"key": "octavo.device/x", "effect": "NoSchedule"});
    let taint = Refused("not allowed to change a taint");
    let frozen = Refused("the spec of a node, except its own taints");
    let other = Refused("the agent on node node-a is not allowed to change node node-b");
    let mut rows: Vec<Row> = [
        (json!([theirs]), Done),
        (json!([theirs, harder]), Done),
        (json!([ours, theirs]), Done),
        (json!([ours]), taint),
        (json!(null), taint),
        (json!([changed, ours]), taint),
        (json!([theirs, ours, added]), taint),
        (json!([theirs, ours, alike]), taint),
    ]
    .into_iter()
    .map(|(taints, verdict)| {
        let what = format!("taints become {taints}");
        let ask = Ask::patch(OWN, json!({"spec": {"taints": taints}}));
        (what, ask, verdict)
    })
    .collect();
    let uncordon = json!({"spec": {"unschedulable": null}});
    let both = json!({"spec": {"unschedulable": false, "taints": [theirs]}});
    let taint = json!({"spec": {"taints": [theirs]}});
    let count = labels(OTHER, &json!({"octavo.dev/count": "8"}));
    rows.extend([
        row("nothing differs", Ask::patch(OWN, json!({})), Done),
        row("its node is uncordoned", Ask::patch(OWN, uncordon), frozen),
        row("that, and its taint", Ask::patch(OWN, both), frozen),
        row("another node's label", count, other),
        row("another node's taint", Ask::patch(OTHER, taint), other),
        row("another node as it is", Ask::patch(OTHER, json!({})), other),
    ]);
    rows
}

/// What RBAC allows, and what beside nodes it does not.
pub(super) fn rights() -> Vec<Row> {
    let watch = "/api/v1/nodes?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=node-a";
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/octavo-agent";
    let bindings =
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/octavo-agent";
    let status = Ask::patch(&format!("{OWN}/status"), json!({"status": {}}));
    let unborn = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c"}});
    let applied = Ask::apply("/api/v1/nodes/node-c", unborn.clone());
    let kubelet = Ask::get(&format!("{OWN}/proxy/pods"));
    let events = "/api/v1/namespaces/default/events";
    let about_b = Refused("events only on its own node");
    let mut rows = vec![
        row("its node is read", Ask::get(OWN), Done),
        row("another node is read", Ask::get(OTHER), Done),
        row("nodes are listed", Ask::get("/api/v1/nodes"), Done),
        row("its node is watched", Ask::get(watch), Done),
        row("the status of its node", status, NoRight),
        row("its node is replaced", Ask::put(OWN, node("node-a")), NoRight),
        row("its node is deleted", Ask::delete(OWN), NoRight),
        row("all nodes are deleted", Ask::delete("/api/v1/nodes"), NoRight),
        row("a node is created", Ask::post("/api/v1/nodes", unborn), NoRight),
        row("a node is created by apply", applied, NoRight),
        row("its kubelet is asked", kubelet, NoRight),
        row("an event", event("default", "node-a"), Done),
        row("of another node", event("default", "node-b"), about_b),
        row("elsewhere", event("octavo-system", "node-a"), NoRight),
        row("events are deleted", Ask::delete(events), NoRight),
        row("its policy is deleted", Ask::delete(policies), NoRight),
        row("its binding is deleted", Ask::delete(bindings), NoRight),
    ];
    let own = "/api/v1/namespaces/octavo-system";
    for path in [
        format!("{own}/serviceaccounts/octavo-agent/token"),
        format!("{own}/pods/agent-b/eviction"),
        format!("{own}/pods"),
        "/apis/authentication.k8s.io/v1/tokenreviews".to_owned(),
        "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(),
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases".to_owned(),
    ] {
        rows.push((path.clone(), Ask::post(&path, json!({})), NoRight));
    }
    for what in ["secrets", "configmaps", "pods", "serviceaccounts", "events"] {
        for path in [
            format!("/api/v1/{what}"),
            format!("{own}/{what}"),
            format!("/api/v1/namespaces/default/{what}"),
            format!("/api/v1/namespaces/default/{what}/one"),
        ] {
            rows.push((path.clone(), Ask::get(&path), NoRight));
        }
    }
    rows
}

/// What the policies refuse to an agent that has all rights.
pub(super) fn too_wide() -> Vec<Row> {
    let status = Ask::patch(&format!("{OWN}/status"), json!({"status": {"phase": "Running"}}));
    let mut replaced = node("node-a");
    replaced["metadata"]["labels"]["person"] = json!("2");
    let unborn = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c"}});
    let about_a_pod = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"generateName": "octavo-", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "node-a", "namespace": "default"},
    });
    let about_a_pod = Ask::post("/api/v1/namespaces/default/events", about_a_pod);
    let status_is_others = Refused("not allowed to change the status");
    let person = Refused("labels: person.");
    let (b, c) = (Refused("to change node node-b"), Refused("to change node node-c"));
    let own = Refused("events only on its own node");
    vec![
        row("the status of its node", status, status_is_others),
        row("a foreign label", labels(OWN, &json!({"person": "2"})), person),
        row("its node is replaced", Ask::put(OWN, replaced), person),
        row("another node", Ask::patch(OTHER, json!({})), b),
        row("a node is created", Ask::post("/api/v1/nodes", unborn), c),
        row("an event of a pod", about_a_pod, own),
        row("an event of its node", event("default", "node-a"), Done),
    ]
}
