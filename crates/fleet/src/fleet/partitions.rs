//! Partitions of a device, and which of them have a process.
//!
//! Fleet counts and matching share this code so that both mean the same by "in use".

use std::collections::BTreeSet;

use octavo_model::inventory::{ComputeInstance, Device, GpuInstance, MigState, NvmlState, Process};
use octavo_model::quantity::Mebibytes;

use super::device::{DeviceSummary, Occupancy};

/// Partition that a container can be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionUse {
    /// Name of its profile, such as `3g.40gb`.
    pub profile: String,
    /// Its memory, if known.
    pub memory: Option<Mebibytes>,
    /// True if it has a process.
    pub in_use: bool,
}

/// Partitions of `device`, on a node whose NVML is in this state; empty for a device that is whole, unusable or not
/// fully known.
pub fn partitions_of(device: &Device, nvml: &NvmlState) -> Vec<PartitionUse> {
    let told = matches!(
        DeviceSummary::new(device, nvml).occupancy,
        Occupancy::Partitioned(_)
    );
    let Some(mig) = device.mig.state().filter(|_| told) else {
        return Vec::new();
    };
    let parts = instances(device, mig).into_iter();
    parts
        .filter_map(|(instance, compute, in_use)| {
            let of_profile = || mig.catalog.by_id(instance.profile_id);
            Some(PartitionUse {
                profile: device.profile_of(instance, compute)?.to_string(),
                memory: compute.memory.or_else(|| Some(of_profile()?.memory)),
                in_use,
            })
        })
        .collect()
}

/// All compute instances with their GPU instance, and whether a process may run there.
pub(super) fn instances<'d>(
    device: &Device,
    mig: &'d MigState,
) -> Vec<(&'d GpuInstance, &'d ComputeInstance, bool)> {
    // Uses sets because the lists come from the driver and could be long.
    let listed: BTreeSet<(u32, u32)> = mig
        .gpu_instances
        .iter()
        .flat_map(|instance| {
            let computes = instance.compute_instances.iter();
            computes.map(|compute| (instance.id, compute.id))
        })
        .collect();
    let known: BTreeSet<u32> = mig.gpu_instances.iter().map(|one| one.id).collect();
    // A process in an unlisted instance has an unknown place.
    let place = |process: &Process| {
        let gpu = process.gpu_instance.filter(|id| known.contains(id));
        let part = gpu.zip(process.compute_instance);
        let part = part.filter(|place| listed.contains(place));
        (gpu, part.map(|(_, part)| part))
    };
    let places: BTreeSet<(Option<u32>, Option<u32>)> = device.processes.iter().map(place).collect();
    let mut all = Vec::new();
    for instance in &mig.gpu_instances {
        for compute in &instance.compute_instances {
            let (gpu, part) = (Some(instance.id), Some(compute.id));
            // A process without a reported instance could run in any.
            let used = [(gpu, part), (gpu, None), (None, None)]
                .iter()
                .any(|place| places.contains(place));
            all.push((instance, compute, used));
        }
    }
    all
}
