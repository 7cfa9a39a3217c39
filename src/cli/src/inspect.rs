//! `octavo inspect`: a machine's accelerators, as a table and as pictures of their slices.

use octavo_model::inventory::Inventory;
pub(super) use octavo_terminal::inventory::{Columns, format_inventory};

use super::text::lines;
use super::{CliError, Exit, Report, json, yaml};
use crate::settings::Colors;
use crate::settings::inspect::{InspectFormat, InspectSettings};

/// Formats the inventory as requested.
pub(super) fn report(
    inventory: &Inventory,
    settings: &InspectSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let output = match settings.format {
        InspectFormat::Table => {
            format_inventory(inventory, Columns::Default, settings.headers, colors)
        }
        InspectFormat::Wide => format_inventory(inventory, Columns::All, settings.headers, colors),
        InspectFormat::Json => json(inventory)?,
        InspectFormat::Yaml => yaml(inventory)?,
        InspectFormat::Name => names(inventory),
    };
    let (notes, exit) = match unreported(inventory) {
        0 => (String::new(), Exit::Done),
        count => (format!("NVML reports no PCI address for {count} failed GPU(s)\n"), Exit::Failed),
    };
    Ok(Report { output, notes, exit })
}

/// Returns the number of GPUs that NVML counts but that have no known PCI address: without them the output is
/// incomplete.
fn unreported(inventory: &Inventory) -> usize {
    let devices = inventory.devices.iter();
    devices.filter(|device| device.pci.is_unreported()).count()
}

/// Lists each device's UUID, or its address if it has none.
fn names(inventory: &Inventory) -> String {
    lines(inventory.devices.iter().map(|device| {
        let uuid = device.uuid.as_ref().map(ToString::to_string);
        uuid.unwrap_or_else(|| device.pci.to_string())
    }))
}
