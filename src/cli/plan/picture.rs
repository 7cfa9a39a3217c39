//! The slices of a GPU now, and below them after the plan.
//!
//! ```text
//!    0        1        2        3        4        5        6        7
//!   +-now-------------+--------+--------+-----------------------------------+
//!   | 2g.20gb         |-1g.10gb| free   | 3g.40gb                           |
//!   | gi 3/0          | gi 9/0 |        | gi 2/0                            |
//!   | idle            | idle   |        | in use                            |
//!   +-then------------+--------+--------+-----------------------------------+
//!   | 2g.20gb         |+2g.20gb         | 3g.40gb                           |
//!   | gi 3/0          | new             | gi 2/0                            |
//!   +-----------------+-----------------+-----------------------------------+
//! ```

use super::View;
use crate::cli::frame::{Cell, Row, frame, frames};
use crate::cli::paint::Ink;
use crate::cli::text::{folded, lines};
use crate::domain::holder::Holder;
use crate::domain::inventory::{Device, GpuInstance, InstanceUse, MigMode, MigState, Usage};
use crate::domain::plan::words::{Words, split};
use crate::domain::plan::{Change, Fate, PlannedInstance, Verdict, is_in_use};
use crate::domain::slices::{Region, Slices, words as say};

/// Legend of the markers in a picture.
pub(super) const SIGNS: &str =
    "- goes, + new, ~ other compute instances in it, ! in the way; all else stays.";

/// Draws the slices of `device`, if they can be drawn.
pub(super) fn picture(
    device: &Device,
    verdict: &Verdict,
    words: &Words<'_>,
    view: &View<'_>,
) -> String {
    let colors = view.colors;
    let Some(state) = device.mig.state() else {
        return String::new();
    };
    let change = match verdict {
        Verdict::Change(change) => Some(change),
        Verdict::Unchanged | Verdict::Blocked(_) | Verdict::Infeasible(_) => None,
    };
    let (now, slices, hidden) = match Slices::of(device) {
        Slices::NotPartitionable => return String::new(),
        Slices::Untold(why) => {
            return lines([folded(&format!("  {}", say::untold(why)), 4)]);
        }
        Slices::Whole { slices } => (vec![whole(slices, device.usage())], slices, Vec::new()),
        Slices::Partitioned {
            slices,
            regions,
            hidden,
        } => {
            let cells = regions
                .iter()
                .map(|region| present(region, (device, state), verdict, view.holders));
            (cells.collect(), slices, hidden)
        }
    };
    let drawn = match change {
        None => frame(&now, slices, colors),
        Some(change) => {
            let then = then(change, state, slices, words);
            let rows = [
                Row {
                    label: "now",
                    cells: &now,
                },
                Row {
                    label: "then",
                    cells: &then,
                },
            ];
            frames(&rows, slices, colors)
        }
    };
    let hidden = lines(
        hidden
            .into_iter()
            .map(|instance| folded(&format!("  {}", say::covered(instance, state)), 4)),
    );
    drawn + &hidden
}

