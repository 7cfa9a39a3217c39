//! Profile creation by an aggregator with that option: validated, created, replaced only on explicit request, and only
//! for authorized users.

use octavo_ledger::audit::{AuditKind, AuditQuery};
use octavo_store::ledger::LedgerReader;
use serde_json::{Value, json};

use super::made::object;
use super::{GPU, H200, HARDWARE, define, node};
use crate::cluster::Api;
use crate::fleet_api::Api as Readers;
use crate::process::Aggregator;
use crate::time_limits::until_async;

const PATH: &str = "/api/v1/profiles";

fn start(api: &Api, more: &[&str]) -> Aggregator {
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let always = ["--plaintext", "--follow-cluster", &kubeconfig];
    Aggregator::start(&[&always[..], more].concat())
}

/// Waits until the aggregator has this node.
async fn knows(readers: &Readers, name: &str) {
    let path = format!("/api/v1/profile-draft?nodes={name}&resource={GPU}");
    let draft = async || readers.get(&path).await;
    until_async(&path, draft, |answer| answer.status == 200).await;
}

fn order(node: &str, namespace: &str, name: &str) -> Value {
    json!({"nodes": [node], "resource": GPU, "namespace": namespace, "name": name})
}

fn with(order: &Value, more: Value) -> Value {
    let mut order = order.clone();
    let Value::Object(more) = more else { panic!("{more} has no fields") };
    order.as_object_mut().unwrap().extend(more);
    order
}

async fn refused(readers: &Readers, order: &Value, status: u16, kind: &str) -> Value {
    let answer = readers.post(PATH, order).await;
    let problem = answer.json();
    assert_eq!(answer.status, status, "{problem:#}");
    assert_eq!(problem["type"], format!("/problems/{kind}"), "{problem:#}");
    problem
}

fn detail(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap()
}

async fn profile_is_validated_and_created(readers: &Readers, api: &Api, order: &Value) {
    let (namespace, name) = (order["namespace"].as_str().unwrap(), "premium");
    let tried = readers.post(&format!("{PATH}?dryRun=All"), order).await;
    assert_eq!(tried.status, 200, "{}", tried.body);
    let tried = tried.json();
    assert_eq!((&tried["dryRun"], &tried["outcome"]), (&json!(true), &json!("created")));
    assert_eq!(object(api, namespace, name), None);

    let made = readers.post(PATH, order).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let there = object(api, namespace, name).unwrap();
    let annotations = &there["metadata"]["annotations"];
    assert_eq!(annotations["octavo.dev/reason"], "team vision");
    assert!(annotations["octavo.dev/created-by"].as_str().is_some_and(|who| !who.is_empty()));
    assert_eq!(there["metadata"]["managedFields"][0]["manager"], "octavo-profiles");
    let counts = there["spec"]["identifiers"].as_array().unwrap();
    let devices = counts.iter().find(|one| one["identifier"] == GPU).unwrap();
    assert_eq!((&devices["defaultCount"], &devices["maxCount"]), (&json!(2), &json!(4)));
    let node = &there["spec"]["scheduling"]["node"];
    assert_eq!(node.get("tolerations"), None);

    // A repeated request is unchanged, and nothing is written.
    let again = readers.post(PATH, order).await;
    assert_eq!((again.status, again.json()["outcome"].as_str()), (200, Some("unchanged")));
    assert_eq!(object(api, namespace, name), Some(there));
}

async fn other_profile_of_same_name_is_not_modified(readers: &Readers, api: &Api, order: &Value) {
    let namespace = order["namespace"].as_str().unwrap();
    let before = object(api, namespace, "premium");
    let other = with(order, json!({"counts": [{"identifier": GPU, "max": "6"}]}));
    let problem = refused(readers, &other, 409, "profile-exists").await;
    assert!(detail(&problem).contains("+ spec.identifiers[2].maxCount: 6"), "{problem:#}");
    assert!(detail(&problem).contains("replace: true"), "{problem:#}");
    assert_eq!(object(api, namespace, "premium"), before);
    let other = with(&other, json!({"replace": true}));
    let replaced = readers.post(PATH, &other).await;
    assert_eq!((replaced.status, replaced.json()["outcome"].as_str()), (200, Some("replaced")));
    let there = object(api, namespace, "premium").unwrap();
    assert_eq!(there["spec"]["identifiers"][2]["maxCount"], 6);

    // Profiles of other creators are never replaced.
    api.apply(&super::profile(namespace, "theirs", ("octavo.dev/type", H200)));
    let before = object(api, namespace, "theirs");
    let over = with(&other, json!({"name": "theirs"}));
    let problem = refused(readers, &over, 409, "profile-exists").await;
    assert!(detail(&problem).contains("created by kubectl; it is not changed"), "{problem:#}");
    assert_eq!(object(api, namespace, "theirs"), before);
}

