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

use std::collections::BTreeMap;

use super::words::{self, Usage};
use crate::cli::paint::Ink;
use crate::cli::text::{counted, folded, length, lines, pieces};
use crate::config::octavo::Colors;
use crate::domain::inventory::{
    Completeness, Condition, Device, GpuInstance, Inventory, MigMode, MigState, Process,
};

/// Columns between the left edge and the right one, the right one included.
const SPAN: usize = 72;
/// More slices than any device has are a driver's mistake, and not drawn.
const MOST_SLICES: u32 = 24;

/// How an instance's ids begin, in every picture that has one.
const INSTANCE_ID: &str = " gi ";
const LEGEND: &str =
    "gi 2/0: GPU instance 2, compute instance 0. no ci: none, so it cannot be used.";

/// A stretch of slices with one text.
#[derive(Debug)]
struct Region {
    slices: usize,
    paragraphs: Vec<String>,
    ink: Ink,
}

pub(super) fn pictures(inventory: &Inventory, colors: Colors) -> String {
    // Keyed by type and picture; the order is that of each group's first device.
    let mut groups: Vec<(String, Vec<&Device>)> = Vec::new();
    for device in &inventory.devices {
        let Some(state) = device.mig.state() else {
            continue;
        };
        if device.condition != Condition::Working {
            continue;
        }
        let text = picture(device, state, colors);
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
        format!("{text}\n{}\n", Ink::Faint.paint(LEGEND, colors))
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

/// The rest of the heading, and the frame below it.
fn picture(device: &Device, state: &MigState, colors: Colors) -> String {
    let heading = format!("{}  {}", device.identity, mode(state));
    let slices = slice_count(state);
    if slices == 0 {
        return format!("{heading}\n  The driver does not say which slices this GPU has.\n");
    }
    if slices > MOST_SLICES {
        return format!("{heading}\n  The driver claims {slices} slices, too many to draw.\n");
    }
    if state.geometry == Completeness::Partial {
        // Slices whose owner is not told would be drawn as free.
        return format!("{heading}\n  The driver does not tell the partitions.\n");
    }
    let usage = words::usage(device);
    let (regions, hidden) = match state.current {
        MigMode::Disabled => (vec![whole(slices, usage)], Vec::new()),
        MigMode::Enabled => partitioned(state, slices, usage),
    };
    let free = match state.current {
        MigMode::Disabled => String::new(),
        MigMode::Enabled => {
            let free = regions.iter().filter(|region| region.ink == Ink::Faint);
            format!(", {} of {slices} slices free", free.count())
        }
    };
    let frame = frame(&regions, slices, colors);
    let hidden = lines(hidden.into_iter().map(|instance| {
        let line = format!(
            "  gi {} ({}) lies in slices {}-{}, where another instance is",
            instance.id,
            profile_name(instance, state),
            instance.placement.start,
            instance.placement.end().saturating_sub(1)
        );
        folded(&line, 4)
    }));
    format!("{heading}{free}\n{frame}{hidden}")
}

fn mode(state: &MigState) -> &'static str {
    match (state.current, state.pending) {
        (MigMode::Disabled, MigMode::Disabled) => "MIG off",
        (MigMode::Disabled, MigMode::Enabled) => "MIG off, on after a reset",
        (MigMode::Enabled, MigMode::Enabled) => "MIG on",
        (MigMode::Enabled, MigMode::Disabled) => "MIG on, off after a reset",
    }
}

/// As many as the device offers, and no fewer than it has instances in.
fn slice_count(state: &MigState) -> u32 {
    let taken = state.gpu_instances.iter();
    let last = taken.map(|instance| instance.placement.end()).max();
    state.catalog.memory_slices().max(last.unwrap_or(0))
}

fn whole(slices: u32, usage: Usage<'_>) -> Region {
    let (used, ink) = match usage {
        Usage::Unknown => ("use unknown".to_owned(), Ink::Notice),
        Usage::Known([]) => ("idle".to_owned(), Ink::Plain),
        Usage::Known(processes) => {
            let count = counted(processes.len(), "process", "processes");
            (format!("in use by {count}"), Ink::Notice)
        }
    };
    Region {
        slices: usize::try_from(slices).unwrap_or(usize::MAX),
        paragraphs: vec![format!("one whole GPU, {used}")],
        ink,
    }
}

/// The regions from left to right, and the instances that could not be drawn.
fn partitioned<'a>(
    state: &'a MigState,
    slices: u32,
    usage: Usage<'_>,
) -> (Vec<Region>, Vec<&'a GpuInstance>) {
    let mut owners: BTreeMap<u32, Option<&GpuInstance>> =
        (0..slices).map(|slice| (slice, None)).collect();
    let mut hidden = Vec::new();
    for instance in &state.gpu_instances {
        let placement = instance.placement;
        let mut cells: Vec<_> = owners
            .iter_mut()
            .filter(|(slice, _)| (placement.start..placement.end()).contains(slice))
            .map(|(_, owner)| owner)
            .collect();
        if cells.is_empty() || cells.iter().any(|owner| owner.is_some()) {
            hidden.push(instance);
            continue;
        }
        for owner in &mut cells {
            **owner = Some(instance);
        }
    }
    let owners: Vec<Option<&GpuInstance>> = owners.into_values().collect();
    // Free slices stay cells of their own: they are what a new instance is counted in.
    let regions = owners
        .chunk_by(|left, right| matches!((left, right), (Some(l), Some(r)) if l.id == r.id))
        .map(|cells| match cells.first() {
            Some(Some(instance)) => instance_region(instance, state, cells.len(), usage),
            Some(None) | None => Region {
                slices: 1,
                paragraphs: vec!["free".to_owned()],
                ink: Ink::Faint,
            },
        })
        .collect();
    (regions, hidden)
}

