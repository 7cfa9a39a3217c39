//! Every permission and every denial, asked of a real API server with the tokens that pods really get.
//!
//! `deploy` is applied as people apply it, and pods are made of the `DaemonSet`'s own template: were its account another one
//! than the policies name, nothing here would be refused.

mod annotations;
mod node_feature;
mod place;
mod pod_events;
mod release;
mod rows;
mod sharing;

use serde_json::{Value, json};

use place::Verdict::{Absent, Done, NoRight, Refused};
use place::{Ask, Place, Who, event, node};
use rows::{OTHER, OWN, Row, labels};

/// The node as it was.
fn reset() -> Ask {
    Ask::put(OWN, node("node-a"))
}

/// Everything of a node that an agent could change, and how often anybody did.
async fn read(admin: &Who, path: &str) -> Value {
    let answer = admin.asks(&Ask::get(path)).await;
    serde_json::from_str(&answer.text).unwrap()
}

async fn expect_all(place: &Place, agent: &Who, rows: Vec<Row>) {
    let admin = place.admin();
    for (what, ask, verdict) in rows {
        admin.expects(&what, &reset(), Done).await;
        let before = (read(&admin, OWN).await, read(&admin, OTHER).await);
        agent.expects(&what, &ask, verdict).await;
        if verdict != Done {
            let after = (read(&admin, OWN).await, read(&admin, OTHER).await);
            assert_eq!(before, after, "{what}");
        }
    }
}

#[tokio::test]
async fn agent_is_authorized_for_its_own_node_only() {
    let place = Place::new().await;
    let agent = place.agent("agent-a").await;
    expect_all(&place, &agent, rows::its_labels()).await;
    expect_all(&place, &agent, rows::foreign_labels()).await;
    expect_all(&place, &agent, rows::switches()).await;
    what_was_handed_over_may_only_go(&place, &agent).await;
    expect_all(&place, &agent, rows::annotations_and_owners()).await;
    expect_all(&place, &agent, rows::spec()).await;
    expect_all(&place, &agent, rows::rights()).await;
    tokens_are_good_for_their_node_only(&place).await;
    every_granted_permission_is_tested_here(&place, &agent).await;
    what_an_aggregator_may_do(&place).await;
    with_its_option_the_aggregator_reads_nodes_and_pods(&place).await;
    with_its_option_an_agent_may_evict(&place, &agent).await;
}

/// Also where the hand-off has ended: else the label would stay.
async fn what_was_handed_over_may_only_go(place: &Place, agent: &Who) {
    let config = "nvidia.com/device-plugin.config";
    let set = |value: Option<&str>| labels(OWN, &json!({config: value}));
    let admin = place.admin();
    admin.expects("ours", &set(Some("octavo-a-1")), Done).await;
    let refused = Refused(config);
    for value in ["octavo-b-2", "mine"] {
        agent.expects(value, &set(Some(value)), refused).await;
    }
    agent.expects("ours goes", &set(None), Done).await;
    let back = set(Some("octavo-a-1"));
    agent.expects("ours comes back", &back, refused).await;
}

async fn with_its_option_an_agent_may_evict(place: &Place, agent: &Who) {
    let pod = "/api/v1/namespaces/octavo-system/pods/aggregator";
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "aggregator"}});
    let eviction = Ask::post(&format!("{pod}/eviction"), eviction);
    agent.expects("before", &eviction, NoRight).await;
    place.install("options/drain");
    agent.expects_soon(&Ask::get("/api/v1/pods"), Done).await;
    agent.expects("one pod", &Ask::get(pod), NoRight).await;
    agent.expects("an eviction", &eviction, Done).await;
    agent.expects("a deletion", &Ask::delete(pod), NoRight).await;
}

/// What the holder of a stolen token can do with it.
async fn tokens_are_good_for_their_node_only(place: &Place) {
    let count = json!({"octavo.dev/count": "8"});
    let (own, other) = (labels(OWN, &count), labels(OTHER, &count));
    let b = place.agent("agent-b").await;
    b.expects("the token of node-b on node-b", &other, Done).await;
    let cordon = Ask::patch(OTHER, json!({"spec": {"unschedulable": true}}));
    let frozen = Refused("the spec of a node, except its own taints");
    b.expects("its node is cordoned", &cordon, frozen).await;
    let words = "the agent on node node-b is not allowed to change node node-a";
    b.expects("the token of node-b on node-a", &own, Refused(words)).await;
    let unbound = place.kubectl(&["create", "token", "octavo-agent", "--namespace=octavo-system"]);
    let unbound = place.bearer(unbound.trim_end()).await;
    let nowhere = Refused("not bound to a pod on a node");
    unbound.expects("a token of no pod", &own, nowhere).await;
    unbound
        .expects(
            "an event with a token of no pod",
            &event("default", "node-a"),
            Refused("only on its own node"),
        )
        .await;
    place.start_pod("daemonset/octavo-agent", "nowhere", None);
    let pending = place.agent("nowhere").await;
    pending.expects("a token of a pod that is on no node", &own, nowhere).await;
    // What an agent shows to an aggregator is no good here, so an aggregator that was taken over cannot use it.
    let shown = place.token("octavo-agent", "agent-a", &["octavo"]);
    let shown = place.bearer(&shown).await;
    assert_eq!(shown.asks(&Ask::get(OWN)).await.code, 401);
    // A token ends with its pod.
    let delete = Ask::delete("/api/v1/namespaces/octavo-system/pods/agent-b?gracePeriodSeconds=0");
    place.admin().expects("the pod ends", &delete, Done).await;
    b.is_turned_away(&Ask::get(OTHER)).await;
}

