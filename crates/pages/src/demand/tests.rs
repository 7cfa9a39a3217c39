//! The page of demand, rendered from documents and from a watched cluster.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use octavo_demand::{Alternative, InstancePlace, Obstacle, ObstacleCount};
use octavo_fleet::access::Visibility;
use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, PodKey, PodRequirements, Readiness,
};
use octavo_kube::cluster::WatchedCluster;
use octavo_model::catalog::Placement;
use octavo_model::examples::{compute_instance, gpu_instance, h100, process};
use octavo_model::inventory::Mig;
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::Freshness;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::*;
use crate::overview::tests::{device as whole, inventory as of_devices, node, view_of};
use crate::router;
use crate::tests::{get, text};

fn place(profile: &str, start: u32, size: u32) -> InstancePlace {
    InstancePlace { profile: profile.to_owned(), placement: Placement { start, size } }
}

fn pod(name: &str, outcome: Outcome) -> PodProposal {
    PodProposal {
        namespace: "team-a".to_owned(),
        pod: name.to_owned(),
        waiting_seconds: Some(185),
        resources: [("nvidia.com/mig-3g.40gb".to_owned(), 1)].into(),
        outcome: outcome.into(),
        message:
            "instances that are in use or proposed for other pods leave no room on 2 nodes (1 GPU slice left, where no instance fits)"
                .to_owned(),
        node: None,
        instances: Vec::new(),
        fragmentation: None,
        alternatives: Vec::new(),
        obstacles: vec![ObstacleCount {
            reason: Obstacle::Occupied.into(),
            nodes: 2,
            message: "instances that are in use or proposed for other pods leave no room on 2 nodes".to_owned(),
        }],
        defragmentation: None,
    }
}

/// A pod that gets an instance in place of two idle ones.
fn replaced(name: &str) -> PodProposal {
    PodProposal {
        message: "create on node gpu-1: 3g.40gb at slice 4 of GPU 3; destroy idle: 1g.10gb at slice 4 of GPU 3"
            .to_owned(),
        node: Some("gpu-1".to_owned()),
        instances: vec![ProposedInstance {
            device: "0000:03:00.0".to_owned(),
            device_name: "GPU 3".to_owned(),
            instance: place("3g.40gb", 4, 4),
            exists: false,
            destroys: vec![place("1g.10gb", 4, 1)],
        }],
        fragmentation: Some(0.42),
        alternatives: vec![Alternative {
            node: "gpu-2".to_owned(),
            message: "1 more operation to create and destroy instances".to_owned(),
        }],
        ..pod(name, Outcome::Replace)
    }
}

/// Change of a device with an instance in use, which stays, and an idle one, which is replaced.
fn change(device: u8) -> DeviceProposal {
    let counts = |all: &[(&str, usize)]| {
        all.iter().map(|(profile, count)| ((*profile).to_owned(), *count)).collect()
    };
    DeviceProposal {
        node: "gpu-1".to_owned(),
        device: format!("0000:{device:02x}:00.0"),
        device_name: format!("GPU {device}"),
        before: counts(&[("1g.10gb", 2)]),
        after: counts(&[("1g.10gb", 1), ("3g.40gb", 1)]),
        creates: vec![place("3g.40gb", 4, 4)],
        destroys: vec![place("1g.10gb", 4, 1)],
        pods: 1,
    }
}

fn report(items: Vec<PodProposal>, devices: Vec<DeviceProposal>) -> DemandReport {
    DemandReport {
        api_version: "octavo.dev/v1".to_owned(),
        kind: "DemandReport".to_owned(),
        as_of: "2026-01-01T00:00:00.123Z".to_owned(),
        stale: false,
        items,
        omitted_pods: 0,
        recent_pods: 0,
        devices,
    }
}

