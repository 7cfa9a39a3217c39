//! Steps of a device's change, in order.

use std::collections::{BTreeMap, BTreeSet};

use octavo_planner::plan::messages::{PlanFormatter, on_off, placement_range};
use octavo_planner::plan::{DeviceChange, InstanceRef, Step};

use super::StepDetail;

/// Formats one line per step, with a marker for its kind.
pub(super) fn steps(
    change: &DeviceChange,
    formatter: &PlanFormatter<'_>,
    detail: StepDetail,
) -> Vec<(char, String)> {
    match detail {
        StepDetail::Calls => change
            .steps
            .iter()
            .map(|step| {
                let text = match step {
                    // The other devices of a reset are listed once, for all devices together.
                    Step::Reset { .. } => "reset the GPU".to_owned(),
                    Step::DestroyComputeInstance { .. }
                    | Step::DestroyGpuInstance { .. }
                    | Step::SetMigMode { .. }
                    | Step::CreateGpuInstance { .. }
                    | Step::CreateComputeInstance { .. } => formatter.step(step, &change.after),
                };
                (sign(step), text)
            })
            .collect(),
        StepDetail::Instances => instances(change, formatter),
    }
}

fn sign(step: &Step) -> char {
    match step {
        Step::DestroyComputeInstance { .. } | Step::DestroyGpuInstance { .. } => '-',
        Step::SetMigMode { .. } | Step::Reset { .. } => '*',
        Step::CreateGpuInstance { .. } | Step::CreateComputeInstance { .. } => '+',
    }
}

/// Formats one line per GPU instance, including its destroyed or created compute instances.
fn instances(change: &DeviceChange, formatter: &PlanFormatter<'_>) -> Vec<(char, String)> {
    let mut gone = BTreeSet::new();
    let mut computes: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for step in &change.steps {
        match step {
            Step::DestroyGpuInstance { gpu_instance, .. } => {
                gone.insert(*gpu_instance);
            }
            Step::CreateComputeInstance { gpu_instance: InstanceRef::Planned(number), slices } => {
                computes.entry(*number).or_default().push(*slices);
            }
            Step::CreateComputeInstance { .. }
            | Step::DestroyComputeInstance { .. }
            | Step::SetMigMode { .. }
            | Step::Reset { .. }
            | Step::CreateGpuInstance { .. } => {}
        }
    }
    let line = |step: &Step| match step {
        Step::DestroyComputeInstance { gpu_instance, .. } if gone.contains(gpu_instance) => None,
        Step::CreateComputeInstance { gpu_instance: InstanceRef::Planned(_), .. } => None,
        Step::CreateGpuInstance { instance, profile_id, placement } => {
            let none = Vec::new();
            let compute = computes.get(instance).unwrap_or(&none);
            let name = formatter.instance(*profile_id, compute);
            Some(format!("create {name} in {}", placement_range(*placement)))
        }
        Step::SetMigMode { to } => Some(format!("turn MIG mode {}", on_off(*to))),
        Step::Reset { .. } => Some("reset the GPU".to_owned()),
        Step::DestroyComputeInstance { .. }
        | Step::DestroyGpuInstance { .. }
        | Step::CreateComputeInstance { .. } => Some(formatter.step(step, &change.after)),
    };
    let steps = change.steps.iter();
    steps.filter_map(|step| Some((sign(step), line(step)?))).collect()
}
