//! The parts of a partitioned device, one by one, and which of them have a process.
//!
//! A fleet counts them, and matching offers them; both must mean the same by "in use".

use std::collections::BTreeSet;

use super::device::{DeviceSummary, Occupancy};
use crate::domain::inventory::{
    ComputeInstance, Device, GpuInstance, MigState, NvmlState, Process,
};
use crate::domain::quantity::Mebibytes;

/// A partition that a container can be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What its profile is called, such as `3g.40gb`.
    pub profile: String,
    /// Its memory, where that is told.
    pub memory: Option<Mebibytes>,
    /// Whether it has a process.
    pub in_use: bool,
}

/// The parts of `device`, on a node whose NVML is in this state; none of a device that is whole, or of no use, or of which nobody
/// can tell.
pub fn parts_of(device: &Device, nvml: &NvmlState) -> Vec<Part> {
    let told = matches!(
        DeviceSummary::of(device, nvml).occupancy,
        Occupancy::Partitioned(_)
    );
    let Some(mig) = device.mig.state().filter(|_| told) else {
        return Vec::new();
    };
    let parts = instances(device, mig).into_iter();
    parts
        .filter_map(|(instance, compute, in_use)| {
            let of_profile = || mig.catalog.by_id(instance.profile_id);
            Some(Part {
                profile: device.profile_of(instance, compute)?.to_string(),
                memory: compute.memory.or_else(|| Some(of_profile()?.memory)),
                in_use,
            })
        })
        .collect()
}

/// All compute instances with the GPU instance that they are in, and whether a process may be there.
pub(super) fn instances<'d>(
    device: &Device,
    mig: &'d MigState,
) -> Vec<(&'d GpuInstance, &'d ComputeInstance, bool)> {
    // Looked up and not searched: who made the lists may have made them long.
    let listed: BTreeSet<(u32, u32)> = mig
        .gpu_instances
        .iter()
        .flat_map(|instance| {
            let computes = instance.compute_instances.iter();
            computes.map(|compute| (instance.id, compute.id))
        })
        .collect();
    let known: BTreeSet<u32> = mig.gpu_instances.iter().map(|one| one.id).collect();
    // An instance that is not listed is none that a process is known to be in.
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
            // A process that does not say where it runs may be anywhere.
            let used = [(gpu, part), (gpu, None), (None, None)]
                .iter()
                .any(|place| places.contains(place));
            all.push((instance, compute, used));
        }
    }
    all
}
