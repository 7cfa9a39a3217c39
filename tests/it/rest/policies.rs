//! Accelerator policies over HTTP: progress, previews, and invalid policies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use axum::http::StatusCode;
use octavo_files::config_files::LayoutFile;
use octavo_fleet::cluster::{ClusterNode, ClusterSnapshot, Readiness};
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::hardware_profiles::Presence;
use octavo_kube::policies::KnownPolicies;
use octavo_policy::{Policy, PolicyStatus};
use octavo_store::policies::PolicyView;
use octavo_store::view::FleetView;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::fleet::{Aggregator, Machines};

const PLAN: &str = "/api/v1/policies/plan";
const LAYOUTS: &str = "apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  parts:
  - devices: {index: [3]}
    mig: {1g.10gb: 7}
";

fn manifest(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "AcceleratorPolicy",
        "metadata": {"name": name, "labels": {"team": "a"}}, "spec": spec,
    })
}

fn spec(layout: &str) -> Value {
    json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}}, "layout": layout,
        "rollout": {"maxUnavailable": 2, "pause": "5m", "nodeDeadline": "1h"},
    })
}

fn policy(name: &str, layout: &str) -> Policy {
    Policy {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        generation: 1,
        created: None,
        is_deleting: false,
        has_finalizer: true,
        rollback_to: None,
        approved: BTreeSet::new(),
        spec: Ok(serde_json::from_value(spec(layout)).unwrap()),
        status: PolicyStatus::default(),
    }
}

fn labels(name: &str) -> BTreeMap<String, String> {
    let pool = [("pool".to_owned(), "a".to_owned())];
    let large = (!name.starts_with("gpu")).then(|| ("large".to_owned(), String::new()));
    pool.into_iter().chain(large).collect()
}

/// The nodes of the machines in one pool, and one without an agent.
fn cluster(names: &[&str]) -> WatchedCluster {
    let nodes = names.iter().map(|name| ClusterNode {
        name: (*name).to_owned(),
        labels: labels(name),
        readiness: Readiness::Ready,
        ..ClusterNode::default()
    });
    WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new(nodes, [])),
        current_at: Some(tokio::time::Instant::now()),
        error: None,
        invalid_objects: 0,
    }
}

/// An aggregator of all machines with these policies.
async fn aggregator(policies: &[Policy]) -> Aggregator {
    let all = policies.iter().map(|policy| (policy.name.clone(), Arc::new(policy.clone())));
    let presence = Some(Presence::Present);
    let known = KnownPolicies { all: all.collect(), presence, error: None };
    let known = watch::Sender::new(Arc::new(known));
    let nodes = ["gpu-1", "gpu-2", "mixed-1", "elsewhere"];
    let cluster = watch::Sender::new(Arc::new(cluster(&nodes)));
    let policies = PolicyView::new(known.subscribe(), cluster.subscribe());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layouts.yaml");
    fs::write(&file, LAYOUTS).unwrap();
    let layouts = LayoutFile::open(&file).unwrap();
    let machines = Machines::read().await;
    let more = |view: FleetView| view.with_layouts(layouts).with_policies(Some(policies));
    Aggregator::viewed(&machines, more)
}

