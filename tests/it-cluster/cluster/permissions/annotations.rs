//! What an aggregator may change of pods that tells them what they were given: three annotations, and nothing else of anything.

use std::fs;

use serde_json::{Value, json};

use super::place::Verdict::{self, Done, NoRight, Refused};
use super::place::{Ask, Place, Who};
use super::{beyond, plain_account};
use crate::cluster::pod_types::{A100, report, reported};
use crate::manifests::chart::{helm_says, path};
use crate::process::Aggregator;

const TYPE: &str = "accelerator.opendatahub.io/type";
const POD: &str = "/api/v1/namespaces/octavo-system/pods/train";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/octavo-system/leases";

/// A pod with something of everybody on it.
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

fn metadata(fields: &Value) -> Ask {
    Ask::patch(POD, json!({"metadata": fields}))
}

fn annotations(fields: &Value) -> Ask {
    metadata(&json!({"annotations": fields}))
}

/// The tier `applier`, and an aggregator that tells pods.
fn upgrade(place: &Place) {
    let chart = path();
    let rendered = helm_says(&[
        "template",
        "octavo",
        chart.to_str().unwrap(),
        "--namespace=octavo-system",
        "--set=tier=applier,aggregator.annotatePods=true,aggregator.tls.secretName=ours",
    ]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rendered.yaml");
    fs::write(&file, rendered).unwrap();
    place.kubectl(&["apply", "-f", file.to_str().unwrap()]);
}

async fn expect(who: &Who, rows: Vec<(&str, Ask, Verdict)>) {
    for (what, ask, verdict) in rows {
        who.expects(what, &ask, verdict).await;
    }
}

#[tokio::test]
async fn aggregator_that_annotates_pods_changes_three_annotations_only() {
    let place = Place::new().await;
    // Which the controllers would make, which are not there.
    let account = ["create", "serviceaccount", "default"];
    place.kubectl(&[&account[..], &["--namespace=octavo-system"]].concat());
    let create = Ask::post("/api/v1/namespaces/octavo-system/pods", pod());
    place.admin().expects("a pod", &create, Done).await;
    place.start_pod("deployment/octavo-aggregator", "aggregator", Some("node-a"));
    let token = place.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = place.bearer(&token).await;
    let ours = annotations(&json!({TYPE: A100}));
    aggregator.expects("before", &ours, NoRight).await;
    upgrade(&place);
    aggregator.expects_soon(&ours, Done).await;
    let foreign = annotations(&json!({"person": "2"}));
    let refused = Refused("not allowed to change these annotations of a pod: person");
    aggregator.expects_soon(&foreign, refused).await;
    let before: Value = read(&place).await;
    expect(&aggregator, refusals()).await;
    expect(&aggregator, refusals_of_more()).await;
    assert_eq!(read(&place).await, before, "what was refused changed something");
    expect(&aggregator, what_is_ours()).await;
    expect(&aggregator, rights()).await;
    all_that_roles_allow(&place, &aggregator).await;
    with_that_token_the_program_does_its_work(&place, &token).await;
    it_is_the_policy_that_refuses(&place, &aggregator, &foreign).await;
}

async fn read(place: &Place) -> Value {
    let answer = place.admin().asks(&Ask::get(POD)).await;
    serde_json::from_str(&answer.text).unwrap()
}

fn refusals() -> Vec<(&'static str, Ask, Verdict)> {
    let foreign = Refused("not allowed to change these annotations of a pod");
    let words = Refused("are not valid types, MIG profiles or sharing modes");
    vec![
        ("a person's goes", annotations(&json!({"person": null})), foreign),
        ("ours and a person's", annotations(&json!({TYPE: "a", "person": "2"})), foreign),
        ("another of ours", annotations(&json!({"octavo.dev/other": "2"})), foreign),
        ("a key like ours", annotations(&json!({"octavo.dev/sharing2": "a"})), foreign),
        ("words", annotations(&json!({TYPE: "<b>not a type</b>"})), words),
        ("a long text", annotations(&json!({TYPE: "a".repeat(64)})), words),
        ("nothing", annotations(&json!({TYPE: ""})), words),
    ]
}

/// What is no annotation.
fn refusals_of_more() -> Vec<(&'static str, Ask, Verdict)> {
    let labels = Refused("labels of a pod");
    let finalizers = Refused("finalizers of a pod");
    let frozen = Refused("the spec or status of a pod");
    let image = json!({"spec": {"containers": [{"name": "main", "image": "test.invalid/evil:1"}]}});
    let strategic = Ask::strategic(POD, image);
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
            Refused("ownerReferences of a pod"),
        ),
        ("an image", strategic, frozen),
        ("a deadline", Ask::patch(POD, json!({"spec": {"activeDeadlineSeconds": 1}})), frozen),
        ("a toleration", Ask::patch(POD, json!({"spec": {"tolerations": tolerations()}})), frozen),
    ]
}

