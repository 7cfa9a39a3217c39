//! Permissions of an aggregator with several replicas: one label of its own pods, and one Lease.

use serde_json::{Value, json};

use super::cluster::Verdict::{Allowed, DeniedByPolicy, Forbidden};
use super::cluster::{ApiRequest, PermissionCluster};
use super::{beyond, plain_account, reviews};
use crate::process::Aggregator;

const PODS: &str = "/api/v1/namespaces/octavo-system/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/octavo-system/leases";
const ROLE: &str = "octavo.dev/role";

fn pod(namespace: &str, name: &str, program: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {"app.kubernetes.io/name": program, "person": "1"},
        },
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "test.invalid/octavo:1"}]},
    })
}

fn label(pod: &str, key: &str, value: &Value) -> ApiRequest {
    ApiRequest::patch(&format!("{PODS}/{pod}"), json!({"metadata": {"labels": {key: value}}}))
}

#[tokio::test]
async fn aggregator_with_replicas_changes_one_label_of_its_own_pods_only() {
    let cluster = PermissionCluster::bare();
    // Without pod security labels, which would reject the pods of this test.
    cluster.kubectl(&["create", "namespace", "octavo-system"]);
    cluster.apply_chart(&["aggregator.replicas=2,aggregator.tls.secretName=ours"]);
    // Created by a controller in a real cluster.
    cluster.kubectl(&["create", "serviceaccount", "default", "--namespace=octavo-system"]);
    for (name, program) in [
        ("replica-a", "octavo-aggregator"),
        ("replica-b", "octavo-aggregator"),
        ("agent", "octavo-agent"),
    ] {
        cluster.create(&pod("octavo-system", name, program));
    }
    cluster.start_pod("deployment/octavo-aggregator", "aggregator", None);
    let token = cluster.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = cluster.bearer(&token).await;
    let leader = json!("leader");
    aggregator.expect_eventually(&label("replica-b", ROLE, &leader), Allowed).await;
    let refused = DeniedByPolicy("the labels of a pod, except octavo.dev/role of its own pods");
    aggregator.expect_eventually(&label("agent", ROLE, &leader), refused).await;
    let image = json!({"spec": {"containers": [{"name": "main", "image": "test.invalid/evil:1"}]}});
    let image = ApiRequest::strategic(&format!("{PODS}/agent"), image);
    let one = format!("{LEASES}/octavo-serving");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "octavo-serving", "namespace": "octavo-system"}, "spec": {},
    });
    aggregator
        .expect_all(&[
            ("its label", label("replica-b", ROLE, &leader), Allowed),
            ("its pods are listed", ApiRequest::get(PODS), Allowed),
            ("another value", label("replica-b", ROLE, &json!("other")), refused),
            ("another label", label("replica-b", "person", &json!("2")), refused),
            ("its name", label("replica-b", "app.kubernetes.io/name", &json!("a")), refused),
            (
                "an agent becomes its pod",
                label("agent", "app.kubernetes.io/name", &json!("octavo-aggregator")),
                refused,
            ),
            ("an image", image, DeniedByPolicy("the spec or status of a pod")),
            ("one pod", ApiRequest::get(&format!("{PODS}/agent")), Forbidden),
            ("pods elsewhere", ApiRequest::get("/api/v1/namespaces/default/pods"), Forbidden),
            ("a pod is deleted", ApiRequest::delete(&format!("{PODS}/replica-a")), Forbidden),
            ("the Lease is made", ApiRequest::post(LEASES, lease), Allowed),
            ("the Lease is read", ApiRequest::get(&one), Allowed),
            ("the Lease is deleted", ApiRequest::delete(&one), Forbidden),
            ("another Lease", ApiRequest::get(&format!("{LEASES}/octavo-policies")), Forbidden),
        ])
        .await;
    let plain = plain_account(&cluster).await;
    let [tokens, access] = reviews();
    let rule = |group: &str, resource: &str, verbs: Value| json!({"verbs": verbs, "apiGroups": [group], "resources": [resource]});
    let mut serving = rule("coordination.k8s.io", "leases", json!(["get", "patch"]));
    serving["resourceNames"] = json!(["octavo-serving"]);
    let mut expected = vec![
        rule("", "pods", json!(["list", "patch"])),
        rule("coordination.k8s.io", "leases", json!(["create"])),
        serving,
        tokens,
        access,
    ];
    expected.sort_by_key(Value::to_string);
    assert_eq!(beyond(&aggregator, &plain, "octavo-system").await, expected);

    // The shipped program moves the label with this token.
    let kubeconfig = cluster.kubeconfig_with_token(&token);
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.path().display());
    let mut program =
        Aggregator::start(&["--plaintext", "--leader-election=replica-a", &kubeconfig]);
    program.expect_log("pod labeled as the leader");
    let selector = format!("--selector={ROLE}=leader");
    let get = ["get", "pods", "--namespace=octavo-system", &selector, "--output=name"];
    assert_eq!(cluster.kubectl(&get).trim_end(), "pod/replica-a");
}
