//! Information that only AMD's driver reports: chip, partitions, used memory, and XGMI hives.
//!
//! ```text
//! AMD           GFX     CUS  PARTITIONS              VRAM USED             HIVE
//! 0000:05:00.0  gfx942  304  CPX/NPS4, 8 x 23.9 GiB  2.2 GiB of 191.9 GiB  1
//! ```
//!
//! Devices of one hive share a number; the hive's own ID is as long as a chip's, and appears only in the wide table.

use std::collections::BTreeSet;

use octavo_model::inventory::{Amd, Device, Inventory, PartitioningMode};

use super::format::{self, Columns};
use crate::style::Colors;
use crate::text::{self, Cell, Headers};

const COLUMNS: [&str; 6] = ["AMD", "GFX", "CUS", "PARTITIONS", "VRAM USED", "HIVE"];
/// Further columns of the wide table.
const WIDE_COLUMNS: [&str; 5] = ["MODES", "RENDER", "HIVE ID", "CHIP", "SERIAL"];

/// Formats one row per device that AMD's driver reports; empty without such a device.
pub(super) fn devices(inventory: &Inventory, which: Columns, colors: Colors) -> String {
    let devices = inventory.devices.iter();
    let reported: Vec<(&Device, &Amd)> =
        devices.filter_map(|device| Some((device, device.amd.as_ref()?))).collect();
    if reported.is_empty() {
        return String::new();
    }
    let hives: BTreeSet<u64> = reported.iter().filter_map(|(_, amd)| amd.hive).collect();
    let wide: &[&str] = if which == Columns::All { &WIDE_COLUMNS } else { &[] };
    let rows = reported.iter().map(|(device, amd)| {
        let hive = amd.hive.and_then(|own| hives.iter().position(|hive| *hive == own));
        vec![
            Cell::plain(&device.pci),
            Cell::optional(amd.gfx_target.as_ref()),
            Cell::optional(amd.compute_units),
            Cell::optional(parts(amd, which)),
            Cell::optional(memory((device, amd), which)),
            Cell::optional(hive.map(|hive| hive.saturating_add(1))),
            Cell::optional(modes(amd)),
            Cell::optional(minors(amd)),
            Cell::optional(amd.hive.map(|hive| format!("{hive:016x}"))),
            Cell::optional(amd.unique_id.as_ref()),
            Cell::optional(amd.serial.as_ref()),
        ]
    });
    text::table(&[&COLUMNS, wide], rows, Headers::Shown, colors)
}

/// Formats `CPX/NPS4, 8 x 23.9 GiB`: the current modes, and the resulting partitions.
fn parts(amd: &Amd, which: Columns) -> Option<String> {
    let modes: Vec<&str> = [&amd.compute, &amd.memory]
        .into_iter()
        .flatten()
        .map(|mode| mode.current.as_str())
        .collect();
    let mut parts: Vec<String> = Vec::new();
    if !modes.is_empty() {
        parts.push(modes.join("/"));
    }
    if let [first, rest @ ..] = amd.partitions.as_slice()
        && !rest.is_empty()
    {
        let count = amd.partitions.len();
        let alike = rest.iter().all(|other| other.memory == first.memory);
        parts.push(match first.memory.filter(|_| alike) {
            Some(memory) => format!("{count} x {}", format::memory(memory, which)),
            None => format!("{count} parts"),
        });
    }
    if amd.is_virtual {
        parts.push("virtual".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn memory((device, amd): (&Device, &Amd), which: Columns) -> Option<String> {
    let used = format::memory(amd.memory_used?, which);
    let total = device.memory.map(|total| format::memory(total, which));
    Some(total.map_or_else(|| used.clone(), |total| format!("{used} of {total}")))
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
    let minors: Vec<u32> = amd.partitions.iter().map(|part| part.render_minor).collect();
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
