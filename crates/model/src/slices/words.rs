//! Texts about slices and instances, shared by the terminal and the web page.

use super::UndrawableReason;
use crate::inventory::{DeviceProcesses, GpuInstance, InstanceUse, MigMode, MigState};
use crate::text::join;

/// Legend of the ids in a picture.
pub const LEGEND: &str =
    "gi 2/0: GPU instance 2, compute instance 0. no ci: no compute instance, unusable";

/// MIG mode, and its change at the next reset.
pub fn mode(state: &MigState) -> &'static str {
    match (state.current, state.pending) {
        (MigMode::Disabled, MigMode::Disabled) => "MIG off",
        (MigMode::Disabled, MigMode::Enabled) => "MIG off, on after a reset",
        (MigMode::Enabled, MigMode::Enabled) => "MIG on",
        (MigMode::Enabled, MigMode::Disabled) => "MIG on, off after a reset",
    }
}

/// Text for slices that cannot be drawn.
pub fn undrawable(why: UndrawableReason) -> String {
    match why {
        UndrawableReason::NoSlices => {
            "The driver does not report the slices of this GPU.".to_owned()
        }
        UndrawableReason::TooMany(slices) => {
            format!("The driver reports {slices} slices, too many to draw.")
        }
        UndrawableReason::Geometry => "The driver does not report the partitions.".to_owned(),
    }
}

/// Usage of a whole GPU.
pub fn whole_gpu_usage(usage: DeviceProcesses<'_>) -> String {
    match usage {
        DeviceProcesses::Unknown => "usage unknown".to_owned(),
        DeviceProcesses::Known([]) => "idle".to_owned(),
        DeviceProcesses::Known([_]) => "in use by 1 process".to_owned(),
        DeviceProcesses::Known(processes) => format!("in use by {} processes", processes.len()),
    }
}

/// Usage of an instance.
pub fn used(how: &InstanceUse) -> String {
    match how {
        InstanceUse::Unknown => "usage unknown".to_owned(),
        InstanceUse::NoComputeInstance => "no ci".to_owned(),
        InstanceUse::Idle => "idle".to_owned(),
        InstanceUse::InUse => "in use".to_owned(),
        InstanceUse::InUseBy(ids) if ids.is_empty() => "in use".to_owned(),
        InstanceUse::InUseBy(ids) => {
            format!("in use: ci {}", join(ids.iter(), ","))
        }
    }
}

/// Ids of an instance: `gi 2/0`, `gi 2/-` without a compute instance, `gi 2/0:1c,1:2c` if it is split.
pub fn ids(instance: &GpuInstance) -> String {
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

/// Position: `slice 3`, `slices 4-7`.
pub fn slice_range(start: u32, slices: u32) -> String {
    match slices {
        0 | 1 => format!("slice {start}"),
        _ => format!("slices {start}-{}", start.saturating_add(slices).saturating_sub(1)),
    }
}

/// The line for a hidden instance. The profile name comes from the driver and may contain any character.
pub fn hidden_instance(instance: &GpuInstance, state: &MigState) -> String {
    format!(
        "gi {} ({}) in {} overlaps another instance",
        instance.id,
        state.profile_name(instance),
        slice_range(instance.placement.start, instance.placement.size)
    )
}
