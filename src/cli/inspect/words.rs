//! How devices and their states are called, in every part of the output alike.

use crate::cli::paint::Ink;
use crate::domain::inventory::{Device, Gravity, NvmlState, Vendor};

/// A device as a person would call it: `GPU 0`, and `GPU 0000:07:00.0` when it has no number.
pub(super) fn name(device: &Device) -> String {
    format!("{} {}", noun(device), number(device))
}

/// What kind of thing it is called.
pub(super) fn noun(device: &Device) -> &'static str {
    match device.vendor {
        Vendor::Aws => "device",
        Vendor::Nvidia | Vendor::Amd | Vendor::Other(_) => "GPU",
    }
}

/// The driver's number for it, or its address.
pub(super) fn number(device: &Device) -> String {
    device
        .index
        .map_or_else(|| device.pci.to_string(), |index| index.to_string())
}

/// The one word that says whether a device is as it should be; the reasons follow below the table.
pub(super) fn state(device: &Device, nvml: &NvmlState) -> (&'static str, Ink) {
    let ink = device.gravity(nvml).map_or(Ink::Good, ink);
    (device.state(nvml).as_str(), ink)
}

/// What something that matters so much is written in.
pub(super) fn ink(gravity: Gravity) -> Ink {
    match gravity {
        Gravity::Note => Ink::Plain,
        Gravity::Notice => Ink::Notice,
        Gravity::Bad => Ink::Bad,
    }
}
