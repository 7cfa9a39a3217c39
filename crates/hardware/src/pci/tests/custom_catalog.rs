//! Tests of custom catalog IDs on the bus.

use octavo_model::accelerators::{Catalog, Field, Overlay, OverlayEntry, Value};
use octavo_model::source_position::SourcePosition;

use super::*;

/// Returns a custom catalog with a product of these IDs; `None` if the catalog rejects it.
fn own(ids: &str) -> Option<OverlayProducts> {
    let at = SourcePosition { line: 7, column: 3 };
    let entry = OverlayEntry {
        place: at,
        sku: "acme-x1".parse().unwrap(),
        type_name: None,
        vendor: Some((at, "acme".to_owned())),
        name: Some((at, "Acme X1".to_owned())),
        notes: None,
        facts: vec![(at, Field::PciIds, Value::List(vec![ids.to_owned()]))],
        aliases: Vec::new(),
        sources: Vec::new(),
    };
    let overlay = Overlay { entries: vec![entry], ..Overlay::default() };
    let catalog = Catalog::built_in().with_overlay(overlay, "own.yaml");
    catalog.ok().map(|all| all.overlay_products().clone())
}

#[test]
fn custom_id_is_rejected_or_takes_effect() {
    for other in accelerators::non_accelerators() {
        let device = other.device.unwrap_or(0x7e57);
        let Some(own) = own(&format!("{:04x}:{device:04x}", other.vendor)) else {
            assert!(other.device.is_some(), "{other:?}");
            continue;
        };
        assert_eq!(other.device, None, "{other:?}");
        for class in [0x03_0000, 0x03_0200, 0x12_0000, 0x08_8000] {
            let tree = Tree::new().function("0000:01:00.0", class, other.vendor, device).function(
                "0000:02:00.0",
                0x03_0000,
                other.vendor,
                0x7e58,
            );
            let mut bus = Bus::new(Sysfs::new(tree.path().to_owned()), Arc::new(own.clone()));
            let found = bus.scan();
            let found: Vec<u16> = found.iter().map(|function| function.ids.device).collect();
            assert_eq!(found, [device], "{other:?} {class:x}");
        }
    }
}
