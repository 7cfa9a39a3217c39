//! Information that only AMD's driver reports: chip, partitions, used memory, and XGMI hives.
//!
//! ```text
//! AMD           GFX     CUS  PARTITIONS             VRAM USED           HIVE
//! 0000:05:00.0  gfx942  304  CPX/NPS4, 8 x 24564Mi  2272Mi of 196592Mi  1
//! ```
//!
//! Devices of one hive share a number; the hive's own ID is as long as a chip's, and appears only in the wide table.

use std::collections::BTreeSet;

use octavo_model::inventory::{Amd, Device, Inventory, PartitioningMode};
use octavo_model::quantity::Mebibytes;

use crate::inspect::Columns;
use crate::settings::Colors;
use crate::style::Style;
use crate::text::{Cell, columns};

const COLUMNS: [&str; 6] = ["AMD", "GFX", "CUS", "PARTITIONS", "VRAM USED", "HIVE"];
const WIDE_COLUMNS: [&str; 5] = ["MODES", "RENDER", "HIVE ID", "CHIP", "SERIAL"];

/// Placeholder for a value that a device does not have or that is not reported.
const NONE: &str = "-";

/// Formats one row per device that AMD's driver reports; empty without such a device.
pub(super) fn devices(inventory: &Inventory, which: Columns, colors: Colors) -> String {
    let devices = inventory.devices.iter();
    let told: Vec<(&Device, &Amd)> = devices
        .filter_map(|device| Some((device, device.amd.as_ref()?)))
        .collect();
    if told.is_empty() {
        return String::new();
    }
    let hives: BTreeSet<u64> = told.iter().filter_map(|(_, amd)| amd.hive).collect();
    let more: &[&str] = match which {
        Columns::Default => &[],
        Columns::All => &WIDE_COLUMNS,
    };
    let header = COLUMNS.iter().chain(more);
    let header = header.map(|name| Cell::new(name, Style::Strong)).collect();
    let mut rows: Vec<Vec<Cell>> = vec![header];
    for (device, amd) in told {
        let hive = amd
            .hive
            .and_then(|own| hives.iter().position(|hive| *hive == own));
        let mut row = vec![
            Cell::plain(&device.pci.to_string()),
            cell(amd.gfx_target.clone()),
            cell(amd.compute_units.map(|units| units.to_string())),
            cell(parts(amd)),
            cell(memory(device, amd)),
            cell(hive.map(|hive| hive.saturating_add(1).to_string())),
        ];
        if which == Columns::All {
            row.extend(more_of(amd));
        }
        rows.push(row);
    }
    columns(&rows, colors)
}

fn more_of(amd: &Amd) -> [Cell; 5] {
    [
        cell(modes(amd)),
        cell(minors(amd)),
        cell(amd.hive.map(|hive| format!("{hive:016x}"))),
        cell(amd.unique_id.clone()),
        cell(amd.serial.clone()),
    ]
}

fn cell(text: Option<String>) -> Cell {
    Cell::plain(&text.unwrap_or_else(|| NONE.to_owned()))
}

/// Formats `CPX/NPS4, 8 x 24564Mi`: the current modes, and the resulting partitions.
fn parts(amd: &Amd) -> Option<String> {
    let modes: Vec<&str> = [&amd.compute, &amd.memory]
        .into_iter()
        .flatten()
        .map(|mode| mode.current.as_str())
        .collect();
    let mut said: Vec<String> = Vec::new();
    if !modes.is_empty() {
        said.push(modes.join("/"));
    }
    if let [first, rest @ ..] = amd.partitions.as_slice()
        && !rest.is_empty()
    {
        let count = amd.partitions.len();
        let alike = rest.iter().all(|other| other.memory == first.memory);
        said.push(match first.memory.filter(|_| alike) {
            Some(memory) => format!("{count} x {}", mebibytes(memory)),
            None => format!("{count} parts"),
        });
    }
    if amd.is_virtual {
        said.push("virtual".to_owned());
    }
    (!said.is_empty()).then(|| said.join(", "))
}

fn memory(device: &Device, amd: &Amd) -> Option<String> {
    let used = mebibytes(amd.memory_used?);
    let total = device.memory.map(mebibytes);
    Some(total.map_or_else(|| used.clone(), |total| format!("{used} of {total}")))
}

fn mebibytes(memory: Mebibytes) -> String {
    format!("{}Mi", memory.get())
}

/// Formats the modes that the driver supports.
fn modes(amd: &Amd) -> Option<String> {
    let available: Vec<String> = [&amd.compute, &amd.memory]
        .into_iter()
        .flatten()
        .map(|PartitioningMode { available, .. }| available.join(" "))
        .filter(|modes| !modes.is_empty())
        .collect();
    (!available.is_empty()).then(|| available.join(", "))
}

/// Formats minors as `128-135`, or individually if they are not consecutive.
fn minors(amd: &Amd) -> Option<String> {
    let minors: Vec<u32> = amd
        .partitions
        .iter()
        .map(|part| part.render_minor)
        .collect();
    let (first, last) = (minors.first()?, minors.last()?);
    let in_a_row = minors.is_sorted_by(|one, next| one.checked_add(1) == Some(*next));
    Some(if first == last {
        first.to_string()
    } else if in_a_row {
        format!("{first}-{last}")
    } else {
        let each: Vec<String> = minors.iter().map(u32::to_string).collect();
        each.join(",")
    })
}
