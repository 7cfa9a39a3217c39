//! The same for the objects of Node Feature Discovery, which writes labels with rights of its own.

use serde_json::{Value, json};

use super::place::Verdict::{self, Done, NoRight, Refused};
use super::place::{Ask, Place};

/// As Node Feature Discovery has it, less what it says of the fields.
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

fn post(name: &str, node: &str, key: &str) -> Ask {
    Ask::post(ALL, feature(name, node, key))
}

fn patch(of: &str, key: &str) -> Ask {
    let path = format!("{ALL}/octavo-{of}");
    Ask::patch(&path, json!({"spec": {"labels": {key: "1"}}}))
}

/// The object of node-a is to be for this node.
fn lead(to: Option<&str>) -> Ask {
    let path = format!("{ALL}/octavo-node-a");
    Ask::patch(&path, json!({"metadata": {"labels": {NODE: to}}}))
}

/// In this order: the agent on node-a has no object before.
fn rows() -> Vec<(&'static str, Ask, Verdict)> {
    let own = format!("{ALL}/octavo-node-a");
    let other = Ask::delete(&format!("{ALL}/octavo-node-b"));
    let replaced = Ask::put(&own, feature("octavo-node-a", "node-a", COUNT));
    let mut nameless = feature("octavo-node-a", "node-a", COUNT);
    nameless["metadata"]["labels"] = json!({});
    let layout = post("octavo-node-a", "node-a", "octavo.dev/layout");
    let zone = post("octavo-node-a", "node-a", "topology.kubernetes.io/zone");
    let foreign = Refused("not allowed to set these labels on a node");
    let astray = Refused("must have the label nfd.node.kubernetes.io/node-name");
    vec![
        ("for another node", post("octavo-node-a", "node-b", COUNT), astray),
        ("for no node", Ask::post(ALL, nameless), astray),
        ("by another name", post("mine", "node-a", COUNT), Refused("not mine")),
        ("a layout", layout, foreign),
        ("a zone", zone, foreign),
        ("its own", post("octavo-node-a", "node-a", COUNT), Done),
        ("its own is read", Ask::get(&own), Done),
        ("all are listed", Ask::get(ALL), Done),
        ("its own is patched", patch("node-a", "nvidia.com/gpu.count"), Done),
        ("a foreign label", patch("node-a", "person"), foreign),
        ("it is led to another node", lead(Some("node-b")), astray),
        ("it is led to no node", lead(None), astray),
        ("another's is patched", patch("node-b", COUNT), Refused("not octavo-node-b")),
        ("another's is deleted", other, Refused("not octavo-node-b")),
        ("its own is replaced", replaced, NoRight),
        ("its own is deleted", Ask::delete(&own), Done),
    ]
}

#[tokio::test]
async fn node_feature_is_limited_to_own_node_and_own_labels() {
    let place = Place::new().await;
    let agent = place.agent("agent-a").await;
    let list = Ask::get(ALL);
    agent.expects("without the option", &list, NoRight).await;
    place.define(NODE_FEATURES);
    place.install("options/nodefeature");
    let others = post("octavo-node-b", "node-b", COUNT);
    let words = "only the NodeFeature octavo-node-a, not octavo-node-b";
    agent.expects_soon(&others, Refused(words)).await;
    let b = place.agent("agent-b").await;
    b.expects("node-b has its own", &others, Done).await;
    let unbound = ["create", "token", "octavo-agent", "--namespace=octavo-system"];
    let unbound = place.bearer(place.kubectl(&unbound).trim_end()).await;
    let own = post("octavo-node-a", "node-a", COUNT);
    let nowhere = Refused("not bound to a pod on a node");
    unbound.expects("a token of no pod", &own, nowhere).await;
    for (what, ask, verdict) in rows() {
        agent.expects(what, &ask, verdict).await;
    }
}
