//! The page of a node has the command that names its unknown devices, reached by keyboard.

use octavo_model::accelerators::{Catalog, TypeOverride, identify_devices};
use octavo_model::inventory::{Identity, Inventory};

use super::chrome::{Page, Start, browse};
use super::fixture::{Site, inventory};

const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";

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

/// A node whose GPUs are newer than the catalog and have no driver yet.
async fn newer() -> Inventory {
    let mut machine = inventory("unknown-cards").await;
    for device in &mut machine.devices {
        device.pci_ids.vendor = 0x10de;
        device.pci_ids.device = 0xfffe;
        device.vendor = octavo_model::inventory::Vendor::Nvidia;
    }
    machine
}

/// The same with the label on its Node.
fn named(mut machine: Inventory, label: &str) -> Inventory {
    identify_devices(&mut machine, Some(&TypeOverride::new(label, &Catalog::built_in())));
    machine
}

#[tokio::test]
async fn ac_004_unknown_type_is_named_by_label_and_persists() {
    let site = Site::empty();
    let machine = newer().await;
    assert!(machine.devices.iter().all(|one| one.identity == Identity::Unknown));
    site.put("new-cards", &machine);
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes").await;
        page.until("#node-new-cards .kinds a", &["set type"]).await;
        tab_to(&page, "open-new-cards").await;
        page.press(TAB).await;
        page.press(ENTER).await;
        page.until("#names-title", &["Unknown devices"]).await;
        page.until_address(|address| address.ends_with("#name-them")).await;
        page.until("#give-name", &["kubectl label node new-cards octavo.dev/type-override=NAME"])
            .await;

        // After the label was set, the page marks the type as manual and shows how to reset it.
        site.put("new-cards", &named(machine, "nvidia-b300-288gb"));
        page.until("#names-title", &["Devices with a manual type"]).await;
        let product = page.text(".device:first-child h3").await;
        assert!(product.contains("type set manually"), "{product}");
        let panel = page.text("#name-them").await;
        let back = "kubectl label node new-cards octavo.dev/type-override-";
        assert!(panel.contains(back), "{panel}");
        page.until(
            "#give-name",
            &["kubectl label node new-cards octavo.dev/type-override=NAME --overwrite"],
        )
        .await;
        assert_eq!(page.violations().await, Vec::<String>::new());
        page.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn node_with_known_devices_shows_no_naming_form() {
    let site = Site::empty();
    site.put("t4", &inventory("t4").await);
    browse(&site.url, Start::default(), async |page| {
        page.open("/nodes/t4").await;
        page.until("h1", &["t4"]).await;
        assert_eq!(page.count("#name-them").await, 0);
        page.assert_clean().await;
    })
    .await;
}
