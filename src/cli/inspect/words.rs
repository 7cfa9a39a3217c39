//! Common words for the states of devices.

use crate::cli::paint::Ink;
use crate::domain::inventory::{Device, Gravity, Inventory};

/// State of a PCI function whose driver reports in the Neuron table: the two cannot be matched.
const SEE_NEURON: &str = "see Neuron";

/// Returns the device's state in one word; the reasons are listed below the table.
pub(super) fn state(device: &Device, inventory: &Inventory) -> (&'static str, Ink) {
    if inventory.is_told_by_neuron(device) {
        return (SEE_NEURON, Ink::Plain);
    }
    let nvml = &inventory.nvml;
    let ink = device.gravity(nvml).map_or(Ink::Good, ink);
    (device.state(nvml).as_str(), ink)
}

/// Returns the device's type, and whether it was set manually.
pub(super) fn kind(device: &Device) -> String {
    if device.identity.is_by_hand() {
        format!("{} (by hand)", device.identity)
    } else {
        device.identity.to_string()
    }
}

/// Returns the color of a severity.
pub(super) fn ink(gravity: Gravity) -> Ink {
    match gravity {
        Gravity::Note => Ink::Plain,
        Gravity::Notice => Ink::Notice,
        Gravity::Bad => Ink::Bad,
    }
}
