//! Tests of manual type overrides.

use super::*;

use crate::id::PciAddress;
use crate::inventory::PciIds;

fn device(slot: u8, vendor: u16, id: u16) -> Device {
    let ids = PciIds {
        vendor,
        device: id,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: Some(0x12_0000),
    };
    Device::new(PciAddress::new(0, slot, 0, 0).unwrap(), ids)
}

fn inventory(devices: Vec<Device>) -> Inventory {
    Inventory { devices, ..Inventory::default() }
}

/// Resulting types of the devices, and the description of the effect.
fn named(text: &str, devices: Vec<Device>) -> (Vec<String>, OverrideEffect) {
    let given = TypeOverride::new(text, &Catalog::built_in());
    let mut inventory = inventory(devices);
    identify_devices(&mut inventory, Some(&given));
    let effect = given.effect(&inventory);
    let names = inventory.devices.iter().map(|device| {
        let hand = if device.identity.is_manual() { " by hand" } else { "" };
        let sku = device.identity.sku().map_or_else(String::new, |sku| format!(" [{sku}]"));
        format!("{}{sku}{hand}", device.identity)
    });
    (names.collect(), effect)
}

const STRANGER: (u16, u16) = (0x1acc, 0x0001);

fn unrecognized(slot: u8) -> Device {
    device(slot, STRANGER.0, STRANGER.1)
}

#[test]
fn override_applies_to_unidentified_devices_only() {
    let devices = vec![unrecognized(1), device(2, 0x10de, 0x2330), unrecognized(3)];
    let (names, effect) = named("hall-7.Special", devices);
    assert_eq!(
        names,
        [
            "hall-7-special by hand",
            "nvidia-h100-80gb [nvidia-h100-sxm5-80gb]",
            "hall-7-special by hand",
        ]
    );
    assert_eq!(
        effect.text,
        "octavo.dev/type-override=hall-7.Special: 2 devices are manually set to type hall-7-special; the catalog does not list this type, and lists no similar name"
    );
    assert!(!effect.needs_attention);
}

#[test]
fn catalog_override_sets_facts_and_matches_vendor() {
    let unknown = device(1, 0x10de, 0xfffe);
    // Label values cannot contain colons.
    for text in ["nvidia-b300", "B300", "NVIDIA-B300-SXM6-AC", "10de-3182", "nvidia-b300-288gb"] {
        let (names, effect) = named(text, vec![unknown.clone()]);
        assert_eq!(names, ["nvidia-b300-288gb [nvidia-b300] by hand"], "{text}");
        assert!(!effect.needs_attention, "{effect:?}");
    }
    let (names, effect) = named("nvidia-b300", vec![unknown, unrecognized(2)]);
    assert_eq!(names, ["nvidia-b300-288gb [nvidia-b300] by hand", "GPU - type unknown"]);
    assert_eq!(
        effect.text,
        "octavo.dev/type-override=nvidia-b300: 1 device is manually set to type nvidia-b300-288gb; 1 device stays unknown, because the type is a product of nvidia, which did not make it"
    );
    assert!(effect.needs_attention);
}

#[test]
fn override_sets_and_resets_chip_family() {
    let given = |text| TypeOverride::new(text, &Catalog::built_in());
    let mut all = inventory(vec![device(1, 0x1da3, 0x7777)]);
    identify_devices(&mut all, Some(&given("intel-gaudi3")));
    assert_eq!(all.devices[0].architecture, Some(Architecture::new("Gaudi 3")));
    identify_devices(&mut all, Some(&given("other")));
    assert_eq!(all.devices[0].architecture, None);
    assert_eq!(all.devices[0].identity.to_string(), "other");
    identify_devices(&mut all, None);
    assert_eq!(all.devices[0].identity, Identity::Unknown);
}

#[test]
fn shared_type_is_accepted_ambiguous_name_is_rejected() {
    let unknown = || device(1, 0x10de, 0xfffe);
    let (names, _) = named("nvidia-h200-141gb", vec![unknown()]);
    assert_eq!(names, ["nvidia-h200-141gb by hand"]);
    for (text, several) in [
        ("H200", "nvidia-h200-sxm5-141gb, nvidia-h200-nvl-141gb"),
        ("RTX-PRO-5000", "nvidia-rtx-pro-5000-48gb, nvidia-rtx-pro-5000-72gb"),
    ] {
        let (names, effect) = named(text, vec![unknown()]);
        assert_eq!(names, ["GPU - type unknown"]);
        let expected = format!(
            "octavo.dev/type-override={text} has no effect: it is ambiguous and matches {several}; use the SKU or the type of one of them"
        );
        assert_eq!((effect.text, effect.needs_attention), (expected, true));
    }
}

#[test]
fn rejected_override_states_the_reason() {
    for (text, expected) in [
        ("", " is empty and has no effect"),
        ("mixed", "mixed has no effect: the word is reserved for nodes without a single type"),
        ("Unknown", "Unknown has no effect: the word is reserved for nodes without a single type"),
        (
            "a/b",
            "a/b has no effect: a type consists of at most 63 letters, digits and inner hyphens",
        ),
        (
            "h 7",
            "h 7 has no effect: a type consists of at most 63 letters, digits and inner hyphens",
        ),
    ] {
        let (names, effect) = named(text, vec![unrecognized(1)]);
        assert_eq!(names, ["GPU - type unknown"]);
        let expected = match text {
            "" => "octavo.dev/type-override= is empty and has no effect".to_owned(),
            _ => format!("octavo.dev/type-override={expected}"),
        };
        assert_eq!((effect.text, effect.needs_attention), (expected, true));
    }
    let long = "x".repeat(64);
    assert_eq!(named(&long, vec![unrecognized(1)]).0, ["GPU - type unknown"]);
    let (_, effect) = named("acme", vec![device(1, 0x10de, 0x2330)]);
    assert!(effect.text.ends_with(
        "=acme has no effect: the type of every device on this node is known and does not change"
    ));
    assert!(effect.needs_attention);
    let (_, effect) = named("acme", Vec::new());
    assert!(effect.text.ends_with("has no effect: this node has no accelerator"));
    let (_, effect) = named("intel-gaudi33", vec![unrecognized(1)]);
    assert!(effect.text.contains("lists similar names: intel-gaudi3"), "{effect:?}");
}
