//! Tests of the overview, rendered from fleets of fixtures.

mod trend;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::availability::{Availability, CountCache, count};
use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, PodKey, PodRequirements, Readiness,
};
use octavo_fleet::summary::{DeviceCounts, SharingSummary, TypeCounts};
use octavo_kube::cluster::WatchedCluster;
use octavo_model::accelerators::Catalog;
use octavo_model::examples::gpu;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Condition, Device, Identity, Inventory, Mig, NvmlState, RecoveryAction,
};
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::sharing_status::SharingStatus;
use octavo_planner::reconcile::{ChangeProgress, DeviceLayoutStatus, NodeLayoutStatus};
use octavo_store::availability::Counter;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary, TypeTotals};
use octavo_store::view::FleetView;
use octavo_stream::protocol::Run;
use octavo_stream::status;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::attention::MAX_LINES;
use super::{capacity, demand, health};
use crate::rollouts::{nodes_by_layout, rollouts};
use crate::tests::{get, text};

const H200: &str = "nvidia-h200-141gb";
const PARTITION: &str = "nvidia.com/mig-1g.18gb";

/// Device of a known type, whole and idle.
pub(crate) fn device(index: u8) -> Device {
    let mut device = gpu();
    device.index = Some(index.into());
    device.pci = PciAddress::new(0, index, 0, 0).unwrap();
    device.mig = Mig::NotCapable;
    device.processes = Vec::new();
    device.identity = Identity::Known { type_name: H200.parse().unwrap(), sku: None };
    device
}

pub(crate) fn inventory(devices: Vec<Device>) -> Inventory {
    Inventory { devices, ..Inventory::default() }
}

fn failing(mut device: Device) -> Device {
    device.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    device
}

pub(crate) fn blocked(message: &str) -> NodeLayoutStatus {
    let device = |number: u8, reason: Reason, message: &str| DeviceLayoutStatus {
        message: message.to_owned(),
        ..DeviceLayoutStatus::new(
            PciAddress::new(0, number, 0, 0).unwrap(),
            format!("GPU {number}"),
            Reported::from(reason),
        )
    };
    NodeLayoutStatus {
        layout: Some("serving".to_owned()),
        state: Some(Reported::from(Reason::Blocked)),
        devices: vec![
            device(0, Reason::Applied, ""),
            device(1, Reason::Blocked, message),
            device(2, Reason::Blocked, message),
        ],
        ..NodeLayoutStatus::default()
    }
}

pub(crate) fn node(
    name: &str,
    inventory: &Inventory,
    layout: Option<&NodeLayoutStatus>,
    freshness: Freshness,
) -> Node {
    let origin = ReportingAgent {
        name: name.parse().unwrap(),
        run: Run { epoch: 1, boot_id: "boot".to_owned() },
        agent_version: "0.1.0".to_owned(),
    };
    let parts = status::encode(inventory, &[].into_iter().collect(), layout);
    Node::new(origin, parts, StatusSummary::new(inventory, Arc::default(), layout), freshness)
}

/// Fleet of nodes, each with a different problem or none.
pub(crate) fn fleet(nodes: usize, clock: Clock) -> Fleet {
    let mut fleet = Fleet::default();
    let now = clock.now();
    for number in 0..nodes {
        let (fresh, late) = (
            Freshness::new(now, Duration::from_hours(1)),
            Freshness::new(Moment::default(), Duration::ZERO),
        );
        let healthy = inventory((0..3).map(device).collect());
        let mut lost = healthy.clone();
        lost.nvml = NvmlState::Lost { reason: "unloaded".to_owned() };
        let mut reset = device(1);
        reset.health.recovery_action = Some(RecoveryAction::ResetGpu);
        let layout = blocked("gi 2 is in use by pod team/holder");
        let (inventory, layout, freshness) = match number % 8 {
            0 => (healthy, None, fresh),
            1 => (inventory(vec![device(0), failing(device(1)), failing(device(2))]), None, fresh),
            2 => (healthy, Some(&layout), fresh),
            3 => (healthy, None, late),
            4 => (lost, None, fresh),
            5 => (inventory(vec![failing(device(0)), reset]), Some(&layout), fresh),
            6 => (inventory(Vec::new()), Some(&layout), fresh),
            _ => (inventory(vec![device(0), device(1)]), None, fresh),
        };
        let mut node = node(&format!("node-{number:03}"), &inventory, layout, freshness);
        if number % 8 == 7 {
            let sharing = SharingStatus {
                state: Reported::from(Reason::SharingRefused),
                message: Some("no device plugin".to_owned()),
                ..SharingStatus::default()
            };
            node.summary = node.summary.with_sharing(Some(SharingSummary::of(&sharing)));
        }
        fleet.nodes.insert(Arc::new(node));
    }
    fleet
}

