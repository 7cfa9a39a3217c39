//! The effect of a plan on existing instances.

use octavo_model::inventory::GpuInstance;

use super::{Cause, DevicePlanResult, PlannedInstance};

/// The effect of a plan on an existing GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceEffect {
    /// It stays unchanged.
    Unchanged,
    /// It is destroyed.
    Destroyed,
    /// It stays, with different compute instances.
    Resplit,
    /// It must be destroyed or re-split but is in use.
    Blocked,
}

impl DevicePlanResult {
    /// Returns the effect on `instance` of the same device.
    pub fn effect_on(&self, instance: &GpuInstance) -> InstanceEffect {
        match self {
            Self::Unchanged | Self::Infeasible(_) => InstanceEffect::Unchanged,
            Self::Blocked(blocked) => {
                let mut causes = blocked.causes.iter();
                if causes.any(|cause| is_about(cause, instance)) {
                    InstanceEffect::Blocked
                } else {
                    InstanceEffect::Unchanged
                }
            }
            Self::Change(change) => {
                let mut after = change.after.iter();
                match after.find(|after| after.existing_id == Some(instance.id)) {
                    None => InstanceEffect::Destroyed,
                    Some(after) if after.is_resplit(instance) => InstanceEffect::Resplit,
                    Some(_) => InstanceEffect::Unchanged,
                }
            }
        }
    }
}

impl PlannedInstance {
    /// Returns true if the compute instances differ from those of `instance`, which this planned instance keeps.
    pub fn is_resplit(&self, instance: &GpuInstance) -> bool {
        let kept = self.compute.iter().map(|compute| compute.existing_id);
        let there = instance.compute_instances.iter();
        !kept.eq(there.map(|compute| Some(compute.id)))
    }
}

fn is_about(cause: &Cause, instance: &GpuInstance) -> bool {
    match cause {
        Cause::InstanceInUse { gpu_instance, .. } => *gpu_instance == instance.id,
        Cause::DeviceInUse { .. }
        | Cause::NotAllowed { .. }
        | Cause::StateUnknown { .. }
        | Cause::HardwareRefused => false,
    }
}
