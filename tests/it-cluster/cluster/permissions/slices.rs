//! The same for `ResourceSlices`: with those of another node, an agent could attract its pods.

use serde_json::{Value, json};

use super::cluster::Verdict::{self, Allowed, DeniedByPolicy, Forbidden};
use super::cluster::{ApiRequest, PermissionCluster};
use crate::cluster::claims::chart_objects;

const ALL: &str = "/apis/resource.k8s.io/v1/resourceslices";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/octavo-system/resourceclaims";
const DRIVER: &str = "gpu.octavo.dev";

fn slice(name: &str, node: Option<&str>, driver: &str) -> Value {
    let mut slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {
            "driver": driver, "devices": [{"name": "gpu-0"}],
            "pool": {
                "name": format!("{}/{DRIVER}", node.unwrap_or("node-a")), "generation": 1,
                "resourceSliceCount": 1,
            },
        },
    });
    match node {
        Some(node) => slice["spec"]["nodeName"] = json!(node),
        None => slice["spec"]["allNodes"] = json!(true),
    }
    slice
}

fn post(name: &str, node: Option<&str>, driver: &str) -> ApiRequest {
    ApiRequest::post(ALL, slice(name, node, driver))
}

/// Order matters: each agent creates its own slice first.
fn rows() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let (own, other) = (format!("{ALL}/a"), format!("{ALL}/b"));
    let generation = json!({"spec": {"pool": {"generation": 2}}});
    let foreign = DeniedByPolicy("only ResourceSlices of this node, not of node node-b");
    let driver = DeniedByPolicy("only ResourceSlices of the driver gpu.octavo.dev");
    let applied = slice("a", Some("node-a"), DRIVER);
    let mut other_pool = slice("c", Some("node-a"), DRIVER);
    other_pool["spec"]["pool"]["name"] = json!("node-b/gpu.octavo.dev");
    let pool = DeniedByPolicy("only the pool of this node, not node-b/gpu.octavo.dev");
    vec![
        ("its own", post("a", Some("node-a"), DRIVER), Allowed),
        ("its own is applied", ApiRequest::apply(&own, applied.clone()), Allowed),
        ("its own is patched", ApiRequest::patch(&own, generation.clone()), Allowed),
        ("another node's", post("c", Some("node-b"), DRIVER), foreign),
        ("all nodes'", post("c", None, DRIVER), DeniedByPolicy("not of several nodes")),
        ("another node's pool", ApiRequest::post(ALL, other_pool), pool),
        ("another driver's", post("c", Some("node-a"), "gpu.nvidia.com"), driver),
        ("another's is patched", ApiRequest::patch(&other, generation), foreign),
        ("another's is deleted", ApiRequest::delete(&other), foreign),
        ("its own is replaced", ApiRequest::put(&own, applied), Forbidden),
        ("all are listed", ApiRequest::get(ALL), Allowed),
        ("claims are listed", ApiRequest::get(CLAIMS), Forbidden),
        ("its own is deleted", ApiRequest::delete(&own), Allowed),
    ]
}

#[tokio::test]
async fn resource_slices_are_limited_to_own_node_and_driver() {
    let cluster = PermissionCluster::new().await;
    let agent = cluster.agent("agent-a").await;
    agent.expect("without the option", &ApiRequest::get(ALL), Forbidden).await;
    cluster.apply(&chart_objects(&["dra.yaml", "policy-dra.yaml"]));
    let others = post("b", Some("node-b"), DRIVER);
    let words = "only ResourceSlices of this node, not of node node-b";
    agent.expect_eventually(&others, DeniedByPolicy(words)).await;
    let b = cluster.agent("agent-b").await;
    b.expect("node-b has its own", &others, Allowed).await;
    for (what, request, verdict) in rows() {
        agent.expect(what, &request, verdict).await;
    }
    let unbound =
        cluster.kubectl(&["create", "token", "octavo-agent", "--namespace=octavo-system"]);
    let unbound = cluster.bearer(unbound.trim_end()).await;
    let nowhere = DeniedByPolicy("not bound to a pod on a node");
    unbound.expect("a token of no pod", &post("c", Some("node-a"), DRIVER), nowhere).await;
}
