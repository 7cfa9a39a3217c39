//! The map: colors, groups, keyboard, links.

use serde_json::json;

use super::chrome::{Start, browse};
use super::fixture::{Site, inventory};
use super::sharing::{give_notebooks, give_shares};

const DOWN: &str = "\u{e015}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const HOME: &str = "\u{e011}";
const RIGHT: &str = "\u{e014}";

/// Accessible name of the focused cell.
const FOCUSED: &str = "return document.activeElement.getAttribute('aria-label') ?? ''";
/// Text beside the focused cell.
const TIP: &str = "return getComputedStyle(document.activeElement, '::after').content";

#[tokio::test]
async fn every_device_has_a_cell_and_the_color_is_a_link() {
    let site = Site::of_the_demo().await;
    give_notebooks(&site).await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/map").await;
        page.until("#map-caption", &["38 devices on 8 nodes"]).await;
        assert_eq!(page.count("#map a.cell").await, 38);
        // Slices are drawn inside the cell.
        let slices = page.count("#map a[href^='/nodes/hgx-a100#'] .mig i").await;
        assert!(slices > 1, "{slices}");
        page.click("#by-utilization").await;
        page.until_address(|address| address == "/map?by=utilization").await;
        page.until_true("return document.querySelectorAll('#map .step-4').length === 2").await;
        let legend = page.texts("#map-legend li").await;
        assert!(legend.contains(&"2 60 to 79 %".to_owned()), "{legend:?}");
        assert!(
            legend.contains(&"- 36 not reported".to_owned())
                || legend.contains(&"36 not reported".to_owned()),
            "{legend:?}"
        );
        page.click("#group-type").await;
        page.until_address(|address| address == "/map?by=utilization&group=type").await;
        page.back().await;
        page.until_true("return document.querySelectorAll('.map-group').length > 6").await;
        // The address is sufficient for another reader, and for a reload.
        page.open("/map?by=utilization&group=type").await;
        page.until_true("return document.getElementById('group-type').ariaCurrent === 'true'")
            .await;
        page.click("#map-state option[value=degraded]").await;
        page.until("#map-caption", &["8 devices on 1 node"]).await;
        page.until_address(|address| address.contains("by=utilization")).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn map_is_one_tab_stop_whose_cells_are_reached_by_arrow_keys() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/map").await;
        page.until(".live", &["Live"]).await;
        let stops = "return [...document.querySelectorAll('#map a.cell')].filter(cell => cell.tabIndex === 0).length";
        page.until_true(&stops.replace("return ", "return 1 === ")).await;
        page.ask("document.querySelector('#map a.cell').focus()", json!([])).await;
        let at = async || page.ask(FOCUSED, json!([])).await.as_str().unwrap().to_owned();
        assert!(at().await.starts_with("dgx-h100 GPU 0: "), "{}", at().await);
        page.press(RIGHT).await;
        assert!(at().await.starts_with("dgx-h100 GPU 1: "), "{}", at().await);
        // The text of the cell is visible on focus, and Escape hides it.
        let tip = page.ask(TIP, json!([])).await;
        assert!(tip.as_str().unwrap().contains("dgx-h100 GPU 1"), "{tip}");
        page.press(ESCAPE).await;
        page.until_true("return document.documentElement.classList.contains('quiet-tips')").await;
        assert_eq!(page.ask(TIP, json!([])).await, "none");
        page.press(DOWN).await;
        assert!(!at().await.starts_with("dgx-h100 "), "{}", at().await);
        page.press(HOME).await;
        assert!(at().await.starts_with("dgx-h100 GPU 0: "), "{}", at().await);
        // An update preserves the focus and the single stop.
        site.put("zz-new", &inventory("t4").await);
        page.until_true("return document.querySelector(\"a[href^='/nodes/zz-new#']\") !== null")
            .await;
        assert!(at().await.starts_with("dgx-h100 GPU 0: "), "{}", at().await);
        page.until_true(&stops.replace("return ", "return 1 === ")).await;
        page.press(ENTER).await;
        page.until("h1", &["dgx-h100"]).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn map_is_links_and_a_form_without_scripts() {
    let site = Site::of_the_demo().await;
    give_shares(&site).await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/map").await;
        page.click("#by-utilization").await;
        page.until_address(|address| address == "/map?by=utilization").await;
        let field = page.find("#map-search").await;
        field.send_keys("shared").await.unwrap();
        page.click("form.filter button").await;
        page.until("#map-caption", &["8 devices on 1 node"]).await;
        page.until_address(|address| address.contains("by=utilization")).await;
        page.click("#view-table").await;
        page.until_true("return document.querySelectorAll('.map-table tbody tr').length === 8")
            .await;
        page.click(".map-table tbody a").await;
        page.until("h1", &["shared"]).await;
    })
    .await;
}
