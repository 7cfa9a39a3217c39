//! Objects of a fleet without machines: nodes of six types, their pods, and hardware profiles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::objects::{self, NODES};
use crate::simulated_agents;
use crate::test_cluster::TestCluster;

/// Bound pods.
pub(crate) const PODS: usize = 20_000;
pub(crate) const PENDING_PODS: usize = 200;
pub(crate) const PROFILES: usize = 200;
/// Types of nodes, and the boards of their simulated machines.
pub(crate) const TYPES: [(&str, &str); 6] = [
    ("nvidia-h200-141gb", "H200_141GB"),
    ("nvidia-h100-80gb", "H100_80GB_SXM"),
    ("nvidia-a100-80gb", "A100_80GB"),
    ("nvidia-l40s-48gb", "L40S"),
    ("nvidia-t4-16gb", "T4"),
    ("nvidia-v100-32gb", "V100_SXM2_32GB"),
];
/// Type of the node on which the delay of changes is measured.
pub(crate) const PROBE_TYPE: &str = "nvidia-b300-288gb";
/// Hardware profile of that type.
pub(crate) const PROBE_PROFILE: &str = "probe";
const PROBE_NODE: &str = "probe.bench";
const PROBE_POD: &str = "/api/v1/namespaces/team-0/pods/probe";
const GPU: &str = "nvidia.com/gpu";
const TYPE: &str = "octavo.dev/type";
const NAMESPACES: usize = 40;
/// Maximum number of parallel requests.
const PARALLEL_REQUESTS: usize = 32;
/// Definition from the operator that users install.
const DEFINITION: &str = include_str!("../../tests/fixtures/crds/hardwareprofiles.yaml");
const PROFILE_PATH: &str =
    "/apis/infrastructure.opendatahub.io/v1/namespaces/team-0/hardwareprofiles";

/// Creates all objects. Returns the time that it took.
pub(crate) async fn create(cluster: &TestCluster) -> Duration {
    let start = Instant::now();
    cluster.api.apply(DEFINITION);
    let established = "--for=condition=Established";
    cluster.api.kubectl(&["wait", established, "crd", "--all", "--timeout=120s"]);
    for_each(&cluster.client, NAMESPACES, |number, client| async move {
        let name = json!({"metadata": {"name": format!("team-{number}")}});
        post(&client, "/api/v1/namespaces", &name).await;
        // Pods require this account, which a controller normally creates.
        let accounts = format!("/api/v1/namespaces/team-{number}/serviceaccounts");
        post(&client, &accounts, &json!({"metadata": {"name": "default"}})).await;
    })
    .await;
    for_each(&cluster.client, NODES + 1, |number, client| async move {
        let node = node(number);
        post(&client, "/api/v1/nodes", &node).await;
        // The server taints every new node until a controller, which does not run here, removes the taint.
        let name = node["metadata"]["name"].as_str().unwrap();
        let taints = json!({"spec": {"taints": node["spec"]["taints"]}});
        let patch = Request::patch(format!("/api/v1/nodes/{name}"))
            .header("content-type", "application/merge-patch+json");
        send(&client, patch, &taints).await.unwrap();
    })
    .await;
    for_each(&cluster.client, PROFILES + 1, |number, client| async move {
        post(&client, PROFILE_PATH, &profile(number)).await;
    })
    .await;
    for_each(&cluster.client, PODS + PENDING_PODS, |number, client| async move {
        post(&client, &pods_path(number), &pod(number, 0)).await;
    })
    .await;
    start.elapsed()
}

