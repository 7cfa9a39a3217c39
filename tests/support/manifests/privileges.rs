//! Privileges of rendered manifests, one per line.
//!
//! Fields that are known to be harmless are skipped; everything else counts as a privilege.

use std::collections::BTreeSet;

use serde_json::Value;

/// Harmless fields of an object.
const OBJECT: &[&str] = &["apiVersion", "kind", "metadata"];
/// Harmless fields of a pod's spec; others have their own rules.
const POD: &[&str] = &[
    "affinity",
    "containers",
    "nodeSelector",
    "priorityClassName",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "tolerations",
    "volumes",
];
/// Harmless fields of a container.
const CONTAINER: &[&str] = &[
    "args",
    "command",
    "env",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "volumeMounts",
];
/// Harmless fields of a Prometheus endpoint.
const ENDPOINT: &[&str] = &["honorLabels", "interval", "port", "relabelings", "scheme"];
/// Prefix of variables for which a runtime adds devices to a container.
const TELLING: &str = "NVIDIA_";

/// The objects in rendered manifests.
pub(crate) fn objects(rendered: &str) -> Vec<Value> {
    let documents = format!("\n{rendered}");
    let documents = documents.split("\n---\n");
    let objects = documents.map(|text| serde_saphyr::from_str(text).unwrap());
    objects.filter(|object: &Value| !object.is_null()).collect()
}

/// All privileges of rendered manifests.
pub(crate) fn of(rendered: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for object in objects(rendered) {
        let kind = text_of(&object["kind"]);
        let name = text_of(&object["metadata"]["name"]);
        let mut add = |what: String| {
            assert!(found.insert(format!("{kind} {name}: {what}")), "twice: {kind} {name}: {what}");
        };
        match kind {
            "Role" | "ClusterRole" => rules(&object, &mut add),
            "DaemonSet" | "Deployment" => {
                let template = &object["spec"]["template"];
                let annotations = &template["metadata"]["annotations"];
                entries(annotations).for_each(|(key, value)| leaves(key, value, &mut add));
                pod(&template["spec"], &mut add);
            }
            "Pod" => pod(&object["spec"], &mut add),
            // They hold data or define it, and the last two only restrict.
            "ConfigMap"
            | "Secret"
            | "PrometheusRule"
            | "CustomResourceDefinition"
            | "NetworkPolicy"
            | "BackendTLSPolicy" => {}
            // Their backends are tested with the values.
            "Ingress" | "HTTPRoute" | "Route" => {
                add("access from outside of the cluster".to_owned());
            }
            "ServiceMonitor" => {
                let endpoints = each(&object["spec"]["endpoints"]).flat_map(entries);
                endpoints
                    .filter(|(key, _)| !ENDPOINT.contains(key))
                    .for_each(|(key, value)| leaves(key, value, &mut add));
            }
            "PriorityClass" => leaves("value", &object["value"], &mut add),
            "Namespace" => {
                let labels = entries(&object["metadata"]["labels"]);
                labels
                    .filter(|(key, _)| !key.starts_with("app.kubernetes.io/"))
                    .for_each(|(key, value)| leaves(&format!("labels.{key}"), value, &mut add));
            }
            "ValidatingAdmissionPolicy" => {
                leaves("failurePolicy", &object["spec"]["failurePolicy"], &mut add);
                leaves("matches", &object["spec"]["matchConditions"], &mut add);
            }
            "Service" => {
                let spec = entries(&object["spec"]);
                spec.filter(|(key, _)| !["ports", "selector"].contains(key))
                    .for_each(|(key, value)| leaves(key, value, &mut add));
            }
            _ => entries(&object)
                .filter(|(key, _)| !OBJECT.contains(key))
                .for_each(|(key, value)| leaves(key, value, &mut add)),
        }
    }
    found
}

fn rules(object: &Value, add: &mut impl FnMut(String)) {
    for rule in each(&object["rules"]) {
        for (key, value) in entries(rule) {
            if !["apiGroups", "resources", "verbs"].contains(&key) {
                leaves(key, value, add);
            }
        }
        for group in each(&rule["apiGroups"]) {
            for resource in each(&rule["resources"]) {
                for verb in each(&rule["verbs"]) {
                    let place = text_of(&object["metadata"]["namespace"]);
                    let (group, resource, verb) =
                        (text_of(group), text_of(resource), text_of(verb));
                    add(format!("{verb} {resource} of {group:?} in {place:?}"));
                }
            }
        }
    }
}

fn pod(spec: &Value, add: &mut impl FnMut(String)) {
    for (key, value) in entries(spec) {
        match key {
            "containers" => each(value).for_each(|one| container(one, add)),
            "volumes" => each(value).for_each(|one| leaves("volume", one, add)),
            known if POD.contains(&known) => {}
            other => leaves(other, value, add),
        }
    }
}

fn container(container: &Value, add: &mut impl FnMut(String)) {
    let name = text_of(&container["name"]);
    for mount in each(&container["volumeMounts"]) {
        let mode = if mount["readOnly"] == true { "ro" } else { "rw" };
        let (volume, path) = (text_of(&mount["name"]), text_of(&mount["mountPath"]));
        add(format!("{name} mounts {volume} at {path} {mode}"));
        for (key, value) in entries(mount) {
            if !["name", "mountPath", "readOnly"].contains(&key) {
                leaves(&format!("{name} mounts {volume} {key}"), value, add);
            }
        }
    }
    for variable in each(&container["env"]) {
        let key = text_of(&variable["name"]);
        if key.starts_with(TELLING) {
            add(format!("{name} has {key}={}", text_of(&variable["value"])));
        }
        for (from, value) in entries(&variable["valueFrom"]).filter(|(from, _)| *from != "fieldRef")
        {
            leaves(&format!("{name} has {key} {from}"), value, add);
        }
    }
    for (key, value) in each(&container["ports"]).flat_map(entries) {
        if !["name", "containerPort", "protocol"].contains(&key) {
            leaves(&format!("{name} ports.{key}"), value, add);
        }
    }
    for (key, value) in entries(container).filter(|(key, _)| !CONTAINER.contains(key)) {
        leaves(&format!("{name} {key}"), value, add);
    }
}

/// Every value with its path; list items use their name if they have one.
fn leaves(path: &str, value: &Value, add: &mut impl FnMut(String)) {
    match value {
        Value::Object(fields) => {
            let named = fields.get("name").and_then(Value::as_str);
            let path = named.map_or_else(|| path.to_owned(), |name| format!("{path} {name}"));
            for (key, value) in fields {
                if key != "name" || !value.is_string() {
                    leaves(&format!("{path}.{key}"), value, add);
                }
            }
            if fields.keys().all(|key| key == "name") {
                add(path);
            }
        }
        Value::Array(parts) => parts.iter().for_each(|part| leaves(path, part, add)),
        Value::String(text) => add(format!("{path}={text}")),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => add(format!("{path}={other}")),
    }
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, value)| (key.as_str(), value))
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