pub(crate) fn view_of(fleet: Fleet, clock: Clock) -> (watch::Sender<Fleet>, FleetView) {
    let (sender, receiver) = watch::channel(fleet);
    (sender, FleetView::new(receiver, clock))
}

/// The page, with the problems of each severity as list items.
async fn problems(view: &FleetView) -> (String, Vec<String>) {
    let page = text(get(view, "/").await).await;
    let lists = page.split("<ul class=\"problems\">").skip(1);
    let lists = lists.map(|rest| rest.split_once("</ul>").unwrap().0);
    let items = lists.flat_map(|list| list.split("<li").skip(1)).map(str::to_owned).collect();
    (page, items)
}

#[tokio::test]
async fn every_problem_of_every_node_is_listed_once_or_counted() {
    for nodes in [0, 1, 2, 8, 9, 16, 40, 41, 64, 200] {
        let clock = Clock::start();
        let fleet = fleet(nodes, clock);
        let now = clock.now();
        let expected: Vec<(String, usize)> = { fleet.nodes.iter() }
            .map(|node| (node.name.to_string(), node.problems(now).len()))
            .collect();
        let total: usize = expected.iter().map(|(_, count)| count).sum();
        for node in fleet.nodes.iter() {
            let is_troubled = node.state(now).needs_attention();
            assert_eq!(is_troubled, !node.problems(now).is_empty(), "{}", node.name);
        }
        let (_fleet, view) = view_of(fleet, clock);
        let (page, items) = problems(&view).await;
        if total <= MAX_LINES {
            assert_eq!(items.len(), total, "{page}");
            for (name, count) in expected {
                let link = format!("href=\"/nodes/{name}\"");
                let found = items.iter().filter(|item| item.contains(&link)).count();
                assert_eq!(found, count, "{name}: {items:?}");
            }
        } else {
            let counted = items.iter().map(|item| {
                let (before, _) = item.split_once(" problems on ").unwrap();
                before.rsplit('>').next().unwrap().parse::<usize>().unwrap()
            });
            assert_eq!(counted.sum::<usize>(), total, "{items:?}");
            assert!(items.iter().all(|item| item.contains("href=\"/nodes?problem=")));
        }
        let heading = format!("{total} problems <span");
        assert!(total < 2 || page.contains(&heading), "{page}");
    }
}

#[tokio::test]
async fn linked_list_has_the_nodes_of_a_group() {
    let clock = Clock::start();
    let (_fleet, view) = view_of(fleet(200, clock), clock);
    let (_, items) = problems(&view).await;
    for item in items {
        let (_, rest) = item.split_once("href=\"/nodes").unwrap();
        let (query, _) = rest.split_once('"').unwrap();
        let path = format!("/nodes{query}");
        let (_, words) = item.split_once(" problems on ").unwrap();
        let nodes = words.split(' ').next().unwrap();
        let list = text(get(&view, &path).await).await;
        assert_eq!(list.matches(" data-row ").count().to_string(), nodes, "{path}");
    }
}

