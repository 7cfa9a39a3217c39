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

use octavo_model::holder::Holder;
use octavo_model::inventory::{Device, GpuInstance, InstanceUse, MigMode, MigState};
use octavo_model::slices::{Region, Slices, words as say};
use octavo_planner::plan::messages::{PlanFormatter, split};
use octavo_planner::plan::{
    DeviceChange, DevicePlanResult, InstanceEffect, PlannedInstance, is_in_use,
};

use super::PlanView;
use crate::slice_frame::{Cell, Coloring, Row, frame, frames, use_style};
use crate::style::Style;
use crate::text::{lines, wrap};

/// Legend of the markers in a picture.
pub(super) const LEGEND: &str =
    "- destroyed, + new, ~ changed compute instances, ! blocking; unmarked stays.";

/// Draws the slices of `device`, if they can be drawn.
pub(super) fn picture(
    device: &Device,
    verdict: &DevicePlanResult,
    formatter: &PlanFormatter<'_>,
    view: &PlanView<'_>,
) -> String {
    let colors = view.colors;
    let Some(state) = device.mig.state() else {
        return String::new();
    };
    let change = match verdict {
        DevicePlanResult::Change(change) => Some(change),
        DevicePlanResult::Unchanged
        | DevicePlanResult::Blocked(_)
        | DevicePlanResult::Infeasible(_) => None,
    };
    let (now, slices, hidden) = match Slices::from_device(device) {
        Slices::NotPartitionable => return String::new(),
        Slices::Undrawable(why) => {
            return lines([wrap(&format!("  {}", say::undrawable(why)), 4)]);
        }
        Slices::Whole { slices } => (vec![Cell::whole(slices, device.usage())], slices, Vec::new()),
        Slices::Partitioned { slices, regions, hidden } => {
            let cells = regions
                .iter()
                .map(|region| present(region, (device, state), verdict, view.holders));
            (cells.collect(), slices, hidden)
        }
    };
    let drawn = match change {
        None => frame(&now, slices, colors),
        Some(change) => {
            let then = then(change, state, slices, formatter);
            let rows = [Row { label: "now", cells: &now }, Row { label: "then", cells: &then }];
            frames(&rows, slices, colors)
        }
    };
    let hidden = lines(
        hidden
            .into_iter()
            .map(|instance| wrap(&format!("  {}", say::hidden_instance(instance, state)), 4)),
    );
    drawn + &hidden
}

/// Draws the slices of `device` after the plan only.
pub(super) fn result(
    device: &Device,
    verdict: &DevicePlanResult,
    formatter: &PlanFormatter<'_>,
    view: &PlanView<'_>,
) -> String {
    match (verdict, device.mig.state()) {
        (DevicePlanResult::Change(change), Some(state)) => {
            let slices = state.catalog.memory_slices();
            let cells: Vec<Cell> = then(change, state, slices, formatter)
                .into_iter()
                .map(|cell| Cell { mark: ' ', ..cell })
                .collect();
            frame(&cells, slices, view.colors)
        }
        (DevicePlanResult::Change(_), None) => String::new(),
        (
            DevicePlanResult::Unchanged
            | DevicePlanResult::Blocked(_)
            | DevicePlanResult::Infeasible(_),
            _,
        ) => picture(device, verdict, formatter, view),
    }
}

fn present(
    region: &Region<'_>,
    (device, state): (&Device, &MigState),
    verdict: &DevicePlanResult,
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
    let (mark, style, coloring) = match verdict.effect_on(instance) {
        InstanceEffect::Unchanged => (' ', use_style(&how), Coloring::Background),
        InstanceEffect::Destroyed => ('-', Style::Bad, Coloring::Text),
        InstanceEffect::Resplit => ('~', Style::Warning, Coloring::Text),
        InstanceEffect::Blocked => ('!', Style::Bad, Coloring::Background),
    };
    Cell {
        slices: region.slices(),
        mark,
        paragraphs: vec![state.profile_name(instance), say::ids(instance), say::used(&how)],
        style,
        coloring,
    }
}

fn then(
    change: &DeviceChange,
    state: &MigState,
    slices: u32,
    formatter: &PlanFormatter<'_>,
) -> Vec<Cell> {
    let mode = change.mode.as_ref().map_or(state.current, |mode| mode.to);
    if mode == MigMode::Disabled {
        return vec![Cell {
            slices,
            mark: '+',
            paragraphs: vec!["one whole GPU".to_owned()],
            style: Style::Good,
            coloring: Coloring::Text,
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
        cells.push(planned_cell(planned, state, formatter));
        next = planned.placement.end();
    }
    cells.extend((next..slices).map(|_| Cell::free()));
    cells
}

fn planned_cell(
    planned: &PlannedInstance,
    state: &MigState,
    formatter: &PlanFormatter<'_>,
) -> Cell {
    let there = planned.existing_id.and_then(|id| {
        let mut instances = state.gpu_instances.iter();
        instances.find(|instance| instance.id == id)
    });
    let (mark, status, style) = match there {
        None => ('+', new(planned, formatter), Style::Good),
        Some(instance) if planned.is_resplit(instance) => {
            ('~', divided(instance, planned, formatter), Style::Good)
        }
        Some(instance) => (' ', say::ids(instance), Style::Plain),
    };
    Cell {
        slices: planned.placement.size,
        mark,
        paragraphs: vec![formatter.profile(planned.profile_id), status],
        style,
        coloring: Coloring::Text,
    }
}

/// Formats compute instances as `gi 9/+`, `gi 1/2:1c,+:2c`: a new one has no ID yet.
fn divided(
    instance: &GpuInstance,
    planned: &PlannedInstance,
    formatter: &PlanFormatter<'_>,
) -> String {
    let slices: Vec<u32> = planned.compute.iter().map(|compute| compute.slices).collect();
    let is_whole = formatter.is_whole(planned.profile_id, &slices);
    let parts: Vec<String> = planned
        .compute
        .iter()
        .map(|compute| {
            let id = compute.existing_id.map_or_else(|| "+".to_owned(), |id| id.to_string());
            if is_whole { id } else { format!("{id}:{}c", compute.slices) }
        })
        .collect();
    if parts.is_empty() {
        format!("gi {}/-", instance.id)
    } else {
        format!("gi {}/{}", instance.id, parts.join(","))
    }
}

fn new(planned: &PlannedInstance, formatter: &PlanFormatter<'_>) -> String {
    let compute: Vec<u32> = planned.compute.iter().map(|compute| compute.slices).collect();
    if compute.is_empty() {
        "new, no ci".to_owned()
    } else if formatter.is_whole(planned.profile_id, &compute) {
        "new".to_owned()
    } else {
        format!("new, {}", split(&compute))
    }
}
