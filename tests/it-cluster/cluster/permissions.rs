//! Every permission and every denial, requested from a real API server with the tokens of real pods.
//!
//! `deploy` is applied as documented, and pods are created from the template of the `DaemonSet`: with any other
//! account, the policies would deny nothing here.

mod annotations;
mod claim_status;
mod cluster;
mod node_feature;
mod pod_events;
mod policies;
mod release;
mod rows;
mod sharing;
mod slices;
mod standby;

use serde_json::{Value, json};

use cluster::Verdict::{Allowed, DeniedByPolicy, Forbidden, UnknownKind};
use cluster::{ApiRequest, PermissionCluster, Requester, event, node};
use rows::{OTHER, OWN, Row, labels};

/// Restores the node.
fn reset() -> ApiRequest {
    ApiRequest::put(OWN, node("node-a"))
}

/// All fields of a node that an agent could change, and its resource version.
async fn read(admin: &Requester, path: &str) -> Value {
    let answer = admin.send(&ApiRequest::get(path)).await;
    serde_json::from_str(&answer.text).unwrap()
}

async fn expect_all(cluster: &PermissionCluster, agent: &Requester, rows: Vec<Row>) {
    let admin = cluster.admin();
    for (what, request, verdict) in rows {
        admin.expect(&what, &reset(), Allowed).await;
        let before = (read(&admin, OWN).await, read(&admin, OTHER).await);
        agent.expect(&what, &request, verdict).await;
        if verdict != Allowed {
            let after = (read(&admin, OWN).await, read(&admin, OTHER).await);
            assert_eq!(before, after, "{what}");
        }
    }
}

#[tokio::test]
async fn agent_is_authorized_for_its_own_node_only() {
    let cluster = PermissionCluster::new().await;
    let agent = cluster.agent("agent-a").await;
    expect_all(&cluster, &agent, rows::its_labels()).await;
    expect_all(&cluster, &agent, rows::foreign_labels()).await;
    expect_all(&cluster, &agent, rows::switches()).await;
    hand_off_label_can_only_be_removed(&cluster, &agent).await;
    expect_all(&cluster, &agent, rows::annotations_and_owners()).await;
    expect_all(&cluster, &agent, rows::spec()).await;
    expect_all(&cluster, &agent, rows::rights()).await;
    tokens_are_valid_for_their_node_only(&cluster).await;
    every_granted_permission_is_tested_here(&cluster, &agent).await;
    aggregator_permissions(&cluster).await;
    cluster_option_allows_reading_nodes_and_pods(&cluster).await;
    drain_option_allows_evictions(&cluster, &agent).await;
}

/// Also after the hand-off has ended: otherwise the label would remain.
async fn hand_off_label_can_only_be_removed(cluster: &PermissionCluster, agent: &Requester) {
    let config = "nvidia.com/device-plugin.config";
    let set = |value: Option<&str>| labels(OWN, &json!({config: value}));
    let admin = cluster.admin();
    admin.expect("ours", &set(Some("octavo-a-1")), Allowed).await;
    let refused = DeniedByPolicy(config);
    for value in ["octavo-b-2", "mine"] {
        agent.expect(value, &set(Some(value)), refused).await;
    }
    agent.expect("our value is removed", &set(None), Allowed).await;
    let back = set(Some("octavo-a-1"));
    agent.expect("our value is restored", &back, refused).await;
}

async fn drain_option_allows_evictions(cluster: &PermissionCluster, agent: &Requester) {
    let pod = "/api/v1/namespaces/octavo-system/pods/aggregator";
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "aggregator"}});
    let eviction = ApiRequest::post(&format!("{pod}/eviction"), eviction);
    agent.expect("before", &eviction, Forbidden).await;
    cluster.install("options/drain");
    agent.expect_eventually(&ApiRequest::get("/api/v1/pods"), Allowed).await;
    agent.expect("one pod", &ApiRequest::get(pod), Forbidden).await;
    agent.expect("an eviction", &eviction, Allowed).await;
    agent.expect("a deletion", &ApiRequest::delete(pod), Forbidden).await;
}

