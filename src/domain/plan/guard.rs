//! Final check before a driver call: whether the call would affect an instance or device in use.

use super::blocked::Cause;
use super::mode::Disruption;
use super::modes;
use super::pins::Users;
use crate::domain::call::Call;
use crate::domain::holder::Holder;
use crate::domain::inventory::{Device, GpuInstance};

/// Returns true if `instance` of `device` counts as in use, according to the processes that the driver reports and
/// `holders`. Plans use the same rule.
pub fn is_in_use(device: &Device, holders: &[Holder], instance: &GpuInstance) -> bool {
    Users::of(holders, device).pin(instance).is_set()
}

/// Returns the cause that blocks `call` on `device` now, according to the processes that the driver reports and
/// `holders`. Unknown usage counts as in use; an instance that does not exist is not in use.
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
