//! The page of layouts and its links, without a browser.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use octavo_fleet::changes::Baseline;
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Freshness, Node};

use super::*;
use crate::overview::tests::{blocked, device, fleet, inventory, node, view_of};
use crate::tests::{get, text};

/// Status of a layout in this state on all devices.
fn layout(name: &str, state: Reason) -> NodeLayoutStatus {
    NodeLayoutStatus {
        layout: Some(name.to_owned()),
        state: Some(state.into()),
        ..NodeLayoutStatus::default()
    }
}

/// Inserts nodes with these layouts.
fn insert(fleet: &mut Fleet, clock: Clock, nodes: &[(&str, NodeLayoutStatus)]) {
    let fresh = Freshness::new(clock.now(), Duration::from_hours(1));
    for (name, layout) in nodes {
        let node = node(name, &inventory(vec![device(0)]), Some(layout), fresh.clone());
        fleet.nodes.insert(Arc::new(node));
    }
}

#[tokio::test]
async fn each_layout_has_a_row_with_its_nodes_by_state_and_the_first_problem() {
    let clock = Clock::start();
    let mut fleet = fleet(64, clock);
    let manual = NodeLayoutStatus { is_manual: true, ..layout("training", Reason::Pending) };
    insert(
        &mut fleet,
        clock,
        &[
            ("a", layout("batch", Reason::Applied)),
            ("b", layout("training", Reason::Applied)),
            ("c", manual),
        ],
    );
    let (_fleet, view) = view_of(fleet, clock);
    let page = text(get(&view, "/layouts").await).await;
    let places = ["serving", "training", "batch"].map(|name| page.find(&format!(">{name}</a>")));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    assert!(page.contains("selected manually on 1 node"), "{page}");
    assert!(page.contains("in use by pod team/holder"), "{page}");
    assert!(page.contains("/nodes/c?layout=training#what-if"), "{page}");
    assert!(page.contains("No change of a layout"), "{page}");
    // The number of each state is that of the linked list.
    let (_, states) = page.split_once("<ul class=\"states-of\">").unwrap();
    let items: Vec<&str> = states.split("<li><a href=\"").skip(1).collect();
    assert!(items.len() >= 4, "{items:?}");
    for item in items {
        let (href, rest) = item.split_once('"').unwrap();
        let (_, rest) = rest.split_once("<b>").unwrap();
        let (count, _) = rest.split_once("</b>").unwrap();
        let list = text(get(&view, &href.replace("&#38;", "&")).await).await;
        assert_eq!(list.matches(" data-row ").count().to_string(), count, "{href}");
    }
}

#[tokio::test]
async fn recent_changes_of_the_fleet_are_newest_first_and_bounded() {
    let clock = Clock::start();
    let mut fleet = Fleet::default();
    for number in 0..40_u64 {
        let name = format!("n{number:02}");
        let before = layout("serving", Reason::Applied);
        insert(&mut fleet, clock, &[(&name, before)]);
        let known = Arc::clone(fleet.nodes.get(&name.parse().unwrap()).unwrap());
        let mut baseline = Baseline::default();
        baseline.update(&known.report());
        insert(&mut fleet, clock, &[(&name, blocked("in use by pod team/holder"))]);
        let new = Arc::clone(fleet.nodes.get(&name.parse().unwrap()).unwrap());
        let changes = baseline.update(&new.report());
        let changes = known.changes_with(changes, Moment::from_millis(1000 * number));
        fleet.nodes.insert(Arc::new(Node::clone(&new).with_changes(changes)));
    }
    let now = Moment::from_millis(60_000);
    assert!(recent_changes(&fleet, (&clock, now), MAX_CHANGES, |_| false).is_empty());
    let changes = recent_changes(&fleet, (&clock, now), MAX_CHANGES, Change::is_of_health);
    let nodes: Vec<&str> = changes.iter().map(|change| change.node.as_str()).collect();
    assert_eq!((nodes.len(), nodes[0], nodes[29]), (MAX_CHANGES, "n39", "n10"));
    assert_eq!(changes[0].entry.text, "Layout state: applied -> blocked");
    assert_eq!(changes[0].entry.age_ms, 21_000);
}

