//! Tests of the page of teams, rendered from reported usage.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::cluster::{Amounts, ClusterPod, ClusterSnapshot, Phase, PodKey, PodRequirements};
use octavo_kube::cluster::WatchedCluster;
use octavo_model::inventory::Inventory;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::resource::ShareId;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use octavo_store::availability::Counter;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Parts, Run};
use octavo_stream::status;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::MAX_ROWS;
use crate::tests::text;

const UUID: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

fn tenant(namespace: &str, pod: &str, memory: Option<u64>) -> Tenant {
    Tenant {
        namespace: Some(namespace.to_owned()),
        pod: Some(pod.to_owned()),
        ids: vec![ShareId::whole(UUID)],
        memory: memory.map(Mebibytes::new),
        utilization: memory.filter(|used| *used > 0).map(|_| Percent(60)),
        processes: if memory == Some(0) { Vec::new() } else { vec![7] },
        ..Tenant::default()
    }
}

fn device(number: u8, tenant: Tenant) -> DeviceUsage {
    let memory = MemoryUse {
        total: Mebibytes::new(81_920),
        used: Mebibytes::default(),
        reserved: Mebibytes::default(),
    };
    let unit = UnitUsage {
        uuid: UUID.to_owned(),
        memory: Some(memory),
        tenants: vec![tenant],
        ..UnitUsage::default()
    };
    DeviceUsage {
        pci: format!("0000:{number:02x}:00.0").parse().unwrap(),
        name: format!("GPU {number}"),
        memory: None,
        utilization: None,
        power_watts: None,
        temperature_celsius: None,
        units: vec![unit],
    }
}

fn fleet(devices: Vec<DeviceUsage>, freshness: Freshness) -> Fleet {
    let usage = Usage { devices, ..Usage::default() };
    let origin = ReportingAgent {
        name: "gpu-07".parse().unwrap(),
        run: Run { epoch: 1, boot_id: "boot".to_owned() },
        agent_version: "0.1.0".to_owned(),
    };
    let parts: Parts = [status::encode_usage(&usage)].into_iter().collect();
    let digest = StatusSummary::new(&Inventory::default(), Arc::default(), None);
    let mut fleet = Fleet::default();
    let node = Node::new(origin, parts, digest.with_usage(Some(&usage)), freshness);
    fleet.nodes.insert(Arc::new(node));
    fleet
}

/// A busy and an idle pod of `team-a`, and a pod of `team-b` whose usage is unknown.
fn usage() -> Vec<DeviceUsage> {
    vec![
        device(1, Tenant { is_over_share: true, ..tenant("team-a", "busy", Some(40_960)) }),
        device(2, tenant("team-a", "idle", Some(0))),
        device(3, tenant("team-b", "hidden", None)),
    ]
}

async fn ask(
    fleet: Fleet,
    path: &str,
    visibility: Visibility,
    watched: Option<ClusterSnapshot>,
) -> String {
    let clock = Clock::start();
    let (_fleet, receiver) = watch::channel(fleet);
    let cluster = watched.map(|snapshot| {
        watch::channel(Arc::new(WatchedCluster {
            snapshot: Arc::new(snapshot),
            current_at: Some(Instant::now()),
            ..WatchedCluster::default()
        }))
    });
    let (_cluster, watched) = cluster.unzip();
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(visibility);
    let site = crate::router(Counter::new(FleetView::new(receiver, clock), watched));
    let answer = site.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    text(answer).await
}

fn fresh() -> Freshness {
    Freshness::new(Moment::default(), Duration::from_hours(1))
}

/// Text of the table row with this id, without tags.
fn row(page: &str, id: &str) -> String {
    let (_, rest) = page.split_once(&format!("id=\"{id}\"")).unwrap();
    let (row, _) = rest.split_once("</tr>").unwrap();
    let texts = row.split('<').filter_map(|part| Some(part.split_once('>')?.1.trim()));
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" | ")
}

#[tokio::test]
async fn namespaces_are_shown_with_usage_idle_and_unknown_allocations() {
    let page = ask(fleet(usage(), fresh()), "/teams", Visibility::everything(), None).await;
    assert_eq!(
        row(&page, "team-team-a-unknown"),
        "team-a | GPU - type unknown | 2 | 2 devices | 40 GiB of 160 GiB | 60 % | 1 device | most idle | 1"
    );
    // Nothing is known of the pod of the other team, which is not the same as nothing used.
    assert_eq!(
        row(&page, "team-team-b-unknown"),
        "team-b | GPU - type unknown | 1 | 1 device | - | - | - | 0"
    );
    assert!(page.contains("team-a/idle") && page.contains("/nodes/gpu-07"), "{page}");
    assert!(!page.contains("team-a/busy") && !page.contains("team-b/hidden"), "{page}");
    assert!(page.contains("--follow-cluster"), "{page}");
}

/// Namespaces of the table, in order.
fn namespaces(page: &str) -> Vec<&str> {
    let rows = page.split("id=\"team-").skip(1);
    rows.map(|row| row.split("-unknown\"").next().unwrap()).collect()
}

