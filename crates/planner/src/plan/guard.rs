//! Final check before a driver call: whether the call would affect an instance or device in use.

use octavo_model::call::DriverCall;
use octavo_model::holder::Holder;
use octavo_model::inventory::{Device, GpuInstance};

use super::usage::DeviceUsers;
use super::{Cause, Disruption, mode_planning};

/// Returns true if `instance` of `device` counts as in use, according to the processes that the driver reports and
/// `holders`. Plans use the same rule.
pub fn is_in_use(device: &Device, holders: &[Holder], instance: &GpuInstance) -> bool {
    DeviceUsers::of(holders, device).parts_in_use(instance).has_any()
}

/// Returns the cause that blocks `call` on `device` now, according to the processes that the driver reports and
/// `holders`. Unknown usage counts as in use; an instance that does not exist is not in use.
pub fn blocking_cause(device: &Device, holders: &[Holder], call: DriverCall) -> Option<Cause> {
    let state = device.mig.state()?;
    let users = DeviceUsers::of(holders, device);
    let (id, part) = match call {
        DriverCall::DestroyComputeInstance { gpu_instance, compute_instance } => {
            (gpu_instance, Some(compute_instance))
        }
        DriverCall::DestroyGpuInstance { gpu_instance } => (gpu_instance, None),
        DriverCall::SetMigMode { to } => {
            let disturbs =
                state.current != to && mode_planning::disruption(device) > Disruption::None;
            let clients = users.clients(&state.gpu_instances).filter(|_| disturbs)?;
            return Some(Cause::DeviceInUse { holders: clients });
        }
        DriverCall::CreateGpuInstance { .. } | DriverCall::CreateComputeInstance { .. } => {
            return None;
        }
    };
    let instance = state.gpu_instances.iter().find(|one| one.id == id)?;
    let parts_in_use = users.parts_in_use(instance);
    let in_use = part.map_or_else(|| parts_in_use.has_any(), |part| parts_in_use.contains(part));
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
