//! Memory slices of a device before and after a plan.

use octavo_model::inventory::{Device, MigMode, MigState};
use octavo_model::slices::words::ids;
use octavo_planner::plan::messages::{self, PlanFormatter};
use octavo_planner::plan::{DeviceChange, DevicePlanResult, InstanceEffect, PlannedInstance};

use crate::badges::printable;
use crate::slice_diagram::{Region, SLICES, SliceDiagram};

/// Marks what happens to each existing instance.
pub(super) fn mark_fates(
    picture: SliceDiagram,
    device: &Device,
    verdict: &DevicePlanResult,
) -> SliceDiagram {
    let instances = device.mig.state().map(|state| state.gpu_instances.as_slice());
    let fate = |region: &Region| {
        let instance = instances?.iter().find(|one| Some(one.id) == region.instance)?;
        Some(verdict.effect_on(instance))
    };
    let regions = picture.regions.into_iter().map(|region| {
        let (class, word) = match fate(&region) {
            None | Some(InstanceEffect::Unchanged) => return region,
            Some(InstanceEffect::Destroyed) => ("is-going", "deleted"),
            Some(InstanceEffect::Resplit) => ("is-divided", "new compute instances"),
            Some(InstanceEffect::Blocked) => ("is-odd", "blocking"),
        };
        let lines = region.lines.into_iter().chain([word.to_owned()]);
        Region { lines: lines.collect(), class, ..region }
    });
    SliceDiagram { regions: regions.collect(), ..picture }
}

/// Diagram of the planned instances.
pub(super) fn planned_diagram(
    state: &MigState,
    change: &DeviceChange,
    formatter: &PlanFormatter<'_>,
) -> SliceDiagram {
    let slices = state.catalog.memory_slices();
    let mode = change.mode.as_ref().map_or(state.current, |mode| mode.to);
    let regions = match mode {
        MigMode::Disabled => {
            vec![Region::planned("is-new", (0, slices), "one whole GPU".to_owned(), Vec::new())]
        }
        MigMode::Enabled => laid_out(state, change, slices, formatter),
    };
    SliceDiagram {
        what: SLICES,
        caption: format!("After: MIG {}", messages::on_off(mode)),
        count: (mode == MigMode::Enabled)
            .then(|| format!("{} more placements possible", change.room)),
        slices,
        regions,
        hidden: Vec::new(),
    }
}

fn laid_out(
    state: &MigState,
    change: &DeviceChange,
    slices: u32,
    formatter: &PlanFormatter<'_>,
) -> Vec<Region> {
    let (mut regions, mut next) = (Vec::new(), 0);
    for planned in &change.after {
        let (start, end) = (planned.placement.start, planned.placement.end());
        // Impossible placements, such as overlapping instances, are not drawn.
        if start < next || end > slices {
            continue;
        }
        regions.extend((next..start).map(Region::free));
        regions.push(planned_region(planned, state, formatter));
        next = end;
    }
    regions.extend((next..slices).map(Region::free));
    regions
}

fn planned_region(
    planned: &PlannedInstance,
    state: &MigState,
    formatter: &PlanFormatter<'_>,
) -> Region {
    let retained =
        planned.existing_id.and_then(|id| state.gpu_instances.iter().find(|one| one.id == id));
    let (class, line) = match retained {
        None => ("is-new", new(planned, formatter)),
        Some(instance) if planned.is_resplit(instance) => ("is-divided", split_of(planned)),
        Some(instance) => ("is-idle", format!("{}, unchanged", ids(instance))),
    };
    let place = (planned.placement.start, planned.placement.size);
    Region::planned(class, place, printable(&formatter.profile(planned.profile_id)), vec![line])
}

fn new(planned: &PlannedInstance, formatter: &PlanFormatter<'_>) -> String {
    let compute: Vec<u32> = planned.compute.iter().map(|one| one.slices).collect();
    if formatter.is_whole(planned.profile_id, &compute) {
        "new".to_owned()
    } else {
        format!("new, {}", messages::split(&compute))
    }
}

fn split_of(planned: &PlannedInstance) -> String {
    let compute: Vec<u32> = planned.compute.iter().map(|one| one.slices).collect();
    format!("now {}", messages::split(&compute))
}
