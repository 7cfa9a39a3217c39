//! Tests of the results besides nodes, devices and pods.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use octavo_fleet::access::VisibleTypes;
use octavo_fleet::cluster::{Amounts, ClusterNode, ClusterSnapshot, Readiness};
use octavo_fleet::hardware_profile::document::ProfileRow;
use octavo_fleet::hardware_profile::{HardwareProfile, Specs};
use octavo_kube::cluster::WatchedCluster;
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::Freshness;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::*;
use crate::overview::tests::{blocked, device, inventory, node, view_of};
use crate::tests::text;

const H200: &str = "nvidia-h200-141gb";

/// Response to a search of a fleet with a node of an agent that has the layout `serving`, and a node of the cluster that
/// offers partitions.
async fn ask(path: &str, visibility: Visibility) -> String {
    let clock = Clock::start();
    let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
    let mut fleet = Fleet::default();
    let layout = blocked("");
    let machine = inventory(vec![device(0), device(1), device(2)]);
    fleet.nodes.insert(Arc::new(node("gpu-01", &machine, Some(&layout), fresh)));
    let amounts = Amounts::default().with("nvidia.com/mig-3g.71gb", 2).with("pods", 110);
    let offered = ClusterNode {
        name: "mig-01".to_owned(),
        labels: [("octavo.dev/type".to_owned(), H200.to_owned())].into(),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    };
    let (_cluster, watched) = watch::channel(Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new([offered], [])),
        current_at: Some(Instant::now()),
        ..WatchedCluster::default()
    }));
    let (_fleet, view) = view_of(fleet, clock);
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(visibility);
    let site = crate::router(Counter::new(view, Some(watched)));
    let answer = site.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    text(answer).await
}

#[tokio::test]
async fn types_profiles_and_layouts_are_found_and_lead_to_their_pages() {
    for (query, id, href) in [
        ("h200", "types", "/availability#of-nvidia-h200-141gb"),
        ("NVIDIA%20H200", "types", "/availability#of-nvidia-h200-141gb"),
        ("3g.71", "mig-profiles", "/availability#profile-3g.71gb"),
        ("SERV", "layouts", "/nodes?layout=serving"),
    ] {
        let page = ask(&format!("/search?q={query}"), Visibility::everything()).await;
        assert!(page.contains(&format!("id=\"found-{id}\"")), "{query}: {page}");
        assert!(page.contains(&format!("href=\"{href}\"")), "{query}: {page}");
        assert!(page.contains("1 match "), "{query}: {page}");
    }
    // The page of availability has the places that the results lead to.
    let page = ask("/availability", Visibility::everything()).await;
    for id in ["of-nvidia-h200-141gb", "profile-3g.71gb"] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}: {page}");
    }
    let page = ask("/search?q=h200&namespace=team-a", Visibility::everything()).await;
    assert!(page.contains("0 matches"), "{page}");
}

#[tokio::test]
async fn nfr_003_names_are_found_with_the_permission_of_their_pages() {
    let types = VisibleTypes::Only([H200.parse().unwrap()].into());
    let own = Visibility { types, nodes: false, profiles: false, pods: false };
    let page = ask("/search?q=h200", own.clone()).await;
    assert!(page.contains("id=\"found-types\""), "{page}");
    let page = ask("/search?q=serving", own).await;
    assert!(!page.contains("found-layouts") && page.contains("list nodes.octavo.dev"), "{page}");
    assert!(page.contains("list hardwareprofiles.octavo.dev"), "{page}");
    let other = VisibleTypes::Only(["nvidia-l4-24gb".parse().unwrap()].into());
    let other = Visibility { types: other, nodes: false, profiles: false, pods: false };
    for query in ["h200", "3g.71gb"] {
        let page = ask(&format!("/search?q={query}"), other.clone()).await;
        assert!(page.contains("0 matches"), "{query}: {page}");
    }
}

#[test]
fn hardware_profile_is_found_by_its_name_and_display_name() {
    let bare = HardwareProfile::default();
    let mut row = ProfileRow::new(&bare, (None, &[]), |_| Specs::default());
    (row.namespace, row.name) = ("opendatahub".to_owned(), "h200-large".to_owned());
    row.display_name = "Large Models".to_owned();
    for query in ["large m", "H200-", "opendatahub/h200"] {
        let group = names::hardware_profiles(query, [&row].into_iter());
        let href = group.results[0].href.as_deref();
        assert_eq!(href, Some("/profiles/opendatahub/h200-large"), "{query}");
    }
    assert_eq!(names::hardware_profiles("small", [&row].into_iter()).count, 0);
}

#[test]
fn layout_of_the_file_without_nodes_leads_to_its_dry_run() {
    let file =
        "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  batch: [{devices: all, mig: {}}]\n";
    let file = octavo_files::layouts::parse(file).unwrap();
    let group = names::layouts("batch", &Fleet::default(), Some(&file.layouts));
    assert_eq!(group.results[0].href.as_deref(), Some("/layouts/dry-run?plan=batch"));
    assert_eq!(group.results[0].about, "selected on no node");
}
