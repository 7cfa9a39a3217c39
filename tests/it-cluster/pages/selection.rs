//! Selected nodes stay selected while the list changes.

use std::sync::Arc;

use octavo_fleet::cluster::ClusterSnapshot;
use serde_json::json;

use super::chrome::{Start, browse};
use super::fixture::{MACHINES, Site, inventory};
use super::profiles::{cluster, node};

const NAMES: &str = "#main tbody th";
const ENTER: &str = "\u{e007}";

/// Values that the form would send, in order.
const SENT: &str = "return [...new FormData(document.getElementById('selection'))].map(one => one.join('=')).sort()";

#[tokio::test]
async fn selection_survives_refresh_filter_and_visit_to_a_node() {
    let site = Site::of_the_demo().await;
    browse(&site.url.clone(), Start::default(), async move |page| {
        // High enough that no scrolling is necessary.
        page.resize(1800).await;
        page.open("/nodes").await;
        page.until(NAMES, &MACHINES).await;
        page.until("#picked", &["No nodes selected"]).await;
        page.click("#pick-h200").await;
        page.click("#pick-hgx-a100").await;
        page.until("#picked", &["2 nodes selected"]).await;
        // Screen readers announce it.
        page.until("#announcement", &["2 nodes selected"]).await;
        assert!(
            page.find("#announcement").await.attr("role").await.unwrap()
                == Some("status".to_owned())
        );

        // The fleet changes.
        site.put("another", &inventory("t4").await);
        page.until_true("return document.getElementById('pick-another') !== null").await;
        page.until("#picked", &["2 nodes selected"]).await;
        let checked =
            "return [...document.querySelectorAll('.pick:checked')].map(one => one.value)";
        assert_eq!(page.ask(checked, json!([])).await, json!(["h200", "hgx-a100"]));
        let some = "return document.getElementById('pick-all').indeterminate";
        assert_eq!(page.ask(some, json!([])).await, true);

        // A filter hides one of them.
        page.find("#search").await.send_keys("a100").await.unwrap();
        page.until(NAMES, &["hgx-a100", "mixed-l40s-a100"]).await;
        page.until("#picked", &["2 nodes selected, 1 not listed here"]).await;
        assert_eq!(page.ask(SENT, json!([])).await, json!(["node=h200", "node=hgx-a100"]));

        // One checkbox selects all listed nodes, and only them.
        page.click("#pick-all").await;
        page.until("#picked", &["3 nodes selected, 1 not listed here"]).await;
        page.click("#pick-all").await;
        page.until("#picked", &["1 node selected, 1 not listed here"]).await;

        page.click("#open-hgx-a100").await;
        page.until("h1", &["hgx-a100"]).await;
        page.open("/nodes").await;
        page.until("#picked", &["1 node selected"]).await;
        page.click("#pick-none").await;
        page.until("#picked", &["No nodes selected"]).await;
        assert_eq!(page.ask(SENT, json!([])).await, json!([]));
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn nodes_are_selected_by_keyboard_alone() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        let focus = |id: &str| format!("return document.activeElement.id === '{id}'");
        page.open("/nodes").await;
        page.until(NAMES, &MACHINES).await;
        page.press("j").await;
        page.press("j").await;
        page.until_true(&focus("open-dgx-h100")).await;
        page.press("x").await;
        page.until("#picked", &["1 node selected"]).await;
        // The focus stays, and navigation continues from there.
        page.press("j").await;
        page.press("j").await;
        page.until_true(&focus("open-h200")).await;
        page.press("x").await;
        page.until("#announcement", &["2 nodes selected"]).await;
        page.press("x").await;
        page.until("#announcement", &["1 node selected"]).await;
        assert_eq!(page.ask(SENT, json!([])).await, json!(["node=dgx-h100"]));
        // Space toggles a focused checkbox.
        page.ask("document.getElementById('pick-h200').focus()", json!([])).await;
        page.press(" ").await;
        page.until("#announcement", &["2 nodes selected"]).await;
        page.press("j").await;
        page.until_true(&focus("open-hgx-a100")).await;
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn group_is_selected_by_keyboard_and_filter_sort_and_selection_stay() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes?sort=-name").await;
        page.click("#pick-h200").await;
        page.press("g").await;
        page.until_true("return location.search === '?sort=-name&group=type'").await;
        page.until("#group-mixed", &["Mixed"]).await;
        page.until("#group-nothing", &["no accelerator"]).await;
        page.until("#picked", &["1 node selected"]).await;
        // It is the only node of its group.
        let on = |id: &str| format!("return document.getElementById('pick-group-{id}').checked");
        page.until_true(&on("of-nvidia-h200-141gb")).await;
        page.ask("document.getElementById('pick-group-mixed').focus()", json!([])).await;
        page.press(" ").await;
        page.until("#picked", &["2 nodes selected"]).await;
        assert_eq!(page.ask(SENT, json!([])).await, json!(["node=h200", "node=mixed-l40s-a100"]));
        // The fleet changes: a new node of that group is not selected.
        site.put("h200-too", &inventory("h200").await);
        page.until_true(
            "return document.getElementById('pick-group-of-nvidia-h200-141gb').indeterminate",
        )
        .await;
        page.find("#search").await.send_keys("h200").await.unwrap();
        page.until(NAMES, &["nvidia-h200-141gb 2 nodes", "h200-too", "h200"]).await;
        page.until("#picked", &["2 nodes selected, 1 not listed here"]).await;
        page.ask("document.activeElement.blur()", json!([])).await;
        page.press("g").await;
        page.until(NAMES, &["h200-too", "h200"]).await;
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn checkboxes_and_button_are_a_form_without_scripts() {
    let site = Site::of_the_demo().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/nodes").await;
        page.click("#pick-h200").await;
        page.click("#pick-dgx-h100").await;
        let button = page.find("#make-profile").await;
        assert_eq!(button.text().await.unwrap(), "Create Hardware Profile from Selection");
        button.send_keys(ENTER).await.unwrap();
        page.until("h1", &["New hardware profile"]).await;
        let sent =
            "return [...document.querySelectorAll('#draft [name=node]')].map(one => one.value)";
        assert_eq!(page.ask(sent, json!([])).await, json!(["dgx-h100", "h200"]));
        assert_eq!(page.address().await, "/profiles/new");
    })
    .await;
}

#[tokio::test]
async fn one_of_several_types_is_chosen_by_button_without_scripts() {
    let site = cluster().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/nodes").await;
        page.click("#pick-h200").await;
        page.click("#pick-dgx-h100").await;
        page.click("#make-profile").await;
        page.until(
            "#refused .chip",
            &["only nvidia-h100-80gb", "only nvidia-h200-141gb"],
        )
        .await;
        page.click("#refused li:last-child button").await;
        page.until(".title .soft", &["2 nodes selected: dgx-h100, h200"])
            .await;
        page.until_true("return document.getElementById('yaml')?.innerText.includes('octavo.dev/type: nvidia-h200-141gb')")
            .await;
        assert_eq!(page.address().await, "/profiles/new");
    })
    .await;
}

