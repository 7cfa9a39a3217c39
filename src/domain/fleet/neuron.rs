//! Neuron devices, each counted once.
//!
//! The bus shows functions and their driver numbers, and nothing leads from the one to the other. Only their counts matter to a fleet, so
//! the functions that the driver holds are taken one by one with its devices, in the order of both. What it holds and does not list is of
//! no use to anybody; what it lists and the bus does not show is a device all the same.

use super::device::{DeviceSummary, Occupancy, gravest};
use super::node::{NodeState, Sharing};
use crate::domain::accelerators;
use crate::domain::inventory::{
    Condition, Device, Gravity, Inventory, Neuron, NeuronDevice, Vendor,
};
use crate::domain::quantity::Mebibytes;

impl DeviceSummary {
    /// Of all devices of a node: those on the bus in their order, then what only the Neuron driver shows.
    pub fn all(inventory: &Inventory) -> Vec<Self> {
        let neuron = inventory.neuron.as_ref();
        let mut chips = neuron.iter().flat_map(|neuron| &neuron.devices);
        let devices = inventory.devices.iter();
        let mut all: Vec<Self> = devices
            .map(|device| {
                let summary = Self::of(device, &inventory.nvml);
                if !inventory.is_told_by_neuron(device) {
                    return summary;
                }
                match chips.next() {
                    Some(chip) => told(summary, chip),
                    None => unlisted(summary, device),
                }
            })
            .collect();
        // A function whose driver cannot be read is one of those that are left.
        let unbound = inventory.devices.iter();
        let unbound =
            unbound.filter(|device| may_be_one(device) && !inventory.is_told_by_neuron(device));
        all.extend(chips.skip(unbound.count()).map(alone));
        all
    }
}

fn may_be_one(device: &Device) -> bool {
    let of_bus = matches!(device.condition, Condition::PciOnly { .. });
    device.vendor == Vendor::Aws && of_bus && !device.condition.is_passthrough()
}

/// A function with what the driver tells of one of its devices.
fn told(function: DeviceSummary, chip: &NeuronDevice) -> DeviceSummary {
    let of_chip = alone(chip);
    DeviceSummary {
        type_name: function.type_name.or(of_chip.type_name),
        by_hand: function.by_hand,
        ..of_chip
    }
}

/// A device that the bus does not show.
fn alone(chip: &NeuronDevice) -> DeviceSummary {
    let name = chip.device_name.as_deref();
    let facts = name.and_then(accelerators::neuron_chip);
    let state = chip.state();
    let trouble = state
        .gravity()
        .and_then(|_| gravest(&format!("Neuron {}", chip.number), chip.complaints()));
    DeviceSummary {
        type_name: facts.and_then(|facts| facts.type_name.parse().ok()),
        by_hand: false,
        memory: name.and_then(accelerators::neuron_memory),
        state: match state.gravity() {
            None => NodeState::Ok,
            Some(Gravity::Note | Gravity::Notice) => NodeState::Attention,
            Some(Gravity::Bad) => NodeState::Degraded,
        },
        occupancy: match state.gravity() {
            Some(Gravity::Bad) => Occupancy::Unavailable,
            // The driver does not say who uses it.
            _ => Occupancy::Unknown,
        },
        given: Some(Sharing::Exclusive),
        trouble,
    }
}

/// A function that the driver holds, and of which it has no device.
fn unlisted(function: DeviceSummary, device: &Device) -> DeviceSummary {
    let text = format!(
        "{}: the Neuron driver holds it and lists fewer devices than it holds",
        device.pci
    );
    DeviceSummary {
        state: NodeState::Degraded,
        occupancy: Occupancy::Unavailable,
        trouble: Some(text),
        ..function
    }
}

/// `inventory` as it is told to others: memory in use in steps, so that what a program that idles allocates and frees is no news. `None` where
/// nobody tells memory in use.
pub fn stepped(inventory: &Inventory) -> Option<Inventory> {
    let is_told =
        inventory.neuron.is_some() || inventory.devices.iter().any(|device| device.amd.is_some());
    if !is_told {
        return None;
    }
    let mut told = inventory.clone();
    for chip in told
        .neuron
        .iter_mut()
        .flat_map(|neuron: &mut Neuron| &mut neuron.devices)
    {
        let name = chip.device_name.as_deref();
        let all = name.and_then(accelerators::neuron_memory);
        chip.memory_used = chip.memory_used.map(|used| within(used, all));
        chip.power_percent = chip.power_percent.map(super::usage::percent_up);
    }
    for device in &mut told.devices {
        let all = device.memory;
        if let Some(amd) = &mut device.amd {
            amd.memory_used = amd.memory_used.map(|used| within(used, all));
        }
    }
    Some(told)
}

/// Rounded up, and not more than there is.
fn within(used: Mebibytes, all: Option<Mebibytes>) -> Mebibytes {
    let up = super::usage::step(used);
    match all {
        Some(all) if used <= all => up.min(all),
        Some(_) | None => up,
    }
}
