//! The end of the output: what fails, what wants attention, and what could not be read.

use super::words;
use crate::cli::devices;
use crate::cli::paint::Ink;
use crate::cli::text::folded;
use crate::config::octavo::Colors;
use crate::domain::inventory::{Complaint, Inventory, Neuron};

pub(super) fn problems(inventory: &Inventory, colors: Colors) -> String {
    let of_devices = of_devices(inventory).into_iter();
    let mut lines: Vec<String> = of_devices
        .map(|(said, places)| line(&places.join(", "), &said, colors))
        .collect();
    if let Some(neuron) = &inventory.neuron {
        let node = neuron.complaints();
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
        Ink::Strong.paint("Problems", colors),
        lines.concat()
    )
}

/// What is wrong with devices, and with which.
fn of_devices(inventory: &Inventory) -> Vec<(Complaint, Vec<String>)> {
    let mut all = Vec::new();
    let functions = inventory.devices.iter();
    // What their driver tells stands with the Neuron devices, and it does speak for them.
    for device in functions.filter(|device| !inventory.is_told_by_neuron(device)) {
        for complaint in device.nameless().into_iter().chain(device.complaints()) {
            // The address goes with it, because numbers move when a device falls off the bus.
            let place = match device.index {
                Some(_) => format!("{} ({})", devices::name(device), device.pci),
                None => devices::name(device),
            };
            add(&mut all, complaint, place);
        }
    }
    all
}

/// What is wrong with Neuron devices, and with which: a file that may not be read is the same file of all of them.
fn alike(neuron: &Neuron) -> Vec<(Complaint, Vec<u32>)> {
    let mut all = Vec::new();
    for device in &neuron.devices {
        for complaint in device.complaints() {
            add(&mut all, complaint, device.number);
        }
    }
    all
}

/// What several have in common is told once, where it is told first.
fn add<Place>(all: &mut Vec<(Complaint, Vec<Place>)>, complaint: Complaint, place: Place) {
    match all.iter_mut().find(|(known, _)| *known == complaint) {
        Some((_, places)) => places.push(place),
        None => all.push((complaint, vec![place])),
    }
}

fn line(place: &str, complaint: &Complaint, colors: Colors) -> String {
    let line = folded(&format!("  {place}: {}", complaint.text), 4);
    format!("{}\n", words::ink(complaint.gravity).paint(&line, colors))
}
