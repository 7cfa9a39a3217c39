//! Pictures of the memory slices of MIG-capable GPUs, in characters that every terminal and log supports.
//!
//! ```text
//!    0        1        2        3        4        5        6        7
//!   +-----------------------------------+-----------------+--------+--------+
//!   | 3g.40gb                           | 2g.20gb         | 1g.10gb| free   |
//!   | gi 2/0                            | gi 3/0          | gi 9/- |        |
//!   | in use                            | idle            | no ci  |        |
//!   +-----------------------------------+-----------------+--------+--------+
//! ```
//!
//! GPUs that look the same share a picture. Inconsistent reports of a driver are drawn too, such as two instances in
//! one slice: the first keeps the cells and the other is listed below.

use octavo_model::inventory::{Device, DeviceProcesses, Inventory, MigState};
use octavo_model::slices::{Region, Slices, words as say};

use crate::devices;
use crate::slice_frame::{self, Cell, Coloring, frame};
use crate::style::{Colors, Style};
use crate::text::{group_by_key, lines, wrap};

/// Prefix of an instance's IDs in every picture; the blank before it may have another color.
const INSTANCE_ID: &str = "gi ";

pub(super) fn pictures(inventory: &Inventory, colors: Colors) -> String {
    let pictures = inventory.devices.iter();
    let pictures = pictures.filter_map(|device| Some((picture(device, colors)?, device)));
    let drawn: Vec<String> = group_by_key(pictures)
        .iter()
        .map(|(text, devices)| {
            let who = Style::Strong.paint(&devices::range(devices), colors);
            format!("{who}  {text}")
        })
        .collect();
    let text = drawn.join("\n");
    if text.contains(INSTANCE_ID) {
        format!("{text}\n{}\n", Style::Faint.paint(say::LEGEND, colors))
    } else {
        text
    }
}

/// Returns the rest of the heading, and the frame below it; `None` for a device that cannot be partitioned.
fn picture(device: &Device, colors: Colors) -> Option<String> {
    let state = device.mig.state()?;
    let heading = format!("{}  {}", device.identity, say::mode(state));
    let picture = Slices::from_device(device);
    let free = picture.free();
    match picture {
        Slices::NotPartitionable => None,
        Slices::Undrawable(why) => Some(format!("{heading}\n  {}\n", say::undrawable(why))),
        Slices::Whole { slices } => {
            let frame = frame(&[Cell::whole(slices, device.usage())], slices, colors);
            Some(format!("{heading}\n{frame}"))
        }
        Slices::Partitioned { slices, regions, hidden } => {
            let free = free.unwrap_or(0);
            let cells: Vec<Cell> =
                regions.iter().map(|region| cell(region, state, device.usage())).collect();
            let frame = frame(&cells, slices, colors);
            let hidden = lines(hidden.into_iter().map(|instance| {
                let line = format!("  {}", say::hidden_instance(instance, state));
                wrap(&line, 4)
            }));
            Some(format!("{heading}, {free} of {slices} slices free\n{frame}{hidden}"))
        }
    }
}

fn cell(region: &Region<'_>, state: &MigState, usage: DeviceProcesses<'_>) -> Cell {
    let Region::Instance { instance, .. } = region else {
        return Cell { slices: region.slices(), ..Cell::free() };
    };
    let how = usage.of(instance, state);
    Cell {
        slices: region.slices(),
        mark: ' ',
        paragraphs: vec![state.profile_name(instance), say::ids(instance), say::used(&how)],
        style: slice_frame::use_style(&how),
        coloring: Coloring::Background,
    }
}
