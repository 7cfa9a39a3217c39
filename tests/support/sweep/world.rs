//! Partitions of a simulated machine, and their users.

use nvml_sim::model::{Gpu, GpuInstance, World};

/// Prefixes of functions that change the hardware.
const CHANGES: [&str; 5] = [
    "nvmlDeviceSet",
    "nvmlDeviceCreateGpuInstance",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
];

/// State of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) mode: Option<(bool, bool)>,
    /// Profile, first slice, profiles of the compute instances.
    instances: Vec<(u32, u32, Vec<u32>)>,
}

/// Whether a function changes the hardware.
pub(crate) fn changes(function: &str) -> bool {
    CHANGES.iter().any(|begin| function.starts_with(begin))
}

/// The MIG UUIDs of all instances in use.
pub(crate) fn in_use(world: &World) -> Vec<String> {
    let uses = world.processes.iter().filter_map(|process| {
        let gpu = world.gpus.iter().find(|gpu| gpu.uuid == process.gpu_uuid);
        let gi = gpu.into_iter().flat_map(instances).find(|gi| Some(gi.id) == process.gi);
        let ci = gi.into_iter().flat_map(|gi| &gi.compute).find(|ci| Some(ci.id) == process.ci);
        ci.map(|ci| ci.uuid.clone())
    });
    uses.collect()
}

/// MIG UUIDs of all instances.
pub(crate) fn there(world: &World) -> Vec<String> {
    let all = world.gpus.iter().flat_map(instances);
    let parts = all.flat_map(|gi| &gi.compute);
    parts.map(|ci| ci.uuid.clone()).collect()
}

pub(crate) fn instances(gpu: &Gpu) -> impl Iterator<Item = &GpuInstance> {
    gpu.mig.iter().flat_map(|mig| &mig.instances)
}

pub(crate) fn geometry(world: &World) -> Vec<Geometry> {
    let gpus = world.gpus.iter();
    gpus.map(|gpu| {
        let mut instances: Vec<_> = instances(gpu)
            .map(|gi| {
                let mut compute: Vec<u32> = gi.compute.iter().map(|ci| ci.profile_id).collect();
                compute.sort_unstable();
                (gi.profile_id, gi.placement.start, compute)
            })
            .collect();
        instances.sort();
        Geometry { mode: gpu.mig.as_ref().map(|mig| (mig.current, mig.pending)), instances }
    })
    .collect()
}

/// Request of a layout: profiles and splits at any placement.
pub(crate) fn shape(geometry: &Geometry) -> Vec<(u32, Vec<u32>)> {
    let all = geometry.instances.iter();
    let mut shape: Vec<_> = all.map(|(profile, _, compute)| (*profile, compute.clone())).collect();
    shape.sort();
    shape
}
