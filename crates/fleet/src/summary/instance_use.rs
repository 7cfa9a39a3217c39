//! Compute instances of a device, and which of them have a process.

use std::collections::BTreeSet;

use octavo_model::inventory::{ComputeInstance, Device, GpuInstance, MigState, Process};

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
            let used =
                [(gpu, part), (gpu, None), (None, None)].iter().any(|place| places.contains(place));
            all.push((instance, compute, used));
        }
    }
    all
}
