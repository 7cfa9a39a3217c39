//! `nvml-simctl mig`: changes of the geometry without a client.

use std::io::Write;

use nvml_sim::model::{Code, Gpu, MigMode, Placement, Slot, World};
use nvml_sim::store::Store;

use super::arguments::{GpuOption, MigCommand, Mode};
use super::{CtlError, find, on_gpu, print, show};

pub(super) fn run(
    store: &Store,
    command: &MigCommand,
    out: &mut dyn Write,
) -> Result<(), CtlError> {
    match command {
        MigCommand::Mode { gpu, mode } => {
            let mode = match *mode {
                Mode::On => MigMode::Enabled,
                Mode::Off => MigMode::Disabled,
            };
            let set = |world: &mut World, slot| world.set_mig_mode(slot, mode);
            let status = on_gpu(store, gpu, "cannot set the MIG mode", set)?;
            if status == Code::Success {
                return Ok(());
            }
            print(out, &format!("pending until a reset: {}\n", status.name()))
        }
        MigCommand::List(gpu) => {
            let world = store.read()?;
            let slot = find(&world, &gpu.gpu).ok_or_else(|| CtlError::NoGpu(gpu.gpu.clone()))?;
            let found = world.gpu(slot);
            print(out, &found.map(show::profiles).unwrap_or_default())
        }
        MigCommand::Create { gpu, profile, start, empty } => {
            let wanted = RequestedInstance { profile, start: *start, filled: !*empty };
            create(store, gpu, &wanted, out)
        }
        MigCommand::Destroy { gpu, gi } => {
            on_gpu(store, gpu, "cannot destroy GPU instances", |world, slot| {
                destroy(world, slot, *gi)
            })
        }
    }
}

struct RequestedInstance<'a> {
    profile: &'a str,
    start: Option<u32>,
    filled: bool,
}

fn create(
    store: &Store,
    gpu: &GpuOption,
    wanted: &RequestedInstance<'_>,
    out: &mut dyn Write,
) -> Result<(), CtlError> {
    let mut known = None;
    let answer = on_gpu(store, gpu, "cannot create the GPU instance", |world, slot| {
        let found = world.gpu(slot)?;
        let named = |text: &str| {
            let same = |name: &str, id: u32| name == text || id.to_string() == text;
            let mut profiles = found.profiles.iter();
            profiles.find(|profile| same(&profile.name, profile.id))
        };
        let Some(profile) = named(wanted.profile) else {
            known = Some(names(found));
            return Err(Code::InvalidArgument);
        };
        let placement = wanted.start.map(|start| Placement {
            start,
            size: profile.placements.first().map_or(0, |place| place.size),
        });
        let full = profile.full_compute_profile().map(|full| full.id);
        let gi = world.create_gi(slot, profile.id, placement)?;
        if let Some(full) = full.filter(|_| wanted.filled) {
            world.create_ci(slot, gi, full, None)?;
        }
        Ok(gi)
    });
    match (answer, known) {
        (Ok(gi), _) => print(out, &format!("GPU instance {gi}\n")),
        (Err(_), Some(known)) => {
            Err(CtlError::NoProfile { profile: wanted.profile.to_owned(), known })
        }
        (Err(error), None) => Err(error),
    }
}

fn names(gpu: &Gpu) -> Vec<String> {
    gpu.profiles.iter().map(|profile| profile.name.clone()).collect()
}

/// All or nothing: a rejected operation leaves the machine unchanged, because the change is not written.
fn destroy(world: &mut World, slot: Slot, gi: Option<u32>) -> Result<(), Code> {
    let mig = world.gpu(slot)?.mig_enabled()?;
    let chosen: Vec<(u32, Vec<u32>)> = mig
        .instances
        .iter()
        .filter(|instance| gi.is_none_or(|gi| gi == instance.id))
        .map(|instance| {
            let compute = instance.compute.iter().map(|ci| ci.id).collect();
            (instance.id, compute)
        })
        .collect();
    if chosen.is_empty() && gi.is_some() {
        return Err(Code::NotFound);
    }
    for (gi, compute) in chosen {
        for ci in compute {
            world.destroy_ci(slot, gi, ci)?;
        }
        world.destroy_gi(slot, gi)?;
    }
    Ok(())
}
