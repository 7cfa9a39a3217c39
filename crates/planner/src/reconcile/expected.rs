//! The expected state of a device during a change, used to detect modifications by other processes.

use std::collections::BTreeSet;

use octavo_model::call::{CallResult, DriverCall};
use octavo_model::catalog::Placement;
use octavo_model::inventory::{Device, GpuInstance, Mig, MigState};

/// Identity of a GPU instance across readings. Ids are not part of it because the driver reuses them.
type InstanceKey = (u32, Placement);

/// The device as it should be after every call made so far.
#[derive(Debug, Clone)]
pub(super) struct ExpectedDevice {
    pub(super) device: Device,
    /// Instances that this transaction tried to create or destroy. Their presence or absence is its own doing.
    touched: BTreeSet<InstanceKey>,
}

impl ExpectedDevice {
    pub(super) fn new(device: Device) -> Self {
        Self { device, touched: BTreeSet::new() }
    }

    /// Records that a call is about to be made, so that its effects are not attributed to another process.
    pub(super) fn record_attempt(&mut self, call: DriverCall) {
        let known = match call {
            DriverCall::CreateGpuInstance { profile_id, placement } => {
                Some((profile_id, placement))
            }
            DriverCall::DestroyComputeInstance { gpu_instance, .. }
            | DriverCall::DestroyGpuInstance { gpu_instance }
            | DriverCall::CreateComputeInstance { gpu_instance, .. } => {
                self.instance(gpu_instance).map(known)
            }
            DriverCall::SetMigMode { .. } => None,
        };
        self.touched.extend(known);
    }

    /// Applies the effect of a completed call.
    pub(super) fn record_result(&mut self, call: DriverCall, done: &CallResult) {
        if let (
            DriverCall::CreateGpuInstance { profile_id, .. },
            CallResult::Created { placement, .. },
        ) = (call, done)
        {
            self.touched.insert((profile_id, *placement));
        }
        let Mig::Capable(state) = &mut self.device.mig else {
            return;
        };
        match call {
            DriverCall::DestroyComputeInstance { gpu_instance, compute_instance } => {
                if let Some(one) = find(state, gpu_instance) {
                    one.compute_instances.retain(|part| part.id != compute_instance);
                }
            }
            DriverCall::DestroyGpuInstance { gpu_instance } => {
                state.gpu_instances.retain(|one| one.id != gpu_instance);
            }
            DriverCall::CreateGpuInstance { profile_id, .. } => {
                if let CallResult::Created { id, placement } = done {
                    state.gpu_instances.push(GpuInstance {
                        id: *id,
                        profile_id,
                        placement: *placement,
                        compute_instances: Vec::new(),
                    });
                }
            }
            // Compute instances have no placement that matters here.
            DriverCall::CreateComputeInstance { .. } => {}
            DriverCall::SetMigMode { to } => {
                state.pending = to;
                if *done == CallResult::Completed {
                    state.current = to;
                }
            }
        }
    }

    /// Stores a new reading and returns a description of the modification by another process, if there was one.
    pub(super) fn observe(&mut self, read: Device) -> Option<String> {
        let foreign_change = self.foreign_change(&read);
        self.device.mig = read.mig;
        self.device.processes = read.processes;
        self.device.condition = read.condition;
        self.device.problems = read.problems;
        foreign_change
    }

    /// Detects instances created or destroyed by another process. A device that has lost all its instances was reset
    /// or has a reloaded driver; this is not attributed to another process.
    fn foreign_change(&self, read: &Device) -> Option<String> {
        let (before, now) = (self.device.mig.state()?, read.mig.state()?);
        let all = |state: &MigState| state.gpu_instances.iter().map(known).collect::<BTreeSet<_>>();
        let (before, now) = (all(before), all(now));
        let differs = |one: &&BTreeSet<InstanceKey>, other: &BTreeSet<InstanceKey>| {
            let mut extra = one.difference(other);
            extra.find(|known| !self.touched.contains(known)).copied()
        };
        if let Some((profile, place)) = differs(&&now, &before) {
            return Some(format!(
                "another process created an instance of profile {profile} in slices {}-{}",
                place.start,
                place.end().saturating_sub(1)
            ));
        }
        let (profile, place) = differs(&&before, &now).filter(|_| !now.is_empty())?;
        Some(format!(
            "another process destroyed the instance of profile {profile} in slices {}-{}",
            place.start,
            place.end().saturating_sub(1)
        ))
    }

    fn instance(&self, id: u32) -> Option<&GpuInstance> {
        let mut all = self.device.mig.state()?.gpu_instances.iter();
        all.find(|one| one.id == id)
    }
}

fn known(instance: &GpuInstance) -> InstanceKey {
    (instance.profile_id, instance.placement)
}

fn find(state: &mut MigState, id: u32) -> Option<&mut GpuInstance> {
    state.gpu_instances.iter_mut().find(|one| one.id == id)
}
