//! Permissions of an aggregator that rolls out accelerator policies: layout, and labels and taints with a record. And the example that
//! limits who writes policies.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::cluster::Verdict::{self, Allowed, DeniedByPolicy, Forbidden};
use super::cluster::{ApiRequest, PermissionCluster, event};
use super::sharing::pod_event;
use super::{beyond, plain_account, pod_annotations, reviews};

const NODE: &str = "/api/v1/nodes/node-b";
const POLICIES: &str = "/apis/octavo.dev/v1alpha1/acceleratorpolicies";
const EVENTS: Verdict = DeniedByPolicy("create events only on accelerator policies");
/// Finalizer of another controller.
const FOREIGN_FINALIZER: &str = "example.com/audit";

/// The tier `applier`, and an aggregator that rolls out policies.
fn upgrade(cluster: &PermissionCluster) {
    cluster.apply_chart(&[
        "tier=applier,aggregator.followCluster=true,aggregator.policies.enabled=true,aggregator.tls.secretName=ours",
    ]);
    cluster.await_definitions();
}

fn node(body: Value) -> ApiRequest {
    ApiRequest::patch(NODE, body)
}

fn policy(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "AcceleratorPolicy", "metadata": {"name": name},
        "spec": {"nodeSelector": {"matchLabels": {"example.com/pool": pool}}, "layout": "serving"},
    })
}

#[tokio::test]
async fn aggregator_with_policies_changes_layout_and_recorded_labels_and_taints_only() {
    let cluster = PermissionCluster::new().await;
    cluster.start_pod("deployment/octavo-aggregator", "aggregator", Some("node-a"));
    let token = cluster.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = cluster.bearer(&token).await;
    let layout = node(json!({"metadata": {"labels": {"octavo.dev/layout": "training"}}}));
    aggregator.expect("before", &layout, Forbidden).await;
    upgrade(&cluster);
    aggregator.expect_eventually(&layout, Allowed).await;
    let foreign = node(json!({"metadata": {"labels": {"person": "2"}}}));
    let refused = DeniedByPolicy("not allowed to change these labels and taints of a node: person");
    aggregator.expect_eventually(&foreign, refused).await;
    let mut of_another = policy("a", "gold");
    of_another["metadata"]["finalizers"] = json!([FOREIGN_FINALIZER]);
    let create = ApiRequest::post(POLICIES, of_another);
    cluster.admin().expect("a policy", &create, Allowed).await;
    // The admission policies take effect one after the other.
    let (_, label, denied) = changes_of_policies().remove(0);
    aggregator.expect_eventually(&label, denied).await;
    aggregator.expect_all(&denials()).await;
    aggregator.expect_all(&own_changes()).await;
    aggregator.expect_all(&changes_of_policies()).await;
    let memory = pod_event("kube-system", "MemoryOverShare", "node-b");
    aggregator.expect_eventually(&memory, EVENTS).await;
    aggregator.expect_all(&events()).await;
    let plain = plain_account(&cluster).await;
    let mut rules = beyond(&aggregator, &plain, "default").await;
    rules.sort_by_key(ToString::to_string);
    let [tokens, access] = reviews();
    let of = |group: &str, resources: Value, verbs: Value| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut expected = vec![
        tokens,
        access,
        pod_annotations(),
        of("", json!(["nodes"]), json!(["get", "patch"])),
        of("", json!(["events"]), json!(["create"])),
        of("octavo.dev", json!(["acceleratorpolicies"]), json!(["get", "list", "watch", "patch"])),
        of("octavo.dev", json!(["acceleratorpolicies/status"]), json!(["patch"])),
    ];
    rules.retain(|rule| rule["verbs"] != json!(["list", "watch"]));
    expected.sort_by_key(ToString::to_string);
    assert_eq!(rules, expected);
    // An agent cannot forge a record.
    let agent = cluster.agent("agent-b").await;
    let record = node(json!({"metadata": {"annotations": {"octavo.dev/policy": "{}"}}}));
    let instances = node(json!({"metadata": {"annotations": {"octavo.dev/instances": "{}"}}}));
    let evict = node(json!({"metadata": {"annotations": {"octavo.dev/evict": "uid"}}}));
    for (what, change) in [("a record", &record), ("instances", &instances), ("evictions", &evict)]
    {
        let denied = DeniedByPolicy("not allowed to change these annotations");
        agent.expect(what, change, denied).await;
    }
    cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "octavo-aggregator-nodes"]);
    aggregator.expect_eventually(&foreign, Allowed).await;
}