async fn invalid_request_is_rejected_with_field(readers: &Readers, order: &Value) {
    let counts = json!({"counts": [{"identifier": "cpu"}, {"identifier": GPU, "default": "9"}]});
    let problem = refused(readers, &with(order, counts), 422, "unsuitable-nodes").await;
    assert_eq!(problem["parameter"], "counts[1].default");
    assert!(detail(&problem).contains("has more than 8"), "{problem:#}");
    let taints = json!({"tolerations": ["x:NoSchedule"]});
    let problem = refused(readers, &with(order, taints), 422, "unsuitable-nodes").await;
    assert_eq!(problem["parameter"], "tolerations");
    let nowhere = json!({"namespace": "there-is-none", "name": "other"});
    let problem = refused(readers, &with(order, nowhere), 422, "not-taken").await;
    assert!(detail(&problem).contains("there-is-none"), "{problem:#}");
    let odd = with(order, json!({"name": "A b"}));
    assert_eq!(refused(readers, &odd, 400, "invalid-body").await["parameter"], "name");
    for from in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"] {
        refused(&readers.with_header(from), order, 403, "cross-site").await;
    }
    // DNS rebinding: a host name of another site resolves to this machine. Readers are not authenticated here, so only
    // the machine's own names are accepted.
    let elsewhere = format!("http://evil.example{PATH}");
    let answer = readers.post(&elsewhere, order).await;
    assert_eq!(answer.status, 421, "{}", answer.body);
    assert!(answer.body.contains("evil.example"), "{}", answer.body);
}

#[tokio::test]
async fn nfr_003_aggregator_creates_profile_and_audits_every_attempt() {
    let mut api = Api::fresh();
    define(&api, HARDWARE);
    let (gpus, namespace) = (node(&api, H200), api.namespace());
    let off = start(&api, &[]);
    let readers = Readers::at(off.http);
    knows(&readers, gpus.name()).await;
    let bare = order(gpus.name(), &namespace, "premium");
    let problem = refused(&readers, &bare, 403, "creation-off").await;
    assert!(detail(&problem).contains("--create-profiles"), "{problem:#}");
    drop(off);

    let directory = tempfile::tempdir().unwrap();
    let ledger = format!("sqlite://{}/ledger.db", directory.path().display());
    let flag = format!("--ledger={ledger}");
    let mut aggregator = start(&api, &["--create-profiles", &flag]);
    aggregator.expect_log("recording the usage of devices");
    let readers = Readers::at(aggregator.http);
    knows(&readers, gpus.name()).await;
    let reported = json!({
        "counts": [{"identifier": GPU, "default": "2", "max": "4"}], "tolerations": [], "reason": "team vision",
    });
    let wanted = with(&bare, reported);
    profile_is_validated_and_created(&readers, &api, &wanted).await;
    other_profile_of_same_name_is_not_modified(&readers, &api, &wanted).await;
    invalid_request_is_rejected_with_field(&readers, &wanted).await;
    api.stop();
    let problem = refused(&readers, &with(&bare, json!({"name": "late"})), 503, "no-answer").await;
    assert!(!detail(&problem).is_empty());

    let reported = aggregator.kill();
    let audit: Vec<&String> = reported.iter().filter(|line| line.contains("outcome=\"")).collect();
    let shown = |outcome: &str, verb: &str| {
        let (outcome, verb) = (format!("outcome=\"{outcome}\""), format!("verb=\"{verb}\""));
        let all = audit.iter().filter(|line| line.contains(&outcome) && line.contains(&verb));
        all.filter(|line| line.contains(&format!("HardwareProfile {namespace}/"))).count()
    };
    assert_eq!(shown("dry-run", "create"), 1, "{audit:#?}");
    // Created once, then found to exist.
    assert_eq!(shown("done", "create"), 1, "{audit:#?}");
    assert_eq!(shown("unchanged", "create"), 1, "{audit:#?}");
    assert_eq!(shown("done", "replace"), 1, "{audit:#?}");
    assert_eq!(shown("not-done", "create"), 1, "{audit:#?}");
    assert_eq!(shown("not-done", "replace"), 1, "{audit:#?}");
    assert_eq!(shown("unknown", "create"), 1, "{audit:#?}");
    // Each but the dry run was also logged before.
    assert_eq!(shown("begun", "replace"), 2, "{audit:#?}");
    let replaced = audit
        .iter()
        .find(|line| line.contains("verb=\"replace\"") && line.contains("outcome=\"done\""))
        .unwrap();
    for part in ["before=", "after=", "why=\"team vision\"", "who="] {
        assert!(replaced.contains(part), "{replaced}");
    }
    changes_are_stored(&ledger, &namespace).await;
}