/// Those that a pod is given, and one more: Kubernetes itself takes no other change of them.
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

fn what_is_ours() -> Vec<(&'static str, Ask, Verdict)> {
    let profile = json!({"octavo.dev/mig-profile": "1g.10gb+me", "octavo.dev/sharing": "mig"});
    vec![
        ("the type", annotations(&json!({TYPE: A100})), Done),
        ("the rest", annotations(&profile), Done),
        ("one goes", annotations(&json!({"octavo.dev/mig-profile": null})), Done),
        ("it is read", Ask::get(POD), Done),
    ]
}

fn rights() -> Vec<(&'static str, Ask, Verdict)> {
    let lease = |name: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "octavo-system"}, "spec": {"holderIdentity": "a"},
        })
    };
    let one = format!("{LEASES}/octavo-aggregator");
    let other = format!("{LEASES}/other");
    let elsewhere = LEASES.replace("octavo-system", "kube-system");
    let status = Ask::patch(&format!("{POD}/status"), json!({"status": {"phase": "Failed"}}));
    vec![
        ("all pods", Ask::get("/api/v1/pods"), NoRight),
        ("a pod is made", Ask::post("/api/v1/namespaces/octavo-system/pods", pod()), NoRight),
        ("a pod is put", Ask::put(POD, pod()), NoRight),
        ("a pod is deleted", Ask::delete(POD), NoRight),
        ("a pod's status", status, NoRight),
        ("its log", Ask::get(&format!("{POD}/log")), NoRight),
        ("a secret", Ask::get("/api/v1/namespaces/octavo-system/secrets/ours"), NoRight),
        ("the Lease is made", Ask::post(LEASES, lease("octavo-aggregator")), Done),
        ("the Lease is read", Ask::get(&one), Done),
        ("the Lease is written", Ask::patch(&one, json!({"spec": {"holderIdentity": null}})), Done),
        ("the Lease is deleted", Ask::delete(&one), NoRight),
        ("another is written", Ask::patch(&other, json!({"spec": {}})), NoRight),
        ("all are listed", Ask::get(LEASES), NoRight),
        ("one elsewhere", Ask::post(&elsewhere, lease("octavo-aggregator")), NoRight),
    ]
}

async fn all_that_roles_allow(place: &Place, aggregator: &Who) {
    let plain = plain_account(place).await;
    let reviews = json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"]});
    let pods = json!({"verbs": ["get", "patch"], "apiGroups": [""], "resources": ["pods"]});
    let mut rules = beyond(aggregator, &plain, "default").await;
    // The API server tells them in no order of its own.
    rules.sort_by_key(ToString::to_string);
    assert_eq!(rules, [pods, reviews]);
}

/// The annotations and the Lease, by the program as it ships.
async fn with_that_token_the_program_does_its_work(place: &Place, token: &str) {
    let way_in = place.way_in_with(token);
    let kubeconfig = format!("--kubeconfig={}", way_in.path().display());
    let mut program = Aggregator::start(&["--plaintext", "--annotate-pods", &kubeconfig]);
    program.says(" namespace=octavo-system lease=octavo-aggregator");
    place.admin().expects("it was another", &annotations(&json!({TYPE: "another"})), Done).await;
    let _line = report(&program, "node-a", reported("octavo-system", &[("train", None)])).await;
    let condition =
        format!("--for=jsonpath={{.metadata.annotations.{}}}={A100}", TYPE.replace('.', "\\."));
    let wait = ["wait", "pod", "train", "-n", "octavo-system", "--timeout=300s"];
    place.kubectl(&[&wait[..], &[&condition]].concat());
}

async fn it_is_the_policy_that_refuses(place: &Place, aggregator: &Who, foreign: &Ask) {
    let binding = "octavo-aggregator-pods";
    place.kubectl(&["delete", "validatingadmissionpolicybinding", binding]);
    aggregator.expects_soon(foreign, Done).await;
}