fn denials() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let keys = DeniedByPolicy("not allowed to change these labels and taints of a node");
    let annotations = DeniedByPolicy("annotations of a node other than octavo.dev/policy");
    let drain =
        json!({"octavo.dev/policy": "{\"drain\":\"never,10m\"}", "octavo.dev/drain": "node,10m"});
    let spec = DeniedByPolicy("the spec or status of a node");
    let owners = DeniedByPolicy("finalizers or ownerReferences");
    let record = json!({"octavo.dev/policy": "{\"labels\":{\"octavo.dev/count\":\"2\"}}"});
    let taints = |taints: Value| node(json!({"spec": {"taints": taints}}));
    let reserved =
        json!({"metadata": {"annotations": record, "labels": {"octavo.dev/count": "2"}}});
    vec![
        ("a label without a record", node(json!({"metadata": {"labels": {"gpu": "true"}}})), keys),
        ("a reserved label with a record", node(reserved), keys),
        (
            "mig-manager's label",
            node(json!({"metadata": {"labels": {"nvidia.com/mig.config": "x"}}})),
            keys,
        ),
        ("a taint without a record", taints(json!([{"key": "gpu", "effect": "NoExecute"}])), keys),
        ("all taints go", taints(json!(null)), keys),
        (
            "the agent's status",
            node(json!({"metadata": {"annotations": {"octavo.dev/status": "x"}}})),
            annotations,
        ),
        (
            "a drain that is not recorded",
            node(json!({"metadata": {"annotations": drain}})),
            annotations,
        ),
        (
            "instances that are not recorded",
            node(json!({"metadata": {"annotations": {"octavo.dev/instances": "{}"}}})),
            annotations,
        ),
        (
            "evictions without recorded instances",
            node(json!({"metadata": {"annotations": {"octavo.dev/evict": "uid"}}})),
            annotations,
        ),
        ("a cordon", node(json!({"spec": {"unschedulable": true}})), spec),
        ("finalizers go", node(json!({"metadata": {"finalizers": null}})), owners),
        ("owners go", node(json!({"metadata": {"ownerReferences": null}})), owners),
        (
            "the status",
            ApiRequest::patch(&format!("{NODE}/status"), json!({"status": {"phase": "Running"}})),
            Forbidden,
        ),
        ("a node is deleted", ApiRequest::delete(NODE), Forbidden),
        ("a node is put", ApiRequest::put(NODE, super::node("node-b")), Forbidden),
    ]
}

fn own_changes() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let record = r#"{"labels":{"gpu":"true"},"taints":[{"key":"site/gpu","effect":"NoSchedule"}],"drain":"node,10m"}"#;
    let taints = json!([
        {"key": "person", "value": "1", "effect": "NoSchedule"},
        {"key": "octavo.dev/not-ready", "effect": "NoSchedule"},
        // Every new node has it until a controller removes it, and there is none.
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "site/gpu", "effect": "NoSchedule"},
    ]);
    let set = json!({
        "metadata": {"annotations": {"octavo.dev/policy": record, "octavo.dev/drain": "node,10m"}, "labels": {"gpu": "true", "octavo.dev/layout": "serving"}},
        "spec": {"taints": taints},
    });
    let unset = json!({
        "metadata": {"annotations": {"octavo.dev/policy": null, "octavo.dev/drain": null}, "labels": {"gpu": null, "octavo.dev/layout": null}},
        "spec": {"taints": [taints[0], taints[1], taints[2]]},
    });
    let demand = r#"{"layout":"demand-cbf29ce484"}"#;
    let instances =
        json!({"octavo.dev/policy": demand, "octavo.dev/instances": "", "octavo.dev/evict": "uid"});
    let without =
        json!({"octavo.dev/policy": null, "octavo.dev/instances": null, "octavo.dev/evict": null});
    let annotations = |values: Value| node(json!({"metadata": {"annotations": values}}));
    vec![
        ("the record's", node(set), Allowed),
        ("and its removal", node(unset), Allowed),
        ("recorded instances", annotations(instances), Allowed),
        ("and their removal", annotations(without), Allowed),
        ("it is read", ApiRequest::get(NODE), Allowed),
    ]
}

fn events() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let of_policy = json!({
        "apiVersion": "v1", "kind": "Event", "reason": "Complete", "metadata": {"generateName": "a.", "namespace": "default"},
        "involvedObject": {"apiVersion": "octavo.dev/v1alpha1", "kind": "AcceleratorPolicy", "name": "a"},
    });
    let mut elsewhere = of_policy.clone();
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    elsewhere["involvedObject"]["namespace"] = "kube-system".into();
    let changing = |namespace: &str| pod_event(namespace, "InstancesChanging", "");
    vec![
        ("of a policy", ApiRequest::post("/api/v1/namespaces/default/events", of_policy), Allowed),
        (
            "of a policy in another namespace",
            ApiRequest::post("/api/v1/namespaces/kube-system/events", elsewhere),
            EVENTS,
        ),
        ("of a pod", changing("kube-system"), Allowed),
        ("of a pod about something else", pod_event("default", "FailedScheduling", ""), EVENTS),
        ("of a node", event("default", "node-b"), EVENTS),
    ]
}