/// A fleet with a node of H100s. Each has an instance in use in slice 0 and an idle one in slice 4.
fn view() -> FleetView {
    let clock = Clock::start();
    let devices = (0..8).map(|index| {
        let mut device = whole(index);
        let mut state = h100();
        state.gpu_instances = [(1, 0), (2, 4)]
            .map(|(id, start)| {
                let mut instance = gpu_instance(id, start, 1);
                instance.compute_instances = vec![compute_instance(0)];
                instance
            })
            .to_vec();
        device.processes = vec![process(17, Some(1), Some(0))];
        device.mig = Mig::Capable(state);
        device
    });
    let mut fleet = Fleet::default();
    let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
    fleet.nodes.insert(Arc::new(node("gpu-1", &of_devices(devices.collect()), None, fresh)));
    view_of(fleet, clock).1
}

fn page(report: &DemandReport) -> String {
    let view = view();
    let page = DemandPage {
        frame: Frame::new(&view),
        wrong: None,
        content: content(&view, Ok(report)),
        origin: "https://octavo.example".to_owned(),
    };
    page.render().unwrap()
}

#[test]
fn pods_are_shown_with_outcome_and_details() {
    let page = page(&report(vec![replaced("train-0"), pod("eval", Outcome::Blocked)], Vec::new()));
    for part in [
        "<strong>2</strong> pods wait for MIG instances",
        "<b>1</b> replace",
        "<b>1</b> blocked",
        "These are proposals; only policies with spec.demand carry them out.",
        "<summary>1 instance, 1 alternative, 1 obstacle</summary>",
        "<li>create 3g.40gb in slices 4-7 of GPU 3 (0000:03:00.0), destroy 1g.10gb at slice 4</li>",
        "Fragmentation: 0.4 more slices are unusable for an average request",
        "<li>gpu-2: 1 more operation to create and destroy instances</li>",
        "<code class=\"nowrap\">mig-3g.40gb</code>",
        "waits for <span data-age-ms=\"185000\">3 min</span>",
        "datetime=\"2026-01-01T00:00:00Z\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("id=\"devices-title\""), "{page}");
}