#[tokio::test]
async fn most_severe_problem_is_first_and_the_blocker_is_named_completely() {
    let clock = Clock::start();
    let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
    let message = format!("{} held by pod serving/guardrail-0", "gi 2 is in use and ".repeat(15));
    let mut fleet = Fleet::default();
    let healthy = inventory((0..3).map(device).collect());
    for (name, inventory, layout) in [
        ("a-blocked", &healthy, Some(&blocked(&message))),
        ("z-broken", &inventory(vec![failing(device(0))]), None),
    ] {
        fleet.nodes.insert(Arc::new(node(name, inventory, layout, fresh.clone())));
    }
    let late = Freshness::new(Moment::default(), Duration::ZERO);
    fleet.nodes.insert(Arc::new(node("late", &healthy, None, late)));
    let (_fleet, view) = view_of(fleet, clock);
    let (page, items) = problems(&view).await;
    let order = ["z-broken", "late", "a-blocked", "a-blocked"];
    for (item, name) in items.iter().zip(order) {
        assert!(item.contains(&format!("/nodes/{name}\"")), "{items:?}");
    }
    assert!(items[2].contains("held by pod serving/guardrail-0"), "{}", items[2]);
    assert!(items[2].contains(Reason::Blocked.remedy()), "{}", items[2]);
    // Only a stale node has a known age.
    let ages: Vec<bool> = items.iter().map(|item| item.contains("data-age-ms")).collect();
    assert_eq!(ages, [false, true, false, false]);
    assert!(page.contains(">Needs action <span class=\"soft\">1<"), "{page}");
    assert!(page.contains(">Needs attention <span class=\"soft\">3<"), "{page}");
}

#[tokio::test]
async fn healthy_and_empty_fleets_are_explained() {
    let clock = Clock::start();
    let (sender, view) = view_of(Fleet::default(), clock);
    let page = text(get(&view, "/").await).await;
    assert!(
        page.contains("No node has reported yet") && page.contains("octavo-agent --aggregator")
    );
    assert!(!page.contains("id=\"capacity-title\""), "{page}");
    sender.send_replace(fleet(1, clock));
    let page = text(get(&view, "/").await).await;
    assert!(page.contains("Nothing needs attention"), "{page}");
    assert!(page.contains("No problem is reported by 1 node."), "{page}");
    assert!(page.contains("--follow-cluster") && page.contains("aggregator.followCluster"));
    assert!(page.contains("NVIDIA H200 141 GB") && page.contains(H200), "{page}");
    assert!(page.contains("<b>3</b> of 3"), "{page}");
    assert!(page.contains("no device reports it"), "{page}");
}

#[tokio::test]
async fn unknown_use_is_not_zero() {
    let clock = Clock::start();
    let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
    let mut unknown = device(0);
    unknown.mig = Mig::Unknown;
    let mut fleet = Fleet::default();
    fleet.nodes.insert(Arc::new(node("node", &inventory(vec![unknown]), None, fresh)));
    let (_fleet, view) = view_of(fleet, clock);
    let page = text(get(&view, "/").await).await;
    assert!(page.contains("<b>-</b> of 1"), "{page}");
    assert!(!page.contains("<b>0</b> of"), "{page}");
}

/// Response of a path for a reader who sees these types only.
async fn limited(view: &FleetView, path: &str, types: VisibleTypes) -> String {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    let visibility = Visibility { types, nodes: false, profiles: false, pods: false };
    request.extensions_mut().insert(visibility);
    let answer = crate::router(Counter::new(view.clone(), None)).oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    text(answer).await
}

#[tokio::test]
async fn reader_without_nodes_sees_counts_of_visible_types_only() {
    let clock = Clock::start();
    let (_fleet, view) = view_of(fleet(16, clock), clock);
    let page = limited(&view, "/", VisibleTypes::All).await;
    assert!(!page.contains("node-0") && page.contains("list nodes.octavo.dev"), "{page}");
    assert!(page.contains(H200) && !page.contains("id=\"attention\""), "{page}");
    let other = "nvidia-l4-24gb".parse().unwrap();
    let page = limited(&view, "/", VisibleTypes::Only([other].into())).await;
    assert!(!page.contains(H200) && page.contains("<strong>0</strong> devices"), "{page}");
}

