//! Nodes and pods of realistic size.

use serde_json::{Value, json};

/// Number of nodes.
pub(crate) const NODES: usize = 1000;

/// Returns a pod of a training job with environment variables and volumes.
pub(crate) fn pod(number: usize, version: usize) -> Value {
    let team = number % 40;
    let managed = |manager: &str| {
        let fields: serde_json::Map<String, Value> = (0..24)
            .map(|field| (format!("f:field-{field}"), json!({"f:name": {}, "f:value": {}})))
            .collect();
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}})
    };
    let variables: Vec<Value> = (0..20)
        .map(|number| json!({"name": format!("VARIABLE_{number}"), "value": format!("a value of some length {number}")}))
        .collect();
    json!({
        "metadata": {
            "name": format!("train-{number}-worker-{}", number % 8), "namespace": format!("team-{team}"),
            "uid": format!("00000000-0000-0000-0000-{number:012}"), "resourceVersion": (version + 2).to_string(),
            "creationTimestamp": "2026-11-01T00:00:00Z", "labels": {"app": "train", "job": number.to_string()},
            "annotations": {"example.com/notes": "x".repeat(300)},
            "managedFields": [managed("kube-controller-manager"), managed("kubelet")],
        },
        "spec": {
            "nodeName": format!("node-{}", number % NODES),
            "containers": [{
                "name": "train", "image": "registry.example.com/train@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "env": variables,
                "resources": {
                    "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": (1 + version % 2).to_string()},
                    "limits": {"memory": "64Gi", "nvidia.com/gpu": (1 + version % 2).to_string()},
                },
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "token", "mountPath": "/var/run/secrets"}],
            }],
            "nodeSelector": {"octavo.dev/type": "nvidia-h100-80gb"},
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "token", "projected": {"sources": []}}],
        },
        "status": {
            "phase": "Running", "startTime": "2026-11-01T00:00:10Z",
            "conditions": (["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(|condition| json!({"type": condition, "status": "True", "lastTransitionTime": "2026-11-01T00:00:10Z"}))),
            "containerStatuses": [{"name": "train", "ready": true, "restartCount": 0, "image": "x".repeat(80), "imageID": "y".repeat(120), "containerID": "z".repeat(80)}],
        },
    })
}

/// Returns a node with eight GPUs and the labels of NFD, the GPU Operator and Octavo.
pub(crate) fn node(number: usize) -> Value {
    let mut labels: serde_json::Map<String, Value> = (0..80)
        .map(|number| {
            (format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}"), json!("true"))
        })
        .collect();
    labels.insert("octavo.dev/type".to_owned(), json!("nvidia-h100-80gb"));
    let resources = json!({"cpu": "192", "memory": "2113411308Ki", "ephemeral-storage": "900Gi", "hugepages-2Mi": "0", "nvidia.com/gpu": "8", "pods": "110"});
    json!({
        "metadata": {"name": format!("node-{number}"), "resourceVersion": "1", "labels": labels, "annotations": {"a": "x".repeat(400)}},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": (["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(|condition| json!({"type": condition, "status": if condition == "Ready" { "True" } else { "False" }}))),
            "images": (0..50).map(|image| json!({"names": [format!("registry.example.com/image-{image}@sha256:{}", "0".repeat(64))], "sizeBytes": 100_000_000})).collect::<Vec<Value>>(),
        },
    })
}
