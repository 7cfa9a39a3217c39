//! Summaries of Neuron devices, each counted once.
//!
//! The bus lists PCI functions and the driver lists device numbers, without a mapping between them. The fleet needs
//! only counts, so the functions bound to the driver are paired with the driver's devices in order. A bound function
//! without a device is unusable; a device without a function counts nevertheless.

use std::sync::Arc;

use octavo_model::accelerators;
use octavo_model::inventory::{Device, DeviceState, Inventory, Neuron, NeuronDevice, Severity};
use octavo_model::quantity::Mebibytes;
use octavo_model::sharing_mode::Sharing;
use octavo_model::tone::Tone;

use super::device::{DeviceHealth, DeviceSummary, HealthState, Occupancy, most_severe};
use super::device_facts::DeviceFacts;
use super::node_state::NodeState;

/// Function combined with one of the driver's devices.
pub(super) fn with_driver_data(function: DeviceSummary, chip: &NeuronDevice) -> DeviceSummary {
    let of_chip = from_driver_only(chip);
    // The function exists before the driver is loaded.
    let place = function.facts.place;
    DeviceSummary {
        facts: Arc::new(DeviceFacts { place, ..DeviceFacts::of_neuron(chip) }),
        type_name: function.type_name.or(of_chip.type_name),
        is_manual_type: function.is_manual_type,
        ..of_chip
    }
}

/// Device that the bus does not show.
pub(super) fn from_driver_only(chip: &NeuronDevice) -> DeviceSummary {
    let name = chip.device_name.as_deref();
    let facts = name.and_then(accelerators::neuron_chip);
    let state = chip.state();
    let own = DeviceFacts::of_neuron(chip);
    let worst_issue = state.severity().and_then(|_| most_severe(&own.name, chip.issues()));
    DeviceSummary {
        facts: Arc::new(own),
        type_name: facts.and_then(|facts| facts.type_name.parse().ok()),
        is_manual_type: false,
        memory: name.and_then(accelerators::neuron_memory),
        health: DeviceHealth { state: HealthState::Neuron(state), tone: state.tone() },
        node_state: match state.severity() {
            None => NodeState::Ok,
            Some(Severity::Note | Severity::Warning) => NodeState::Attention,
            Some(Severity::Critical) => NodeState::Degraded,
        },
        occupancy: match state.severity() {
            Some(Severity::Critical) => Occupancy::Unavailable,
            // The driver does not report users of a device.
            _ => Occupancy::Unknown,
        },
        sharing: Some(Sharing::Exclusive),
        worst_issue,
    }
}

/// Function that is bound to the driver but has no device there.
pub(super) fn unlisted(function: DeviceSummary, device: &Device) -> DeviceSummary {
    let text = format!(
        "{}: bound to the Neuron driver, which lists fewer devices than it is bound to",
        device.pci
    );
    DeviceSummary {
        health: DeviceHealth { state: HealthState::Device(DeviceState::Failing), tone: Tone::Bad },
        node_state: NodeState::Degraded,
        occupancy: Occupancy::Unavailable,
        worst_issue: Some(text),
        ..function
    }
}

/// `inventory` for reporting, with used memory rounded up to steps, so that small allocations of an idle program do
/// not cause updates. `None` if it does not contain used memory.
pub fn rounded_for_report(inventory: &Inventory) -> Option<Inventory> {
    let is_rounded =
        inventory.neuron.is_some() || inventory.devices.iter().any(|device| device.amd.is_some());
    if !is_rounded {
        return None;
    }
    let mut rounded = inventory.clone();
    for chip in rounded.neuron.iter_mut().flat_map(|neuron: &mut Neuron| &mut neuron.devices) {
        let name = chip.device_name.as_deref();
        let all = name.and_then(accelerators::neuron_memory);
        chip.memory_used = chip.memory_used.map(|used| rounded_up_within(used, all));
        chip.power_percent = chip.power_percent.map(super::usage::rounded_percent);
    }
    for device in &mut rounded.devices {
        let all = device.memory;
        if let Some(amd) = &mut device.amd {
            amd.memory_used = amd.memory_used.map(|used| rounded_up_within(used, all));
        }
    }
    Some(rounded)
}

/// Rounds up to a step, limited to the total.
fn rounded_up_within(used: Mebibytes, all: Option<Mebibytes>) -> Mebibytes {
    let up = super::usage::rounded_memory(used);
    match all {
        Some(all) if used <= all => up.min(all),
        Some(_) | None => up,
    }
}