/// Use of a stolen token.
async fn tokens_are_valid_for_their_node_only(cluster: &PermissionCluster) {
    let count = json!({"octavo.dev/count": "8"});
    let (own, other) = (labels(OWN, &count), labels(OTHER, &count));
    let b = cluster.agent("agent-b").await;
    b.expect("the token of node-b on node-b", &other, Allowed).await;
    let cordon = ApiRequest::patch(OTHER, json!({"spec": {"unschedulable": true}}));
    let frozen = DeniedByPolicy("the spec of a node, except its own taints");
    b.expect("its node is cordoned", &cordon, frozen).await;
    let words = "the agent on node node-b is not allowed to change node node-a";
    b.expect("the token of node-b on node-a", &own, DeniedByPolicy(words)).await;
    let unbound =
        cluster.kubectl(&["create", "token", "octavo-agent", "--namespace=octavo-system"]);
    let unbound = cluster.bearer(unbound.trim_end()).await;
    let nowhere = DeniedByPolicy("not bound to a pod on a node");
    unbound.expect("a token of no pod", &own, nowhere).await;
    unbound
        .expect(
            "an event with a token of no pod",
            &event("default", "node-a"),
            DeniedByPolicy("only on its own node"),
        )
        .await;
    cluster.start_pod("daemonset/octavo-agent", "nowhere", None);
    let pending = cluster.agent("nowhere").await;
    pending.expect("a token of a pod that is on no node", &own, nowhere).await;
    // The token for the aggregator is not valid here, so a compromised aggregator cannot use it.
    let shown = cluster.token("octavo-agent", "agent-a", &["octavo"]);
    let shown = cluster.bearer(&shown).await;
    assert_eq!(shown.send(&ApiRequest::get(OWN)).await.code, 401);
    // A token is revoked with its pod.
    let delete =
        ApiRequest::delete("/api/v1/namespaces/octavo-system/pods/agent-b?gracePeriodSeconds=0");
    cluster.admin().expect("the pod ends", &delete, Allowed).await;
    b.await_unauthorized(&ApiRequest::get(OTHER)).await;
}

/// Requests the list of all permissions and removes those of every account.
async fn every_granted_permission_is_tested_here(cluster: &PermissionCluster, agent: &Requester) {
    let plain = plain_account(cluster).await;
    let nodes = json!({"verbs": ["get", "list", "watch", "patch"], "apiGroups": [""], "resources": ["nodes"]});
    let events = json!({"verbs": ["create"], "apiGroups": [""], "resources": ["events"]});
    for (namespace, expected) in [
        ("default", vec![events, nodes.clone()]),
        ("octavo-system", vec![nodes.clone()]),
        ("kube-system", vec![nodes]),
    ] {
        assert_eq!(beyond(agent, &plain, namespace).await, expected, "{namespace}");
    }
}

/// An account without any permission.
async fn plain_account(cluster: &PermissionCluster) -> Requester {
    cluster.kubectl(&["create", "serviceaccount", "plain", "--namespace=octavo-system"]);
    let token = cluster.kubectl(&["create", "token", "plain", "--namespace=octavo-system"]);
    cluster.bearer(token.trim_end()).await
}

async fn beyond(who: &Requester, plain: &Requester, namespace: &str) -> Vec<Value> {
    let everybodys = plain.rules(namespace).await;
    assert!(!everybodys.is_empty());
    let mut rules = who.rules(namespace).await;
    rules.retain(|rule| !everybodys.contains(rule));
    rules.sort_by_key(Value::to_string);
    rules
}

async fn aggregator_permissions(cluster: &PermissionCluster) {
    cluster.start_pod("deployment/octavo-aggregator", "aggregator", Some("node-a"));
    let token = cluster.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = cluster.bearer(&token).await;
    let shown = cluster.token("octavo-agent", "agent-a", &["octavo"]);
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": shown, "audiences": ["octavo"]},
    });
    let request = ApiRequest::post("/apis/authentication.k8s.io/v1/tokenreviews", review);
    let answer = aggregator.send(&request).await;
    let review: Value = serde_json::from_str(&answer.text).unwrap();
    let user = &review["status"]["user"];
    assert_eq!(review["status"]["authenticated"], true, "{review}");
    assert_eq!(user["username"], "system:serviceaccount:octavo-system:octavo-agent");
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["node-a"]));
    for path in
        ["nodes", "pods", "secrets", "configmaps", "events", "namespaces/octavo-system/secrets"]
    {
        let request = ApiRequest::get(&format!("/api/v1/{path}"));
        aggregator.expect(path, &request, Forbidden).await;
    }
    aggregator
        .expect("it labels a node", &labels(OWN, &json!({"octavo.dev/count": "8"})), Forbidden)
        .await;
    let token = cluster.kubectl(&["create", "token", "plain", "--namespace=octavo-system"]);
    let plain = cluster.bearer(token.trim_end()).await;
    let [tokens, access] = reviews();
    let expected = [pod_annotations(), tokens, access];
    assert_eq!(beyond(&aggregator, &plain, "default").await, expected);
    let lease = |verbs: Value| json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]});
    let mut own = lease(json!(["get", "patch"]));
    own["resourceNames"] = json!(["octavo-aggregator"]);
    let expected = [&expected[..], &[own, lease(json!(["create"]))]].concat();
    assert_eq!(beyond(&aggregator, &plain, "octavo-system").await, expected);
    // The API server grants the account of readers only what the aggregator checks.
    let token = cluster.kubectl(&["create", "token", "octavo-reader", "--namespace=octavo-system"]);
    let reader = cluster.bearer(token.trim_end()).await;
    let resources = ["acceleratortypes", "hardwareprofiles", "nodes", "usage"];
    let read = json!({"verbs": ["get", "list", "watch"], "apiGroups": ["octavo.dev"], "resources": resources});
    for namespace in ["default", "octavo-system"] {
        let rules = beyond(&reader, &plain, namespace).await;
        assert_eq!(rules, std::slice::from_ref(&read));
    }
    reader.expect("nodes of the API server", &ApiRequest::get("/api/v1/nodes"), Forbidden).await;
}

