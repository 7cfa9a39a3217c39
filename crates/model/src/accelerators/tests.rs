//! Tests of device identification.

mod pci;

use proptest::prelude::*;

use super::*;
use crate::id::TypeName;

fn ids(text: &str) -> PciIds {
    let parts: Vec<u16> =
        text.split(':').map(|part| u16::from_str_radix(part, 16).unwrap()).collect();
    PciIds {
        vendor: parts[0],
        device: parts[1],
        subsystem_vendor: parts.get(2).copied().unwrap_or(0),
        subsystem_device: parts.get(3).copied().unwrap_or(0),
        class: None,
    }
}

/// The type, with the SKU in brackets if there is one.
fn type_of(pci: &str, name: Option<&str>, mebibytes: Option<u64>) -> String {
    match identify(ids(pci), name, mebibytes.map(Mebibytes::new)) {
        Identity::Known { type_name, sku: Some(sku) } => format!("{type_name} [{sku}]"),
        Identity::Known { type_name, sku: None } => type_name.to_string(),
        Identity::Manual { .. } | Identity::Unknown => "unknown".to_owned(),
    }
}

#[test]
fn pci_ids_alone_name_most_products() {
    for (pci, expected) in [
        ("10de:20b2", "nvidia-a100-80gb [nvidia-a100-sxm4-80gb]"),
        ("10de:20b5", "nvidia-a100-80gb [nvidia-a100-pcie-80gb]"),
        ("10de:2335", "nvidia-h200-141gb [nvidia-h200-sxm5-141gb]"),
        ("10de:233b", "nvidia-h200-141gb [nvidia-h200-nvl-141gb]"),
        ("10de:1eb8", "nvidia-t4-16gb [nvidia-t4]"),
        ("10de:2901", "nvidia-b200-180gb [nvidia-b200]"),
        ("10de:2909", "nvidia-b200-168gb [nvidia-b200-168gb]"),
        ("10de:31c2", "nvidia-gb300 [nvidia-gb300]"),
        ("10de:2bb5", "nvidia-rtx-pro-6000-96gb [nvidia-rtx-pro-6000-server]"),
        ("10de:2342", "nvidia-gh200-96gb [nvidia-gh200-96gb]"),
        ("10de:2e12", "nvidia-gb10 [nvidia-gb10]"),
        ("10de:1db8", "nvidia-v100-32gb [nvidia-v100-sxm3-32gb]"),
        ("1002:74b5", "amd-mi300x-192gb [amd-mi300x]"),
        ("1d0f:7264", "aws-inferentia2-32gb [aws-inferentia2]"),
        ("1d0f:7364", "aws-trainium2-96gb [aws-trainium2]"),
    ] {
        assert_eq!(type_of(pci, None, None), expected, "{pci}");
    }
}

#[test]
fn shared_device_id_is_resolved_by_subsystem_then_memory_and_name() {
    let (a2, a16) = ("nvidia-a2-16gb [nvidia-a2]", "nvidia-a16-16gb [nvidia-a16]");
    assert_eq!(type_of("10de:25b6:10de:157e", None, None), a2);
    assert_eq!(type_of("10de:25b6:10de:14a9", None, None), a16);
    assert_eq!(type_of("10de:25b6", Some("NVIDIA A16"), Some(15_356)), a16);
    assert_eq!(type_of("10de:25b6", Some("NVIDIA A2"), None), a2);
    assert_eq!(type_of("10de:25b6", None, Some(15_356)), "unknown");

    let small = "nvidia-rtx-pro-5000-48gb [nvidia-rtx-pro-5000-48gb]";
    let large = "nvidia-rtx-pro-5000-72gb [nvidia-rtx-pro-5000-72gb]";
    assert_eq!(type_of("10de:2bb3", None, Some(48_935)), small);
    assert_eq!(type_of("10de:2bb3", None, Some(73_415)), large);
    let (short, long) = ("NVIDIA RTX PRO 5000 Blackwell", "NVIDIA RTX PRO 5000 72GB Blackwell");
    assert_eq!(type_of("10de:2bb3", Some(short), None), small);
    assert_eq!(type_of("10de:2bb3", Some(long), None), large);
    assert_eq!(type_of("10de:2bb3", None, None), "unknown");

    assert_eq!(
        type_of("1002:740c", Some("AMD INSTINCT MI250 (MCM) OAM AC MBA"), Some(65_520)),
        "amd-mi250-64gb [amd-mi250]"
    );
    assert_eq!(type_of("1002:740c", None, None), "unknown");
}

