//! Merges NVML's observation, the PCI bus and machine data into one inventory. Pure.
//!
//! NVML takes precedence. The bus adds values that NVML does not report and devices that NVML does not list.

use std::collections::BTreeMap;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Condition, Device, Inventory, Machine, Mig, NvmlState, PciIds, ReadProblem, Vendor,
};

use crate::calls::RunningCall;
use crate::pci_function::{AmdReading, PciFunction};
use crate::{Observation, UnidentifiedDevice};

/// NVIDIA's PCI vendor ID.
const NVIDIA: u16 = 0x10de;

/// Returns the node's inventory before devices are named. `observation` is `None` while no driver responds.
pub(crate) fn merge(
    machine: Machine,
    functions: &[PciFunction],
    nvml: NvmlState,
    observation: Option<&Observation>,
) -> Inventory {
    let mut devices: BTreeMap<PciAddress, Device> = functions
        .iter()
        .map(|function| (function.address, from_bus(function, observation)))
        .collect();
    for reading in observation.into_iter().flat_map(|all| &all.devices) {
        let seen = devices.remove(&reading.pci);
        devices.insert(reading.pci, from_driver(reading.clone(), seen.as_ref()));
    }
    if let Some(observation) = observation {
        let is_named = |address: PciAddress| {
            let mut named = observation.devices.iter();
            named.any(|device| device.pci == address)
        };
        let on_bus = functions
            .iter()
            .filter(|function| may_be_unidentified(function) && !is_named(function.address));
        // Each matches one function. If the bus shows fewer, the other devices still exist and are failing.
        for unnamed in observation.unidentified.iter().skip(on_bus.count()) {
            let device = device_without_address(unnamed);
            devices.insert(device.pci, device);
        }
    }
    Inventory { neuron: None, machine, nvml, devices: devices.into_values().collect() }
}

/// Returns the last inventory, marked as stalled in `call`.
pub(crate) fn stalled(last: &Inventory, call: RunningCall) -> Inventory {
    let mut inventory = last.clone();
    inventory.nvml =
        NvmlState::Stalled { call: call.function.to_owned(), driver: last.nvml.driver().cloned() };
    let concerned = inventory.devices.iter_mut().find(|device| Some(device.pci) == call.device);
    if let Some(device) = concerned {
        device.problems.push(ReadProblem {
            source: call.function.to_owned(),
            error: "does not return".to_owned(),
        });
    }
    inventory
}

/// Returns whether NVML may count this function without naming it: an NVIDIA device that is not bound to another kernel
/// driver.
fn may_be_unidentified(function: &PciFunction) -> bool {
    let driver = function.kernel_driver.as_deref();
    Vendor::from_pci(function.ids.vendor) == Vendor::Nvidia
        && matches!(driver, None | Some("nvidia"))
}

/// Returns a device that NVML counts without an address and that is not on the bus.
fn device_without_address(unnamed: &UnidentifiedDevice) -> Device {
    let ids =
        PciIds { vendor: NVIDIA, device: 0, subsystem_vendor: 0, subsystem_device: 0, class: None };
    let mut device = Device::new(PciAddress::unreported(unnamed.index), ids);
    device.index = Some(unnamed.index);
    device.condition = Condition::Failing { reason: unnamed.reason.clone() };
    device
}

/// Returns a device that NVML did not name.
fn from_bus(function: &PciFunction, observation: Option<&Observation>) -> Device {
    let mut device = Device::new(function.address, function.ids);
    device.numa_node = function.numa_node;
    let unnamed = observation.map_or(&[][..], |all| &all.unidentified);
    device.condition = match unnamed.first() {
        Some(unnamed) if may_be_unidentified(function) => {
            Condition::Failing { reason: unnamed.reason.clone() }
        }
        Some(_) | None => Condition::PciOnly { kernel_driver: function.kernel_driver.clone() },
    };
    if let Some(reading) = &function.amd {
        apply_amd_reading(&mut device, reading);
    }
    device
}

/// Adds amdgpu's values, which are available wherever the driver is bound. AMD devices have no MIG.
fn apply_amd_reading(device: &mut Device, reading: &AmdReading) {
    device.condition = match reading.memory {
        Some(_) => Condition::Working,
        None => Condition::Failing {
            reason: "amdgpu is bound to it and does not report its memory".to_owned(),
        },
    };
    device.mig = Mig::NotCapable;
    device.memory = reading.memory;
    device.product_name.clone_from(&reading.product_name);
    device.amd = Some(reading.amd.clone());
    device.problems.extend(reading.problems.iter().cloned());
}

fn from_driver(mut device: Device, seen: Option<&Device>) -> Device {
    if let Some(seen) = seen {
        device.numa_node = device.numa_node.or(seen.numa_node);
        device.pci_ids = PciIds { class: seen.pci_ids.class, ..device.pci_ids };
    }
    device
}

#[cfg(test)]
mod tests {
    use octavo_model::inventory::{Amd, Driver};
    use octavo_model::quantity::Mebibytes;

    use super::*;

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    fn ids(vendor: u16, class: Option<u32>) -> PciIds {
        PciIds { vendor, device: 0xfffe, subsystem_vendor: vendor, subsystem_device: 1, class }
    }

