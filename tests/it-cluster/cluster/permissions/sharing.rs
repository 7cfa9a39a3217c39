//! Additional permissions for sharing: the `ConfigMap` of NVIDIA's plugin, one more label, and events about pods.

use serde_json::{Value, json};

use super::cluster::Verdict::{Allowed, DeniedByPolicy, Forbidden};
use super::cluster::{ApiRequest, PermissionCluster, Requester};
use super::rows::{OWN, labels};

const CONFIG_MAP: &str = "/api/v1/namespaces/gpu-operator/configmaps/plugin-config";
const LABEL: &str = "nvidia.com/device-plugin.config";

/// The tier `applier`, and the hand-off to NVIDIA's plugin.
pub(super) fn upgrade(cluster: &PermissionCluster) {
    cluster.create(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}),
    );
    cluster.apply_chart(&[
        "tier=applier,handOff.namespace=gpu-operator,handOff.configMap=plugin-config",
        "agent.usage.podEvents=true,aggregator.tls.secretName=ours",
    ]);
}

/// An event about a pod, reported by a node.
pub(super) fn pod_event(namespace: &str, reason: &str, from: &str) -> ApiRequest {
    about(namespace, "Pod", reason, from)
}

fn about(namespace: &str, kind: &str, reason: &str, from: &str) -> ApiRequest {
    let body = json!({
        "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": reason, "message": "a test",
        "metadata": {"generateName": "train.", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": "train", "namespace": namespace},
        "reportingComponent": "octavo.dev/agent", "reportingInstance": from,
    });
    ApiRequest::post(&format!("/api/v1/namespaces/{namespace}/events"), body)
}

fn config_map(namespace: &str, name: &str) -> (String, Value) {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
        "data": {"octavo-small-00000000": "version: v1"},
    });
    let all = format!("/api/v1/namespaces/{namespace}/configmaps");
    (all, object)
}

#[tokio::test]
async fn sharing_adds_access_to_one_config_map_one_label_and_three_events() {
    let cluster = PermissionCluster::new().await;
    let agent = cluster.agent("agent-a").await;
    let over = pod_event("octavo-system", "MemoryOverShare", "node-a");
    let before =
        [("before", ApiRequest::get(CONFIG_MAP), Forbidden), ("before", over.clone(), Forbidden)];
    agent.expect_all(&before).await;
    upgrade(&cluster);
    cluster.start_pod("deployment/octavo-aggregator", "aggregator", Some("node-a"));
    let token = cluster.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = cluster.bearer(&token).await;
    aggregator_writes_one_config_map(&aggregator).await;
    agents_read_config_map_and_plugin(&agent).await;
    label_is_writable_with_own_value(&cluster, &agent).await;
    events_about_pods_have_three_reasons(&agent, over).await;
}

async fn aggregator_writes_one_config_map(aggregator: &Requester) {
    let (all, ours) = config_map("gpu-operator", "plugin-config");
    let (_, other) = config_map("gpu-operator", "other");
    let (elsewhere, there) = config_map("kube-system", "plugin-config");
    // It does not exist yet: a server-side apply also creates it.
    aggregator.expect_eventually(&ApiRequest::apply(CONFIG_MAP, ours.clone()), Allowed).await;
    let rows = [
        ("it is made", ApiRequest::apply(CONFIG_MAP, ours.clone()), Allowed),
        ("it is written again", ApiRequest::apply(CONFIG_MAP, ours.clone()), Allowed),
        ("it is read", ApiRequest::get(CONFIG_MAP), Allowed),
        ("made without a name", ApiRequest::post(&all, ours), Forbidden),
        ("another", ApiRequest::apply(&format!("{all}/other"), other), Forbidden),
        ("elsewhere", ApiRequest::apply(&format!("{elsewhere}/plugin-config"), there), Forbidden),
        ("all are listed", ApiRequest::get(&all), Forbidden),
        ("it is deleted", ApiRequest::delete(CONFIG_MAP), Forbidden),
    ];
    aggregator.expect_all(&rows).await;
}

async fn agents_read_config_map_and_plugin(agent: &Requester) {
    let own = "/api/v1/namespaces/gpu-operator";
    let sets = "/apis/apps/v1/namespaces";
    let (all, ours) = config_map("gpu-operator", "plugin-config");
    agent.expect_eventually(&ApiRequest::get(CONFIG_MAP), Allowed).await;
    let list = |what: &str| ApiRequest::get(&format!("{own}/{what}"));
    let rows = [
        ("it is read", ApiRequest::get(CONFIG_MAP), Allowed),
        ("it is written", ApiRequest::apply(CONFIG_MAP, ours), Forbidden),
        ("all are listed", ApiRequest::get(&all), Forbidden),
        ("another", list("configmaps/other"), Forbidden),
        ("pods beside it", list("pods"), Allowed),
        ("one of them", list("pods/one"), Forbidden),
        ("secrets beside it", list("secrets"), Forbidden),
        (
            "daemonsets beside it",
            ApiRequest::get(&format!("{sets}/gpu-operator/daemonsets")),
            Allowed,
        ),
        (
            "daemonsets elsewhere",
            ApiRequest::get(&format!("{sets}/kube-system/daemonsets")),
            Forbidden,
        ),
        ("all pods", ApiRequest::get("/api/v1/pods"), Forbidden),
    ];
    agent.expect_all(&rows).await;
}

async fn label_is_writable_with_own_value(cluster: &PermissionCluster, agent: &Requester) {
    let set = |value: Option<&str>| labels(OWN, &json!({LABEL: value}));
    let refused = DeniedByPolicy("labels: nvidia.com/device-plugin.config");
    let admin = cluster.admin();
    agent.expect("a user's value is removed", &set(None), refused).await;
    let ours = set(Some("octavo-a-1"));
    agent.expect("a user's value is replaced", &ours, refused).await;
    admin.expect("no value", &set(None), Allowed).await;
    agent.expect_eventually(&set(Some("octavo-a-1")), Allowed).await;
    let rows = [
        ("another's value", set(Some("mine")), refused),
        ("ours", set(Some("octavo-a-1")), Allowed),
        ("the next of ours", set(Some("octavo-b-2")), Allowed),
        ("our value is removed", set(None), Allowed),
    ];
    agent.expect_all(&rows).await;
}

async fn events_about_pods_have_three_reasons(agent: &Requester, over: ApiRequest) {
    agent.expect_eventually(&over, Allowed).await;
    let refused = DeniedByPolicy("on pods only about their device memory usage");
    let exhausted = pod_event("default", "MemoryNearlyExhausted", "node-a");
    let within = pod_event("kube-system", "MemoryWithinShare", "node-a");
    let rows = [
        ("in any namespace", exhausted, Allowed),
        ("and in any other", within, Allowed),
        ("another reason", pod_event("default", "Killing", "node-a"), refused),
        ("in the name of another node", pod_event("default", "MemoryOverShare", "node-b"), refused),
        ("about something else", about("default", "Secret", "MemoryOverShare", "node-a"), refused),
    ];
    agent.expect_all(&rows).await;
}
