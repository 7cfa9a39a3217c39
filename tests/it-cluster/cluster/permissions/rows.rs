//! Permissions of an agent, row by row: its pod is on node-a.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::cluster::Verdict::{self, Allowed, DeniedByPolicy, Forbidden};
use super::cluster::{ApiRequest, event, node};

/// The subject, the request, and its expected outcome.
pub(super) type Row = (String, ApiRequest, Verdict);

pub(super) const OWN: &str = "/api/v1/nodes/node-a";
pub(super) const OTHER: &str = "/api/v1/nodes/node-b";

pub(super) fn labels(of: &str, labels: &Value) -> ApiRequest {
    ApiRequest::patch(of, json!({"metadata": {"labels": labels}}))
}

fn row(what: &str, request: ApiRequest, verdict: Verdict) -> Row {
    (what.to_owned(), request, verdict)
}

/// Sets or removes a label of the own node.
fn label((key, value, verdict): (&str, Option<&str>, Verdict)) -> Row {
    let what = format!("the label {key} becomes {value:?}");
    (what, labels(OWN, &json!({key: value})), verdict)
}

/// Sets or removes an annotation of the own node.
fn annotation((key, value, verdict): (&str, Option<&str>, Verdict)) -> Row {
    let what = format!("the annotation {key} becomes {value:?}");
    let patch = json!({"metadata": {"annotations": {key: value}}});
    (what, ApiRequest::patch(OWN, patch), verdict)
}

/// Server-side applies the own node with this label.
fn applied(key: &str, verdict: Verdict) -> Row {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-a", "labels": {key: "8"}},
    });
    (format!("{key} is applied"), ApiRequest::apply(OWN, node), verdict)
}

/// All label sets that the agent publishes.
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

/// Labels that the agent may write.
pub(super) fn its_labels() -> Vec<Row> {
    let mut rows: Vec<Row> =
        published().map(|(file, set)| (file, labels(OWN, &set), Allowed)).collect();
    assert!(rows.len() >= 20, "only {} sets of labels", rows.len());
    rows.push(applied("octavo.dev/count", Allowed));
    rows.push(applied("type.octavo.dev/nvidia-h200-141gb", Allowed));
    let more = [
        ("octavo.dev/count", Some("2"), Allowed),
        ("octavo.dev/count", None, Allowed),
        ("octavo.dev/layout-state", Some("applied"), Allowed),
        ("nvidia.com/mig.config.state", Some("success"), Allowed),
        ("nvidia.com/gfd.timestamp", Some("1"), Allowed),
        ("nvidia.com/gpu.clique", Some("7b968a6d.1"), Allowed),
        ("nvidia.com/mig-1g.24gb-me.count", Some("1"), Allowed),
        ("nvidia.com/vgpu.host-driver-version", Some("570.1"), Allowed),
        ("nvidia.com/vgpu.host-driver-branch", Some("r570"), Allowed),
    ];
    rows.extend(more.map(label));
    rows
}

