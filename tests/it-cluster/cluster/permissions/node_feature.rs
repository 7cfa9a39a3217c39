//! The same for objects of Node Feature Discovery, which writes labels with its own permissions.

use serde_json::{Value, json};

use super::cluster::Verdict::{self, Allowed, DeniedByPolicy, Forbidden};
use super::cluster::{ApiRequest, PermissionCluster};

/// The definition of Node Feature Discovery without field descriptions.
const NODE_FEATURES: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: nodefeatures.nfd.k8s-sigs.io
  annotations: {api-approved.kubernetes.io: https://github.com/kubernetes/enhancements/pull/1111}
spec:
  group: nfd.k8s-sigs.io
  scope: Namespaced
  names: {kind: NodeFeature, plural: nodefeatures, singular: nodefeature}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

const ALL: &str = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/octavo-system/nodefeatures";
const COUNT: &str = "octavo.dev/count";
const NODE: &str = "nfd.node.kubernetes.io/node-name";

fn feature(name: &str, node: &str, key: &str) -> Value {
    json!({
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
        "metadata": {"name": name, "labels": {NODE: node}},
        "spec": {"labels": {key: "1"}},
    })
}

fn post(name: &str, node: &str, key: &str) -> ApiRequest {
    ApiRequest::post(ALL, feature(name, node, key))
}

fn patch(of: &str, key: &str) -> ApiRequest {
    let path = format!("{ALL}/octavo-{of}");
    ApiRequest::patch(&path, json!({"spec": {"labels": {key: "1"}}}))
}

/// Sets the node that the object of node-a is for.
fn lead(to: Option<&str>) -> ApiRequest {
    let path = format!("{ALL}/octavo-node-a");
    ApiRequest::patch(&path, json!({"metadata": {"labels": {NODE: to}}}))
}

/// Order matters: the agent on node-a has no object before.
fn rows() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let own = format!("{ALL}/octavo-node-a");
    let other = ApiRequest::delete(&format!("{ALL}/octavo-node-b"));
    let replaced = ApiRequest::put(&own, feature("octavo-node-a", "node-a", COUNT));
    let mut nameless = feature("octavo-node-a", "node-a", COUNT);
    nameless["metadata"]["labels"] = json!({});
    let layout = post("octavo-node-a", "node-a", "octavo.dev/layout");
    let zone = post("octavo-node-a", "node-a", "topology.kubernetes.io/zone");
    let foreign = DeniedByPolicy("not allowed to set these labels on a node");
    let astray = DeniedByPolicy("must have the label nfd.node.kubernetes.io/node-name");
    vec![
        ("for another node", post("octavo-node-a", "node-b", COUNT), astray),
        ("for no node", ApiRequest::post(ALL, nameless), astray),
        ("by another name", post("mine", "node-a", COUNT), DeniedByPolicy("not mine")),
        ("a layout", layout, foreign),
        ("a zone", zone, foreign),
        ("its own", post("octavo-node-a", "node-a", COUNT), Allowed),
        ("its own is read", ApiRequest::get(&own), Allowed),
        ("all are listed", ApiRequest::get(ALL), Allowed),
        ("its own is patched", patch("node-a", "nvidia.com/gpu.count"), Allowed),
        ("a foreign label", patch("node-a", "person"), foreign),
        ("it is led to another node", lead(Some("node-b")), astray),
        ("it is led to no node", lead(None), astray),
        ("another's is patched", patch("node-b", COUNT), DeniedByPolicy("not octavo-node-b")),
        ("another's is deleted", other, DeniedByPolicy("not octavo-node-b")),
        ("its own is replaced", replaced, Forbidden),
        ("its own is deleted", ApiRequest::delete(&own), Allowed),
    ]
}

#[tokio::test]
async fn node_feature_is_limited_to_own_node_and_own_labels() {
    let cluster = PermissionCluster::new().await;
    let agent = cluster.agent("agent-a").await;
    let list = ApiRequest::get(ALL);
    agent.expect("without the option", &list, Forbidden).await;
    cluster.define(NODE_FEATURES);
    cluster.install("options/nodefeature");
    let others = post("octavo-node-b", "node-b", COUNT);
    let words = "only the NodeFeature octavo-node-a, not octavo-node-b";
    agent.expect_eventually(&others, DeniedByPolicy(words)).await;
    let b = cluster.agent("agent-b").await;
    b.expect("node-b has its own", &others, Allowed).await;
    let unbound = ["create", "token", "octavo-agent", "--namespace=octavo-system"];
    let unbound = cluster.bearer(cluster.kubectl(&unbound).trim_end()).await;
    let own = post("octavo-node-a", "node-a", COUNT);
    let nowhere = DeniedByPolicy("not bound to a pod on a node");
    unbound.expect("a token of no pod", &own, nowhere).await;
    for (what, request, verdict) in rows() {
        agent.expect(what, &request, verdict).await;
    }
}
