//! The same for the status of `ResourceClaims`: an agent describes its own devices only.

use serde_json::{Value, json};

use super::cluster::Verdict::{Allowed, DeniedByPolicy, Forbidden};
use super::cluster::{ApiRequest, PermissionCluster};
use crate::cluster::claims::chart_objects;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/octavo-system/resourceclaims";
const DRIVER: &str = "gpu.octavo.dev";
/// A driver with another device of each claim.
const NETWORK: &str = "net.example.com";

fn entry(driver: &str, node: &str, device: &str) -> Value {
    let pool = format!("{node}/{driver}");
    json!({"driver": driver, "pool": pool, "device": device, "data": {"uuid": "GPU-1"}})
}

/// A claim that is allocated a device of each driver on a node, and whose network device has a status.
fn claim(name: &str, node: &str) -> (Value, Value) {
    let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": DRIVER}});
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [request("gpu"), request("nic")]}},
    });
    let result = |request: &str, driver: &str| {
        let mut result = entry(driver, node, request);
        result["request"] = json!(request);
        result.as_object_mut().unwrap().remove("data");
        result
    };
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let allocation = json!({
        "devices": {"results": [result("gpu", DRIVER), result("nic", NETWORK)]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    });
    let devices = json!([entry(NETWORK, node, "nic")]);
    (claim, json!({"status": {"allocation": allocation, "devices": devices}}))
}

fn status(name: &str) -> String {
    format!("{CLAIMS}/{name}/status")
}

/// Permissions of the agent on Kubernetes 1.35, where the API server does not check these subresources.
const BEFORE_1_36: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: before-1.36}
rules:
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/driver], verbs: ['arbitrary-node:patch']}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/binding], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: before-1.36}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: before-1.36}
subjects: [{kind: ServiceAccount, name: octavo-agent, namespace: octavo-system}]
";

/// The agent's request.
fn applied(name: &str, entries: &[Value]) -> ApiRequest {
    let body = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "status": {"devices": entries},
    });
    ApiRequest::apply(&status(name), body)
}

#[tokio::test]
async fn status_of_claims_is_limited_to_devices_of_own_node_and_driver() {
    let cluster = PermissionCluster::new().await;
    let admin = cluster.admin();
    for (name, node) in [("a", "node-a"), ("b", "node-b")] {
        let (claim, allocated) = claim(name, node);
        admin.expect(name, &ApiRequest::post(CLAIMS, claim), Allowed).await;
        let allocated = ApiRequest::patch(&status(name), allocated);
        admin.expect(name, &allocated, Allowed).await;
    }
    let agent = cluster.agent("agent-a").await;
    let own = applied("a", &[entry(DRIVER, "node-a", "gpu")]);
    agent.expect("without the option", &own, Forbidden).await;
    cluster.apply(&chart_objects(&["dra.yaml", "policy-dra.yaml"]));
    agent.expect_eventually(&own, Allowed).await;
    let words = DeniedByPolicy("only the status of devices of this node and of the driver");
    let other = applied("b", &[entry(DRIVER, "node-b", "gpu")]);
    // The API server's own check.
    let answer = agent.send(&other).await;
    assert!(answer.code == 422 && answer.text.contains("arbitrary-node:patch"), "{answer:?}");
    cluster.apply(BEFORE_1_36);
    agent.expect_eventually(&other, words).await;
    let nothing = ApiRequest::patch(&status("a"), json!({"status": {"devices": []}}));
    let emptied = ApiRequest::patch(
        &status("a"),
        json!({"status": {"reservedFor": [
            {"resource": "pods", "name": "p", "uid": "u"},
        ]}}),
    );
    let allocation = json!({"status": {"allocation": null}});
    let mut network = entry(NETWORK, "node-a", "nic");
    network["data"] = json!({"uuid": "GPU-2"});
    let network = applied("a", &[network]);
    for (what, request, verdict) in [
        ("its own", own.clone(), Allowed),
        ("its own is removed", applied("a", &[]), Allowed),
        ("another node's", other, words),
        ("all entries", nothing, words),
        ("another driver's", network, words),
        ("a reservation", emptied, DeniedByPolicy("not allowed to change the allocation")),
        (
            "the allocation",
            ApiRequest::patch(&status("a"), allocation),
            DeniedByPolicy("octavo-agent"),
        ),
        ("the claim", ApiRequest::patch(&format!("{CLAIMS}/a"), json!({})), Forbidden),
    ] {
        agent.expect(what, &request, verdict).await;
    }
    let claim = admin.send(&ApiRequest::get(&format!("{CLAIMS}/a"))).await;
    let claim: Value = serde_json::from_str(&claim.text).unwrap();
    let devices = claim["status"]["devices"].as_array().unwrap();
    let data: Vec<_> = devices.iter().map(|one| (&one["driver"], &one["data"])).collect();
    assert_eq!(data, [(&json!(NETWORK), &json!({"uuid": "GPU-1"}))]);
    let unbound =
        cluster.kubectl(&["create", "token", "octavo-agent", "--namespace=octavo-system"]);
    let unbound = cluster.bearer(unbound.trim_end()).await;
    let nowhere = DeniedByPolicy("not bound to a pod on a node");
    unbound.expect("a token of no pod", &own, nowhere).await;
}
