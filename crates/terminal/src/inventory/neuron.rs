//! Information from Neuron's driver: a line on the node, and one row per device.
//!
//! The devices have numbers and no PCI address, so they have a table of their own below that of the PCI devices.

use octavo_model::accelerators;
use octavo_model::inventory::{Inventory, LogicalSource, Neuron, NeuronDevice, NeuronIdentity};

use super::format::{self, Columns};
use crate::style::Colors;
use crate::text::{self, Cell, Headers, NONE, printable, wrap};

const COLUMNS: [&str; 7] = ["INDEX", "CHIP", "CORES", "MEMORY", "LINKS", "SERIAL", "STATE"];
/// Further columns of the wide table.
const WIDE_COLUMNS: [&str; 5] = ["TYPE", "ARCHITECTURE", "POWER", "CORRECTED", "IDENTIFIED BY"];

/// Placeholder for a value that could not be read.
const UNKNOWN: &str = "?";

pub(super) fn devices(inventory: &Inventory, which: Columns, colors: Colors) -> String {
    let Some(neuron) = &inventory.neuron else {
        return String::new();
    };
    let heading = heading(neuron);
    if neuron.devices.is_empty() {
        return format!("{heading}\n");
    }
    let wide: &[&str] = if which == Columns::All { &WIDE_COLUMNS } else { &[] };
    let rows = neuron.devices.iter().map(|device| row(neuron, device, which));
    format!("{heading}\n{}", text::table(&[&COLUMNS, wide], rows, Headers::Shown, colors))
}

/// Formats the driver, the logical cores' configuration, and the links' topology.
fn heading(neuron: &Neuron) -> String {
    let version = neuron.driver_version.as_deref().unwrap_or("of unknown version");
    let mut facts = vec![format!("Neuron: driver {version}")];
    if neuron.devices.is_empty() {
        facts.push("no devices".to_owned());
    } else {
        facts.push(logical(neuron));
    }
    if let Some(topology) = neuron.topology().filter(|_| neuron.devices.len() > 1) {
        facts.push(topology.to_string());
    }
    if let Some(mode) = neuron.ultraserver.get("ultraserver_mode") {
        facts.push(format!("UltraServer mode {}", printable(mode)));
    }
    wrap(&facts.join("; "), 2)
}

fn logical(neuron: &Neuron) -> String {
    let Some(logical) = neuron.logical else {
        return "size of a logical core unknown".to_owned();
    };
    let source = match logical.source {
        LogicalSource::File => "node setting",
        LogicalSource::Default => "chip default",
    };
    let cores = match logical.size {
        1 => "1 physical core is".to_owned(),
        size => format!("{size} physical cores are"),
    };
    format!("{cores} 1 logical core ({source})")
}

fn row(neuron: &Neuron, device: &NeuronDevice, which: Columns) -> Vec<Cell> {
    let state = device.state();
    let chip = device.device_name.as_deref();
    let facts = chip.and_then(accelerators::neuron_chip);
    vec![
        Cell::plain(&device.number),
        Cell::plain(chip.unwrap_or(UNKNOWN)),
        Cell::plain(&cores(neuron, device)),
        Cell::plain(&memory(device, which)),
        Cell::plain(&links(device)),
        Cell::optional(device.serial.as_deref()),
        Cell::new(state.as_str(), state.tone().into()),
        Cell::plain(facts.map_or(UNKNOWN, |facts| facts.type_name)),
        Cell::plain(device.core_architecture.as_deref().unwrap_or(UNKNOWN)),
        Cell::plain(&or_unknown(device.power_percent.map(|percent| format!("{percent}%")))),
        Cell::plain(&or_unknown(corrected(device))),
        Cell::plain(known_by(neuron.identity(device))),
    ]
}

/// Formats the number of physical and logical cores.
fn cores(neuron: &Neuron, device: &NeuronDevice) -> String {
    format!("{}/{}", or_unknown(device.cores), or_unknown(neuron.logical_cores(device)))
}

/// Formats used memory, as reported by the driver, and the chip's memory according to the catalog.
fn memory(device: &NeuronDevice, which: Columns) -> String {
    let chip = device.device_name.as_deref();
    let total = chip.and_then(accelerators::neuron_memory);
    let [used, total] = [device.memory_used, total]
        .map(|memory| or_unknown(memory.map(|memory| format::memory(memory, which))));
    format!("{used} of {total}")
}

/// Formats the corrected errors of memory and chip: no data was lost, but many of them are a warning.
fn corrected(device: &NeuronDevice) -> Option<u64> {
    let errors = device.errors;
    let known = [errors.memory_corrected, errors.sram_corrected];
    known.into_iter().flatten().reduce(u64::saturating_add)
}

fn or_unknown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

/// Returns the device's stable identifier, and how long it is valid.
fn known_by(identity: NeuronIdentity) -> &'static str {
    match identity {
        NeuronIdentity::Serial => "serial number",
        NeuronIdentity::Number => "number, until the next reboot",
    }
}

fn links(device: &NeuronDevice) -> String {
    match device.connected.as_deref() {
        None => UNKNOWN.to_owned(),
        Some([]) => NONE.to_owned(),
        Some(near) => {
            let near: Vec<String> = near.iter().map(ToString::to_string).collect();
            near.join(",")
        }
    }
}