#[tokio::test]
async fn p5_new_policy_is_planned_with_its_waves_blockers_and_capacity() {
    let aggregator = aggregator(&[]).await;
    let answer = aggregator.post(PLAN, &manifest("new", &spec("parts")).to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let plan = answer.json();
    assert_eq!((&plan["kind"], &plan["exists"]), (&json!("PolicyPlan"), &json!(false)));
    // An L4 has no fourth GPU, so the layout is infeasible there and nothing changes.
    let refused = plan["refused"].as_str().unwrap();
    assert!(refused.contains("parts") && refused.contains("nvidia-l4-24gb"), "{refused}");
    assert_eq!((&plan["waves"], &plan["totals"]["infeasible"]), (&json!([]), &json!(2)));
    let infeasible = &plan["infeasible"][0];
    assert_eq!(infeasible["types"], json!(["nvidia-l4-24gb"]), "{plan:#}");
    assert_eq!(infeasible["nodes"], 2);

    let mut only = spec("parts");
    only["nodeSelector"] = json!({"matchExpressions": [{"key": "large", "operator": "Exists"}]});
    only["rollout"]["maxUnavailable"] = json!(1);
    let plan = aggregator.post(PLAN, &manifest("new", &only).to_string()).await.json();
    assert_eq!(plan.get("refused"), None, "{plan:#}");
    let wave = |number: usize| plan["waves"][number][0]["name"].as_str().unwrap();
    // The node without a report is last.
    assert_eq!([wave(0), wave(1)], ["mixed-1", "elsewhere"]);
    assert_eq!(plan["waves"][0][0]["inUse"], 1);
    let mixed = &plan["nodes"][0];
    assert_eq!((&mixed["node"], &mixed["outcome"]), (&json!("mixed-1"), &json!("blocked")));
    assert!(mixed["problems"][0]["message"].as_str().unwrap().contains("pid 99"), "{mixed:#}");
    assert_eq!((&plan["totals"]["blocked"], &plan["totals"]["unplanned"]), (&json!(1), &json!(1)));
    let capacity = json!({"nodes": 2, "devices": 4, "minNodes": 1, "minDevices": 0});
    assert_eq!(plan["capacity"], capacity);
    assert_eq!(plan["duration"], json!({"minSeconds": 300, "maxSeconds": 7500}));
}

#[tokio::test]
async fn p5_change_of_a_policy_is_planned_against_the_stored_one() {
    let aggregator = aggregator(&[policy("a", "parts"), policy("plan", "parts")]).await;
    let list = aggregator.get("/api/v1/policies").await.json();
    assert_eq!((&list["kind"], &list["source"]), (&json!("PolicyList"), &json!("cluster")));
    let names: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names, [&json!("a"), &json!("plan")]);
    // Both select the same nodes.
    let plan = aggregator.get("/api/v1/policies/a/plan").await.json();
    assert_eq!((&plan["exists"], plan["conflicting"].as_array().unwrap().len()), (&json!(true), 4));
    let detail = aggregator.get("/api/v1/policies/a").await.json();
    assert_eq!(detail["members"][0]["state"], "conflicting", "{detail:#}");
    assert_eq!(detail["members"][0]["message"], "also selected by plan");
    assert_eq!(detail["spec"]["rollout"]["maxUnavailable"], 2);
    // The name of a policy can be that of the path.
    assert_eq!(aggregator.get(PLAN).await.json()["name"], "plan");
    let mut elsewhere = spec("parts");
    elsewhere["nodeSelector"] = json!({"matchLabels": {"pool": "b"}});
    let changed = manifest("plan", &elsewhere).to_string();
    let plan = aggregator.post(PLAN, &changed).await.json();
    assert_eq!((&plan["exists"], &plan["selected"]), (&json!(true), &json!(0)));
    let missing = aggregator.get("/api/v1/policies/nobody/plan").await;
    assert_eq!(
        (missing.status, missing.json()["type"].as_str()),
        (StatusCode::NOT_FOUND, Some("/problems/unknown-policy"))
    );
}

#[tokio::test]
async fn p5_invalid_policy_is_refused_with_the_path_of_the_field() {
    let aggregator = aggregator(&[]).await;
    let with = |pointer: &str, value: Value| {
        let mut document = manifest("a", &spec("parts"));
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        document.pointer_mut(parent).unwrap()[key] = value;
        document
    };
    for (document, field) in [
        (with("/kind", json!("Policy")), "kind"),
        (with("/apiVersion", json!("octavo.dev/v1")), "apiVersion"),
        (with("/metadata/name", json!("A b")), "metadata.name"),
        (with("/spec/rollout/maxUnavailable", json!("all")), "spec.rollout.maxUnavailable"),
        (with("/spec/rollout/maxUnavailble", json!(3)), "spec.rollout.maxUnavailble"),
        (with("/spec/rollout", json!([])), "spec.rollout"),
        (with("/spec/nodeSelector", json!({})), "spec.nodeSelector"),
        (with("/spec/nodeLabels", json!({"octavo.dev/x": "1"})), "spec.nodeLabels[octavo.dev/x]"),
        (
            with("/spec/rollout/windows", json!([{"start": "25:00", "duration": "1h"}])),
            "spec.rollout.windows[0].start",
        ),
    ] {
        let answer = aggregator.post(PLAN, &document.to_string()).await;
        let problem = answer.json();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{field}: {problem:#}");
        assert_eq!(problem["type"], "/problems/invalid-body");
        assert_eq!(problem["parameter"], field, "{problem:#}");
    }
}

#[tokio::test]
async fn p5_aggregator_without_policies_says_so() {
    let aggregator = Aggregator::of(&Machines::default());
    let list = aggregator.get("/api/v1/policies").await.json();
    assert_eq!((&list["source"], &list["items"]), (&json!("disabled"), &json!([])));
    let answer = aggregator.post(PLAN, &manifest("a", &spec("parts")).to_string()).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.json()["detail"].as_str().unwrap().contains("--policies"), "{}", answer.body);
    assert_eq!(aggregator.get("/api/v1/policies/a").await.status, StatusCode::NOT_FOUND);
}