/// Labels of other owners.
pub(super) fn foreign_labels() -> Vec<Row> {
    let refused = DeniedByPolicy("not allowed to make this change to these labels");
    let layout = DeniedByPolicy("labels: octavo.dev/layout.");
    let config = DeniedByPolicy("labels: nvidia.com/mig.config.");
    let mut rows: Vec<Row> = [
        ("person", Some("2"), DeniedByPolicy("labels: person.")),
        ("person", None, DeniedByPolicy("labels: person.")),
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
    rows.push(row(what, mixed, DeniedByPolicy("labels: person.")));
    rows.push(applied("octavo.dev/layout", layout));
    rows.push(applied("person", DeniedByPolicy("labels: person.")));
    rows
}

/// Labels of the GPU Operator's operands on the node: DCGM is on, NVSM off, the plugin is paused by us, the exporter by
/// mig-manager, and the validator has no label.
pub(super) fn switches() -> Vec<Row> {
    let (ours, theirs) = (Some("paused-for-octavo"), Some("paused-for-mig-change"));
    let (on, off) = (Some("true"), Some("false"));
    let refused = DeniedByPolicy("labels: nvidia.com/gpu.deploy.");
    let operands = [
        ("dcgm", ours, Allowed),
        ("dcgm", off, refused),
        ("dcgm", theirs, refused),
        ("dcgm", None, refused),
        ("device-plugin", on, Allowed),
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
    rows.push(label((config, Some("two"), DeniedByPolicy(config))));
    rows.push(label((config, Some("octavo-a-1"), DeniedByPolicy(config))));
    rows.push(label((config, None, DeniedByPolicy(config))));
    rows
}

pub(super) fn annotations_and_owners() -> Vec<Row> {
    let foreign = DeniedByPolicy("not allowed to change these annotations");
    let mut rows: Vec<Row> = [
        ("octavo.dev/status", Some("new"), Allowed),
        ("octavo.dev/status", None, Allowed),
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
        let request = ApiRequest::patch(OWN, json!({"metadata": {field: value}}));
        rows.push((format!("{field} become {value}"), request, DeniedByPolicy(field)));
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
    let taint = DeniedByPolicy("not allowed to change a taint");
    let frozen = DeniedByPolicy("the spec of a node, except its own taints");
    let other = DeniedByPolicy("the agent on node node-a is not allowed to change node node-b");
    let mut rows: Vec<Row> = [
        (json!([theirs]), Allowed),
        (json!([theirs, harder]), Allowed),
        (json!([ours, theirs]), Allowed),
        (json!([ours]), taint),
        (json!(null), taint),
        (json!([changed, ours]), taint),
        (json!([theirs, ours, added]), taint),
        (json!([theirs, ours, alike]), taint),
    ]
    .into_iter()
    .map(|(taints, verdict)| {
        let what = format!("taints become {taints}");
        let request = ApiRequest::patch(OWN, json!({"spec": {"taints": taints}}));
        (what, request, verdict)
    })
    .collect();
    let uncordon = json!({"spec": {"unschedulable": null}});
    let both = json!({"spec": {"unschedulable": false, "taints": [theirs]}});
    let taint = json!({"spec": {"taints": [theirs]}});
    let count = labels(OTHER, &json!({"octavo.dev/count": "8"}));
    rows.extend([
        row("nothing differs", ApiRequest::patch(OWN, json!({})), Allowed),
        row("its node is uncordoned", ApiRequest::patch(OWN, uncordon), frozen),
        row("that, and its taint", ApiRequest::patch(OWN, both), frozen),
        row("another node's label", count, other),
        row("another node's taint", ApiRequest::patch(OTHER, taint), other),
        row("another node as it is", ApiRequest::patch(OTHER, json!({})), other),
    ]);
    rows
}

/// RBAC permissions on other objects.
pub(super) fn rights() -> Vec<Row> {
    let watch = "/api/v1/nodes?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=node-a";
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/octavo-agent";
    let bindings =
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/octavo-agent";
    let status = ApiRequest::patch(&format!("{OWN}/status"), json!({"status": {}}));
    let unborn = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c"}});
    let applied = ApiRequest::apply("/api/v1/nodes/node-c", unborn.clone());
    let kubelet = ApiRequest::get(&format!("{OWN}/proxy/pods"));
    let events = "/api/v1/namespaces/default/events";
    let about_b = DeniedByPolicy("events only on its own node");
    let mut rows = vec![
        row("its node is read", ApiRequest::get(OWN), Allowed),
        row("another node is read", ApiRequest::get(OTHER), Allowed),
        row("nodes are listed", ApiRequest::get("/api/v1/nodes"), Allowed),
        row("its node is watched", ApiRequest::get(watch), Allowed),
        row("the status of its node", status, Forbidden),
        row("its node is replaced", ApiRequest::put(OWN, node("node-a")), Forbidden),
        row("its node is deleted", ApiRequest::delete(OWN), Forbidden),
        row("all nodes are deleted", ApiRequest::delete("/api/v1/nodes"), Forbidden),
        row("a node is created", ApiRequest::post("/api/v1/nodes", unborn), Forbidden),
        row("a node is created by apply", applied, Forbidden),
        row("its kubelet is asked", kubelet, Forbidden),
        row("an event", event("default", "node-a"), Allowed),
        row("of another node", event("default", "node-b"), about_b),
        row("elsewhere", event("octavo-system", "node-a"), Forbidden),
        row("events are deleted", ApiRequest::delete(events), Forbidden),
        row("its policy is deleted", ApiRequest::delete(policies), Forbidden),
        row("its binding is deleted", ApiRequest::delete(bindings), Forbidden),
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
        rows.push((path.clone(), ApiRequest::post(&path, json!({})), Forbidden));
    }
    for what in ["secrets", "configmaps", "pods", "serviceaccounts", "events"] {
        for path in [
            format!("/api/v1/{what}"),
            format!("{own}/{what}"),
            format!("/api/v1/namespaces/default/{what}"),
            format!("/api/v1/namespaces/default/{what}/one"),
        ] {
            rows.push((path.clone(), ApiRequest::get(&path), Forbidden));
        }
    }
    rows
}

/// Requests that the policies deny to an agent with all RBAC permissions.
pub(super) fn too_wide() -> Vec<Row> {
    let status =
        ApiRequest::patch(&format!("{OWN}/status"), json!({"status": {"phase": "Running"}}));
    let mut replaced = node("node-a");
    replaced["metadata"]["labels"]["person"] = json!("2");
    let unborn = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c"}});
    let about_a_pod = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"generateName": "octavo-", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "node-a", "namespace": "default"},
    });
    let about_a_pod = ApiRequest::post("/api/v1/namespaces/default/events", about_a_pod);
    let status_is_others = DeniedByPolicy("not allowed to change the status");
    let person = DeniedByPolicy("labels: person.");
    let (b, c) = (DeniedByPolicy("to change node node-b"), DeniedByPolicy("to change node node-c"));
    let own = DeniedByPolicy("events only on its own node");
    vec![
        row("the status of its node", status, status_is_others),
        row("a foreign label", labels(OWN, &json!({"person": "2"})), person),
        row("its node is replaced", ApiRequest::put(OWN, replaced), person),
        row("another node", ApiRequest::patch(OTHER, json!({})), b),
        row("a node is created", ApiRequest::post("/api/v1/nodes", unborn), c),
        row("an event of a pod", about_a_pod, own),
        row("an event of its node", event("default", "node-a"), Allowed),
    ]
}
