//! The page of layouts: by keyboard, without scripts, live, and after going back.

use octavo_planner::reconcile::NodeLayoutStatus;

use super::chrome::{Start, browse};
use super::fixture::{Site, inventory};
use super::layout::{BLOCKERS, blocked_machine, layout_status};

const ENTER: &str = "\u{e007}";

/// A blocked layout on one node and an applied one on another.
async fn rolling_out() -> Site {
    let site = Site::of_the_demo().await;
    let machine = blocked_machine().await;
    site.set_layout_state("hgx-a100", &machine, &layout_status(&machine, 2, &BLOCKERS));
    let other = inventory("rtx-pro-6000").await;
    site.set_layout_state("rtx-pro-6000", &other, &applied("batch"));
    site
}

fn applied(name: &str) -> NodeLayoutStatus {
    NodeLayoutStatus {
        layout: Some(name.to_owned()),
        state: Some(octavo_model::reason::Reason::Applied.into()),
        ..NodeLayoutStatus::default()
    }
}

#[tokio::test]
async fn layouts_are_listed_with_their_blocker_and_lead_to_their_nodes() {
    let site = rolling_out().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/").await;
        page.click(".places a[href='/layouts']").await;
        page.until("nav.places [aria-current]", &["Layouts"]).await;
        page.until(".live", &["Live"]).await;
        page.until("#main tbody th a", &["serving", "batch", "hgx-a100"]).await;
        let problem = page.text("#layout-0 .whole").await;
        assert!(problem.starts_with("hgx-a100 ") && problem.contains("pid 4711"), "{problem}");
        assert_eq!(page.texts("#layout-0 .states-of li").await, ["blocked 1"]);
        assert_eq!(page.text("#layout-1 .since").await, "generated, or from the node");
        let changes = page.texts("#changes .what").await;
        assert!(changes.iter().any(|text| text.contains("Desired layout: batch")), "{changes:?}");
        page.press("j").await;
        page.until_true("return document.activeElement.innerText === 'serving'").await;
        page.press(ENTER).await;
        page.until_address(|address| address == "/nodes?layout=serving").await;
        page.back().await;
        page.click("#layout-0 a[href*='dry-run']").await;
        page.until_address(|address| address == "/layouts/dry-run?plan=serving&layout=serving")
            .await;
        page.until("#main tbody th", &["hgx-a100"]).await;
        page.back().await;
        page.click("#layout-0 a[href*='what-if']").await;
        page.until_address(|address| address == "/nodes/hgx-a100?layout=serving#what-if").await;
        page.assert_clean().await;
    })
    .await;
}

const OUTCOMES: &str = "#dry-run-outcomes .badge";

#[tokio::test]
async fn dry_run_over_a_selection_shows_its_sums_and_the_blockers_of_each_node() {
    let site = rolling_out().await;
    browse(&site.url, Start::default(), async |page| {
        // From the fragmented GPUs of a type to the plans of its nodes.
        page.open("/availability").await;
        page.click(".offer a[href='/layouts/dry-run?type=nvidia-a100-80gb']").await;
        page.until("#empty h2", &["No layout is selected"]).await;
        page.until(".live", &["Live"]).await;
        page.click("#plan-layout option[value='all-7g.80gb']").await;
        page.until_address(|address| address.contains("plan=all-7g.80gb")).await;
        page.until_text("#plan-hgx-a100", |text| text.contains("pid 4711")).await;
        let row = page.text("#plan-hgx-a100").await;
        assert!(row.starts_with("hgx-a100 blocked ") && row.contains("pid 4711"), "{row}");
        assert!(page.texts(OUTCOMES).await.contains(&"blocked".to_owned()));
        let changes = page.text("#dry-run-changes").await;
        assert!(changes.contains(" created."), "{changes}");
        // A narrower selection is part of the address, and going back restores the former one.
        let name = page.find("#dry-run-search").await;
        name.send_keys("rtx\n").await.unwrap();
        page.until_address(|address| address.contains("search=rtx")).await;
        page.back().await;
        page.until_text("#plan-hgx-a100", |text| text.contains("pid 4711")).await;
        page.open("/layouts/dry-run?plan=all-7g.80gb").await;
        page.until(".live", &["Live"]).await;
        page.press("j").await;
        page.until_true("return document.activeElement.matches('.dry-run tbody th a')").await;
        page.press(ENTER).await;
        page.until_address(|address| address.ends_with("?layout=all-7g.80gb#what-if")).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn dry_run_over_a_selection_works_without_scripts() {
    let site = rolling_out().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/nodes?search=a100").await;
        page.click("#dry-run").await;
        page.click("#plan-layout option[value='all-disabled']").await;
        page.click("form[action='/layouts/dry-run'] button").await;
        page.until_text("#plan-hgx-a100", |text| text.contains("blocked")).await;
        page.until_address(|address| address.contains("search=a100")).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn page_of_layouts_updates_live() {
    let site = Site::empty();
    let machine = inventory("rtx-pro-6000").await;
    site.put("a", &machine);
    browse(&site.url.clone(), Start::default(), async move |page| {
        page.open("/layouts").await;
        page.until("#empty h2", &["No node has a layout"]).await;
        page.until(".live", &["Live"]).await;
        site.set_layout_state("a", &machine, &applied("batch"));
        page.until("#layout-0 th a", &["batch"]).await;
        page.until_text("#changes .what", |text| text.contains("Layout state: applied")).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn page_of_layouts_works_without_scripts() {
    let site = rolling_out().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/layouts").await;
        page.click("#layout-0 .states-of a").await;
        page.until("#main tbody th", &["hgx-a100"]).await;
        page.assert_clean().await;
    })
    .await;
}
