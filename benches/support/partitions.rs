//! MIG partitions that another program creates and destroys on a simulated machine.

use nvml_sim::model::{Code, Slot, World};

const GPU: Slot = Slot(5);

/// Creates a GPU instance of `profile` with one compute instance of its full size.
pub(crate) fn create(world: &mut World, profile: &str) -> Result<(), Code> {
    let gpu = world.gpu(GPU)?;
    let profile = gpu.profiles.iter().find(|candidate| candidate.name == profile);
    let profile = profile.unwrap();
    let (id, compute_profile) = (profile.id, profile.full_compute_profile().unwrap().id);
    let instance = world.create_gi(GPU, id, None)?;
    world.create_ci(GPU, instance, compute_profile, None).map(drop)
}

/// Destroys the last GPU instance.
pub(crate) fn destroy_last(world: &mut World) -> Result<(), Code> {
    let mig = world.gpu(GPU)?.mig()?;
    let instance = mig.instances.last().unwrap();
    let (instance, compute) = (instance.id, instance.compute[0].id);
    world.destroy_ci(GPU, instance, compute)?;
    world.destroy_gi(GPU, instance)
}