#[tokio::test]
async fn pending_pods_are_shown_with_their_reason() {
    let clock = Clock::start();
    let amounts = Amounts::default().with("nvidia.com/gpu", 8).with("pods", 110);
    let full = ClusterNode {
        name: "full".to_owned(),
        labels: [("octavo.dev/type".to_owned(), H200.to_owned())].into(),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    };
    let pod = |name: &str, node: Option<&str>, count: u64| ClusterPod {
        key: PodKey { namespace: "secret-team".to_owned(), name: name.to_owned() },
        node: node.map(str::to_owned),
        requirements: PodRequirements {
            amounts: Amounts::default().with("nvidia.com/gpu", count),
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    };
    let pods = [pod("has", Some("full"), 8), pod("one", None, 1), pod("two", None, 1)];
    let (_cluster, watched) = watch::channel(Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new([full], pods)),
        current_at: Some(Instant::now()),
        ..WatchedCluster::default()
    }));
    let (_fleet, view) = view_of(fleet(1, clock), clock);
    let mut request = Request::get("/").body(Body::empty()).unwrap();
    request.extensions_mut().insert(Visibility::everything());
    let site = crate::router(Counter::new(view, Some(watched)));
    let page = text(site.oneshot(request).await.unwrap()).await;
    assert!(page.contains("2 pods wait for accelerators"), "{page}");
    assert!(page.contains("too few units are free on 1 node"), "{page}");
    assert!(page.contains("2 pods wait</span>"), "{page}");
    assert!(!page.contains("secret-team"), "the overview names no namespace: {page}");
}

#[tokio::test]
async fn layouts_in_progress_show_steps_and_blockers() {
    let clock = Clock::start();
    let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
    let healthy = inventory((0..3).map(device).collect());
    let mut applying = blocked("");
    applying.state = Some(Reported::from(Reason::Applying));
    for device in &mut applying.devices {
        device.state = Reported::from(Reason::Applying);
    }
    applying.devices[1].progress =
        Some(ChangeProgress { done: 2, steps: 5, current_step: "create".to_owned(), back: false });
    let mut draining = blocked("in use");
    draining.drain =
        Some("drain (affected) is evicting pods: pod serving/guardrail-0: budget".to_owned());
    let mut fleet = Fleet::default();
    for (name, layout) in [("changes", &applying), ("drains", &draining)] {
        fleet.nodes.insert(Arc::new(node(name, &healthy, Some(layout), fresh.clone())));
    }
    let (_fleet, view) = view_of(fleet, clock);
    let page = text(get(&view, "/").await).await;
    assert!(page.contains("id=\"changing-changes\"") && page.contains("2 of 5 steps"), "{page}");
    let (_, row) = page.split_once("id=\"changing-drains\"").unwrap();
    assert!(row.contains("pod serving/guardrail-0: budget"), "{row}");
    assert!(page.contains("applied on 0 of 2 nodes"), "{page}");
    assert!(!page.contains("id=\"all-applied\""), "{page}");
}