#[tokio::test]
async fn page_without_layouts_explains_how_to_select_one() {
    let clock = Clock::start();
    let mut fleet = Fleet::default();
    let (_empty, view) = view_of(fleet.clone(), clock);
    let page = text(get(&view, "/layouts").await).await;
    assert!(page.contains("No node has a layout") && page.contains("octavo.dev/layout="), "{page}");
    let invalid =
        NodeLayoutStatus { notice: Some("invalid file".to_owned()), ..NodeLayoutStatus::default() };
    insert(&mut fleet, clock, &[("a", invalid)]);
    let (_fleet, view) = view_of(fleet, clock);
    let page = text(get(&view, "/layouts").await).await;
    assert!(page.contains("1 node reports"), "{page}");
    assert!(!page.contains("No node has a layout"), "{page}");
}

/// Text of the table row with this id, without tags.
fn row(page: &str, id: &str) -> String {
    let (_, rest) = page.split_once(&format!("id=\"{id}\"")).unwrap();
    let (row, _) = rest.split_once("</tr>").unwrap();
    let texts = row.split('<').filter_map(|part| Some(part.split_once('>')?.1.trim()));
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" | ")
}

#[tokio::test]
async fn dry_run_over_a_selection_has_its_sums_and_the_obstacles_of_each_node() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layouts.yaml");
    let text_of_file = "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  cut:\n  - devices: {index: [0]}\n    mig: {1g.5gb: 1}\n  off:\n  - devices: all\n    mig: disabled\n";
    std::fs::write(&file, text_of_file).unwrap();
    let clock = Clock::start();
    let mut fleet = Fleet::default();
    let applied = |name: &str| layout(name, Reason::Applied);
    insert(&mut fleet, clock, &[("a", applied("off")), ("b", applied("off")), ("c", applied("x"))]);
    let (_fleet, view) = view_of(fleet, clock);
    let layouts = octavo_files::config_files::LayoutFile::open(&file).unwrap();
    let view = view.with_layouts(layouts);

    let page = text(get(&view, "/layouts").await).await;
    let link = "/layouts/dry-run?plan=off&#38;layout=off";
    assert!(page.contains(link), "{page}");
    let page = text(get(&view, &link.replace("&#38;", "&")).await).await;
    assert!(page.contains("2 nodes with the layout off"), "{page}");
    assert!(page.contains("<option value=\"off\" selected>off</option>"), "{page}");
    assert!(page.contains("0 devices change: 0 instances destroyed, 0 created."), "{page}");
    assert_eq!(row(&page, "plan-a"), "a | no changes | - | 0 | 0");
    assert!(!page.contains("id=\"plan-c\""), "{page}");

    // The devices cannot be partitioned.
    let page = text(get(&view, "/layouts/dry-run?plan=cut&limit=2").await).await;
    assert!(page.contains("Sum of 2 nodes") && page.contains("id=\"next\""), "{page}");
    let infeasible = row(&page, "plan-b");
    assert!(infeasible.starts_with("b | infeasible | "), "{infeasible}");
    assert!(infeasible.contains("cannot be partitioned"), "{infeasible}");
    let (_, next) = page.split_once("id=\"next\" href=\"").unwrap();
    let next = next.split('"').next().unwrap().replace("&#38;", "&");
    assert!(next.starts_with("/layouts/dry-run?plan=cut&limit=2&continue="), "{next}");
    let page = text(get(&view, &next).await).await;
    assert!(page.contains("id=\"plan-c\"") && !page.contains("id=\"plan-b\""), "{page}");

    let page = text(get(&view, "/layouts/dry-run?plan=nothing").await).await;
    assert!(row(&page, "plan-a").contains("no plan"), "{page}");
    let page = text(get(&view, "/layouts/dry-run?type=nvidia-h200-141gb").await).await;
    assert!(page.contains("No layout is selected") && page.contains("3 nodes"), "{page}");
    let wrong = get(&view, "/layouts/dry-run?plan=off&sort=size").await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
}
