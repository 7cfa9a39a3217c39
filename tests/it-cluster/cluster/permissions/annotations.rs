//! Permissions of an aggregator that annotates pods, by default in the tier `applier`: three annotations, and nothing else.

use serde_json::{Value, json};

use super::cluster::Verdict::{self, Allowed, DeniedByPolicy, Forbidden};
use super::cluster::{ApiRequest, PermissionCluster, Requester};
use super::{beyond, plain_account, pod_annotations, reviews};
use crate::cluster::pod_types::{A100, report, reported};
use crate::process::Aggregator;

const TYPE: &str = "accelerator.opendatahub.io/type";
const POD: &str = "/api/v1/namespaces/octavo-system/pods/train";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/octavo-system/leases";

/// A pod with fields of several owners.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "train", "namespace": "octavo-system", "labels": {"person": "1"},
            "annotations": {"person": "1", "octavo.dev/other": "1", TYPE: "old"},
            "finalizers": ["person.example/keep"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1"},
            ],
        },
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "test.invalid/train:1"}]},
    })
}

fn metadata(fields: &Value) -> ApiRequest {
    ApiRequest::patch(POD, json!({"metadata": fields}))
}

fn annotations(fields: &Value) -> ApiRequest {
    metadata(&json!({"annotations": fields}))
}

#[tokio::test]
async fn aggregator_that_annotates_pods_changes_three_annotations_only() {
    let cluster = PermissionCluster::new().await;
    // Created by a controller in a real cluster.
    let account = ["create", "serviceaccount", "default"];
    cluster.kubectl(&[&account[..], &["--namespace=octavo-system"]].concat());
    let create = ApiRequest::post("/api/v1/namespaces/octavo-system/pods", pod());
    cluster.admin().expect("a pod", &create, Allowed).await;
    cluster.start_pod("deployment/octavo-aggregator", "aggregator", Some("node-a"));
    let token = cluster.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = cluster.bearer(&token).await;
    let ours = annotations(&json!({TYPE: A100}));
    aggregator.expect_eventually(&ours, Allowed).await;
    let foreign = annotations(&json!({"person": "2"}));
    let refused = DeniedByPolicy("not allowed to change these annotations of a pod: person");
    aggregator.expect_eventually(&foreign, refused).await;
    let before: Value = read(&cluster).await;
    aggregator.expect_all(&refusals()).await;
    aggregator.expect_all(&denials_of_other_changes()).await;
    assert_eq!(read(&cluster).await, before, "a rejected request changed the Node");
    aggregator.expect_all(&own_changes()).await;
    aggregator.expect_all(&other_permissions()).await;
    all_role_permissions(&cluster, &aggregator).await;
    program_works_with_this_token(&cluster, &token).await;
    policy_is_the_reason(&cluster, &aggregator, &foreign).await;
}

async fn read(cluster: &PermissionCluster) -> Value {
    let answer = cluster.admin().send(&ApiRequest::get(POD)).await;
    serde_json::from_str(&answer.text).unwrap()
}

fn refusals() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let foreign = DeniedByPolicy("not allowed to change these annotations of a pod");
    let words = DeniedByPolicy("are not valid types, MIG profiles or sharing modes");
    vec![
        ("a user's value is removed", annotations(&json!({"person": null})), foreign),
        ("ours and a person's", annotations(&json!({TYPE: "a", "person": "2"})), foreign),
        ("another of ours", annotations(&json!({"octavo.dev/other": "2"})), foreign),
        ("a key like ours", annotations(&json!({"octavo.dev/sharing2": "a"})), foreign),
        ("words", annotations(&json!({TYPE: "<b>not a type</b>"})), words),
        ("a long text", annotations(&json!({TYPE: "a".repeat(64)})), words),
        ("nothing", annotations(&json!({TYPE: ""})), words),
    ]
}

/// Changes other than annotations.
fn denials_of_other_changes() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let labels = DeniedByPolicy("labels of a pod");
    let finalizers = DeniedByPolicy("finalizers of a pod");
    let frozen = DeniedByPolicy("the spec or status of a pod");
    let image = json!({"spec": {"containers": [{"name": "main", "image": "test.invalid/evil:1"}]}});
    let strategic = ApiRequest::strategic(POD, image);
    vec![
        ("a label", metadata(&json!({"labels": {"person": "2"}})), labels),
        ("a new label", metadata(&json!({"labels": {"octavo.dev/x": "2"}})), labels),
        ("a label goes", metadata(&json!({"labels": null})), labels),
        (
            "a finalizer",
            metadata(&json!({"finalizers": ["person.example/keep", "a.example/b"]})),
            finalizers,
        ),
        ("finalizers go", metadata(&json!({"finalizers": null})), finalizers),
        (
            "owners go",
            metadata(&json!({"ownerReferences": null})),
            DeniedByPolicy("ownerReferences of a pod"),
        ),
        ("an image", strategic, frozen),
        (
            "a deadline",
            ApiRequest::patch(POD, json!({"spec": {"activeDeadlineSeconds": 1}})),
            frozen,
        ),
        (
            "a toleration",
            ApiRequest::patch(POD, json!({"spec": {"tolerations": tolerations()}})),
            frozen,
        ),
    ]
}

