//! Tests that each Neuron device counts once, whatever the bus and the driver report.

use std::collections::BTreeMap;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    DriverLayout, Inventory, Neuron, NeuronDevice, NeuronErrors, PciIds,
};

use super::*;

fn function(bus: u8, driver: Option<&str>) -> Device {
    let ids = PciIds {
        vendor: 0x1d0f,
        device: 0x7364,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: Some(0x08_8000),
    };
    let mut device = Device::new(PciAddress::new(0, bus, 0x1e, 0).unwrap(), ids);
    device.condition = Condition::PciOnly { kernel_driver: driver.map(str::to_owned) };
    device
}

fn chip(number: u32) -> NeuronDevice {
    NeuronDevice {
        number,
        device_name: Some("Trainium2".to_owned()),
        errors: NeuronErrors { memory_uncorrected: Some(0), ..NeuronErrors::default() },
        ..NeuronDevice::default()
    }
}

fn inventory(functions: Vec<Device>, chips: Vec<NeuronDevice>) -> Inventory {
    Inventory {
        neuron: Some(Neuron {
            driver_version: None,
            driver_layout: DriverLayout::Known,
            logical: None,
            ultraserver: BTreeMap::new(),
            devices: chips,
            problems: Vec::new(),
        }),
        devices: functions,
        ..Inventory::default()
    }
}

/// Number of devices, number of unavailable ones, and the resulting node state.
fn counted(inventory: &Inventory) -> (u32, u32, &'static str) {
    let devices = DeviceSummary::all(inventory);
    let node = NodeSummary::new(&devices, &inventory.nvml, None);
    let node = node.with_neuron(inventory.neuron.as_ref());
    let counts = node.counts();
    let unusable = counts.unavailable.saturating_add(counts.passthrough);
    (counts.total, unusable, node.state.as_str())
}

#[test]
fn neuron_device_is_counted_once_even_if_bus_and_driver_disagree() {
    let neuron = Some("neuron");
    let two = || vec![chip(0), chip(1)];
    for (functions, chips, expected) in [
        (vec![function(1, neuron), function(2, neuron)], two(), (2, 0, "ok")),
        // The driver lost one device.
        (vec![function(1, neuron), function(2, neuron)], vec![chip(0)], (2, 1, "degraded")),
        // The driver lost all devices.
        (vec![function(1, neuron)], vec![], (1, 1, "no-driver")),
        // The bus does not show all devices.
        (vec![], two(), (2, 0, "ok")),
        (vec![function(1, neuron)], two(), (2, 0, "ok")),
        // The driver binding is unreadable: there are still only two devices.
        (vec![function(1, None), function(2, None)], two(), (2, 2, "no-driver")),
        // A virtual machine has one, as intended.
        (vec![function(1, neuron), function(2, Some("vfio-pci"))], vec![chip(0)], (2, 1, "ok")),
        (
            vec![function(1, neuron), function(2, Some("pci-stub"))],
            vec![chip(0), chip(1)],
            (3, 1, "ok"),
        ),
    ] {
        let inventory = inventory(functions, chips);
        assert_eq!(counted(&inventory), expected, "{inventory:?}");
    }
}

#[test]
fn neuron_device_has_type_of_function_or_chip_and_catalog_memory() {
    let mut inventory = inventory(vec![], vec![chip(0)]);
    let [only] = &DeviceSummary::all(&inventory)[..] else {
        panic!("one device");
    };
    let name = only.type_name.as_ref().map(ToString::to_string);
    assert_eq!(name.as_deref(), Some("aws-trainium2-96gb"));
    assert_eq!(only.memory, Some(Mebibytes::new(96 * 1024)));
    assert_eq!(only.sharing, Some(Sharing::Exclusive));
    let neuron = inventory.neuron.as_mut().unwrap();
    neuron.problems.push(ReadProblem {
        source: "number of devices".to_owned(),
        error: "the driver has 1, and 0 are on the PCI bus".to_owned(),
    });
    assert_eq!(counted(&inventory), (1, 0, "attention"));
}

#[test]
fn neuron_health_reaches_its_node_and_unreported_health_is_ok() {
    let functions = || vec![function(1, Some("neuron")), function(2, Some("neuron"))];
    let mut unreported = chip(1);
    unreported.errors = NeuronErrors::default();
    assert_eq!(counted(&inventory(functions(), vec![chip(0), unreported])), (2, 0, "ok"));
    let mut errors = chip(1);
    errors.errors.sram_uncorrected = Some(2);
    let noticed = inventory(functions(), vec![chip(0), errors]);
    assert_eq!(counted(&noticed), (2, 0, "attention"));
    let mut unhealthy = chip(0);
    unhealthy.unhealthy = Some(vec!["hbm".to_owned()]);
    let bad = inventory(functions(), vec![unhealthy, chip(1)]);
    assert_eq!(counted(&bad), (2, 1, "degraded"));
    let devices = DeviceSummary::all(&bad);
    assert_eq!(
        devices[0].worst_issue.as_deref(),
        Some("Neuron 0: its driver reports it as unhealthy: hbm")
    );
    // Corrected errors have lost no data.
    let mut corrected = chip(0);
    corrected.errors.memory_corrected = Some(9);
    assert_eq!(counted(&inventory(vec![], vec![corrected])), (1, 0, "ok"));
}

#[test]
fn amd_device_with_partitions_is_partitioned_and_not_exclusive() {
    use octavo_model::inventory::{Amd, AmdPartition, PartitioningMode};
    let mode = |current: &str| {
        Some(PartitioningMode { current: current.to_owned(), available: Vec::new() })
    };
    let part = |render_minor| AmdPartition { render_minor, compute_units: None, memory: None };
    let device = |compute: Option<PartitioningMode>, parts: u32| {
        let mut device = whole(Vec::new());
        device.vendor = octavo_model::inventory::Vendor::Amd;
        device.amd =
            Some(Amd { compute, partitions: (0..parts).map(part).collect(), ..Amd::default() });
        device
    };
    for (devices, expected) in [
        (vec![device(mode("SPX"), 1), device(None, 1)], "exclusive"),
        (vec![device(mode("CPX"), 8)], "partitioned"),
        // KFD does not answer, but the mode is known.
        (vec![device(mode("DPX"), 0)], "partitioned"),
        (vec![device(mode("CPX"), 8), device(mode("SPX"), 1)], "mixed"),
        (vec![device(mode("CPX"), 8), split(Vec::new())], "mixed"),
    ] {
        assert_eq!(node(&devices, &NvmlState::Loading).sharing.as_str(), expected, "{devices:?}");
    }
}