/// Counts these pending pods, on a node that has two whole devices and two partitions.
fn availability(pods: &[(&str, &[(&str, u64)])]) -> Availability {
    let amounts = Amounts::default().with("nvidia.com/gpu", 2).with(PARTITION, 2).with("pods", 110);
    let node = ClusterNode {
        name: "node".to_owned(),
        labels: [("octavo.dev/type".to_owned(), H200.to_owned())].into(),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    };
    let pods = pods.iter().enumerate().map(|(number, (namespace, requests))| ClusterPod {
        key: PodKey { namespace: (*namespace).to_owned(), name: format!("pod-{number}") },
        requirements: PodRequirements {
            amounts: requests
                .iter()
                .fold(Amounts::default(), |all, (name, count)| all.with(name, *count)),
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    });
    let snapshot = ClusterSnapshot::new([node], pods);
    count(&[], Some(&snapshot), &mut CountCache::new(Catalog::built_in()), None)
}

fn one_type(name: &str) -> Visibility {
    let types = VisibleTypes::Only([name.parse().unwrap()].into());
    Visibility { types, ..Visibility::everything() }
}

#[test]
fn units_are_not_called_devices_if_partitions_are_offered_as_devices() {
    let clock = Clock::start();
    let availability = availability(&[]);
    for (devices, expected) in [(2, "0 of 2"), (1, "0 of 2 units")] {
        let counts = TypeCounts {
            type_name: H200.parse().ok(),
            manual: 0,
            memory: None,
            counts: DeviceCounts { total: devices, ..DeviceCounts::default() },
        };
        let types = [TypeTotals { counts, nodes: 1, without_agent: 0 }];
        let fleet = (&Fleet::default(), &types[..]);
        let figures = health::figures(fleet, &availability, &Visibility::everything(), clock.now());
        let whole = figures.iter().find(|figure| figure.name == "Whole devices").unwrap();
        assert_eq!(whole.value, expected);
        assert_eq!(
            whole.about.contains("partitions that are offered as devices"),
            devices == 1,
            "{}",
            whole.about
        );
    }
}

#[test]
fn number_of_omitted_pods_is_shown_for_the_whole_fleet_only() {
    let mut availability = availability(&[("team-a", &[("nvidia.com/gpu", 1)])]);
    availability.omitted_pods = 7;
    let everything = Visibility::everything();
    let all = demand::pending(&availability, true, &everything);
    assert_eq!((all.pods, all.more, all.is_incomplete), (8, 7, false));
    let all = demand::pending_by_namespace(&availability, true, None);
    assert_eq!((all.pods, all.more, all.is_incomplete), (8, 7, false));
    for limited in [
        demand::pending_by_namespace(&availability, true, Some("team-a")),
        demand::pending(&availability, true, &one_type(H200)),
    ] {
        assert_eq!((limited.pods, limited.more, limited.is_incomplete), (1, 0, true));
    }
    let none = demand::pending_by_namespace(&availability, true, Some("team-b"));
    assert_eq!((none.pods, none.more, none.is_incomplete), (0, 0, true));
    availability.omitted_pods = 0;
    let none = demand::pending_by_namespace(&availability, true, Some("team-b"));
    assert!(!none.is_incomplete && none.none.contains("of this namespace"), "{}", none.none);
}

#[test]
fn pods_are_counted_once() {
    let (gpu, partition) = (("nvidia.com/gpu", 3), (PARTITION, 1));
    let of_both = availability(&[("team-a", &[gpu, partition]), ("team-a", &[partition])]);
    let pending = demand::pending(&of_both, true, &Visibility::everything());
    assert_eq!(pending.pods, 2);
    assert_eq!(pending.rows.iter().map(|row| row.pods).sum::<u64>(), 3);
    // The pod that requests more devices than the node has waits for no holder.
    let device = pending.rows.iter().find(|row| row.resource == "nvidia.com/gpu").unwrap();
    assert_eq!(device.reasons, ["no node has so many units"]);
    assert_eq!(device.wait, None);
}

#[test]
fn pods_that_wait_for_several_resources_of_a_type_are_added() {
    let (gpu, partition) = (("nvidia.com/gpu", 1), (PARTITION, 1));
    let availability =
        availability(&[("a", &[gpu]), ("a", &[gpu]), ("b", &[partition]), ("b", &[gpu])]);
    let rows = capacity::rows(&availability, &Visibility::everything());
    assert_eq!(rows.iter().map(|row| row.pending).collect::<Vec<_>>(), [4]);
}

#[test]
fn unnamed_and_many_layouts_are_counted() {
    let clock = Clock::start();
    let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
    let healthy = inventory(vec![device(0)]);
    let mut fleet = Fleet::default();
    let invalid =
        NodeLayoutStatus { notice: Some("invalid file".to_owned()), ..NodeLayoutStatus::default() };
    fleet.nodes.insert(Arc::new(node("invalid", &healthy, Some(&invalid), fresh.clone())));
    let found = rollouts(&fleet, &nodes_by_layout(&fleet, clock.now()), clock.now());
    assert_eq!((found.nodes, found.unnamed, found.layouts.len()), (1, 1, 0));
    for number in 0..23 {
        let layout = NodeLayoutStatus {
            layout: Some(format!("layout-{number}")),
            ..blocked("in use by pod team/holder")
        };
        let name = format!("node-{number}");
        fleet.nodes.insert(Arc::new(node(&name, &healthy, Some(&layout), fresh.clone())));
    }
    let found = rollouts(&fleet, &nodes_by_layout(&fleet, clock.now()), clock.now());
    assert_eq!((found.layouts.len(), found.more_layouts), (20, 3));
    assert_eq!(found.layouts[0].words, "applied on 0 of 1 node");
    assert_eq!((found.rows.len(), found.more), (20, 3));
}

#[tokio::test]
async fn linked_list_has_the_nodes_whose_layout_is_in_progress() {
    let clock = Clock::start();
    let fleet = fleet(200, clock);
    let found = rollouts(&fleet, &nodes_by_layout(&fleet, clock.now()), clock.now());
    let (_fleet, view) = view_of(fleet, clock);
    let list = text(get(&view, &found.href).await).await;
    assert_eq!(list.matches(" data-row ").count(), found.rows.len() + found.more, "{}", found.href);
}