/// The default tolerations and one more: Kubernetes itself allows no other change of them.
fn tolerations() -> Value {
    let given = ["not-ready", "unreachable"].map(|word| {
        json!({
            "key": format!("node.kubernetes.io/{word}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300,
        })
    });
    let all = json!({"operator": "Exists"});
    given.into_iter().chain([all]).collect()
}

fn own_changes() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let profile = json!({"octavo.dev/mig-profile": "1g.10gb+me", "octavo.dev/sharing": "mig"});
    vec![
        ("the type", annotations(&json!({TYPE: A100})), Allowed),
        ("the rest", annotations(&profile), Allowed),
        ("one goes", annotations(&json!({"octavo.dev/mig-profile": null})), Allowed),
        ("it is read", ApiRequest::get(POD), Allowed),
    ]
}

fn other_permissions() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let lease = |name: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "octavo-system"}, "spec": {"holderIdentity": "a"},
        })
    };
    let one = format!("{LEASES}/octavo-aggregator");
    let other = format!("{LEASES}/other");
    let elsewhere = LEASES.replace("octavo-system", "kube-system");
    let status =
        ApiRequest::patch(&format!("{POD}/status"), json!({"status": {"phase": "Failed"}}));
    vec![
        ("all pods", ApiRequest::get("/api/v1/pods"), Forbidden),
        (
            "a pod is made",
            ApiRequest::post("/api/v1/namespaces/octavo-system/pods", pod()),
            Forbidden,
        ),
        ("a pod is put", ApiRequest::put(POD, pod()), Forbidden),
        ("a pod is deleted", ApiRequest::delete(POD), Forbidden),
        ("a pod's status", status, Forbidden),
        ("its log", ApiRequest::get(&format!("{POD}/log")), Forbidden),
        ("a secret", ApiRequest::get("/api/v1/namespaces/octavo-system/secrets/ours"), Forbidden),
        ("the Lease is made", ApiRequest::post(LEASES, lease("octavo-aggregator")), Allowed),
        ("the Lease is read", ApiRequest::get(&one), Allowed),
        (
            "the Lease is written",
            ApiRequest::patch(&one, json!({"spec": {"holderIdentity": null}})),
            Allowed,
        ),
        ("the Lease is deleted", ApiRequest::delete(&one), Forbidden),
        ("another is written", ApiRequest::patch(&other, json!({"spec": {}})), Forbidden),
        ("all are listed", ApiRequest::get(LEASES), Forbidden),
        ("one elsewhere", ApiRequest::post(&elsewhere, lease("octavo-aggregator")), Forbidden),
    ]
}

async fn all_role_permissions(cluster: &PermissionCluster, aggregator: &Requester) {
    let plain = plain_account(cluster).await;
    let mut rules = beyond(aggregator, &plain, "default").await;
    // The API server returns them in any order.
    rules.sort_by_key(ToString::to_string);
    let [tokens, access] = reviews();
    assert_eq!(rules, [pod_annotations(), tokens, access]);
}

/// The shipped program writes the annotations and the Lease.
async fn program_works_with_this_token(cluster: &PermissionCluster, token: &str) {
    let kubeconfig = cluster.kubeconfig_with_token(token);
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.path().display());
    let mut program = Aggregator::start(&["--plaintext", "--annotate-pods", &kubeconfig]);
    program.expect_log(" namespace=octavo-system lease=octavo-aggregator");
    cluster
        .admin()
        .expect("it was another", &annotations(&json!({TYPE: "another"})), Allowed)
        .await;
    let _line = report(&program, "node-a", reported("octavo-system", &[("train", None)])).await;
    let condition =
        format!("--for=jsonpath={{.metadata.annotations.{}}}={A100}", TYPE.replace('.', "\\."));
    let wait = ["wait", "pod", "train", "-n", "octavo-system", "--timeout=300s"];
    cluster.kubectl(&[&wait[..], &[&condition]].concat());
}

async fn policy_is_the_reason(
    cluster: &PermissionCluster,
    aggregator: &Requester,
    foreign: &ApiRequest,
) {
    let binding = "octavo-aggregator-pods";
    cluster.kubectl(&["delete", "validatingadmissionpolicybinding", binding]);
    aggregator.expect_eventually(foreign, Allowed).await;
}
