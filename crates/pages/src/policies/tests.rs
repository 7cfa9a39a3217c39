//! The pages of policies and their links, without a browser.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use octavo_fleet::cluster::{ClusterNode, ClusterSnapshot, LayoutReport, Readiness};
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::hardware_profiles::Presence;
use octavo_kube::policies::KnownPolicies;
use octavo_model::reason::Reason;
use octavo_policy::{Content, Policy, PolicySpec, PolicyStatus, Stop, StopAction, StopReason};
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::Fleet;
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt;

use super::*;
use crate::overview::tests::view_of;
use crate::router;
use crate::tests::{get, text};

/// The revision of the policy.
fn revision() -> String {
    policy().spec.map(|spec| Content::of(&spec).revision()).unwrap()
}

/// A policy with a wave that a pod blocks.
fn policy() -> Policy {
    let spec = json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}}, "layout": "serving", "nodeLabels": {"tier": "gold"},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
        "rollout": {"maxUnavailable": 1, "pause": "10m", "windows": [{"days": ["Mon"], "start": "22:00", "duration": "6h"}]},
    });
    let spec: PolicySpec = serde_json::from_value(spec).unwrap();
    let revision = Content::of(&spec).revision();
    let status = json!({
        "observedGeneration": 1, "state": "RollingOut", "revision": revision, "rollout": 1, "updating": ["gpu-1"],
        "waitsFor": "gpu-1, which is blocked: in use by pod team/train",
        "nodes": {"selected": 3, "updated": 1, "applied": 1, "updating": 1, "unavailable": 1},
        "revisions": [{"revision": revision, "time": "2026-01-01T00:00:00Z", "layout": "serving",
            "nodeLabels": {"tier": "gold"}, "taints": [{"key": "gpu", "effect": "NoSchedule"}]}],
        "conditions": [{"type": "Progressing", "status": "True", "reason": "RollingOut", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    Policy {
        name: "inference".to_owned(),
        uid: "u".to_owned(),
        version: "7".to_owned(),
        generation: 1,
        created: None,
        is_deleting: false,
        has_finalizer: true,
        rollback_to: None,
        approved: std::collections::BTreeSet::new(),
        spec: Ok(spec),
        status: serde_json::from_value::<PolicyStatus>(status).unwrap(),
    }
}

/// A selected node in this state of the layout.
fn node(name: &str, state: Option<Reason>) -> ClusterNode {
    let record = json!({
        "policy": "inference", "uid": "u", "revision": revision(), "rollout": 1, "since": "2026-01-01T00:00:00Z",
        "layout": "serving", "labels": {"tier": "gold"}, "taints": [{"key": "gpu", "effect": "NoSchedule"}],
    });
    let taint = json!({"key": "gpu", "effect": "NoSchedule"});
    let changed = state.map(|state| ClusterNode {
        labels: [("tier", "gold"), ("octavo.dev/layout", "serving")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        taints: vec![serde_json::from_value(taint).unwrap()],
        layout_report: Some(LayoutReport {
            layout: Some("serving".to_owned()),
            state: Some(state),
            message: "in use by `pod team/train`".to_owned(),
        }),
        policy_record: Some(record.to_string()),
        ..ClusterNode::default()
    });
    let mut node = changed.unwrap_or_default();
    node.name = name.to_owned();
    node.readiness = Readiness::Ready;
    node.labels.insert("pool".to_owned(), "a".to_owned());
    node
}

/// A fleet without agents, with these policies.
fn view(known: KnownPolicies) -> FleetView {
    let nodes = [
        node("gpu-0", Some(Reason::Applied)),
        node("gpu-1", Some(Reason::Blocked)),
        node("gpu-2", None),
    ];
    let watched = WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new(nodes, [])),
        current_at: Some(tokio::time::Instant::now()),
        error: None,
        invalid_objects: 0,
    };
    let (known, cluster) =
        (watch::Sender::new(Arc::new(known)), watch::Sender::new(Arc::new(watched)));
    let policies = PolicyView::new(known.subscribe(), cluster.subscribe());
    view_of(Fleet::default(), Clock::start()).1.with_policies(Some(policies))
}

fn known(policies: impl IntoIterator<Item = Policy>) -> KnownPolicies {
    let all = policies.into_iter().map(|policy| (policy.name.clone(), Arc::new(policy)));
    KnownPolicies { all: all.collect(), presence: Some(Presence::Present), error: None }
}

#[tokio::test]
async fn p5_list_shows_progress_and_what_a_policy_waits_for() {
    let view = view(known([policy()]));
    let page = text(get(&view, "/policies").await).await;
    assert!(page.contains("href=\"/policies/inference\">inference</a>"), "{page}");
    for part in
        ["RollingOut", "layout serving", "applied on 1 of 3 nodes", "in use by pod team/train"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    for query in ["infer", "FEREN"] {
        let found = text(get(&view, &format!("/search?q={query}")).await).await;
        assert!(found.contains("<a data-row href=\"/policies/inference\">"), "{query}: {found}");
    }
}

#[tokio::test]
async fn p5_page_of_a_policy_shows_nodes_blockers_waves_and_commands() {
    let view = view(known([policy()]));
    let page = text(get(&view, "/policies/inference").await).await;
    let places =
        ["id=\"node-gpu-1\"", "id=\"node-gpu-2\"", "id=\"node-gpu-0\""].map(|id| page.find(id));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {page}");
    for part in [
        "in use by <code>pod team/train</code>",
        "Mon 22:00 for 6h (UTC)",
        "layout serving; labels tier=gold; taints gpu:NoSchedule",
        "octavo policy pause inference",
        "octavo policy rollback inference",
        "<li>gpu-2</li>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let mut paused = policy();
    if let Ok(spec) = &mut paused.spec {
        spec.rollout.paused = true;
    }
    let view = self::view(known([paused]));
    let page = text(get(&view, "/policies/inference").await).await;
    assert!(page.contains("octavo policy resume inference"), "{page}");
    assert_eq!(get(&view, "/policies/nobody").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn p5_page_of_a_stopped_policy_shows_the_reason_and_no_wave() {
    let mut stopped = policy();
    let status = &mut stopped.status;
    status.updating.clear();
    status.state = PolicyState::Stopped;
    status.stop = Some(Stop {
        reason: StopReason::TooManyFailures,
        action: StopAction::Pause,
        revision: status.revision.clone(),
        message: "1 node failed; gpu-1: failed".to_owned(),
    });
    let page = text(get(&view(known([stopped])), "/policies/inference").await).await;
    let expected = "Not planned, because the roll-out is stopped until the spec changes: gpu-2";
    assert!(page.contains(expected) && !page.contains("<li>gpu-2</li>"), "{page}");
}

#[tokio::test]
async fn m21_page_shows_the_change_of_each_pod() {
    let mut changed = policy();
    let spec =
        json!({"nodeSelector": {"matchLabels": {"pool": "a"}}, "demand": {"mode": "Propose"}});
    changed.spec = Ok(serde_json::from_value(spec).unwrap());
    let change = json!({
        "id": "1", "node": "gpu-2", "layout": "demand-1", "pods": ["a/x", "b/y"], "since": "2026-01-01T00:00:00Z",
        "message": "a/x: create 1g; destroy idle: 2g; b/y: create 3g",
    });
    changed.status.changes = vec![serde_json::from_value(change).unwrap()];
    let page = text(get(&view(known([changed])), "/policies/inference").await).await;
    for part in [
        "href=\"/nodes/gpu-2\">gpu-2</a>",
        "Proposed <span",
        "<div>a/x: create 1g; destroy idle: 2g</div><div>b/y: create 3g</div>",
        "<a href=\"/demand\">Demand</a>",
        "octavo policy approve inference",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn p5_empty_page_names_the_reason_and_the_remedy() {
    let absent = KnownPolicies { presence: Some(Presence::Absent), ..KnownPolicies::default() };
    for (view, expected) in [
        (view_of(Fleet::default(), Clock::start()).1, "--follow-cluster --policies"),
        (view(absent), "acceleratorpolicies.octavo.dev"),
        (view(KnownPolicies::default()), "has not read"),
        (view(known([])), "kind: AcceleratorPolicy"),
    ] {
        let page = text(get(&view, "/policies").await).await;
        assert!(page.contains("id=\"empty\"") && page.contains(expected), "{expected}: {page}");
    }
    let outdated = KnownPolicies { error: Some("no route".to_owned()), ..known([policy()]) };
    for path in ["/policies", "/policies/inference"] {
        let page = text(get(&view(outdated.clone()), path).await).await;
        assert!(page.contains("policies may be outdated: no route"), "{path}: {page}");
    }
}

#[tokio::test]
async fn p5_reader_without_all_types_sees_no_policy() {
    let view = view(known([policy()]));
    for path in ["/policies", "/policies/inference", "/search?q=infer", "/"] {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(Visibility::none());
        let response = router(Counter::new(view.clone(), None)).oneshot(request).await.unwrap();
        let page = text(response).await;
        assert!(!page.contains("href=\"/policies/inference\""), "{path}: {page}");
        assert!(!page.contains("team/train"), "{path}: {page}");
    }
}