/// Asks the server to list all rights, and takes away what every account has.
async fn every_granted_permission_is_tested_here(place: &Place, agent: &Who) {
    let plain = plain_account(place).await;
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
async fn plain_account(place: &Place) -> Who {
    place.kubectl(&["create", "serviceaccount", "plain", "--namespace=octavo-system"]);
    let token = place.kubectl(&["create", "token", "plain", "--namespace=octavo-system"]);
    place.bearer(token.trim_end()).await
}

async fn beyond(who: &Who, plain: &Who, namespace: &str) -> Vec<Value> {
    let everybodys = plain.rules(namespace).await;
    assert!(!everybodys.is_empty());
    let mut rules = who.rules(namespace).await;
    rules.retain(|rule| !everybodys.contains(rule));
    rules.sort_by_key(Value::to_string);
    rules
}

async fn what_an_aggregator_may_do(place: &Place) {
    place.start_pod("deployment/octavo-aggregator", "aggregator", Some("node-a"));
    let token = place.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = place.bearer(&token).await;
    let shown = place.token("octavo-agent", "agent-a", &["octavo"]);
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": shown, "audiences": ["octavo"]},
    });
    let ask = Ask::post("/apis/authentication.k8s.io/v1/tokenreviews", review);
    let answer = aggregator.asks(&ask).await;
    let review: Value = serde_json::from_str(&answer.text).unwrap();
    let user = &review["status"]["user"];
    assert_eq!(review["status"]["authenticated"], true, "{review}");
    assert_eq!(user["username"], "system:serviceaccount:octavo-system:octavo-agent");
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["node-a"]));
    for path in
        ["nodes", "pods", "secrets", "configmaps", "events", "namespaces/octavo-system/secrets"]
    {
        let ask = Ask::get(&format!("/api/v1/{path}"));
        aggregator.expects(path, &ask, NoRight).await;
    }
    aggregator
        .expects("it labels a node", &labels(OWN, &json!({"octavo.dev/count": "8"})), NoRight)
        .await;
    let token = place.kubectl(&["create", "token", "plain", "--namespace=octavo-system"]);
    let plain = place.bearer(token.trim_end()).await;
    let reviews = json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"]});
    for namespace in ["default", "octavo-system"] {
        let rules = beyond(&aggregator, &plain, namespace).await;
        assert_eq!(rules, std::slice::from_ref(&reviews));
    }
}

async fn with_its_option_the_aggregator_reads_nodes_and_pods(place: &Place) {
    const PROFILES: &str = "/apis/infrastructure.opendatahub.io/v1/hardwareprofiles";
    let token = place.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = place.bearer(&token).await;
    let pod = "/api/v1/namespaces/octavo-system/pods/aggregator";
    let listed = ["/api/v1/nodes", "/api/v1/pods"].map(Ask::get);
    for list in &listed {
        aggregator.expects("before", list, NoRight).await;
    }
    place.install("options/follow-cluster");
    for list in &listed {
        aggregator.expects_soon(list, Done).await;
    }
    let watched = |what: &str| Ask::get(&format!("/api/v1/{what}?watch=true&timeoutSeconds=1"));
    let label = labels(OWN, &json!({"octavo.dev/count": "8"}));
    for (what, ask, verdict) in [
        ("nodes are watched", watched("nodes"), Done),
        ("pods are watched", watched("pods"), Done),
        ("profiles", Ask::get(PROFILES), Absent),
        ("queues", Ask::get("/apis/kueue.x-k8s.io/v1beta1/localqueues"), Absent),
        ("a profile", Ask::post(PROFILES, json!({})), NoRight),
        ("one node", Ask::get(OWN), NoRight),
        ("one pod", Ask::get(pod), NoRight),
        ("its log", Ask::get(&format!("{pod}/log")), NoRight),
        ("a label", label, NoRight),
        ("a deletion", Ask::delete(pod), NoRight),
        ("secrets", Ask::get("/api/v1/secrets"), NoRight),
    ] {
        aggregator.expects(what, &ask, verdict).await;
    }
}

#[tokio::test]
async fn admission_policy_denies_access_that_role_allows() {
    let place = Place::new().await;
    let agent = place.agent("agent-a").await;
    place.start_pod("daemonset/octavo-agent", "early", Some("node-c"));
    let early = place.agent("early").await;
    let plain = plain_account(&place).await;
    for account in ["octavo-agent", "plain"] {
        let subject = format!("--serviceaccount=octavo-system:{account}");
        let name = format!("too-wide-{account}");
        let role = "--clusterrole=cluster-admin";
        place.kubectl(&["create", "clusterrolebinding", &name, role, &subject]);
    }
    let foreign = labels(OWN, &json!({"person": "2"}));
    // The policy is for the agent's account and for no other.
    plain.expects_soon(&foreign, Done).await;
    let anything = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "unkept"}});
    let anything = Ask::post("/api/v1/namespaces", anything);
    agent.expects_soon(&anything, Done).await;

    expect_all(&place, &agent, rows::too_wide()).await;
    let unborn = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c"}});
    for ask in
        [Ask::post("/api/v1/nodes", unborn.clone()), Ask::apply("/api/v1/nodes/node-c", unborn)]
    {
        let refused = Refused("not allowed to create nodes");
        early.expects("its own node", &ask, refused).await;
    }

    // It was the policy that refused: without its binding the same is done.
    place.kubectl(&["delete", "validatingadmissionpolicybinding", "octavo-agent"]);
    agent.expects_soon(&foreign, Done).await;
}