fn changes_of_policies() -> Vec<(&'static str, ApiRequest, Verdict)> {
    let one = format!("{POLICIES}/a");
    let spec = DeniedByPolicy("the finalizer and the status of an accelerator policy");
    let metadata =
        DeniedByPolicy("labels, annotations or ownerReferences of an accelerator policy");
    let others = DeniedByPolicy("finalizers of an accelerator policy other than octavo.dev/policy");
    let set =
        |field: &str, value: Value| ApiRequest::patch(&one, json!({"metadata": {field: value}}));
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "node-b", "uid": "u"}]);
    let rollback = json!({"octavo.dev/rollback-to": "0123456789"});
    vec![
        ("a label", set("labels", json!({"team": "evil"})), metadata),
        ("a rollback", set("annotations", rollback), metadata),
        ("an owner", set("ownerReferences", owner), metadata),
        (
            "another finalizer",
            set("finalizers", json!([FOREIGN_FINALIZER, "evil.example.com/x"])),
            others,
        ),
        ("no finalizer", set("finalizers", Value::Null), others),
        ("its finalizer alone", set("finalizers", json!(["octavo.dev/policy"])), others),
        ("the spec", ApiRequest::patch(&one, json!({"spec": {"layout": "evil"}})), spec),
        (
            "its finalizer",
            set("finalizers", json!([FOREIGN_FINALIZER, "octavo.dev/policy"])),
            Allowed,
        ),
        ("without its finalizer", set("finalizers", json!([FOREIGN_FINALIZER])), Allowed),
        (
            "the status",
            ApiRequest::patch(&format!("{one}/status"), json!({"status": {"state": "Complete"}})),
            Allowed,
        ),
        ("a policy is made", ApiRequest::post(POLICIES, policy("b", "gold")), Forbidden),
        ("a policy is deleted", ApiRequest::delete(&one), Forbidden),
    ]
}

/// The example of docs/tasks/policies.md.
fn example() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tasks/policies.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("<!-- pools -->").unwrap();
    let (_, rest) = rest.split_once("```yaml\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn documented_example_limits_policies_to_the_pools_of_their_writers() {
    let cluster = PermissionCluster::new().await;
    upgrade(&cluster);
    cluster.apply(&example());
    cluster.kubectl(&["create", "serviceaccount", "team", "-n", "octavo-system"]);
    let role = [
        "create",
        "clusterrole",
        "policies",
        "--verb=create,patch,get",
        "--resource=acceleratorpolicies.octavo.dev",
    ];
    cluster.kubectl(&role);
    let whom = "--serviceaccount=octavo-system:team";
    cluster.kubectl(&["create", "clusterrolebinding", "policies", "--clusterrole=policies", whom]);
    // The resource exists in roles only, so kubectl cannot create the role.
    cluster.apply(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: pool-gold}\nrules:\n\
         - {apiGroups: [octavo.dev], resources: [acceleratorpools], resourceNames: [gold], verbs: [use]}\n",
    );
    cluster.kubectl(&[
        "create",
        "clusterrolebinding",
        "pool-gold",
        "--clusterrole=pool-gold",
        whom,
    ]);
    let token = cluster.kubectl(&["create", "token", "team", "-n", "octavo-system"]);
    let team = cluster.bearer(token.trim_end()).await;
    let silver = ApiRequest::post(POLICIES, policy("silver", "silver"));
    team.expect_eventually(&silver, Verdict::Refused("example.com/pool")).await;
    let mut other = policy("other", "gold");
    other["spec"]["nodeSelector"] = json!({"matchLabels": {"zone": "a"}});
    team.expect(
        "another label",
        &ApiRequest::post(POLICIES, other),
        Verdict::Refused("example.com/pool"),
    )
    .await;
    team.expect("its pool", &ApiRequest::post(POLICIES, policy("gold", "gold")), Allowed).await;
    let moved = json!({"spec": {"nodeSelector": {"matchLabels": {"example.com/pool": "silver"}}}});
    let moved = ApiRequest::patch(&format!("{POLICIES}/gold"), moved);
    team.expect("another pool", &moved, Verdict::Refused("example.com/pool")).await;
    cluster.admin().expect("an administrator", &silver, Allowed).await;
}
