//! The end of the output: failures, issues that need attention, and what could not be read.

use octavo_model::inventory::{Inventory, Issue, Neuron};

use super::format;
use crate::devices;
use crate::settings::Colors;
use crate::style::Style;
use crate::text::wrap;

pub(super) fn problems(inventory: &Inventory, colors: Colors) -> String {
    let of_devices = of_devices(inventory).into_iter();
    let mut lines: Vec<String> = of_devices
        .map(|(said, places)| line(&places.join(", "), &said, colors))
        .collect();
    if let Some(neuron) = &inventory.neuron {
        let node = neuron.issues();
        lines.extend(node.iter().map(|said| line("Neuron", said, colors)));
        lines.extend(alike(neuron).iter().map(|(said, numbers)| {
            let numbers = devices::ranges(numbers).join(",");
            line(&format!("Neuron {numbers}"), said, colors)
        }));
    }
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "{}\n{}",
        Style::Strong.paint("Problems", colors),
        lines.concat()
    )
}

/// Returns the devices' issues, and the devices that have each of them.
fn of_devices(inventory: &Inventory) -> Vec<(Issue, Vec<String>)> {
    let mut all = Vec::new();
    let functions = inventory.devices.iter();
    // The Neuron driver reports on these devices itself, with the Neuron devices.
    for device in functions.filter(|device| !inventory.is_reported_by_neuron(device)) {
        for complaint in device.identity_note().into_iter().chain(device.issues()) {
            // The address is included because numbers change when a device falls off the bus.
            let place = match device.index {
                Some(_) => format!("{} ({})", devices::name(device), device.pci),
                None => devices::name(device),
            };
            add(&mut all, complaint, place);
        }
    }
    all
}

/// Returns the Neuron devices' issues, and the devices that have each of them: an unreadable file is usually the same
/// file of all devices.
fn alike(neuron: &Neuron) -> Vec<(Issue, Vec<u32>)> {
    let mut all = Vec::new();
    for device in &neuron.devices {
        for complaint in device.issues() {
            add(&mut all, complaint, device.number);
        }
    }
    all
}

/// Adds an issue. Devices with the same issue are grouped at its first occurrence.
fn add<Place>(all: &mut Vec<(Issue, Vec<Place>)>, complaint: Issue, place: Place) {
    match all.iter_mut().find(|(known, _)| *known == complaint) {
        Some((_, places)) => places.push(place),
        None => all.push((complaint, vec![place])),
    }
}

fn line(place: &str, complaint: &Issue, colors: Colors) -> String {
    let line = wrap(&format!("  {place}: {}", complaint.text), 4);
    format!("{}\n", format::ink(complaint.gravity).paint(&line, colors))
}