/// The rule of an aggregator that annotates pods, which is the default of the tier `applier`.
fn pod_annotations() -> Value {
    json!({"verbs": ["get", "patch"], "apiGroups": [""], "resources": ["pods"]})
}

/// The rules of every aggregator: it reviews tokens, and the access of readers.
fn reviews() -> [Value; 2] {
    let groups = [("authentication", "tokenreviews"), ("authorization", "subjectaccessreviews")];
    groups.map(|(group, resource)| {
        json!({"verbs": ["create"], "apiGroups": [format!("{group}.k8s.io")], "resources": [resource]})
    })
}

async fn cluster_option_allows_reading_nodes_and_pods(cluster: &PermissionCluster) {
    const PROFILES: &str = "/apis/infrastructure.opendatahub.io/v1/hardwareprofiles";
    let token = cluster.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = cluster.bearer(&token).await;
    let pod = "/api/v1/namespaces/octavo-system/pods/aggregator";
    let listed = ["/api/v1/nodes", "/api/v1/pods"].map(ApiRequest::get);
    for list in &listed {
        aggregator.expect("before", list, Forbidden).await;
    }
    cluster.install("options/follow-cluster");
    for list in &listed {
        aggregator.expect_eventually(list, Allowed).await;
    }
    let watched =
        |what: &str| ApiRequest::get(&format!("/api/v1/{what}?watch=true&timeoutSeconds=1"));
    let label = labels(OWN, &json!({"octavo.dev/count": "8"}));
    for (what, request, verdict) in [
        ("nodes are watched", watched("nodes"), Allowed),
        ("pods are watched", watched("pods"), Allowed),
        ("profiles", ApiRequest::get(PROFILES), UnknownKind),
        ("queues", ApiRequest::get("/apis/kueue.x-k8s.io/v1beta1/localqueues"), UnknownKind),
        ("a profile", ApiRequest::post(PROFILES, json!({})), Forbidden),
        ("one node", ApiRequest::get(OWN), Forbidden),
        ("one pod", ApiRequest::get(pod), Allowed),
        ("its log", ApiRequest::get(&format!("{pod}/log")), Forbidden),
        ("a label", label, Forbidden),
        ("a deletion", ApiRequest::delete(pod), Forbidden),
        ("secrets", ApiRequest::get("/api/v1/secrets"), Forbidden),
    ] {
        aggregator.expect(what, &request, verdict).await;
    }
}

#[tokio::test]
async fn admission_policy_denies_access_that_role_allows() {
    let cluster = PermissionCluster::new().await;
    let agent = cluster.agent("agent-a").await;
    cluster.start_pod("daemonset/octavo-agent", "early", Some("node-c"));
    let early = cluster.agent("early").await;
    let plain = plain_account(&cluster).await;
    for account in ["octavo-agent", "plain"] {
        let subject = format!("--serviceaccount=octavo-system:{account}");
        let name = format!("too-wide-{account}");
        let role = "--clusterrole=cluster-admin";
        cluster.kubectl(&["create", "clusterrolebinding", &name, role, &subject]);
    }
    let foreign = labels(OWN, &json!({"person": "2"}));
    // The policy applies to the account of the agent only.
    plain.expect_eventually(&foreign, Allowed).await;
    let anything = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "unkept"}});
    let anything = ApiRequest::post("/api/v1/namespaces", anything);
    agent.expect_eventually(&anything, Allowed).await;

    expect_all(&cluster, &agent, rows::too_wide()).await;
    let unborn = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c"}});
    for request in [
        ApiRequest::post("/api/v1/nodes", unborn.clone()),
        ApiRequest::apply("/api/v1/nodes/node-c", unborn),
    ] {
        let refused = DeniedByPolicy("not allowed to create nodes");
        early.expect("its own node", &request, refused).await;
    }

    // The policy is the reason: without its binding the request succeeds.
    cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "octavo-agent"]);
    agent.expect_eventually(&foreign, Allowed).await;
}
