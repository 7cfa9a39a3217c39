//! The end of the output: what fails, what wants attention, and what could not be read.

use super::words;
use crate::cli::devices;
use crate::cli::paint::Ink;
use crate::cli::text::folded;
use crate::config::octavo::Colors;
use crate::domain::inventory::Inventory;

pub(super) fn problems(inventory: &Inventory, colors: Colors) -> String {
    let mut lines = Vec::new();
    for device in &inventory.devices {
        for complaint in device.complaints() {
            // The address goes with it, because numbers move when a device falls off the bus.
            let place = match device.index {
                Some(_) => format!("{} ({})", devices::name(device), device.pci),
                None => devices::name(device),
            };
            let line = folded(&format!("  {place}: {}", complaint.text), 4);
            let ink = words::ink(complaint.gravity);
            lines.push(format!("{}\n", ink.paint(&line, colors)));
        }
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