#[test]
fn reported_memory_may_differ_from_marketed_by_ecc_and_units() {
    for (pci, seen, expected) in [
        ("10de:26b9", 45_776, "nvidia-l40s-48gb [nvidia-l40s]"),
        ("10de:2237", 22_888, "nvidia-a10g-24gb [nvidia-a10g]"),
        ("10de:3182", 275_040, "nvidia-b300-288gb [nvidia-b300]"),
        ("10de:1eb8", 15_360, "nvidia-t4-16gb [nvidia-t4]"),
        ("10de:2335", 143_771, "nvidia-h200-141gb [nvidia-h200-sxm5-141gb]"),
        ("10de:2901", 183_359, "nvidia-b200-180gb [nvidia-b200]"),
        ("1002:7408", 65_520, "amd-mi250x-64gb [amd-mi250x]"),
    ] {
        assert_eq!(type_of(pci, None, Some(seen)), expected, "{pci}");
    }
}

#[test]
fn driver_takes_precedence_over_catalog() {
    let name = Some("NVIDIA B200");
    assert_eq!(type_of("10de:2901", name, Some(172_032)), "nvidia-b200-168gb [nvidia-b200-168gb]");
    assert_eq!(type_of("10de:2909", name, Some(183_359)), "nvidia-b200-180gb [nvidia-b200]");
    assert_eq!(type_of("10de:2901", None, Some(98_304)), "nvidia-b200-96gb");
    assert_eq!(type_of("10de:2236", Some("NVIDIA A10-8Q"), Some(8_192)), "nvidia-a10-8q-8gb");
    assert_eq!(type_of("1002:74a1", None, Some(131_072)), "amd-mi300x-128gb");
}

#[test]
fn unknown_product_gets_type_derived_from_driver_name() {
    for (name, seen, expected) in [
        ("NVIDIA GeForce RTX 4090", Some(24_564), "nvidia-geforce-rtx-4090-24gb"),
        ("Tesla P100-PCIE-16GB", Some(16_280), "nvidia-p100-16gb"),
        ("NVIDIA H30-3e", Some(143_771), "nvidia-h30-3e-141gb"),
        ("NVIDIA Thor", None, "nvidia-thor"),
        ("NVIDIA Thor", Some(0), "nvidia-thor"),
        ("NVIDIA B200", Some(183_359), "nvidia-b200-180gb [nvidia-b200]"),
    ] {
        assert_eq!(type_of("10de:ffff", Some(name), seen), expected);
    }
    assert_eq!(
        type_of("10de:ffff", Some(&format!("NVIDIA {}", "long ".repeat(20))), Some(24_564)).len(),
        63
    );
}

#[test]
fn unidentified_device_is_unknown() {
    for (pci, name) in [
        ("10de:ffff", None),
        ("10de:ffff", Some("")),
        ("10de:ffff", Some("NVIDIA")),
        ("1002:ffff", Some("Radeon Something")),
        ("1d0f:1111", None),
        ("10de:22a3", None),
        ("8086:0bd0", Some("Ponte Vecchio")),
        ("0000:0000", None),
        ("ffff:20b2", None),
    ] {
        assert_eq!(type_of(pci, name, None), "unknown", "{pci}");
    }
}

