//! The table of devices: one row per device.

use std::collections::BTreeMap;

use octavo_model::inventory::{
    Completeness, Condition, Device, DeviceProcesses, Identity, Inventory, LinkRemote, Mig, MigMode,
};

use super::format::{self, Columns};
use crate::style::{Colors, Style};
use crate::text::{self, Cell, Headers, NONE};

const COLUMNS: [&str; 8] = ["INDEX", "TYPE", "MEMORY", "MIG", "PARTS", "PROCS", "NUMA", "STATE"];
/// Further columns of the wide table.
const WIDE_COLUMNS: [&str; 6] = ["PCI", "UUID", "SKU", "DRIVER NAME", "CC", "LINKS"];

/// Placeholder for a value that a driver does not reveal.
const UNKNOWN: &str = "?";

pub(super) fn table(
    inventory: &Inventory,
    which: Columns,
    headers: Headers,
    colors: Colors,
) -> String {
    // The Neuron table has more information on these devices, and nothing there identifies the PCI function.
    let is_elsewhere = |device: &Device| {
        let is_short = which == Columns::Default && headers == Headers::Shown;
        is_short && inventory.is_reported_by_neuron(device)
    };
    let mut devices = inventory.devices.iter().filter(|device| !is_elsewhere(device)).peekable();
    if devices.peek().is_none() {
        return String::new();
    }
    let wide: &[&str] = if which == Columns::All { &WIDE_COLUMNS } else { &[] };
    let rows = devices.map(|device| row(device, inventory, which));
    text::table(&[&COLUMNS, wide], rows, headers, colors)
}

fn row(device: &Device, inventory: &Inventory, which: Columns) -> Vec<Cell> {
    let type_style = match device.identity {
        Identity::Known { .. } | Identity::Manual { .. } => Style::Plain,
        Identity::Unknown => Style::Warning,
    };
    let memory = device.memory.map(|memory| format::memory(memory, which));
    let processes = match device.usage() {
        DeviceProcesses::Known(processes) => processes.len().to_string(),
        DeviceProcesses::Unknown => UNKNOWN.to_owned(),
    };
    let (state, style) = format::state(device, inventory);
    vec![
        Cell::optional(device.index),
        Cell::new(&format::kind(device), type_style),
        Cell::optional(memory),
        Cell::plain(mig(device)),
        Cell::optional(partitions(device)),
        Cell::plain(&processes),
        Cell::optional(device.numa_node),
        Cell::new(state, style),
        Cell::plain(&device.pci),
        Cell::optional(device.uuid.as_ref()),
        Cell::optional(device.identity.sku()),
        Cell::optional(device.product_name.as_ref()),
        Cell::optional(device.compute_capability),
        Cell::plain(&links(device)),
    ]
}

/// Returns the current MIG mode, and the mode after the next reset.
fn mig(device: &Device) -> &'static str {
    match &device.mig {
        _ if device.condition != Condition::Working => UNKNOWN,
        Mig::Unknown => UNKNOWN,
        Mig::NotCapable => NONE,
        Mig::Capable(state) => match (state.current, state.pending) {
            (MigMode::Disabled, MigMode::Disabled) => "off",
            (MigMode::Disabled, MigMode::Enabled) => "off>on",
            (MigMode::Enabled, MigMode::Enabled) => "on",
            (MigMode::Enabled, MigMode::Disabled) => "on>off",
        },
    }
}

/// Returns the number of allocatable units of a partitioned device.
fn partitions(device: &Device) -> Option<String> {
    if let Some(amd) = &device.amd {
        let parts = amd.partitions.len();
        return (parts > 1).then(|| parts.to_string());
    }
    if device.mig == Mig::Unknown && device.condition == Condition::Working {
        return Some(UNKNOWN.to_owned());
    }
    let state = device.mig.state().filter(|_| device.mig.is_enabled())?;
    if state.geometry == Completeness::Partial {
        return Some(UNKNOWN.to_owned());
    }
    let instances = state.gpu_instances.iter();
    let count: usize = instances.map(|instance| instance.compute_instances.len()).sum();
    Some(count.to_string())
}

/// Formats the number of active links by their remote end: `12 gpu`, `18 switch`.
fn links(device: &Device) -> String {
    let mut counts = BTreeMap::new();
    for link in &device.links {
        let kind = match link.remote {
            LinkRemote::Device(_) => "gpu",
            LinkRemote::Switch(_) | LinkRemote::HiddenSwitch => "switch",
            LinkRemote::Unknown => "other",
        };
        let count: &mut usize = counts.entry(kind).or_default();
        *count = count.saturating_add(1);
    }
    let parts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if parts.is_empty() { NONE.to_owned() } else { parts.join(", ") }
}
