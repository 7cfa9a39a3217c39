//! The overview: problems, capacity and pending pods; by keyboard, without scripts, live, and after going back.

use octavo_model::inventory::Condition;
use serde_json::json;

use super::chrome::{Start, browse};
use super::fixture::{Site, inventory};
use super::layout::{BLOCKERS, blocked_machine, layout_status};

const ENTER: &str = "\u{e007}";

/// Demo machines, a blocked layout and a stale node.
async fn troubled() -> Site {
    let site = Site::of_the_demo().await;
    site.put_stale("stale", &inventory("t4").await);
    let machine = blocked_machine().await;
    let layout = layout_status(&machine, 2, &BLOCKERS);
    site.set_layout_state("hgx-a100", &machine, &layout);
    site
}

#[tokio::test]
async fn ac_001_overview_lists_problems_most_severe_first_with_remedies() {
    let site = troubled().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/").await;
        page.until("nav.places [aria-current]", &["Overview"]).await;
        let headings = page.texts("#attention h3").await;
        assert!(headings[0].starts_with("Needs action"), "{headings:?}");
        assert!(headings[1].starts_with("Needs attention"), "{headings:?}");
        let heads = page.texts(".problem-head").await;
        assert!(heads.iter().any(|head| head.starts_with("failing h200 ")), "{heads:?}");
        assert!(heads.iter().any(|head| head == "blocked hgx-a100 GPU 1"), "{heads:?}");
        assert!(heads.iter().any(|head| head == "failed hgx-a100 GPU 2"), "{heads:?}");
        assert!(heads.iter().any(|head| head.starts_with("stale stale for ")), "{heads:?}");
        let reasons = page.texts(".problem-text").await;
        assert!(reasons.iter().any(|text| text.ends_with("pid 4711, python train.py")), "{reasons:?}");
        let remedies = page.texts(".problem-do").await;
        assert_eq!(remedies.len(), heads.len());
        // The texts are not cut.
        let cut = "return [...document.querySelectorAll('.problem-text')].some(e => e.scrollHeight > e.clientHeight + 1)";
        assert_eq!(page.ask(cut, json!([])).await, false);
        let products = page.texts(".capacity tbody th a").await;
        assert!(products.contains(&"NVIDIA H200 141 GB".to_owned()), "{products:?}");
        assert_eq!(page.count("#not-followed").await, 1);
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn overview_is_navigated_by_keyboard_and_restored_by_going_back() {
    let site = troubled().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/").await;
        page.until(".live", &["Live"]).await;
        let heads = page.texts(".problem-head a").await;
        page.press("j").await;
        page.until_true(&format!("return document.activeElement.innerText === '{}'", heads[0]))
            .await;
        page.press("j").await;
        page.until_true(&format!("return document.activeElement.innerText === '{}'", heads[1]))
            .await;
        page.press("k").await;
        page.press(ENTER).await;
        page.until("h1", &[heads[0].as_str()]).await;
        page.until("nav.places [aria-current]", &["Nodes"]).await;
        page.back().await;
        page.until(".problem-head a", &{ heads.iter() }.map(String::as_str).collect::<Vec<_>>())
            .await;
        page.press("/").await;
        page.until_true("return document.activeElement.id === 'find'").await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn overview_works_without_scripts_and_former_addresses_lead_to_the_list() {
    let site = troubled().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/").await;
        assert_eq!(page.count("html.js").await, 0, "scripts run after all");
        page.click("a[href='/nodes?problem=failing']").await;
        page.until("#main tbody th", &["h200"]).await;
        page.open("/?search=a100").await;
        page.until_address(|address| address == "/nodes?search=a100").await;
        page.until("#main tbody th", &["hgx-a100", "mixed-l40s-a100"]).await;
    })
    .await;
}

#[tokio::test]
async fn overview_updates_live_from_empty_to_healthy_to_broken() {
    let site = Site::empty();
    let mut machine = inventory("rtx-pro-6000").await;
    browse(&site.url.clone(), Start::default(), async move |page| {
        page.open("/").await;
        page.until("#empty h2", &["No node has reported yet"]).await;
        page.until(".live", &["Live"]).await;
        site.put("node-a", &machine);
        page.until("#attention h2", &["Nothing needs attention"]).await;
        machine.devices[0].condition = Condition::Failing { reason: "GPU is lost".to_owned() };
        site.put("node-a", &machine);
        page.until("#attention h2", &["1 problem on 1 of 1 node"]).await;
        page.until(".problem-text", &["Failing: GPU is lost"]).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn many_problems_are_counted_and_lead_to_their_nodes() {
    let site = Site::empty();
    let mut machine = inventory("t4").await;
    machine.devices[0].condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    for number in 0..60 {
        site.put(&format!("node-{number:03}"), &machine);
    }
    browse(&site.url, Start::default(), async |page| {
        page.open("/").await;
        page.until(".problem-head", &["failing 60 problems on 60 nodes"]).await;
        page.click(".problem-head a").await;
        page.until_address(|address| address == "/nodes?problem=failing").await;
        page.until_true("return document.querySelectorAll('#main tbody th').length === 60").await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn problems_are_aligned_in_columns_and_stacked_in_a_narrow_window() {
    let site = troubled().await;
    let edges = "return Object.fromEntries(['.badge', 'a', 'b', '.problem-text', '.problem-do'].map(part => {\
         const all = [...document.querySelectorAll('#attention li')].map(line => line.querySelector(part)).filter(e => e);\
         return [part, [...new Set(all.map(e => Math.round(e.getBoundingClientRect().left)))]]; }))";
    browse(&site.url, Start::default(), async |page| {
        page.open("/").await;
        let edges = page.ask(edges, json!([])).await;
        let left = |part: &str| {
            assert_eq!(edges[part].as_array().unwrap().len(), 1, "{part}: {edges}");
            edges[part][0].as_u64().unwrap()
        };
        let columns = [".badge", "a", "b", ".problem-text", ".problem-do"].map(left);
        assert!(columns.is_sorted_by(|one, other| one < other), "{columns:?}");
    })
    .await;
    let start = Start { narrow: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/").await;
        let edges = page.ask(edges, json!([])).await;
        assert_eq!(edges[".problem-text"], edges[".badge"], "{edges}");
        assert_eq!(edges[".problem-do"], edges[".badge"], "{edges}");
    })
    .await;
}
