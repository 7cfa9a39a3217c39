//! Information from Neuron's driver: a line on the node, and one row per device.
//!
//! The devices have numbers and no PCI address, so they have a table of their own below that of the PCI devices.

use octavo_model::accelerators;
use octavo_model::inventory::{
    Inventory, LogicalSource, Neuron, NeuronDevice, NeuronIdentity, NeuronState,
};
use octavo_model::quantity::Mebibytes;

use super::format;
use super::table::Columns;
use crate::settings::Colors;
use crate::style::Style;
use crate::text::{Cell, columns, printable, wrap};

const COLUMNS: [&str; 7] = [
    "INDEX", "CHIP", "CORES", "MEMORY", "LINKS", "SERIAL", "STATE",
];
const WIDE_COLUMNS: [&str; 5] = ["TYPE", "ARCHITECTURE", "POWER", "CORRECTED", "KNOWN BY"];

/// Placeholder for an empty value.
const NONE: &str = "-";
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
    let names = COLUMNS.iter().chain(more(which));
    let header = names.map(|name| Cell::new(name, Style::Strong)).collect();
    let rows = neuron
        .devices
        .iter()
        .map(|device| row(neuron, device, which));
    let rows: Vec<Vec<Cell>> = std::iter::once(header).chain(rows).collect();
    format!("{heading}\n{}", columns(&rows, colors))
}

fn more(which: Columns) -> &'static [&'static str] {
    match which {
        Columns::Default => &[],
        Columns::All => &WIDE_COLUMNS,
    }
}

/// Formats the driver, the logical cores' configuration, and the links' topology.
fn heading(neuron: &Neuron) -> String {
    let version = neuron
        .driver_version
        .as_deref()
        .unwrap_or("of unknown version");
    let mut said = vec![format!("Neuron: driver {version}")];
    if neuron.devices.is_empty() {
        said.push("it has no device".to_owned());
    } else {
        said.push(logical(neuron));
    }
    if let Some(topology) = neuron.topology().filter(|_| neuron.devices.len() > 1) {
        said.push(topology.to_string());
    }
    if let Some(mode) = neuron.ultraserver.get("ultraserver_mode") {
        said.push(format!("UltraServer mode {}", printable(mode)));
    }
    wrap(&said.join("; "), 2)
}

fn logical(neuron: &Neuron) -> String {
    let Some(logical) = neuron.logical else {
        return "the size of a logical core is not known".to_owned();
    };
    let source = match logical.source {
        LogicalSource::File => "the node's setting",
        LogicalSource::Default => "the chip's default",
    };
    let cores = match logical.size {
        1 => "1 physical core is".to_owned(),
        size => format!("{size} physical cores are"),
    };
    format!("{cores} 1 logical core ({source})")
}

fn row(neuron: &Neuron, device: &NeuronDevice, which: Columns) -> Vec<Cell> {
    let state = device.state();
    let ink = match (state, state.severity()) {
        (_, Some(gravity)) => format::ink(gravity),
        (NeuronState::Ok, None) => Style::Good,
        (_, None) => Style::Plain,
    };
    let mut cells = vec![
        Cell::plain(&device.number.to_string()),
        Cell::plain(device.device_name.as_deref().unwrap_or(UNKNOWN)),
        Cell::plain(&cores(neuron, device)),
        Cell::plain(&memory(device)),
        Cell::plain(&links(device)),
        Cell::plain(device.serial.as_deref().unwrap_or(NONE)),
        Cell::new(state.as_str(), ink),
    ];
    if which == Columns::All {
        let chip = device.device_name.as_deref();
        let facts = chip.and_then(accelerators::neuron_chip);
        cells.extend([
            Cell::plain(facts.map_or(UNKNOWN, |facts| facts.type_name)),
            Cell::plain(device.core_architecture.as_deref().unwrap_or(UNKNOWN)),
            Cell::plain(&power(device)),
            Cell::plain(&corrected(device)),
            Cell::plain(known_by(neuron.identity(device))),
        ]);
    }
    cells
}

/// Formats the number of physical and logical cores.
fn cores(neuron: &Neuron, device: &NeuronDevice) -> String {
    let told = |count: Option<u32>| {
        count.map_or_else(|| UNKNOWN.to_owned(), |count: u32| count.to_string())
    };
    format!(
        "{}/{}",
        told(device.cores),
        told(neuron.logical_cores(device))
    )
}

/// Formats used memory, as reported by the driver, and the chip's memory according to the catalog.
fn memory(device: &NeuronDevice) -> String {
    let told = |memory: Option<Mebibytes>| {
        memory.map_or_else(|| UNKNOWN.to_owned(), |memory| memory.get().to_string())
    };
    let chip = device.device_name.as_deref();
    let all = chip.and_then(accelerators::neuron_memory);
    format!("{}/{}Mi", told(device.memory_used), told(all))
}

/// Formats the power as a percentage of the maximum.
fn power(device: &NeuronDevice) -> String {
    let percent = device.power_percent;
    percent.map_or_else(|| UNKNOWN.to_owned(), |percent| format!("{percent}%"))
}

/// Formats the corrected errors of memory and chip: no data was lost, but many of them are a warning.
fn corrected(device: &NeuronDevice) -> String {
    let errors = device.errors;
    let known = [errors.memory_corrected, errors.sram_corrected];
    let sum = known.into_iter().flatten().reduce(u64::saturating_add);
    sum.map_or_else(|| UNKNOWN.to_owned(), |sum| sum.to_string())
}

/// Returns the device's stable identifier, and how long it is valid.
fn known_by(identity: NeuronIdentity) -> &'static str {
    match identity {
        NeuronIdentity::Serial => "serial number",
        NeuronIdentity::Number => "number, until the next boot",
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
