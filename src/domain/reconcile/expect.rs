//! What a device should have by now, so that what somebody else did shows.

use std::collections::BTreeSet;

use crate::domain::call::{Call, Done};
use crate::domain::catalog::Placement;
use crate::domain::inventory::{Device, GpuInstance, Mig, MigState};

/// A GPU instance as it can be told from others: ids are given again.
type Known = (u32, Placement);

/// The device as it should be, after all that was done to it.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) device: Device,
    /// What was tried to be made or to be taken away: whatever of it is there or not was our own doing.
    ours: BTreeSet<Known>,
}

impl Expected {
    pub(super) fn new(device: Device) -> Self {
        Self {
            device,
            ours: BTreeSet::new(),
        }
    }

    /// A call is about to be made, and whatever comes of it is ours.
    pub(super) fn trying(&mut self, call: Call) {
        let known = match call {
            Call::CreateGpuInstance {
                profile_id,
                placement,
            } => Some((profile_id, placement)),
            Call::DestroyComputeInstance { gpu_instance, .. }
            | Call::DestroyGpuInstance { gpu_instance }
            | Call::CreateComputeInstance { gpu_instance, .. } => {
                self.instance(gpu_instance).map(known)
            }
            Call::SetMigMode { .. } => None,
        };
        self.ours.extend(known);
    }

    /// A call was made.
    pub(super) fn did(&mut self, call: Call, done: &Done) {
        if let (
            Call::CreateGpuInstance { profile_id, .. },
            Done::Created {
                placement: told, ..
            },
        ) = (call, done)
        {
            self.ours.insert((profile_id, *told));
        }
        let Mig::Capable(state) = &mut self.device.mig else {
            return;
        };
        match call {
            Call::DestroyComputeInstance {
                gpu_instance,
                compute_instance,
            } => {
                if let Some(one) = find(state, gpu_instance) {
                    one.compute_instances
                        .retain(|part| part.id != compute_instance);
                }
            }
            Call::DestroyGpuInstance { gpu_instance } => {
                state.gpu_instances.retain(|one| one.id != gpu_instance);
            }
            Call::CreateGpuInstance { profile_id, .. } => {
                if let Done::Created { id, placement } = done {
                    state.gpu_instances.push(GpuInstance {
                        id: *id,
                        profile_id,
                        placement: *placement,
                        compute_instances: Vec::new(),
                    });
                }
            }
            // Compute instances have no place of their own that matters here.
            Call::CreateComputeInstance { .. } => {}
            Call::SetMigMode { to } => {
                state.pending = to;
                if *done == Done::AsAsked {
                    state.current = to;
                }
            }
        }
    }

    /// Takes in what was read, and says what somebody else did to it, if anything.
    pub(super) fn read(&mut self, read: Device) -> Option<String> {
        let said = self.foreign(&read);
        self.device.mig = read.mig;
        self.device.processes = read.processes;
        self.device.condition = read.condition;
        self.device.problems = read.problems;
        said
    }

    /// A device that has lost everything was reset or has a new driver: nobody works on it.
    fn foreign(&self, read: &Device) -> Option<String> {
        let (before, now) = (self.device.mig.state()?, read.mig.state()?);
        let all = |state: &MigState| {
            state
                .gpu_instances
                .iter()
                .map(known)
                .collect::<BTreeSet<_>>()
        };
        let (before, now) = (all(before), all(now));
        let differs = |one: &&BTreeSet<Known>, other: &BTreeSet<Known>| {
            let mut extra = one.difference(other);
            extra.find(|known| !self.ours.contains(known)).copied()
        };
        if let Some((profile, place)) = differs(&&now, &before) {
            return Some(format!(
                "somebody else created an instance of profile {profile} in slices {}-{}",
                place.start,
                last(place)
            ));
        }
        let (profile, place) = differs(&&before, &now).filter(|_| !now.is_empty())?;
        Some(format!(
            "somebody else destroyed the instance of profile {profile} in slices {}-{}",
            place.start,
            last(place)
        ))
    }

    fn instance(&self, id: u32) -> Option<&GpuInstance> {
        let mut all = self.device.mig.state()?.gpu_instances.iter();
        all.find(|one| one.id == id)
    }
}

fn known(instance: &GpuInstance) -> Known {
    (instance.profile_id, instance.placement)
}

fn last(place: Placement) -> u32 {
    place.start.saturating_add(place.size).saturating_sub(1)
}

fn find(state: &mut MigState, id: u32) -> Option<&mut GpuInstance> {
    state.gpu_instances.iter_mut().find(|one| one.id == id)
}
