//! The node view: list, filters, sorting.

use super::chrome::{Start, browse};
use super::fixture::{MACHINES, Site, inventory};

const NAMES: &str = "#main tbody th";

#[tokio::test]
async fn ac_001_every_node_is_listed_with_its_devices_and_state() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.until(NAMES, &MACHINES).await;
        let row = "#node-hgx-a100 td";
        let cells = page.texts(row).await;
        assert_eq!(cells[0], "nvidia-a100-80gb ×8");
        assert_eq!(cells[1], "4 partitioned, 4 free");
        assert_eq!(cells[2], "640 GiB");
        assert_eq!(cells[3], "mixed");
        assert_eq!(cells[4], "11 of 12 free");
        assert_eq!(cells[5], "ok");
        assert!(cells[6].ends_with(" s ago"), "{cells:?}");
        assert_eq!(page.count("#node-hgx-a100 .bar rect").await, 8);
        assert_eq!(page.text("#node-h200 .at-state .badge").await, "degraded");
        let why = page.text("#node-h200 .at-state .why").await;
        assert!(why.ends_with("GPU is lost (15)"), "{why}");
        assert_eq!(page.text("#node-cpu-only .at-types").await, "no accelerator");
        let label = page.find("#node-hgx-a100 .bar").await;
        let label = label.attr("aria-label").await.unwrap();
        assert_eq!(label.as_deref(), Some("4 partitioned, 4 free"));
        assert_eq!(page.text(".glance .headline").await.split(' ').next(), Some("36"));
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn ac_001_nodes_are_filtered_by_text_and_by_click_on_a_type() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.until(NAMES, &MACHINES).await;
        let field = page.find("#search").await;
        field.send_keys("a100").await.unwrap();
        page.until(NAMES, &["hgx-a100", "mixed-l40s-a100"]).await;
        page.until_address(|address| address == "/nodes?search=a100&sort=name").await;
        page.until_true("return document.activeElement.id === 'search'").await;

        page.click("#type-nvidia-l40s-48gb a").await;
        page.until(NAMES, &["mixed-l40s-a100"]).await;
        page.until_true("return document.getElementById('by-type').value === 'nvidia-l40s-48gb'")
            .await;
        page.back().await;
        page.until(NAMES, &["hgx-a100", "mixed-l40s-a100"]).await;

        page.click("#clear").await;
        page.until(NAMES, &MACHINES).await;
        page.until_true("return document.getElementById('search').value === ''").await;
        let select = page.find("#by-sharing").await;
        select.select_by_value("mig").await.unwrap();
        page.until(NAMES, &["rtx-pro-6000"]).await;
        page.click("#clear").await;
        page.until(NAMES, &MACHINES).await;

        let selector = page.find("#selector").await;
        let wanted = "octavo.dev/type in (nvidia-h200-141gb,nvidia-h100-80gb)\n";
        selector.send_keys(wanted).await.unwrap();
        page.until(NAMES, &["dgx-h100", "h200"]).await;
        page.assert_clean().await;

        page.open("/nodes?selector=a%20in").await;
        let wrong = page.text(".wrong").await;
        assert!(wrong.contains("selector"), "{wrong}");
        assert_eq!(page.count(NAMES).await, 0);
    })
    .await;
}

#[tokio::test]
async fn ac_001_nodes_are_sorted_by_click_on_header_and_by_keyboard() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.until(NAMES, &MACHINES).await;
        let by_devices = [
            "dgx-h100",
            "h200",
            "hgx-a100",
            "mixed-l40s-a100",
            "driver-comes-late",
            "rtx-pro-6000",
            "cpu-only",
        ];
        let sorted = "return document.querySelector('th[aria-sort]').innerText.trim() + ' ' +
            document.querySelector('th[aria-sort]').getAttribute('aria-sort')";
        page.click("#sort-devices").await;
        page.until(NAMES, &by_devices).await;
        assert_eq!(page.ask(sorted, serde_json::json!([])).await, "Devices descending");
        page.press("\u{e007}").await;
        page.until(
            NAMES,
            &[
                "cpu-only",
                "rtx-pro-6000",
                "driver-comes-late",
                "mixed-l40s-a100",
                "dgx-h100",
                "h200",
                "hgx-a100",
            ],
        )
        .await;
        assert_eq!(page.ask(sorted, serde_json::json!([])).await, "Devices ascending");
        page.until_address(|address| address == "/nodes?sort=devices").await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn filter_is_a_form_and_headers_are_links_without_scripts() {
    let site = Site::of_the_demo().await;
    let start = Start { without_scripts: true, ..Start::default() };
    browse(&site.url, start, async |page| {
        page.open("/nodes").await;
        assert_eq!(page.count("html.js").await, 0, "scripts run after all");
        let field = page.find("#search").await;
        field.send_keys("a100").await.unwrap();
        page.click("#filter button").await;
        page.until(NAMES, &["hgx-a100", "mixed-l40s-a100"]).await;
        page.click("#sort-name").await;
        page.until(NAMES, &["mixed-l40s-a100", "hgx-a100"]).await;
        page.click("#open-hgx-a100").await;
        page.until("h1", &["hgx-a100"]).await;
    })
    .await;
}

#[tokio::test]
async fn large_fleet_is_paged() {
    let site = Site::empty();
    let machine = inventory("t4").await;
    for number in 0..450 {
        site.put(&format!("node-{number:03}"), &machine);
    }
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        assert_eq!(page.count(NAMES).await, 200);
        page.click("#next").await;
        page.until_true("return document.querySelector('#main tbody th').innerText === 'node-200'")
            .await;
        page.click("#next").await;
        page.until_true("return document.querySelectorAll('#main tbody th').length === 50").await;
        assert_eq!(page.text(".pager span").await, "50 of 450 matching nodes shown; 450 in total");
        page.click(".pager a").await;
        page.until_true("return document.querySelector('#main tbody th').innerText === 'node-000'")
            .await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn escape_leaves_filter_field_and_keeps_filter() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        let field = page.find("#search").await;
        field.send_keys("a100").await.unwrap();
        page.until(NAMES, &["hgx-a100", "mixed-l40s-a100"]).await;
        page.press("\u{e00c}").await;
        page.until_true("return document.activeElement === document.body").await;
        let value = "return document.getElementById('search').value";
        assert_eq!(page.ask(value, serde_json::json!([])).await, "a100");
        page.press("g").await;
        let both = "const asked = new URLSearchParams(location.search);
            return asked.get('search') === 'a100' && asked.get('group') === 'type'";
        page.until_true(both).await;
        page.assert_clean().await;
    })
    .await;
}
