//! Search from every page.

use super::chrome::{Start, browse};
use super::fixture::Site;
use super::sharing::give_notebooks;

const ENTER: &str = "\u{e007}";

#[tokio::test]
async fn node_device_and_pod_are_found_from_any_page_by_keyboard() {
    let site = Site::of_the_demo().await;
    give_notebooks(&site).await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/availability").await;
        page.press("/").await;
        page.until_true("return document.activeElement.id === 'find'").await;
        page.press(&format!("notebook-{ENTER}")).await;
        page.until("h1", &["Search"]).await;
        page.until("#search-total", &["3 matches for notebook-"]).await;
        let pods = page.texts(".results li").await;
        assert!(pods[0].starts_with("team-a/notebook-anna GPU 0 on notebooks"), "{pods:?}");
        page.press("j").await;
        page.press(ENTER).await;
        page.until("h1", &["notebooks"]).await;
        page.until_address(|address| address.starts_with("/nodes/notebooks#device-")).await;
        // A complete name of a node leads to it.
        page.press("/").await;
        page.press(&format!("HGX-A100{ENTER}")).await;
        page.until("h1", &["hgx-a100"]).await;
        page.click(".device details.ids summary").await;
        let ids = page.texts(".device details.ids[open] b").await;
        let uuid = ids.iter().find(|id| id.starts_with("GPU-")).unwrap();
        page.open(&format!("/search?q={uuid}")).await;
        page.until("#found-devices", &["Devices 1"]).await;
        page.click(".results a").await;
        page.until_address(|address| address.starts_with("/nodes/hgx-a100#device-")).await;
        page.open("/search?q=team").await;
        page.until("#found-namespaces", &["Namespaces 1"]).await;
        page.click(".results a").await;
        page.until("#search-total", &["5 matches in the namespace team-a"]).await;
        page.open("/search?q=h100").await;
        page.click("section[aria-labelledby='found-types'] a").await;
        page.until_address(|address| address == "/availability#of-nvidia-h100-80gb").await;
        page.open("/search?q=3g.40gb").await;
        page.click("section[aria-labelledby='found-mig-profiles'] a").await;
        page.until_address(|address| address == "/availability#profile-3g.40gb").await;
        page.open("/search?q=nothing-like-it").await;
        page.until("#search-total", &["0 matches for nothing-like-it"]).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn search_is_a_form_without_scripts() {
    let site = Site::of_the_demo().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/").await;
        let field = page.find("#find").await;
        field.send_keys("a100").await.unwrap();
        page.click(".find button").await;
        page.until("#found-nodes", &["Nodes 2"]).await;
        page.back().await;
        page.until_address(|address| address == "/").await;
    })
    .await;
}