/// Deletes and recreates pods at this rate without end, and counts the changes that the server confirmed.
pub(crate) async fn churn(client: Client, changes_per_second: u32, changes: Arc<AtomicUsize>) {
    let mut interval = interval(Duration::from_secs(1) / changes_per_second);
    // If the server is too slow, the printed rate is lower.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0_usize.. {
        let number = round * 7919 % PODS;
        interval.tick().await;
        let path = format!("{}/{}", pods_path(number), pod_name(number));
        delete(&client, &path).await;
        changes.fetch_add(1, Ordering::Relaxed);
        interval.tick().await;
        post(&client, &pods_path(number), &pod(number, round + 1)).await;
        changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates or deletes the pod with which the delay of changes is measured.
pub(crate) async fn set_probe(client: &Client, exists: bool) {
    if exists {
        let mut pod = pod(0, 0);
        pod["metadata"]["name"] = json!("probe");
        pod["spec"]["nodeName"] = json!(PROBE_NODE);
        post(client, &pods_path(0), &pod).await;
    } else {
        delete(client, PROBE_POD).await;
    }
}

async fn delete(client: &Client, path: &str) {
    // No kubelet reports that the containers have ended.
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    let request = Request::delete(path).header("content-type", "application/json");
    send(client, request, &options).await.unwrap();
}

async fn post(client: &Client, path: &str, object: &Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let response = send(client, request, object).await;
    response.unwrap_or_else(|error| panic!("{path}: {error}"));
}

async fn send(
    client: &Client,
    request: axum::http::request::Builder,
    body: &Value,
) -> kube::Result<String> {
    let request = request.body(body.to_string().into_bytes()).unwrap();
    client.request_text(request).await
}

/// Calls `create` for each number, several in parallel.
async fn for_each<F>(client: &Client, count: usize, create: impl Fn(usize, Client) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..count {
        if tasks.len() == PARALLEL_REQUESTS {
            tasks.join_next().await.unwrap().unwrap();
        }
        tasks.spawn(create(number, client.clone()));
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
}

/// Returns a node. The number after the last is the node of the probe.
fn node(number: usize) -> Value {
    let (name, type_name) = if number == NODES {
        (PROBE_NODE.to_owned(), PROBE_TYPE)
    } else {
        (simulated_agents::name(number), TYPES[number % TYPES.len()].0)
    };
    let mut node = objects::node(number);
    let metadata = node["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.insert("name".to_owned(), json!(name));
    metadata["labels"][TYPE] = json!(type_name);
    node
}

fn profile(number: usize) -> Value {
    let (name, type_name) = if number == PROFILES {
        (PROBE_PROFILE.to_owned(), PROBE_TYPE)
    } else {
        (format!("profile-{number}"), TYPES[number % TYPES.len()].0)
    };
    json!({
        "apiVersion": "infrastructure.opendatahub.io/v1", "kind": "HardwareProfile",
        "metadata": {"name": name, "annotations": {"opendatahub.io/display-name": format!("Profile {number}")}},
        "spec": {
            "identifiers": [
                {"displayName": "CPU", "identifier": "cpu", "minCount": 1, "maxCount": 32, "defaultCount": 2, "resourceType": "CPU"},
                {"displayName": "Memory", "identifier": "memory", "minCount": "2Gi", "maxCount": "256Gi", "defaultCount": "8Gi", "resourceType": "Memory"},
                {"displayName": "GPU", "identifier": GPU, "minCount": 1, "maxCount": 8, "defaultCount": 1 + number % 4, "resourceType": "Accelerator"},
            ],
            "scheduling": {"type": "Node", "node": {
                "nodeSelector": {TYPE: type_name},
                "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
            }},
        },
    })
}

fn pods_path(number: usize) -> String {
    format!("/api/v1/namespaces/team-{}/pods", number % NAMESPACES)
}

fn pod_name(number: usize) -> String {
    format!("train-{number}-worker-{}", number % 8)
}

/// Returns a pod. Every fourth has a GPU, five on each node. The numbers after the bound pods are pending and request a GPU.
fn pod(number: usize, version: usize) -> Value {
    let mut pod = objects::pod(number, version);
    let is_pending = number >= PODS;
    let metadata = pod["metadata"].as_object_mut().unwrap();
    // Fields that only the server writes.
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace"] {
        metadata.remove(field);
    }
    pod.as_object_mut().unwrap().remove("status");
    let mut amounts = json!({"cpu": "2", "memory": "8Gi"});
    if is_pending || number.is_multiple_of(4) {
        amounts[GPU] = json!("1");
    }
    let resources = json!({"requests": amounts, "limits": amounts});
    pod["spec"]["containers"][0]["resources"] = resources;
    let spec = pod["spec"].as_object_mut().unwrap();
    if is_pending {
        let type_name = TYPES[number % TYPES.len()].0;
        spec.insert("nodeSelector".to_owned(), json!({TYPE: type_name}));
        spec.remove("nodeName");
    } else {
        spec.remove("nodeSelector");
        let node = simulated_agents::name(number / 4 % NODES);
        spec.insert("nodeName".to_owned(), json!(node));
    }
    pod
}
