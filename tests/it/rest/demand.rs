//! Proposals for pending pods: agents' reports and a cluster's pods through the router.

use axum::http::StatusCode;
use octavo_fleet::cluster::{Amounts, ClusterNode, ClusterPod, PodKey, PodRequirements, Readiness};
use octavo_model::sharing_status::SharingStatus;
use octavo_node::sharing::usage::Usage;
use octavo_store::profiles::Profiles;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::fleet::{Aggregator, Machines};
use super::profiles::with_pods;

/// An aggregator whose cluster has the node `mixed-1` and pods that wait for one instance of each profile. The agent reports who uses its
/// devices.
pub(super) async fn with_pending_pods(profiles: &[&str]) -> Aggregator {
    let machines = Machines::read().await;
    let node = ClusterNode {
        name: "mixed-1".to_owned(),
        readiness: Readiness::Ready,
        allocatable: Amounts::default().with("pods", 10).with("nvidia.com/mig-3g.40gb", 1),
        ..ClusterNode::default()
    };
    let pods = profiles.iter().map(|profile| ClusterPod {
        key: PodKey { namespace: "team-a".to_owned(), name: format!("pod-{profile}") },
        requirements: PodRequirements {
            amounts: Amounts::default().with(&format!("nvidia.com/mig-{profile}"), 1),
            ..PodRequirements::default()
        },
        created_at: Some(jiff::Timestamp::now().as_second() - 60),
        ..ClusterPod::default()
    });
    let (_sender, cluster) = watch::channel(with_pods([node], pods));
    let aggregator = Aggregator::following(&machines, Profiles::default(), cluster);
    aggregator.share("mixed-1", &SharingStatus::default(), &Usage::default());
    aggregator
}

fn proposal<'a>(report: &'a Value, pod: &str) -> &'a Value {
    let items = report["items"].as_array().unwrap();
    items.iter().find(|one| one["pod"] == pod).unwrap()
}

#[tokio::test]
async fn pending_pods_have_proposals_from_the_reports_of_agents() {
    let aggregator = with_pending_pods(&["3g.40gb", "1g.10gb", "2g.20gb", "7g.80gb"]).await;
    let report = aggregator.get("/api/v1/demand").await.json();
    assert_eq!((&report["kind"], &report["stale"]), (&json!("DemandReport"), &json!(false)));
    let outcomes = ["3g.40gb", "1g.10gb", "2g.20gb", "7g.80gb"].map(|profile| {
        let proposal = proposal(&report, &format!("pod-{profile}"));
        format!(
            "{}: {}",
            proposal["outcome"].as_str().unwrap(),
            proposal["message"].as_str().unwrap()
        )
    });
    assert_eq!(
        outcomes,
        [
            "available: idle on node mixed-1: 3g.40gb at slice 4 of GPU 2; the scheduler can place the pod unless another rule prevents it",
            "available: idle on node mixed-1: 1g.10gb at slice 0 of GPU 2; the Node does not offer them to the scheduler; check its device plugin",
            "create: create on node mixed-1: 2g.20gb at slice 2 of GPU 2; no instance is destroyed",
            "blocked: instances that are in use or proposed for other pods leave no room on 1 node (1 GPU slice left; the largest instance that fits is 1g.10gb)",
        ]
    );
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 1, "{devices:#?}");
    assert_eq!(devices[0]["deviceName"], "GPU 2");
    assert_eq!(devices[0]["after"], json!({"1g.10gb": 1, "2g.20gb": 1, "3g.40gb": 1}));
}

#[tokio::test]
async fn proposals_need_a_cluster_and_agents_that_report_users() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let answer = aggregator.get("/api/v1/demand").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.body.contains("--follow-cluster"), "{}", answer.body);
    assert_eq!(aggregator.get("/api/v1/demand?x").await.status, StatusCode::BAD_REQUEST);

    let aggregator = with_pending_pods(&["1g.10gb"]).await;
    let unknown = Usage { are_allocations_unknown: true, ..Usage::default() };
    aggregator.share("mixed-1", &SharingStatus::default(), &unknown);
    let report = aggregator.get("/api/v1/demand").await.json();
    let message = &proposal(&report, "pod-1g.10gb")["message"];
    assert_eq!(
        message,
        "the users of the instances, or the state of some GPUs, are unknown on 1 node"
    );
}