/// Draws the slices of `device` after the plan only.
pub(super) fn result(
    device: &Device,
    verdict: &Verdict,
    words: &Words<'_>,
    view: &View<'_>,
) -> String {
    match (verdict, device.mig.state()) {
        (Verdict::Change(change), Some(state)) => {
            let slices = state.catalog.memory_slices();
            let cells: Vec<Cell> = then(change, state, slices, words)
                .into_iter()
                .map(|cell| Cell { mark: ' ', ..cell })
                .collect();
            frame(&cells, slices, view.colors)
        }
        (Verdict::Change(_), None) => String::new(),
        (Verdict::Unchanged | Verdict::Blocked(_) | Verdict::Infeasible(_), _) => {
            picture(device, verdict, words, view)
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
        mark: ' ',
        paragraphs: vec![format!("one whole GPU, {}", say::whole(usage))],
        ink,
    }
}

fn present(
    region: &Region<'_>,
    (device, state): (&Device, &MigState),
    verdict: &Verdict,
    holders: &[Holder],
) -> Cell {
    let Region::Instance { instance, .. } = region else {
        return Cell::free();
    };
    let how = match device.usage().of(instance, state) {
        // The driver does not report processes that only have the device open, or the pods it is allocated to.
        InstanceUse::Idle | InstanceUse::NoComputeInstance
            if is_in_use(device, holders, instance) =>
        {
            InstanceUse::InUse
        }
        how @ (InstanceUse::Unknown
        | InstanceUse::NoComputeInstance
        | InstanceUse::Idle
        | InstanceUse::InUse
        | InstanceUse::InUseBy(_)) => how,
    };
    let (mark, ink) = match verdict.fate(instance) {
        Fate::Stays => (' ', used(&how)),
        Fate::Goes => ('-', Ink::Bad),
        Fate::Divided => ('~', Ink::Notice),
        Fate::InTheWay => ('!', Ink::Notice),
    };
    Cell {
        slices: region.slices(),
        mark,
        paragraphs: vec![
            state.profile_name(instance),
            say::ids(instance),
            say::used(&how),
        ],
        ink,
    }
}

fn used(how: &InstanceUse) -> Ink {
    match how {
        InstanceUse::Idle => Ink::Plain,
        InstanceUse::Unknown
        | InstanceUse::NoComputeInstance
        | InstanceUse::InUse
        | InstanceUse::InUseBy(_) => Ink::Notice,
    }
}

fn then(change: &Change, state: &MigState, slices: u32, words: &Words<'_>) -> Vec<Cell> {
    let mode = change.mode.as_ref().map_or(state.current, |mode| mode.to);
    if mode == MigMode::Disabled {
        return vec![Cell {
            slices,
            mark: '+',
            paragraphs: vec!["one whole GPU".to_owned()],
            ink: Ink::Good,
        }];
    }
    let mut cells = Vec::new();
    let mut next = 0;
    for planned in &change.after {
        // Inconsistent placements, such as two instances in one slice, are not drawn.
        if planned.placement.start < next || planned.placement.end() > slices {
            continue;
        }
        cells.extend((next..planned.placement.start).map(|_| Cell::free()));
        cells.push(planned_cell(planned, state, words));
        next = planned.placement.end();
    }
    cells.extend((next..slices).map(|_| Cell::free()));
    cells
}

fn planned_cell(planned: &PlannedInstance, state: &MigState, words: &Words<'_>) -> Cell {
    let there = planned.kept.and_then(|id| {
        let mut instances = state.gpu_instances.iter();
        instances.find(|instance| instance.id == id)
    });
    let (mark, said, ink) = match there {
        None => ('+', new(planned, words), Ink::Good),
        Some(instance) if planned.divides(instance) => {
            ('~', divided(instance, planned, words), Ink::Good)
        }
        Some(instance) => (' ', say::ids(instance), Ink::Plain),
    };
    Cell {
        slices: planned.placement.size,
        mark,
        paragraphs: vec![words.profile(planned.profile_id), said],
        ink,
    }
}

/// Formats compute instances as `gi 9/+`, `gi 1/2:1c,+:2c`: a new one has no ID yet.
fn divided(instance: &GpuInstance, planned: &PlannedInstance, words: &Words<'_>) -> String {
    let slices: Vec<u32> = planned
        .compute
        .iter()
        .map(|compute| compute.slices)
        .collect();
    let is_whole = words.is_whole(planned.profile_id, &slices);
    let parts: Vec<String> = planned
        .compute
        .iter()
        .map(|compute| {
            let id = compute
                .kept
                .map_or_else(|| "+".to_owned(), |id| id.to_string());
            if is_whole {
                id
            } else {
                format!("{id}:{}c", compute.slices)
            }
        })
        .collect();
    if parts.is_empty() {
        format!("gi {}/-", instance.id)
    } else {
        format!("gi {}/{}", instance.id, parts.join(","))
    }
}

fn new(planned: &PlannedInstance, words: &Words<'_>) -> String {
    let compute: Vec<u32> = planned
        .compute
        .iter()
        .map(|compute| compute.slices)
        .collect();
    if compute.is_empty() {
        "new, no ci".to_owned()
    } else if words.is_whole(planned.profile_id, &compute) {
        "new".to_owned()
    } else {
        format!("new, {}", split(&compute))
    }
}
