//! Pictures of the memory slices of MIG-capable GPUs, in characters that every terminal and log has.
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
//! A cell is a memory slice: 72 columns are divided by 4 (A30), 8 and 12 (RTX PRO) alike, so the frame has one width.
//! GPUs that look the same share a picture. What a driver reports is drawn even where it makes no sense, such as two
//! instances in one slice: the first keeps the cells and the other is named below.

use super::words;
use crate::cli::paint::Ink;
use crate::cli::text::{folded, length, lines, pieces};
use crate::config::octavo::Colors;
use crate::domain::inventory::{Device, InstanceUse, Inventory, MigState, Usage};
use crate::domain::slices::{Region, Slices, words as say};

/// Columns between the left edge and the right one, the right one included.
const SPAN: usize = 72;

/// How an instance's ids begin, in every picture that has one.
const INSTANCE_ID: &str = " gi ";

/// A stretch of slices with one text.
#[derive(Debug)]
struct Cell {
    slices: u32,
    paragraphs: Vec<String>,
    ink: Ink,
}

pub(super) fn pictures(inventory: &Inventory, colors: Colors) -> String {
    // Keyed by type and picture; the order is that of each group's first device.
    let mut groups: Vec<(String, Vec<&Device>)> = Vec::new();
    for device in &inventory.devices {
        let Some(text) = picture(device, colors) else {
            continue;
        };
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, devices)) => devices.push(device),
            None => groups.push((text, vec![device])),
        }
    }
    let drawn: Vec<String> = groups
        .iter()
        .map(|(text, devices)| {
            let who = Ink::Strong.paint(&who(devices), colors);
            format!("{who}  {text}")
        })
        .collect();
    let text = drawn.join("\n");
    if text.contains(INSTANCE_ID) {
        format!("{text}\n{}\n", Ink::Faint.paint(say::LEGEND, colors))
    } else {
        text
    }
}

/// `GPU 0`, `GPU 0-3,5`, or addresses where there are no numbers.
fn who(devices: &[&Device]) -> String {
    let noun = devices.first().map_or("GPU", |device| words::noun(device));
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let mut others = Vec::new();
    for device in devices {
        match (device.index, ranges.last_mut()) {
            (Some(index), Some((_, last))) if last.checked_add(1) == Some(index) => *last = index,
            (Some(index), _) => ranges.push((index, index)),
            (None, _) => others.push(words::number(device)),
        }
    }
    let ranges = ranges.iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    let all: Vec<String> = ranges.chain(others).collect();
    format!("{noun} {}", all.join(","))
}

/// The rest of the heading, and the frame below it; nothing for a device that cannot be partitioned.
fn picture(device: &Device, colors: Colors) -> Option<String> {
    let state = device.mig.state()?;
    let heading = format!("{}  {}", device.identity, say::mode(state));
    let picture = Slices::of(device);
    let free = picture.free();
    match picture {
        Slices::NotPartitionable => None,
        Slices::Untold(why) => Some(format!("{heading}\n  {}\n", say::untold(why))),
        Slices::Whole { slices } => {
            let frame = frame(&[whole(slices, device.usage())], slices, colors);
            Some(format!("{heading}\n{frame}"))
        }
        Slices::Partitioned {
            slices,
            regions,
            hidden,
        } => {
            let free = free.unwrap_or(0);
            let cells: Vec<Cell> = regions
                .iter()
                .map(|region| cell(region, state, device.usage()))
                .collect();
            let frame = frame(&cells, slices, colors);
            let hidden = lines(hidden.into_iter().map(|instance| {
                let line = format!("  {}", say::covered(instance, state));
                folded(&line, 4)
            }));
            Some(format!(
                "{heading}, {free} of {slices} slices free\n{frame}{hidden}"
            ))
        }
    }
}

fn whole(slices: u32, usage: Usage<'_>) -> Cell {
    let ink = match usage {
        Usage::Known([]) => Ink::Plain,
        Usage::Unknown | Usage::Known(_) => Ink::Notice,
    };
    Cell {
        slices,
        paragraphs: vec![format!("one whole GPU, {}", say::whole(usage))],
        ink,
    }
}

fn cell(region: &Region<'_>, state: &MigState, usage: Usage<'_>) -> Cell {
    let (paragraphs, ink) = match region {
        Region::Free { .. } => (vec!["free".to_owned()], Ink::Faint),
        Region::Instance { instance, .. } => {
            let how = usage.of(instance);
            let paragraphs = vec![
                state.profile_name(instance),
                say::ids(instance),
                say::used(&how),
            ];
            (paragraphs, ink(&how))
        }
    };
    Cell {
        slices: region.slices(),
        paragraphs,
        ink,
    }
}

fn ink(how: &InstanceUse) -> Ink {
    match how {
        InstanceUse::Idle => Ink::Good,
        InstanceUse::Unknown
        | InstanceUse::NoComputeInstance
        | InstanceUse::InUse
        | InstanceUse::InUseBy(_) => Ink::Notice,
    }
}

fn frame(cells: &[Cell], slices: u32, colors: Colors) -> String {
    let slices_drawn = usize::try_from(slices).unwrap_or(1).max(1);
    // A cell with its right edge; at least wide enough for the number above it.
    let width = SPAN.checked_div(slices_drawn).unwrap_or(SPAN).max(3);
    let inner = |cell: &Cell| {
        let slices = usize::try_from(cell.slices).unwrap_or(1);
        width.saturating_mul(slices).saturating_sub(1)
    };
    let texts: Vec<Vec<String>> = cells
        .iter()
        .map(|cell| {
            let width = inner(cell).saturating_sub(1);
            let paragraphs = cell.paragraphs.iter();
            paragraphs.flat_map(|text| pieces(text, width)).collect()
        })
        .collect();
    let height = texts.iter().map(Vec::len).max().unwrap_or(0);
    let dashes: Vec<String> = cells.iter().map(|cell| "-".repeat(inner(cell))).collect();
    let rule = format!("  +{}+", dashes.join("+"));
    let numbers: Vec<String> = (0..slices)
        .map(|slice| format!("{slice:<width$}"))
        .collect();
    let numbering = Ink::Faint.paint(numbers.concat().trim_end(), colors);
    let row = |line: usize| {
        let drawn: Vec<String> = cells
            .iter()
            .zip(&texts)
            .map(|(cell, lines)| {
                let words = lines.get(line).map_or("", String::as_str);
                let pad = inner(cell).saturating_sub(length(words)).saturating_sub(1);
                format!(" {}{}", cell.ink.paint(words, colors), " ".repeat(pad))
            })
            .collect();
        format!("  |{}|", drawn.join("|"))
    };
    let head = [format!("   {numbering}"), rule.clone()];
    lines(head.into_iter().chain((0..height).map(row)).chain([rule]))
}
