//! The effect of a plan on existing instances.

use super::{Cause, PlannedInstance, Verdict};
use crate::domain::inventory::GpuInstance;

/// The effect of a plan on an existing GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It stays unchanged.
    Stays,
    /// It is destroyed.
    Goes,
    /// It stays, with different compute instances.
    Divided,
    /// It must be destroyed or re-split but is in use.
    InTheWay,
}

impl Verdict {
    /// Returns the effect on `instance` of the same device.
    pub fn fate(&self, instance: &GpuInstance) -> Fate {
        match self {
            Self::Unchanged | Self::Infeasible(_) => Fate::Stays,
            Self::Blocked(blocked) => {
                let mut causes = blocked.causes.iter();
                if causes.any(|cause| is_about(cause, instance)) {
                    Fate::InTheWay
                } else {
                    Fate::Stays
                }
            }
            Self::Change(change) => {
                let mut after = change.after.iter();
                match after.find(|after| after.kept == Some(instance.id)) {
                    None => Fate::Goes,
                    Some(after) if after.divides(instance) => Fate::Divided,
                    Some(_) => Fate::Stays,
                }
            }
        }
    }
}

impl PlannedInstance {
    /// Returns true if the compute instances differ from those of `instance`, which this planned instance keeps.
    pub fn divides(&self, instance: &GpuInstance) -> bool {
        let kept = self.compute.iter().map(|compute| compute.kept);
        let there = instance.compute_instances.iter();
        !kept.eq(there.map(|compute| Some(compute.id)))
    }
}

fn is_about(cause: &Cause, instance: &GpuInstance) -> bool {
    match cause {
        Cause::InstanceInUse { gpu_instance, .. } => *gpu_instance == instance.id,
        Cause::DeviceInUse { .. }
        | Cause::NotAllowed { .. }
        | Cause::Untold { .. }
        | Cause::Refused => false,
    }
}
