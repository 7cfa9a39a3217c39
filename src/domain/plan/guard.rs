//! The last look before a call: whether it would take something away from somebody.

use super::blocked::Cause;
use super::mode::Disruption;
use super::modes;
use super::pins::Users;
use crate::domain::call::Call;
use crate::domain::holder::Holder;
use crate::domain::inventory::{Device, GpuInstance};

/// Whether `instance` of `device` counts as in use, by the processes that the driver reports and `holders` beside them: the same answer
/// that plans are made with.
pub fn is_in_use(device: &Device, holders: &[Holder], instance: &GpuInstance) -> bool {
    Users::of(holders, device).pin(instance).is_set()
}

/// What is in the way of `call` on `device` now, by the processes that the device names and `holders` beside them. What is
/// not told counts as in use; an instance that is not there is in nobody's use.
pub fn in_the_way(device: &Device, holders: &[Holder], call: Call) -> Option<Cause> {
    let state = device.mig.state()?;
    let users = Users::of(holders, device);
    let (id, part) = match call {
        Call::DestroyComputeInstance {
            gpu_instance,
            compute_instance,
        } => (gpu_instance, Some(compute_instance)),
        Call::DestroyGpuInstance { gpu_instance } => (gpu_instance, None),
        Call::SetMigMode { to } => {
            let disturbs = state.current != to && modes::disruption(device) > Disruption::None;
            let clients = users.clients(&state.gpu_instances).filter(|_| disturbs)?;
            return Some(Cause::DeviceInUse { holders: clients });
        }
        Call::CreateGpuInstance { .. } | Call::CreateComputeInstance { .. } => return None,
    };
    let instance = state.gpu_instances.iter().find(|one| one.id == id)?;
    let pin = users.pin(instance);
    let in_use = part.map_or_else(|| pin.is_set(), |part| pin.holds(part));
    let concerns = |holder: &&Holder| {
        part.is_none() || holder.compute_instance.is_none() || holder.compute_instance == part
    };
    in_use.then(|| Cause::InstanceInUse {
        gpu_instance: id,
        profile_id: instance.profile_id,
        placement: instance.placement,
        compute_instances: part.into_iter().collect(),
        holders: users.of_instance(id).filter(concerns).cloned().collect(),
    })
}