#[test]
fn changes_are_drawn_on_the_last_report() {
    let page = page(&report(vec![replaced("train-0")], vec![change(3)]));
    let (_, card) = page.split_once("id=\"gpu-gpu-1/0000:03:00.0\"").unwrap();
    let (card, _) = card.split_once("</article>").unwrap();
    for part in [
        "Now: 2 x 1g.10gb",
        "Proposed: 1g.10gb, 3g.40gb",
        "region is-used w1",
        "region is-going w1",
        "region is-new w4",
        "6 slices free",
        "3 slices free",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert_eq!(card.matches("class=\"slices n8\"").count(), 2, "{card}");
}

#[test]
fn change_that_does_not_match_the_report_is_text() {
    let mut moved = change(3);
    moved.destroys = vec![place("1g.10gb", 5, 1)];
    let mut overlapping = change(3);
    overlapping.creates = vec![place("3g.40gb", 0, 4)];
    let mut other = change(3);
    other.before = [("7g.80gb".to_owned(), 1)].into();
    let mut unknown = change(3);
    unknown.node = "gpu-9".to_owned();
    for one in [moved, overlapping, other, unknown, change(9)] {
        let page = page(&report(vec![replaced("train-0")], vec![one]));
        assert!(page.contains("<p>Proposed: 1g.10gb, 3g.40gb</p>"), "{page}");
        assert!(!page.contains("class=\"slices"), "{page}");
    }
}

#[test]
fn names_and_messages_are_escaped() {
    let mut hostile = replaced("<script>alert(1)</script>\u{202e}");
    hostile.namespace = "\"><img src=x>".to_owned();
    hostile.message = "<script>".to_owned();
    hostile.alternatives[0].node = "<script>".to_owned();
    let mut device = change(3);
    device.node = "\"><script>".to_owned();
    let page = page(&report(vec![hostile], vec![device]));
    let (_, main) = page.split_once("<main").unwrap();
    assert!(!main.contains("<script") && !main.contains("<img"), "{main}");
    assert!(!main.contains('\u{202e}') && main.contains("alert(1)"), "{main}");
}

#[test]
fn empty_report_is_one_sentence() {
    let page = page(&report(Vec::new(), Vec::new()));
    assert!(page.contains("No pending pod requests MIG instances."), "{page}");
    assert!(!page.contains("<table") && !page.contains("id=\"only-proposals\""), "{page}");
    let recent = DemandReport { recent_pods: 1, stale: true, ..report(Vec::new(), Vec::new()) };
    let page = self::page(&recent);
    assert!(page.contains("1 pod is not planned yet: younger than 10 s."), "{page}");
    assert!(page.contains("may be out of date") && !page.contains("No pending pod"), "{page}");
}

#[test]
fn i10_many_pods_and_devices_are_bounded() {
    let items = (0..256).map(|number| replaced(&format!("train-{number}")));
    let devices = (0..2000).map(|number| DeviceProposal {
        node: format!("gpu-{}", number / 8),
        ..change(u8::try_from(number % 8).unwrap())
    });
    let mut report = report(items.collect(), devices.collect());
    report.omitted_pods = 4;
    let page = page(&report);
    assert_eq!(page.matches("<tr role=\"row\" id=\"pod-").count(), 256);
    assert_eq!(page.matches("<article").count(), MAX_DRAWN);
    // Only the node gpu-1 has a report.
    assert_eq!(page.matches("class=\"before-after\"").count(), 8);
    assert!(page.contains("<summary>500 more GPUs</summary>"), "{page}");
    assert!(page.contains("1476 more are not shown"), "{page}");
    assert!(page.contains("4 pods are omitted"), "{page}");
    assert!(page.len() < 600_000, "{} bytes", page.len());
}

#[tokio::test]
async fn page_without_a_watched_cluster_names_the_flag() {
    let answer = get(&view(), "/demand").await;
    assert_eq!(answer.status(), StatusCode::OK);
    let page = text(answer).await;
    assert!(page.contains("octavo-aggregator --follow-cluster"), "{page}");
    let (_cluster, watched) = watch::channel(Arc::new(WatchedCluster::default()));
    let page = text(get(&view().with_cluster(Some(watched)), "/demand").await).await;
    assert!(page.contains("Pending pods are unknown") && page.contains("not known yet"), "{page}");
}

#[tokio::test]
async fn pending_pods_of_a_cluster_are_planned() {
    let amounts = Amounts::default().with("nvidia.com/mig-1g.10gb", 16).with("pods", 110);
    let gpus = ClusterNode {
        name: "gpu-1".to_owned(),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    };
    let pending = ClusterPod {
        key: PodKey { namespace: "team-a".to_owned(), name: "train-0".to_owned() },
        requirements: PodRequirements {
            amounts: Amounts::default().with("nvidia.com/mig-3g.40gb", 1),
            ..PodRequirements::default()
        },
        created_at: Some(0),
        ..ClusterPod::default()
    };
    let (_cluster, watched) = watch::channel(Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new([gpus], [pending])),
        current_at: Some(Instant::now()),
        ..WatchedCluster::default()
    }));
    let view = view().with_cluster(Some(watched));
    let page = text(get(&view, "/demand").await).await;
    assert!(page.contains("id=\"pod-team-a/train-0\""), "{page}");
    // The users of the instances are not reported.
    assert!(page.contains("or the state of some GPUs, are unknown on 1 node"), "{page}");
    let mut request = Request::get("/demand").body(Body::empty()).unwrap();
    request.extensions_mut().insert(Visibility::none());
    let answer = router(Counter::new(view, None)).oneshot(request).await.unwrap();
    let page = text(answer).await;
    assert!(page.contains("id=\"forbidden\"") && !page.contains("train-0"), "{page}");
}
