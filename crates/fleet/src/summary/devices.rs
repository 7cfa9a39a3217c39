//! Summaries of all devices of a node.

use octavo_model::inventory::{Condition, Device, Inventory, Vendor};

use super::device::DeviceSummary;
use super::neuron::{from_driver_only, unlisted, with_driver_data};

impl DeviceSummary {
    /// Summarizes all devices of a node: those on the bus in their order, then those that only the Neuron driver
    /// reports.
    pub fn all(inventory: &Inventory) -> Vec<Self> {
        let neuron = inventory.neuron.as_ref();
        let mut chips = neuron.iter().flat_map(|neuron| &neuron.devices);
        let devices = inventory.devices.iter();
        let mut all: Vec<Self> = devices
            .map(|device| {
                let summary = Self::new(device, &inventory.nvml);
                if !inventory.is_reported_by_neuron(device) {
                    return summary;
                }
                match chips.next() {
                    Some(chip) => with_driver_data(summary, chip),
                    None => unlisted(summary, device),
                }
            })
            .collect();
        // A function whose driver binding is unreadable accounts for one of the remaining devices.
        let unbound = inventory.devices.iter();
        let unbound = unbound.filter(|device| {
            may_be_neuron_device(device) && !inventory.is_reported_by_neuron(device)
        });
        all.extend(chips.skip(unbound.count()).map(from_driver_only));
        all
    }
}

fn may_be_neuron_device(device: &Device) -> bool {
    let of_bus = matches!(device.condition, Condition::PciOnly { .. });
    device.vendor == Vendor::Aws && of_bus && !device.condition.is_passthrough()
}