/// Asserts that the audit trail of a killed aggregator has each attempt and its outcome.
async fn changes_are_stored(ledger: &str, namespace: &str) {
    let reader = LedgerReader::new(ledger.parse().unwrap());
    let query = AuditQuery {
        namespace: Some(namespace.to_owned()),
        kind: Some(AuditKind::Change),
        ..AuditQuery::default()
    };
    let range = reader.audit_range(&query).await.unwrap().unwrap();
    let stored = reader.audit_page(&query, range).await.unwrap().lines;
    for (outcome, verb, count) in [
        ("begun", "replace", 2),
        ("dry-run", "create", 1),
        ("done", "create", 1),
        ("done", "replace", 1),
        ("unchanged", "create", 1),
        ("unknown", "create", 1),
    ] {
        let (outcome, verb) =
            (format!("\"outcome\":\"{outcome}\""), format!("\"verb\":\"{verb}\""));
        let found = stored.lines().filter(|line| line.contains(&outcome) && line.contains(&verb));
        assert_eq!(found.count(), count, "{outcome} {verb} in {stored}");
    }
}

/// An account that may list nodes, and has these verbs on profiles in the namespace.
fn account(api: &Api, namespace: &str, name: &str, verbs: &[&str]) -> String {
    let rbac = "rbac.authorization.k8s.io/v1";
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    let of = json!({"name": name, "namespace": namespace});
    let whole = json!({"name": format!("{namespace}-{name}")});
    let role = |kind: &str, name: &Value| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let objects = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": of}),
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": whole,
            "rules": [{"apiGroups": ["octavo.dev"], "resources": ["nodes"], "verbs": ["list"]}]}),
        json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": whole, "subjects": subjects,
            "roleRef": role("ClusterRole", &whole["name"])}),
        json!({"apiVersion": rbac, "kind": "Role", "metadata": of,
            "rules": [{"apiGroups": ["infrastructure.opendatahub.io"], "resources": ["hardwareprofiles"], "verbs": verbs}]}),
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": of, "subjects": subjects,
            "roleRef": role("Role", &json!(name))}),
    ];
    api.apply(&objects.map(|object| object.to_string()).join("\n---\n"));
    let token = api.kubectl(&["create", "token", name, "-n", namespace]);
    format!("Authorization: Bearer {}", token.trim_end())
}

#[tokio::test]
async fn profile_creation_requires_requester_permission_and_records_requester() {
    let api = Api::shared();
    define(api, HARDWARE);
    // A type of which no other test has nodes in the shared API server.
    let gpus = node(api, "nvidia-l40s-48gb");
    let (namespace, other) = (api.namespace(), api.namespace());
    let [reader, vendor] = [("reader", &["get"][..]), ("creator", &["get", "create"])]
        .map(|(name, verbs)| account(api, &namespace, name, verbs));
    let mut aggregator = start(api, &["--create-profiles", "--http-auth=token-review"]);
    let readers = Readers::at(aggregator.http);
    let (reader, vendor) = (readers.with_header(&reader), readers.with_header(&vendor));
    knows(&reader, gpus.name()).await;
    knows(&vendor, gpus.name()).await;
    let wanted = order(gpus.name(), &namespace, "ours");
    refused(&readers, &wanted, 401, "unauthenticated").await;
    let problem = refused(&reader, &wanted, 403, "forbidden").await;
    let right =
        format!("create hardwareprofiles.infrastructure.opendatahub.io in namespace {namespace}");
    assert!(detail(&problem).contains(&right), "{problem:#}");
    assert!(detail(&problem).contains("kubectl auth can-i create"), "{problem:#}");
    assert_eq!(object(api, &namespace, "ours"), None);
    // Permission in one namespace is none in another.
    refused(&vendor, &with(&wanted, json!({"namespace": other})), 403, "forbidden").await;

    let made = vendor.post(PATH, &wanted).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let there = object(api, &namespace, "ours").unwrap();
    let who = format!("system:serviceaccount:{namespace}:creator");
    assert_eq!(there["metadata"]["annotations"]["octavo.dev/created-by"], who);
    // Permission to create is none to replace.
    let over = with(&wanted, json!({"replace": true, "displayName": "Other"}));
    let problem = refused(&vendor, &over, 403, "forbidden").await;
    assert!(detail(&problem).contains("patch hardwareprofiles"), "{problem:#}");
    assert_eq!(object(api, &namespace, "ours"), Some(there));

    let reported = aggregator.kill();
    let audit = reported.iter().filter(|line| line.contains("outcome=\""));
    let of_reader = format!("who=\"system:serviceaccount:{namespace}:reader\"");
    let shown =
        audit.filter(|line| line.contains(&of_reader) && line.contains("outcome=\"refused\""));
    let shown: Vec<&String> = shown.collect();
    let object = format!("object=\"HardwareProfile {namespace}/ours\"");
    assert!(shown.iter().any(|line| line.contains(&object)), "{shown:#?}");
}