#[test]
fn every_product_resolves_to_itself_by_its_ids_and_name() {
    for facts in products() {
        assert!(!facts.pci_ids.is_empty(), "{}", facts.sku);
        for pattern in facts.pci_ids {
            let (subsystem_vendor, subsystem_device) = pattern.subsystem.unwrap_or((0, 0));
            let ids = PciIds {
                vendor: pattern.device.0,
                device: pattern.device.1,
                subsystem_vendor,
                subsystem_device,
                class: None,
            };
            let memory = facts.visible_memory_mib.map(u64::from);
            let sold = facts.memory.map(|memory| u64::from(memory.size) * 1024);
            for seen in [memory, sold] {
                assert_eq!(
                    identify(ids, Some(facts.name), seen.map(Mebibytes::new)),
                    Identity::Known {
                        type_name: facts.type_name.parse().unwrap(),
                        sku: Some(facts.sku.parse().unwrap()),
                    },
                    "{pattern:?}"
                );
            }
            assert_eq!(
                architecture(ids),
                Some(Architecture::new(facts.architecture)),
                "{}",
                facts.sku
            );
        }
    }
}

#[test]
fn catalog_entries_are_sorted_and_consistent() {
    assert!(products().len() > 70);
    for facts in products() {
        let sku: Sku = facts.sku.parse().unwrap();
        assert_eq!(super::facts(&sku), Some(facts), "two entries called {sku}");
        let type_name: TypeName = facts.type_name.parse().unwrap();
        let vendor = facts.vendor.to_string();
        // Products of Habana are sold under the Intel brand.
        let brand = if vendor == "habana" { "intel" } else { &vendor };
        let name = type_name.as_str();
        assert!([&vendor, brand].iter().any(|prefix| name.starts_with(&format!("{prefix}-"))));
        for pattern in facts.pci_ids {
            assert_eq!(Vendor::from_pci(pattern.device.0), facts.vendor);
        }
    }
}

#[test]
fn facts_match_the_catalog() {
    let a100 = super::facts(&"nvidia-a100-sxm4-80gb".parse().unwrap()).unwrap();
    assert_eq!(a100.memory_bandwidth_gbs, Some(2039.0));
    assert_eq!(a100.tflops.bf16, Some(312.0));
    assert_eq!(a100.tflops.fp8, None);
    assert_eq!(a100.compute_capability.unwrap().to_string(), "8.0");
    assert_eq!(a100.interconnect, Some(LinkKind::NvLink));
    let inferentia = super::facts(&"aws-inferentia2".parse().unwrap()).unwrap();
    assert_eq!(inferentia.memory, Some(MarketedMemory { size: 32, unit: MemoryUnit::Gibibytes }));
}

proptest! {
    #[test]
    fn any_name_and_memory_give_a_valid_answer(
        vendor in prop_oneof![Just(0x10de_u16), Just(0x1002), any::<u16>()],
        device in any::<u16>(),
        name in proptest::option::of(".{0,90}"),
        memory in proptest::option::of(any::<u64>()),
    ) {
        let ids = PciIds { vendor, device, subsystem_vendor: 0, subsystem_device: 0, class: None };
        let memory = memory.map(Mebibytes::new);
        let first = identify(ids, name.as_deref(), memory);
        prop_assert_eq!(&first, &identify(ids, name.as_deref(), memory));
        if let Identity::Known { type_name, .. } = first {
            prop_assert!(type_name.as_str().parse::<TypeName>().is_ok());
        }
    }
}

#[test]
fn neuron_chip_name_determines_memory() {
    for (name, gibibytes) in [
        ("Inferentia", Some(8)),
        ("Inferentia2", Some(32)),
        ("Trainium1", Some(32)),
        ("Trainium2", Some(96)),
        ("Trainium3", Some(144)),
        ("Trainium9", None),
        ("", None),
        ("NVIDIA L4", None),
    ] {
        let expected = gibibytes.map(|size: u64| Mebibytes::new(size * 1024));
        assert_eq!(neuron_memory(name), expected, "{name}");
    }
}
