//! Checks of the accelerators on the bus and of their kernel drivers.

use std::collections::BTreeMap;

use octavo_model::inventory::{Condition, Device, Identity, NvmlState, Vendor};
use octavo_model::text::join;

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
        let evidence = "no device that a driver could bind to";
        all.push(Check::KernelDriver.not_applicable(evidence));
    }
    all.extend(devices.iter().map(|device| driver_finding(facts, device)));
    all
}

fn accelerators_finding(facts: &Facts<'_>) -> Finding {
    let check = Check::Accelerators;
    let devices = &facts.inventory.devices;
    let directory = format!("{}/bus/pci/devices", facts.roots.sys);
    if let Some(error) = &facts.inventory.machine.bus_error {
        return check.unknown(format!("cannot read {directory}: {error}"));
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
    check.ok(join(types, ", "))
}

/// Finding for a node without known devices. The check does not apply only if the bus was read completely.
fn no_device_finding(facts: &Facts<'_>) -> Finding {
    let check = Check::Accelerators;
    let directory = format!("{}/bus/pci/devices", facts.roots.sys);
    match (&facts.inventory.nvml, &facts.traces) {
        (NvmlState::Stalled { call, .. }, _) => check.failing(
            format!("{call} does not return, so the devices are unknown"),
            NvmlState::remedy_of_stall(call),
        ),
        (NvmlState::Loading, _) => {
            check.unknown("NVML is still initializing, and no accelerator is known yet")
        }
        (_, Ok(traces)) if traces.has_bus => {
            check.not_applicable(format!("no PCI function in {directory} is an accelerator"))
        }
        (_, Ok(_)) => check.unknown(format!("{directory} does not exist")),
        (_, Err(_)) if facts.is_recorded => {
            check.not_applicable("the recording contains no accelerator")
        }
        (_, Err(why)) => check.unknown(why.clone()),
    }
}

fn unidentified_finding(device: &Device) -> Finding {
    let ids = device.pci_ids;
    let class = ids.class.map(|class| format!(", class {class:06x}"));
    let evidence = format!(
        "PCI ID {:04x}:{:04x}, subsystem {:04x}:{:04x}{}: not in the catalog",
        ids.vendor,
        ids.device,
        ids.subsystem_vendor,
        ids.subsystem_device,
        class.unwrap_or_default()
    );
    let remedy = "look up the ID in the PCI ID database, and name the device: `kubectl label node \
                  NODE octavo.dev/type-override=NAME`; until then its label is \
                  type.octavo.dev/unknown";
    Check::Accelerators.warning(evidence, remedy).about(Subject::Device(device.pci))
}

fn driver_finding(facts: &Facts<'_>, device: &Device) -> Finding {
    let check = Check::KernelDriver;
    let file = format!("{}/bus/pci/devices/*/driver", facts.roots.sys);
    let expected = match device.vendor {
        Vendor::Nvidia => Some("nvidia"),
        Vendor::Amd => Some("amdgpu"),
        Vendor::Aws => Some("neuron"),
        Vendor::Other(_) => None,
    };
    let finding = match (&device.condition, bound_driver(device), expected) {
        (Condition::Working, ..) => check.ok("its driver responds"),
        (Condition::Failing { .. }, ..) if device.pci.is_unreported() => {
            let evidence = "NVML reports the device without a PCI address, and no PCI function \
                            matches it";
            check.unknown(evidence)
        }
        (Condition::Failing { .. }, ..) => check.ok("its driver lists it"),
        (condition @ Condition::PciOnly { .. }, Some(driver), _) if condition.is_passthrough() => {
            check.ok(format!(
                "{driver} is bound: the device is passed through to a virtual machine and is \
                     not available to containers of this node ({file})"
            ))
        }
        (Condition::PciOnly { .. }, Some(driver), Some("nvidia"))
            if NOUVEAU_DRIVERS.contains(&driver) =>
        {
            let evidence = format!("{driver} is bound, so NVIDIA's driver cannot bind ({file})");
            let remedy = "install NVIDIA's driver, which blacklists nouveau (modprobe.d: \
                          `blacklist nouveau`, `options nouveau modeset=0`), and reboot";
            check.failing(evidence, remedy)
        }
        (Condition::PciOnly { .. }, Some(driver), Some(expected)) if driver != expected => {
            let evidence = format!("{driver} is bound instead of {expected} ({file})");
            let remedy = format!(
                "unless {driver} is bound on purpose, unbind it (`echo ADDRESS > \
                 /sys/bus/pci/drivers/{driver}/unbind`) and load {expected}"
            );
            check.warning(evidence, &remedy)
        }
        (Condition::PciOnly { .. }, Some(driver), _) => {
            check.ok(format!("{driver} is bound ({file})"))
        }
        (Condition::PciOnly { .. }, None, Some(expected)) => {
            let evidence = format!("no kernel driver is bound ({file})");
            let remedy = format!(
                "load {expected} (`modprobe {expected}`); if it is loaded, `dmesg | grep -i \
                 {expected}` shows why it does not bind to the device"
            );
            check.failing(evidence, &remedy)
        }
        (Condition::PciOnly { .. }, None, None) => {
            let evidence = format!("no kernel driver is bound ({file})");
            check.warning(evidence, "install the vendor's driver")
        }
    };
    finding.about(Subject::Device(device.pci))
}
