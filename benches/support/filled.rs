//! A real API server with a fleet in it that has no machines: nodes of six types, pods on them, hardware profiles; and pods that come
//! and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::bed::Bed;
use crate::objects::{self, NODES};
use crate::swarm;

/// Pods that are bound, and beside them pods that wait.
pub(crate) const PODS: usize = 20_000;
pub(crate) const WAITING: usize = 200;
pub(crate) const PROFILES: usize = 200;
/// Types of nodes, in turn, and the boards that agents see there.
pub(crate) const TYPES: [(&str, &str); 6] = [
    ("nvidia-h200-141gb", "H200_141GB"),
    ("nvidia-h100-80gb", "H100_80GB_SXM"),
    ("nvidia-a100-80gb", "A100_80GB"),
    ("nvidia-l40s-48gb", "L40S"),
    ("nvidia-t4-16gb", "T4"),
    ("nvidia-v100-32gb", "V100_SXM2_32GB"),
];
/// The type of the node on which it is looked how late a change is seen.
pub(crate) const PROBE: &str = "nvidia-b300-288gb";
/// Its profile.
pub(crate) const PROBE_PROFILE: &str = "probe";
const PROBE_NODE: &str = "probe.bench";
const PROBE_POD: &str = "/api/v1/namespaces/team-0/pods/probe";
const GPU: &str = "nvidia.com/gpu";
const TYPE: &str = "octavo.dev/type";
const NAMESPACES: usize = 40;
/// Objects that are made at once.
const AT_ONCE: usize = 32;
/// The definition of the real operator.
const DEFINITION: &str = include_str!("../../tests/fixtures/crds/hardwareprofiles.yaml");
const PROFILE_PATH: &str =
    "/apis/infrastructure.opendatahub.io/v1/namespaces/team-0/hardwareprofiles";

/// Makes all of it; how long that takes.
pub(crate) async fn fill(bed: &Bed) -> Duration {
    let start = Instant::now();
    bed.api.apply(DEFINITION);
    let established = "--for=condition=Established";
    bed.api.kubectl(&["wait", established, "crd", "--all", "--timeout=120s"]);
    many(&bed.client, NAMESPACES, |number, client| async move {
        let name = json!({"metadata": {"name": format!("team-{number}")}});
        post(&client, "/api/v1/namespaces", &name).await;
        // Pods are of an account, which a controller makes that is not here.
        let accounts = format!("/api/v1/namespaces/team-{number}/serviceaccounts");
        post(&client, &accounts, &json!({"metadata": {"name": "default"}})).await;
    })
    .await;
    many(&bed.client, NODES + 1, |number, client| async move {
        let node = node(number);
        post(&client, "/api/v1/nodes", &node).await;
        // Every new one gets a taint until a controller has looked at it.
        let name = node["metadata"]["name"].as_str().unwrap();
        let taints = json!({"spec": {"taints": node["spec"]["taints"]}});
        let patch = Request::patch(format!("/api/v1/nodes/{name}"))
            .header("content-type", "application/merge-patch+json");
        send(&client, patch, &taints).await.unwrap();
    })
    .await;
    many(&bed.client, PROFILES + 1, |number, client| async move {
        post(&client, PROFILE_PATH, &profile(number)).await;
    })
    .await;
    many(&bed.client, PODS + WAITING, |number, client| async move {
        post(&client, &pods_of(number), &pod(number, 0)).await;
    })
    .await;
    start.elapsed()
}

/// Pods that are deleted and recreated at this rate without end; counted as they are answered.
pub(crate) async fn churn(client: Client, a_second: u32, changes: Arc<AtomicUsize>) {
    let mut every = interval(Duration::from_secs(1) / a_second);
    // Where the server cannot follow, there are fewer, and that shows.
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0_usize.. {
        let number = round * 7919 % PODS;
        every.tick().await;
        let path = format!("{}/{}", pods_of(number), pod_name(number));
        delete(&client, &path).await;
        changes.fetch_add(1, Ordering::Relaxed);
        every.tick().await;
        post(&client, &pods_of(number), &pod(number, round + 1)).await;
        changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// The pod that is waited for comes, or goes.
pub(crate) async fn probe(client: &Client, comes: bool) {
    if comes {
        let mut pod = pod(0, 0);
        pod["metadata"]["name"] = json!("probe");
        pod["spec"]["nodeName"] = json!(PROBE_NODE);
        post(client, &pods_of(0), &pod).await;
    } else {
        delete(client, PROBE_POD).await;
    }
}

async fn delete(client: &Client, path: &str) {
    // No kubelet says that its containers have ended.
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    let request = Request::delete(path).header("content-type", "application/json");
    send(client, request, &options).await.unwrap();
}

async fn post(client: &Client, path: &str, object: &Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let made = send(client, request, object).await;
    made.unwrap_or_else(|error| panic!("{path}: {error}"));
}

async fn send(
    client: &Client,
    request: axum::http::request::Builder,
    body: &Value,
) -> kube::Result<String> {
    let request = request.body(body.to_string().into_bytes()).unwrap();
    client.request_text(request).await
}

/// Does it for each number, some at once.
async fn many<F>(client: &Client, count: usize, make: impl Fn(usize, Client) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut making = JoinSet::new();
    for number in 0..count {
        if making.len() == AT_ONCE {
            making.join_next().await.unwrap().unwrap();
        }
        making.spawn(make(number, client.clone()));
    }
    while let Some(made) = making.join_next().await {
        made.unwrap();
    }
}

/// The one after all others is for the probe.
fn node(number: usize) -> Value {
    let (name, type_name) = if number == NODES {
        (PROBE_NODE.to_owned(), PROBE)
    } else {
        (swarm::name(number), TYPES[number % TYPES.len()].0)
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
        (PROBE_PROFILE.to_owned(), PROBE)
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

fn pods_of(number: usize) -> String {
    format!("/api/v1/namespaces/team-{}/pods", number % NAMESPACES)
}

fn pod_name(number: usize) -> String {
    format!("train-{number}-worker-{}", number % 8)
}

/// Every fourth has a GPU, five on each node; those after the bound ones wait for one.
fn pod(number: usize, version: usize) -> Value {
    let mut pod = objects::pod(number, version);
    let waits = number >= PODS;
    let metadata = pod["metadata"].as_object_mut().unwrap();
    // What only the server writes.
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace"] {
        metadata.remove(field);
    }
    pod.as_object_mut().unwrap().remove("status");
    let mut amounts = json!({"cpu": "2", "memory": "8Gi"});
    if waits || number.is_multiple_of(4) {
        amounts[GPU] = json!("1");
    }
    let resources = json!({"requests": amounts, "limits": amounts});
    pod["spec"]["containers"][0]["resources"] = resources;
    let spec = pod["spec"].as_object_mut().unwrap();
    if waits {
        let type_name = TYPES[number % TYPES.len()].0;
        spec.insert("nodeSelector".to_owned(), json!({TYPE: type_name}));
        spec.remove("nodeName");
    } else {
        spec.remove("nodeSelector");
        let node = swarm::name(number / 4 % NODES);
        spec.insert("nodeName".to_owned(), json!(node));
    }
    pod
}
