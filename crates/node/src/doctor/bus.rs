//! Checks of the accelerators on the bus and of their kernel drivers.

use std::collections::BTreeMap;

use octavo_model::inventory::{Condition, Device, Identity, NvmlState, Vendor};

use super::facts::{Facts, bound_driver};
use super::{Check, Finding, Subject};

/// Linux' own drivers for NVIDIA GPUs, which prevent NVIDIA's driver from binding.
const NOUVEAU_DRIVERS: [&str; 2] = ["nouveau", "nova_core"];

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut all = vec![accelerators_finding(facts)];
    let devices = &facts.inventory.devices;
    let strangers = devices
        .iter()
        // Without an address its ids are unknown too; the health check reports the reason.
        .filter(|device| device.identity == Identity::Unknown && !device.pci.is_unreported());
    all.extend(strangers.map(unidentified_finding));
    if devices.is_empty() {
        let evidence = "there is nothing that a driver could be bound to";
        all.push(Check::KernelDriver.not_applicable(evidence));
    }
    all.extend(devices.iter().map(|device| driver_finding(facts, device)));
    all
}

fn accelerators_finding(facts: &Facts<'_>) -> Finding {
    let check = Check::Accelerators;
    let devices = &facts.inventory.devices;
    let folder = format!("{}/bus/pci/devices", facts.roots.sys);
    if let Some(error) = &facts.inventory.machine.bus_error {
        return check.unknown(Subject::Node, format!("{folder} cannot be read: {error}"));
    }
    if devices.is_empty() {
        return no_device_finding(facts);
    }
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    for device in devices {
        let count = types.entry(device.identity.to_string()).or_default();
        *count = count.saturating_add(1);
    }
    let types = types.iter().map(|(name, count)| format!("{count}x {name}"));
    let types: Vec<String> = types.collect();
    check.ok(Subject::Node, types.join(", "))
}

/// Finding for a node without known devices. The check does not apply only if the bus was read completely.
fn no_device_finding(facts: &Facts<'_>) -> Finding {
    let check = Check::Accelerators;
    let folder = format!("{}/bus/pci/devices", facts.roots.sys);
    match (&facts.inventory.nvml, &facts.traces) {
        (NvmlState::Stalled { call, .. }, _) => check.failing(
            Subject::Node,
            format!("{call} does not return, so nobody knows what is here"),
            NvmlState::remedy_of_stall(call),
        ),
        (NvmlState::Loading, _) => check.unknown(
            Subject::Node,
            "NVML is being initialised, and no accelerator was seen before it",
        ),
        (_, Ok(traces)) if traces.has_bus => {
            check.not_applicable(format!("no function in {folder} is an accelerator"))
        }
        (_, Ok(_)) => check.unknown(Subject::Node, format!("there is no {folder} to be read")),
        (_, Err(_)) if facts.is_recorded => {
            check.not_applicable("the recording has no accelerator")
        }
        (_, Err(why)) => check.unknown(Subject::Node, why.clone()),
    }
}

fn unidentified_finding(device: &Device) -> Finding {
    let ids = device.pci_ids;
    let class = ids.class.map(|class| format!(", class {class:06x}"));
    let evidence = format!(
        "PCI id {:04x}:{:04x}, subsystem {:04x}:{:04x}{}: no catalogue of ours has it",
        ids.vendor,
        ids.device,
        ids.subsystem_vendor,
        ids.subsystem_device,
        class.unwrap_or_default()
    );
    let remedy = "look the id up in the PCI ID database, or name it: `kubectl label node NODE octavo.dev/type-override=NAME`; its label is \
                  type.octavo.dev/unknown until it is known";
    Check::Accelerators.warning(Subject::Device(device.pci), evidence, remedy)
}

fn driver_finding(facts: &Facts<'_>, device: &Device) -> Finding {
    let check = Check::KernelDriver;
    let subject = Subject::Device(device.pci);
    let file = format!("{}/bus/pci/devices/*/driver", facts.roots.sys);
    let expected = match device.vendor {
        Vendor::Nvidia => Some("nvidia"),
        Vendor::Amd => Some("amdgpu"),
        Vendor::Aws => Some("neuron"),
        Vendor::Other(_) => None,
    };
    match (&device.condition, bound_driver(device), expected) {
        (Condition::Working, ..) => check.ok(subject, "its driver answers"),
        (Condition::Failing { .. }, ..) if device.pci.is_unreported() => {
            let evidence = "NVML counts it and reports no PCI address for it, and no PCI function stands for it";
            check.unknown(subject, evidence)
        }
        (Condition::Failing { .. }, ..) => check.ok(subject, "its driver lists it"),
        (condition @ Condition::PciOnly { .. }, Some(driver), _) if condition.is_passthrough() => check.ok(
            subject,
            format!("{driver} is bound: it is set aside for a virtual machine, and no container of this node gets it ({file})"),
        ),
        (Condition::PciOnly { .. }, Some(driver), Some("nvidia")) if NOUVEAU_DRIVERS.contains(&driver) => {
            let evidence = format!("{driver} is bound, and NVIDIA's driver cannot be ({file})");
            let remedy = "install NVIDIA's driver, which puts nouveau on the list of modules that are not loaded \
                          (modprobe.d: `blacklist nouveau`, `options nouveau modeset=0`), and reboot";
            check.failing(subject, evidence, remedy)
        }
        (Condition::PciOnly { .. }, Some(driver), Some(expected)) if driver != expected => {
            let evidence = format!("{driver} is bound, and not {expected} ({file})");
            let remedy = format!(
                "if {driver} was not bound on purpose, unbind it (`echo ADDRESS > /sys/bus/pci/drivers/{driver}/unbind`) and load {expected}"
            );
            check.warning(subject, evidence, &remedy)
        }
        (Condition::PciOnly { .. }, Some(driver), _) => {
            check.ok(subject, format!("{driver} is bound ({file})"))
        }
        (Condition::PciOnly { .. }, None, Some(expected)) => {
            let evidence = format!("no kernel driver is bound ({file})");
            let remedy = format!(
                "load {expected} (`modprobe {expected}`); if it is loaded, `dmesg | grep -i {expected}` says why it does not take the device"
            );
            check.failing(subject, evidence, &remedy)
        }
        (Condition::PciOnly { .. }, None, None) => {
            let evidence = format!("no kernel driver is bound ({file})");
            check.warning(subject, evidence, "install the driver of its vendor")
        }
    }
}
