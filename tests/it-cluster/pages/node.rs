//! The page of a node: facts, devices, slices.

use octavo_model::inventory::{Completeness, Mig};

use super::chrome::{Page, Start, browse};
use super::fixture::{Site, inventory};

/// Cells, regions and free regions of the first device.
async fn picture(page: &Page) -> (usize, usize, usize) {
    (
        page.count(".device:first-child .cells i").await,
        page.count(".device:first-child .region").await,
        page.count(".device:first-child .is-free").await,
    )
}

#[tokio::test]
async fn device_has_one_cell_per_slice_and_shows_its_users() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/hgx-a100").await;
        page.until("h1", &["hgx-a100"]).await;
        assert_eq!(page.count(".device").await, 8);
        assert_eq!(picture(&page).await, (8, 4, 1));
        let regions = page.texts(".device:first-child .region").await;
        assert_eq!(regions.len(), 4);
        assert!(regions[0].contains("2g.20gb") && regions[0].contains("idle"), "{regions:?}");
        assert!(regions[1].contains("1g.10gb"), "{regions:?}");
        assert!(regions[2].starts_with("free"), "{regions:?}");
        assert!(regions[3].contains("3g.40gb gi 2/0 in use"), "{regions:?}");
        assert_eq!(page.count(".device:first-child .is-used").await, 1);
        let whole = page.texts(".device:last-child .region").await;
        assert!(whole[0].contains("one whole GPU idle"), "{whole:?}");
        let process = page.text(".device .processes tbody tr").await;
        assert_eq!(process, "4711 compute gi 2 29.2 GiB");
        let facts = page.texts(".facts div").await;
        assert!(facts.contains(&"Driver 570.133.20".to_owned()), "{facts:?}");
        assert!(facts.contains(&"Interconnect nvswitch, 8 devices".to_owned()), "{facts:?}");

        page.click("#labels summary").await;
        let labels = page.texts("#labels tbody tr").await;
        assert!(labels.iter().any(|label| label.starts_with("octavo.dev/type ")), "{labels:?}");

        page.open("/nodes/driver-comes-late").await;
        assert_eq!(page.count(".device:first-child .cells i").await, 4);
        page.open("/nodes/rtx-pro-6000").await;
        assert_eq!(page.count(".device:first-child .cells i").await, 12);
        page.open("/nodes/h200").await;
        page.until(".device .tone-bad.badge", &["failing"]).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn selected_layout_shows_its_changes_and_has_a_link() {
    let site = Site::of_the_demo().await;
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/hgx-a100").await;
        page.until("#what-if h2", &["Preview a layout"]).await;
        assert_eq!(page.count("#plan").await, 0);
        page.click("#layout option:nth-of-type(2)").await;
        page.until("#plan .verdict .badge", &["blocked"]).await;
        page.until_address(|address| address.contains("?layout=")).await;

        // The address is sufficient for another reader.
        page.open("/nodes/rtx-pro-6000?layout=all-balanced").await;
        page.until_true("return document.querySelectorAll('#plan .plan-group').length > 0").await;
        assert!(page.count("#plan .is-new").await > 0);
        assert_eq!(page.count("#plan .plan-group:first-of-type .before-after .cells i").await, 24);
        page.assert_clean().await;
        page.open("/nodes/rtx-pro-6000?layout=%3Cscript%3E").await;
        page.until("#plan .verdict .badge", &["no plan"]).await;
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn values_missing_from_driver_are_named_and_not_drawn() {
    let site = Site::empty();
    let mut partial = inventory("rtx-pro-6000").await;
    if let Mig::Capable(state) = &mut partial.devices[0].mig {
        state.geometry = Completeness::Partial;
    }
    site.put("partial", &partial);
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/partial").await;
        let reported = page.text(".device:first-child .caption").await;
        assert_eq!(reported, "MIG on. The driver does not report the partitions.");
        assert_eq!(page.count(".device:first-child .region").await, 0);
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn hostile_strings_are_escaped() {
    let site = Site::empty();
    let mut hostile = inventory("rtx-pro-6000").await;
    let name = "<script>window.hit = 1</script><img src=x onerror=window.hit=1>\" '";
    hostile.devices[0].product_name = Some(name.to_owned());
    hostile.machine.product_name = Some(name.to_owned());
    site.put("hostile", &hostile);
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/hostile").await;
        let shown = page.text(".device:first-child h3 span").await;
        assert_eq!(shown, name);
        page.open("/nodes?search=%22%3E%3Cscript%3Ewindow.hit%3D1%3C%2Fscript%3E").await;
        page.find("#search").await;
        let hit = page.ask("return window.hit === undefined && document.querySelectorAll('main script, img').length", serde_json::json!([])).await;
        assert_eq!(hit, 0);
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn unknown_address_gets_page_with_link_to_start() {
    let site = Site::empty();
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/nobody").await;
        page.until("h1", &["Node not found"]).await;
        page.open("/nothing/here").await;
        page.until("h1", &["Page not found"]).await;
        page.click("main a.button").await;
        page.until("#empty h2", &["No node has reported yet"]).await;
    })
    .await;
}

#[tokio::test]
async fn neuron_devices_are_drawn_as_cores_and_amd_devices_as_partitions() {
    let site = Site::empty();
    let document = |name: &str| {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/machines");
        let text = std::fs::read_to_string(format!("{directory}/{name}/inventory.json")).unwrap();
        octavo_files::inventory::parse(&text).unwrap()
    };
    site.put("trn2", &document("trn2.48xlarge-lnc2"));
    site.put("mi300x", &document("mi300x-cpx-nps4"));
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/trn2").await;
        page.until("#neuron h2", &["Neuron"]).await;
        // Each once: no second card for the function on the bus.
        assert_eq!(page.count(".device").await, 16);
        assert_eq!(page.count("#neuron .device").await, 16);
        page.until("#neuron-15 .badge", &["ok"]).await;
        page.until(".title .soft", &["16 devices: 16 unknown"])
            .await;
        let facts = page.texts(".facts div").await;
        let links = "Interconnect neuronlink, linked as a 4x4 torus".to_owned();
        assert!(facts.contains(&links), "{facts:?}");
        // A missing NVIDIA driver is not reported without NVIDIA devices.
        assert_eq!(page.count(".notice").await, 0);
        // Four logical cores of two physical ones each.
        assert_eq!(page.count("#neuron-15 .region").await, 4);
        assert_eq!(page.count("#neuron-15 .cells i").await, 8);
        let facts = page.text("#neuron-14 .more").await;
        assert!(facts.contains("Memory 14 GiB used of 96 GiB"), "{facts}");
        page.assert_clean().await;
        page.open("/nodes/mi300x").await;
        assert_eq!(page.count(".notice").await, 0);
        let facts = page.texts(".facts div").await;
        assert!(
            facts.contains(&"Sharing partitioned".to_owned()),
            "{facts:?}"
        );
        assert_eq!(page.count(".device:first-child .region").await, 8);
        let reported = page.text(".device:first-child .caption").await;
        assert_eq!(
            reported,
            "compute CPX, memory NPS4 8 partitions, renderD128 to D135"
        );
        let shared = page.text(".device:first-child .picture .soft").await;
        assert!(shared.starts_with("Partitions share memory"), "{shared}");
        // No name is truncated: eight fit side by side.
        let cut = "return [...document.querySelectorAll('.region b')].filter(b => b.scrollWidth > b.clientWidth + 1).length";
        assert_eq!(page.ask(cut, serde_json::json!([])).await, 0);
        // Its usage is unknown, so nothing is marked idle.
        assert_eq!(page.count(".device:first-child .is-idle").await, 0);
        page.assert_clean().await;
    })
    .await;
}
