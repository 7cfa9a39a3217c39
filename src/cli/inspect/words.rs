//! How the states of devices are called, in every part of the output alike.

use crate::cli::paint::Ink;
use crate::domain::inventory::{Device, Gravity, Inventory};

/// Says of a function of the bus that another table has what its driver tells: nothing leads from the one to the other.
const SEE_NEURON: &str = "see Neuron";

/// The one word that says whether a device is as it should be; the reasons follow below the table.
pub(super) fn state(device: &Device, inventory: &Inventory) -> (&'static str, Ink) {
    if inventory.is_told_by_neuron(device) {
        return (SEE_NEURON, Ink::Plain);
    }
    let nvml = &inventory.nvml;
    let ink = device.gravity(nvml).map_or(Ink::Good, ink);
    (device.state(nvml).as_str(), ink)
}

/// Its type, and that a person said so.
pub(super) fn kind(device: &Device) -> String {
    if device.identity.is_by_hand() {
        format!("{} (by hand)", device.identity)
    } else {
        device.identity.to_string()
    }
}

/// What something that matters so much is written in.
pub(super) fn ink(gravity: Gravity) -> Ink {
    match gravity {
        Gravity::Note => Ink::Plain,
        Gravity::Notice => Ink::Notice,
        Gravity::Bad => Ink::Bad,
    }
}
