//! Devices that nobody knows are named on their node's page, with the keyboard alone, and the agent's own code says what comes of it.

use std::sync::Arc;

use octavo_model::accelerators::{Catalog, TypeOverride, TypeSources};
use octavo_model::inventory::{Identity, Inventory};

use super::chrome::{Page, Start, browse};
use super::fixture::{Site, inventory};

const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";
const CONTROL_A: &str = "\u{e009}a\u{e009}";

/// Presses Tab until the element with this id has the focus.
async fn tab_to(page: &Page, id: &str) {
    let focused = format!("return document.activeElement.id === '{id}'");
    for _ in 0..60 {
        if page.ask(&focused, serde_json::json!([])).await == true {
            return;
        }
        page.press(TAB).await;
    }
    panic!("{id} is never reached with Tab");
}

/// A node whose GPUs are newer than the catalogue and have no driver yet.
async fn newer() -> Inventory {
    let mut machine = inventory("unknown-cards").await;
    for device in &mut machine.devices {
        device.pci_ids.vendor = 0x10de;
        device.pci_ids.device = 0xfffe;
        device.vendor = octavo_model::inventory::Vendor::Nvidia;
    }
    machine
}

/// The same once its Node has the label.
fn named(mut machine: Inventory, label: &str) -> Inventory {
    let naming = TypeSources {
        type_override: Some(Arc::new(TypeOverride::new(label, &Catalog::built_in()))),
        ..TypeSources::default()
    };
    naming.apply(&mut machine);
    machine
}

#[tokio::test]
async fn ac_004_an_unknown_type_is_picked_from_the_catalogue_by_keyboard_alone_and_sticks() {
    let site = Site::empty();
    let machine = newer().await;
    assert!(
        machine
            .devices
            .iter()
            .all(|one| one.identity == Identity::Unknown)
    );
    site.put("new-cards", &machine);
    browse(&site.url, Start::default(), async |page| {
        page.open("/").await;
        page.until("#node-new-cards .kinds a", &["name it"]).await;
        tab_to(&page, "open-new-cards").await;
        page.press(TAB).await;
        page.press(ENTER).await;
        page.until("#names-title", &["Name the unknown devices"])
            .await;
        page.until_address(|address| address.ends_with("#name-them"))
            .await;
        tab_to(&page, "type-override").await;
        // Only types of who made them are offered.
        let foreign = "return [...document.querySelectorAll('#known-types option')]
            .filter(one => !one.value.startsWith('nvidia-')).length";
        assert_eq!(page.ask(foreign, serde_json::json!([])).await, 0);
        assert!(page.count("#known-types option").await > 20);

        // What the agent would refuse is refused here, and there is nothing to run.
        page.press("H100").await;
        page.press(ENTER).await;
        page.until("#named .badge", &["names nothing"]).await;
        assert_eq!(page.count("#give-name").await, 0);
        let told = page.text("#named .verdict").await;
        assert!(told.contains("may mean any of"), "{told}");

        page.press(CONTROL_A).await;
        page.press("nvidia-b300-288gb").await;
        page.press(ENTER).await;
        page.until("#named .badge", &["would be named"]).await;
        page.until(
            "#give-name",
            &["kubectl label node new-cards octavo.dev/type-override=nvidia-b300-288gb"],
        )
        .await;
        let labels = page.texts("#named .labels tr").await;
        let comes = "comes octavo.dev/type=nvidia-b300-288gb".to_owned();
        assert!(labels.contains(&comes), "{labels:?}");
        assert_eq!(page.violations().await, Vec::<String>::new());
        let wanted = Some("/nodes/new-cards?type-override=nvidia-b300-288gb");
        page.until_address(|address| address.split('#').next() == wanted)
            .await;

        // Somebody ran it: the page follows, says that it was by hand, and how to take it back.
        site.put("new-cards", &named(machine, "nvidia-b300-288gb"));
        page.until("#names-title", &["Named by hand"]).await;
        let product = page.text(".device:first-child h3").await;
        assert!(product.contains("type named by hand"), "{product}");
        let panel = page.text("#name-them").await;
        let back = "kubectl label node new-cards octavo.dev/type-override-";
        assert!(panel.contains(back), "{panel}");
        page.until(
            "#give-name",
            &["kubectl label node new-cards octavo.dev/type-override=nvidia-b300-288gb --overwrite"],
        )
        .await;
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn without_scripts_a_name_is_tried_by_a_form_and_texts_stay_texts() {
    let site = Site::empty();
    site.put("strangers", &inventory("unknown-cards").await);
    let start = Start {
        without_scripts: true,
        ..Start::default()
    };
    browse(&site.url, start, async |page| {
        page.open("/nodes/strangers").await;
        page.until("#names-title", &["Name the unknown devices"])
            .await;
        let text = page.text("#unoffered").await;
        assert!(text.contains("nothing made by pci-1e52"), "{text}");
        let field = page.find("#type-override").await;
        field.send_keys("grayskull-e150").await.unwrap();
        page.click("#name-them form button").await;
        page.until("#named .badge", &["would be named"]).await;
        page.open("/nodes/strangers?type-override=%22%3E%3Cscript%3Ewindow.hit%3D1%3C%2Fscript%3E")
            .await;
        page.until("#named .badge", &["names nothing"]).await;
        assert_eq!(page.count("main script").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_node_whose_devices_are_known_is_not_asked_for_names() {
    let site = Site::empty();
    site.put("t4", &inventory("t4").await);
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/t4?type-override=nvidia-b300").await;
        page.until("h1", &["t4"]).await;
        assert_eq!(page.count("#name-them").await, 0);
        page.assert_clean().await;
    })
    .await;
}