/// Nodes with names of maximum length.
fn thousand() -> Vec<String> {
    let label = "x".repeat(60);
    let rest = [label.as_str(); 4].join(".");
    (0..1000).map(|at| format!("n{at:04}.{rest}.a")).collect()
}

#[tokio::test]
async fn ac_002_profile_is_created_from_a_thousand_nodes_with_long_names() {
    let names = thousand();
    let site = Site::empty();
    let machine = inventory("t4").await;
    for name in &names {
        site.put(name, &machine);
    }
    let of = |names: &[String]| {
        let nodes = names.iter().map(|name| node(name, "nvidia-t4-16gb"));
        let nodes = nodes.map(|node| (node.name.clone(), Arc::new(node)));
        ClusterSnapshot::with_nodes(nodes.collect())
    };
    site.follow(of(&names), Vec::new());
    browse(&site.url.clone(), Start::default(), async move |page| {
        page.open("/nodes").await;
        // Like a user who ticks the checkbox on every page of the list.
        page.ask(
            "sessionStorage.setItem('octavo-picked', JSON.stringify(arguments[0]))",
            json!([names]),
        )
        .await;
        page.open("/nodes").await;
        let picked = "1000 nodes selected, 800 not listed here";
        page.until("#picked", &[picked]).await;
        page.click("#make-profile").await;
        page.until("h1", &["New hardware profile"]).await;
        page.until_true("return document.getElementById('yaml')?.innerText.includes('octavo.dev/type: nvidia-t4-16gb')")
            .await;
        let selected = page.text(".title .soft").await;
        assert!(selected.starts_with("1000 nodes selected: n0000."), "{selected}");
        // Filled-in values are sent with them, and no name is in an address or link.
        page.find("#name").await.clear().await.unwrap();
        page.find("#name").await.send_keys("many").await.unwrap();
        page.press(ENTER).await;
        page.until_true("return document.getElementById('yaml').innerText.includes('name: many')")
            .await;
        assert_eq!(page.address().await, "/profiles/new");
        let links = "return [...document.querySelectorAll('[href]')].map(one => one.getAttribute('href').length).every(one => one < 200)";
        assert_eq!(page.ask(links, json!([])).await, true);
        // The page still follows the cluster.
        let more: Vec<String> = names.iter().cloned().chain(["another".to_owned()]).collect();
        site.put("another", &machine);
        site.follow(of(&more), Vec::new());
        page.until_true("return document.getElementById('notes')?.innerText.includes('one more node has the type nvidia-t4-16gb') === true")
            .await;
        page.until_true("return document.getElementById('yaml').innerText.includes('name: many')")
            .await;
        page.assert_clean().await;
    })
    .await;
}
