//! Adds the instances of a scenario, and explains rejections.

use super::format::{GpuEntry, InstanceEntry};
use super::{InstanceRefusal, Scenario, ScenarioError};
use crate::model::{GpuInstance, Slot, World};

pub(super) fn add_instances(
    scenario: &Scenario,
    world: &mut World,
    slot: Slot,
    entry: &GpuEntry,
) -> Result<(), ScenarioError> {
    for instance in &entry.instances {
        for _ in 0..instance.value.count {
            let index = world.gpu(slot).map_or(0, |gpu| gpu.index);
            add_instance(world, slot, &instance.value).map_err(|(name, reason)| {
                ScenarioError::Instance {
                    place: scenario.place(instance.referenced),
                    instance: name,
                    gpu: index,
                    reason,
                }
            })?;
        }
    }
    Ok(())
}

/// Adds a GPU instance with its compute instances. An error is the name of the rejected one, and the reason.
fn add_instance(
    world: &mut World,
    slot: Slot,
    entry: &InstanceEntry,
) -> Result<(), (String, InstanceRefusal)> {
    let refused = |reason| (entry.profile.clone(), reason);
    let gpu = world.gpu(slot).map_err(|_| refused(InstanceRefusal::NoMig))?;
    let mig = gpu.mig().map_err(|_| refused(InstanceRefusal::NoMig))?;
    if !mig.current {
        return Err(refused(InstanceRefusal::ModeOff));
    }
    let found = gpu.profiles.iter().find(|offered| offered.name == entry.profile);
    let profile = found.ok_or_else(|| {
        let offered = gpu.profiles.iter().map(|offered| offered.name.clone());
        refused(InstanceRefusal::UnknownProfile(offered.collect()))
    })?;
    let (id, compute) = (profile.id, profile.compute.clone());
    let wanted = match entry.start {
        None => None,
        Some(start) => {
            let places = profile.placements.iter();
            let listed = places.clone().map(|place| place.start).collect();
            let found = places.copied().find(|place| place.start == start);
            Some(found.ok_or_else(|| refused(InstanceRefusal::NotThere { start, listed }))?)
        }
    };
    let full = profile.full_compute_profile().map(|full| full.name.clone());
    let described = |gi: &GpuInstance| {
        let name = gpu.profile_of(gi).map(|profile| profile.name.clone());
        format!("{} at {}", name.unwrap_or_default(), gi.placement.start)
    };
    let beside: Vec<String> = mig.instances.iter().map(described).collect();
    let over = wanted.and_then(|wanted| {
        let other = mig.instances.iter().find(|gi| gi.placement.overlaps(wanted))?;
        Some(described(other))
    });
    let gi = world.create_gi(slot, id, wanted).map_err(|_| {
        refused(over.map_or(InstanceRefusal::Full(beside), InstanceRefusal::Overlaps))
    })?;
    let wanted = entry.compute.clone().unwrap_or_else(|| full.into_iter().collect());
    let mut beside: Vec<String> = Vec::new();
    for name in wanted {
        let refused = |reason| (format!("{name} in {}", entry.profile), reason);
        let found = compute.iter().find(|offered| offered.name == name);
        let profile = found.ok_or_else(|| {
            let offered = compute.iter().map(|offered| offered.name.clone());
            refused(InstanceRefusal::UnknownProfile(offered.collect()))
        })?;
        world
            .create_ci(slot, gi, profile.id, None)
            .map_err(|_| refused(InstanceRefusal::Full(std::mem::take(&mut beside))))?;
        beside.push(name.clone());
    }
    Ok(())
}
