//! Tests of the PCI id table: accelerators, and devices that are none.

use super::*;

fn pattern_ids(pattern: &PciPattern) -> PciIds {
    let (vendor, device) = pattern.device;
    let (subsystem_vendor, subsystem_device) = pattern.subsystem.unwrap_or_default();
    PciIds { vendor, device, subsystem_vendor, subsystem_device, class: None }
}

#[test]
fn every_pci_row_has_a_source_and_a_product() {
    let catalog = Catalog::built_in();
    let mut rows = 0;
    for product in catalog.products() {
        let fact = product.facts.iter().find(|fact| fact.field == Field::PciIds).unwrap();
        assert!(fact.sources.iter().any(|key| *key == "S5" || *key == "S14"));
        let facts = facts(&product.sku).unwrap();
        for pattern in facts.pci_ids {
            rows += 1;
            assert!(is_known_accelerator(pattern_ids(pattern)), "{pattern:?}");
            assert_eq!(
                non_accelerator_with_ids(PciIds { class: Some(0x03_0200), ..pattern_ids(pattern) }),
                None
            );
            let sharing = |other: &&Facts| other.pci_ids.contains(pattern);
            let sharing: Vec<&Facts> =
                crate::accelerators::products().iter().filter(sharing).collect();
            let identity = identify(pattern_ids(pattern), None, None);
            // An id shared by products of several types identifies none of them without a driver.
            let one = sharing.iter().all(|other| other.type_name == facts.type_name);
            match identity.type_name() {
                Some(name) => assert_eq!(name.as_str(), facts.type_name, "{pattern:?}"),
                None => assert!(!one, "{pattern:?}"),
            }
            let mut unlisted = pattern_ids(pattern);
            unlisted.device ^= 0x8000;
            assert_eq!(identify(unlisted, None, None), Identity::Unknown);
        }
    }
    assert!(rows > 110, "{rows}");
}

#[test]
fn non_accelerators_match_by_id_or_display_class() {
    for other in non_accelerators() {
        assert!(!other.description.is_empty());
        let of = |device: u16, class: u32| PciIds {
            vendor: other.vendor,
            device,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: Some(class),
        };
        if let Some(device) = other.device {
            assert_eq!(non_accelerator_with_ids(of(device, 0x12_0000)), Some(other));
            assert!(!is_known_accelerator(of(device, 0)));
        } else {
            assert_eq!(non_accelerator_with_ids(of(0x7e57, 0x03_0000)), Some(other));
            // A vendor of display controllers may make accelerators too.
            assert_eq!(non_accelerator_with_ids(of(0x7e57, 0x12_0000)), None);
        }
    }
    assert!(non_accelerators().len() >= 14);
}

#[test]
fn intel_and_habana_devices_are_identified_by_ids() {
    for (pci, expected, family) in [
        ("8086:0bd5", "intel-max-1550-128gb [intel-max-1550]", "ponte-vecchio"),
        ("8086:0bda", "intel-max-1100-48gb [intel-max-1100]", "ponte-vecchio"),
        ("8086:0b69", "intel-max-1450 [intel-max-1450]", "ponte-vecchio"),
        ("8086:56c0", "intel-flex-170 [intel-flex-170]", "ats-m"),
        ("8086:56c1", "intel-flex-140 [intel-flex-140]", "ats-m"),
        ("1da3:1000", "intel-gaudi-32gb [intel-gaudi]", "gaudi"),
        ("1da3:1020", "intel-gaudi2-96gb [intel-gaudi2]", "gaudi-2"),
        ("1da3:1060", "intel-gaudi3-128gb [intel-gaudi3]", "gaudi-3"),
        ("1da3:0001", "habana-goya [habana-goya]", "goya"),
    ] {
        assert_eq!(type_of(pci, None, None), expected, "{pci}");
        let known = architecture(ids(pci));
        assert_eq!(known.as_ref().map(Architecture::as_str), Some(family), "{pci}");
    }
    // Desktop graphics, and devices newer than the table.
    for pci in ["8086:56a0", "8086:0bd0", "1da3:1070", "10de:fffe", "1d0f:7664"] {
        assert_eq!(type_of(pci, None, None), "unknown", "{pci}");
    }
}