fn instance_region(
    instance: &GpuInstance,
    state: &MigState,
    slices: usize,
    usage: Usage<'_>,
) -> Region {
    let (used, ink) = instance_usage(instance, usage);
    Region {
        slices,
        paragraphs: vec![profile_name(instance, state), ids(instance), used],
        ink,
    }
}

fn profile_name(instance: &GpuInstance, state: &MigState) -> String {
    state.catalog.by_id(instance.profile_id).map_or_else(
        || format!("profile {}", instance.profile_id),
        |profile| profile.name.to_string(),
    )
}

/// `gi 2/0`, `gi 2/-` without a compute instance, and `gi 2/0:1c,1:2c` when it is split.
fn ids(instance: &GpuInstance) -> String {
    let compute = match instance.compute_instances.as_slice() {
        [] => "-".to_owned(),
        [one] => one.id.to_string(),
        several => {
            let parts: Vec<String> = several
                .iter()
                .map(|compute| match compute.resources {
                    Some(resources) => format!("{}:{}c", compute.id, resources.compute_slices),
                    None => compute.id.to_string(),
                })
                .collect();
            parts.join(",")
        }
    };
    format!("gi {}/{compute}", instance.id)
}

fn instance_usage(instance: &GpuInstance, usage: Usage<'_>) -> (String, Ink) {
    let Usage::Known(processes) = usage else {
        return ("use unknown".to_owned(), Ink::Notice);
    };
    let inside = |process: &&Process| process.gpu_instance == Some(instance.id);
    let here: Vec<&Process> = processes.iter().filter(inside).collect();
    match (here.as_slice(), instance.compute_instances.as_slice()) {
        ([], []) => ("no ci".to_owned(), Ink::Notice),
        ([], _) => ("idle".to_owned(), Ink::Good),
        (_, [] | [_]) => ("in use".to_owned(), Ink::Notice),
        (here, several) => {
            let busy = |id| {
                here.iter()
                    .any(|process| process.compute_instance == Some(id))
            };
            let ids: Vec<String> = several
                .iter()
                .filter(|compute| busy(compute.id))
                .map(|compute| compute.id.to_string())
                .collect();
            (format!("in use: ci {}", ids.join(",")), Ink::Notice)
        }
    }
}

fn frame(regions: &[Region], slices: u32, colors: Colors) -> String {
    let slices_drawn = usize::try_from(slices).unwrap_or(1).max(1);
    // A cell with its right edge; at least wide enough for the number above it.
    let cell = SPAN.checked_div(slices_drawn).unwrap_or(SPAN).max(3);
    let inner = |region: &Region| cell.saturating_mul(region.slices).saturating_sub(1);
    let texts: Vec<Vec<String>> = regions
        .iter()
        .map(|region| {
            let width = inner(region).saturating_sub(1);
            let paragraphs = region.paragraphs.iter();
            paragraphs.flat_map(|text| pieces(text, width)).collect()
        })
        .collect();
    let height = texts.iter().map(Vec::len).max().unwrap_or(0);
    let dashes: Vec<String> = regions
        .iter()
        .map(|region| "-".repeat(inner(region)))
        .collect();
    let rule = format!("  +{}+", dashes.join("+"));
    let numbers: Vec<String> = (0..slices).map(|slice| format!("{slice:<cell$}")).collect();
    let numbering = Ink::Faint.paint(numbers.concat().trim_end(), colors);
    let row = |line: usize| {
        let cells: Vec<String> = regions
            .iter()
            .zip(&texts)
            .map(|(region, lines)| {
                let words = lines.get(line).map_or("", String::as_str);
                let pad = inner(region)
                    .saturating_sub(length(words))
                    .saturating_sub(1);
                format!(" {}{}", region.ink.paint(words, colors), " ".repeat(pad))
            })
            .collect();
        format!("  |{}|", cells.join("|"))
    };
    let head = [format!("   {numbering}"), rule.clone()];
    lines(head.into_iter().chain((0..height).map(row)).chain([rule]))
}
