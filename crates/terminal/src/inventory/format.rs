//! Common format of devices' states, types and memory.

use octavo_model::inventory::{Device, Inventory};
use octavo_model::quantity::Mebibytes;
use octavo_model::text::format_memory;

use crate::style::Style;

/// Selection of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// Columns that fit 80 characters.
    Default,
    /// All columns, whatever their width.
    All,
}

/// State of a PCI function whose driver reports in the Neuron table: the two cannot be matched.
const SEE_NEURON: &str = "see Neuron";

/// Returns the device's state in one word; the reasons are listed below the table.
pub(super) fn state(device: &Device, inventory: &Inventory) -> (&'static str, Style) {
    if inventory.is_reported_by_neuron(device) {
        return (SEE_NEURON, Style::Plain);
    }
    let nvml = &inventory.nvml;
    (device.state(nvml).as_str(), device.tone(nvml).into())
}

/// Returns the device's type, and whether it was set manually.
pub(super) fn kind(device: &Device) -> String {
    if device.identity.is_manual() {
        format!("{} (manual)", device.identity)
    } else {
        device.identity.to_string()
    }
}

/// Formats memory; the wide tables have the exact amount that the driver reports.
pub(super) fn memory(memory: Mebibytes, which: Columns) -> String {
    match which {
        Columns::Default => format_memory(memory),
        Columns::All => format!("{} MiB", memory.get()),
    }
}