#[tokio::test]
async fn namespace_that_leaves_the_most_idle_is_named_and_first() {
    let idle = |namespace: &str, pod: &str| tenant(namespace, pod, Some(0));
    let slice = Tenant { ids: vec![ShareId::replica(UUID, 1); 9], ..idle("slices", "pod") };
    let devices = vec![
        device(1, tenant("busy", "pod", Some(1))),
        device(2, slice),
        device(3, idle("one", "pod")),
        device(4, idle("two", "first")),
        device(5, idle("two", "second")),
        device(6, tenant("two", "busy", Some(1))),
    ];
    let fleet = fleet(devices, fresh());
    let all = Visibility::everything();
    let page = ask(fleet.clone(), "/teams", all, None).await;
    // Devices count before time slices, however many.
    assert_eq!(namespaces(&page), ["two", "one", "slices", "busy"]);
    let (_, most) = page.split_once("id=\"most-idle\"").unwrap();
    let (most, _) = most.split_once("</p>").unwrap();
    assert!(most.contains(">two</a>") && most.contains("2 devices "), "{most}");
    assert!(most.contains("of 3 devices allocated"), "{most}");
    assert_eq!(page.matches("most idle</span>").count(), 1);
    assert!(page.contains("aria-sort=\"descending\"><a href=\"/teams?sort=-idle\""), "{page}");

    let page = ask(fleet.clone(), "/teams?sort=namespace", Visibility::everything(), None).await;
    assert_eq!(namespaces(&page), ["busy", "one", "slices", "two"]);
    assert!(page.contains("name=\"sort\" value=\"namespace\""), "{page}");
    assert!(page.contains("href=\"/teams?namespace=one&#38;sort=namespace\""), "{page}");
    let path = "/teams?namespace=one&sort=namespace";
    let page = ask(fleet.clone(), path, Visibility::everything(), None).await;
    assert!(page.contains("id=\"clear\" href=\"/teams?sort=namespace\""), "{page}");
    let page = ask(fleet, "/teams?namespace=one", Visibility::everything(), None).await;
    assert!(page.contains("id=\"clear\" href=\"/teams\""), "{page}");
    assert!(!page.contains("most idle") && !page.contains("most-idle"), "{page}");
}

#[tokio::test]
async fn one_namespace_is_selected_and_nodes_are_hidden_without_permission() {
    let visibility =
        Visibility { types: VisibleTypes::All, nodes: false, profiles: false, pods: false };
    let page = ask(fleet(usage(), fresh()), "/teams?namespace=team-a", visibility, None).await;
    assert!(page.contains("team-a/idle") && !page.contains("team-b"), "{page}");
    assert!(!page.contains("gpu-07") && !page.contains("GPU 2"), "{page}");
    assert!(page.contains("/api/v1/usage?namespace=team-a"), "{page}");
    let page =
        ask(fleet(usage(), fresh()), "/teams?namespace=nobody", Visibility::everything(), None)
            .await;
    assert!(page.contains("No allocation in this namespace"), "{page}");
}

#[tokio::test]
async fn missing_and_stale_usage_is_explained() {
    let page = ask(Fleet::default(), "/teams", Visibility::everything(), None).await;
    assert!(page.contains("No allocation is known"), "{page}");
    assert!(page.contains("--usage-interval"), "{page}");
    let late = Freshness::new(Moment::default(), Duration::ZERO);
    let page = ask(fleet(usage(), late), "/teams", Visibility::everything(), None).await;
    assert!(!page.contains("team-a"), "{page}");
}

#[tokio::test]
async fn pending_pods_and_ages_of_idle_pods_come_from_the_cluster() {
    let pod = |namespace: &str, name: &str, phase: Phase| ClusterPod {
        key: PodKey { namespace: namespace.to_owned(), name: name.to_owned() },
        phase,
        requirements: PodRequirements {
            amounts: Amounts::default().with("nvidia.com/gpu", 2),
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    };
    let idle = ClusterPod {
        started_at: Some(jiff::Timestamp::now().as_second() - 7_300),
        node: Some("gpu-07".to_owned()),
        ..pod("team-a", "idle", Phase::Bound)
    };
    let snapshot = ClusterSnapshot::new(
        [],
        [idle, pod("team-a", "waits", Phase::Pending), pod("team-b", "waits", Phase::Pending)],
    );
    let all = Visibility::everything();
    let page =
        ask(fleet(usage(), fresh()), "/teams?namespace=team-a", all, Some(snapshot.clone())).await;
    assert!(page.contains(">2 h<"), "{page}");
    assert!(page.contains("no node has this resource"), "{page}");
    assert!(!page.contains("team-b"), "{page}");
    let all = Visibility::everything();
    let page = ask(fleet(usage(), fresh()), "/teams", all, Some(snapshot)).await;
    assert_eq!(
        row(&page, "pending-1"),
        "team-b | any type, whole device | nvidia.com/gpu | 1 | 2 | no node has this resource"
    );
}

#[tokio::test]
async fn caption_states_how_many_rows_are_shown() {
    let team = |number: usize| tenant(&format!("team-{number:03}"), "busy", Some(1));
    let devices = (0..=MAX_ROWS / 2).map(|number| {
        let mut device = device(u8::try_from(number).unwrap(), team(2 * number));
        device.units[0].tenants.push(team(2 * number + 1));
        device
    });
    let fleet = fleet(devices.collect(), fresh());
    let page = ask(fleet.clone(), "/teams", Visibility::everything(), None).await;
    assert!(page.contains(", 500 of 502 rows<") && !page.contains("team-500"), "{page}");
    let page = ask(fleet, "/teams?namespace=team-500", Visibility::everything(), None).await;
    assert!(page.contains(", 1 row<") && page.contains("id=\"team-team-500-unknown\""), "{page}");
}
