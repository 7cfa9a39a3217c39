//! Common words for the states of devices.

use octavo_model::inventory::{Device, Inventory, Severity};

use crate::style::Style;

/// State of a PCI function whose driver reports in the Neuron table: the two cannot be matched.
const SEE_NEURON: &str = "see Neuron";

/// Returns the device's state in one word; the reasons are listed below the table.
pub(super) fn state(device: &Device, inventory: &Inventory) -> (&'static str, Style) {
    if inventory.is_reported_by_neuron(device) {
        return (SEE_NEURON, Style::Plain);
    }
    let nvml = &inventory.nvml;
    let style = device.severity(nvml).map_or(Style::Good, style);
    (device.state(nvml).as_str(), style)
}

/// Returns the device's type, and whether it was set manually.
pub(super) fn kind(device: &Device) -> String {
    if device.identity.is_manual() {
        format!("{} (manual)", device.identity)
    } else {
        device.identity.to_string()
    }
}

/// Returns the color of a severity.
pub(super) fn style(severity: Severity) -> Style {
    match severity {
        Severity::Note => Style::Plain,
        Severity::Warning => Style::Warning,
        Severity::Critical => Style::Bad,
    }
}