    fn function(at: &str, kernel_driver: &str) -> PciFunction {
        PciFunction {
            address: address(at),
            ids: ids(0x10de, Some(0x03_0200)),
            numa_node: Some(1),
            kernel_driver: Some(kernel_driver.to_owned()),
            vgpu: None,
            amd: None,
        }
    }

    fn reported(at: &str) -> Device {
        let mut device = Device::new(address(at), ids(0x10de, None));
        device.condition = Condition::Working;
        device
    }

    fn ready() -> Driver {
        Driver { version: "570.133.20".parse().unwrap(), cuda: None }
    }

    fn amd(memory: Option<u64>) -> PciFunction {
        PciFunction {
            ids: ids(0x1002, Some(0x12_0000)),
            amd: Some(AmdReading {
                amd: Amd::default(),
                product_name: Some("AMD Instinct MI300X".to_owned()),
                memory: memory.map(Mebibytes::new),
                problems: Vec::new(),
            }),
            ..function("0000:05:00.0", "amdgpu")
        }
    }

    fn merged(functions: &[PciFunction], devices: Vec<Device>, unnamed: &[&str]) -> Vec<Device> {
        let observation = Observation {
            driver: ready(),
            devices,
            unidentified: (0..)
                .zip(unnamed)
                .map(|(index, &reason)| UnidentifiedDevice { index, reason: reason.to_owned() })
                .collect(),
        };
        let nvml = NvmlState::Ready(ready());
        merge(Machine::default(), functions, nvml, Some(&observation)).devices
    }

    #[test]
    fn bus_adds_class_and_numa_node() {
        let devices =
            merged(&[function("0000:3b:00.0", "nvidia")], vec![reported("0000:3b:00.0")], &[]);
        let expected = Device {
            numa_node: Some(1),
            pci_ids: ids(0x10de, Some(0x03_0200)),
            ..reported("0000:3b:00.0")
        };
        assert_eq!(devices, [expected]);
    }

    #[test]
    fn devices_are_ordered_by_address() {
        let devices = merged(
            &[function("0000:86:00.0", "vfio-pci")],
            vec![reported("0000:af:00.0"), reported("0000:3b:00.0")],
            &[],
        );
        let order: Vec<String> = devices.iter().map(|d| d.pci.to_string()).collect();
        assert_eq!(order, ["0000:3b:00.0", "0000:86:00.0", "0000:af:00.0"]);
    }

    #[test]
    fn unidentified_device_is_failing() {
        let devices = merged(
            &[function("0000:3b:00.0", "nvidia"), function("0000:86:00.0", "vfio-pci")],
            vec![],
            &["nvmlDeviceGetHandleByIndex_v2: GPU is lost (15)"],
        );
        let conditions: Vec<Condition> = devices.into_iter().map(|d| d.condition).collect();
        assert_eq!(
            conditions,
            [
                Condition::Failing {
                    reason: "nvmlDeviceGetHandleByIndex_v2: GPU is lost (15)".to_owned()
                },
                Condition::PciOnly { kernel_driver: Some("vfio-pci".to_owned()) }
            ]
        );
    }

    #[test]
    fn devices_counted_by_nvml_and_absent_from_the_bus_are_failing() {
        let reason = "nvmlDeviceGetPciInfo_v3: no PCI address in the response";
        let devices = merged(&[], vec![reported("0000:3b:00.0")], &[reason, reason]);
        let failing = Condition::Failing { reason: reason.to_owned() };
        let seen: Vec<(String, Option<u32>, &Condition)> = devices
            .iter()
            .map(|device| (device.pci.to_string(), device.index, &device.condition))
            .collect();
        assert_eq!(
            seen,
            [
                ("0000:3b:00.0".to_owned(), None, &Condition::Working),
                ("ffffffff:00:00.0".to_owned(), Some(0), &failing),
                ("ffffffff:01:00.0".to_owned(), Some(1), &failing),
            ]
        );
        let one_on_bus = [function("0000:3b:00.0", "nvidia"), function("0000:86:00.0", "nvidia")];
        let devices = merged(&one_on_bus, vec![reported("0000:3b:00.0")], &[reason, reason]);
        let seen: Vec<String> = devices.iter().map(|device| device.pci.to_string()).collect();
        assert_eq!(seen, ["0000:3b:00.0", "0000:86:00.0", "ffffffff:01:00.0"]);
    }

    #[test]
    fn amd_device_uses_amdgpu_values() {
        let devices = merged(&[amd(Some(196_592))], vec![], &["an unrelated issue"]);
        let [device, _of_nvml] = devices.as_slice() else {
            panic!("{devices:?}");
        };
        assert_eq!(device.condition, Condition::Working);
        assert_eq!(device.memory, Some(Mebibytes::new(196_592)));
        assert_eq!(device.product_name.as_deref(), Some("AMD Instinct MI300X"));
        assert_eq!((&device.mig, &device.amd), (&Mig::NotCapable, &Some(Amd::default())));
    }

    #[test]
    fn amd_device_without_memory_is_failing() {
        let devices = merged(&[amd(None)], vec![], &[]);
        assert!(matches!(devices[0].condition, Condition::Failing { .. }), "{devices:?}");
        assert!(devices[0].amd.is_some());
    }
}
