//! The end of the output: failures, issues that need attention, and what could not be read.

use octavo_model::inventory::{Inventory, Issue, Neuron};
use octavo_model::tone::Tone;

use crate::devices;
use crate::style::{Colors, Style};
use crate::text::{group_by_key, wrap};

pub(super) fn problems(inventory: &Inventory, colors: Colors) -> String {
    let of_devices = of_devices(inventory).into_iter();
    let mut lines: Vec<String> =
        of_devices.map(|(issue, places)| line(&places.join(", "), &issue, colors)).collect();
    if let Some(neuron) = &inventory.neuron {
        let node = neuron.issues();
        lines.extend(node.iter().map(|issue| line("Neuron", issue, colors)));
        lines.extend(of_neuron_devices(neuron).iter().map(|(issue, numbers)| {
            let numbers = devices::ranges(numbers).join(",");
            line(&format!("Neuron {numbers}"), issue, colors)
        }));
    }
    if lines.is_empty() {
        return String::new();
    }
    format!("{}\n{}", Style::Strong.paint("Problems", colors), lines.concat())
}

/// Returns the devices' issues, and the devices that have each of them.
fn of_devices(inventory: &Inventory) -> Vec<(Issue, Vec<String>)> {
    let functions = inventory.devices.iter();
    // The Neuron driver reports on these devices itself, with the Neuron devices.
    let functions = functions.filter(|device| !inventory.is_reported_by_neuron(device));
    group_by_key(functions.flat_map(|device| {
        // The address is included because numbers change when a device falls off the bus.
        let place = match device.index {
            Some(_) => format!("{} ({})", devices::name(device), device.pci),
            None => devices::name(device),
        };
        let issues = device.identity_note().into_iter().chain(device.issues());
        issues.map(move |issue| (issue, place.clone()))
    }))
}

/// Returns the Neuron devices' issues, and the devices that have each of them: an unreadable file is usually the same
/// file of all devices.
fn of_neuron_devices(neuron: &Neuron) -> Vec<(Issue, Vec<u32>)> {
    group_by_key(
        neuron
            .devices
            .iter()
            .flat_map(|device| device.issues().into_iter().map(|issue| (issue, device.number))),
    )
}

fn line(place: &str, issue: &Issue, colors: Colors) -> String {
    let line = wrap(&format!("  {place}: {}", issue.text), 4);
    format!("{}\n", Style::from(Tone::from(issue.severity)).paint(&line, colors))
}
