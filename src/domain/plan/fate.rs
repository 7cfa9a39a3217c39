//! What becomes of an instance that is there.

use super::{Cause, PlannedInstance, Verdict};
use crate::domain::inventory::GpuInstance;

/// What becomes of a GPU instance that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is.
    Stays,
    /// It is destroyed.
    Goes,
    /// It stays, and its compute instances are not those that were there.
    Divided,
    /// It would have to go, or to be divided, and is in use.
    InTheWay,
}

impl Verdict {
    /// What becomes of `instance`, of the same device.
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
    /// Whether its compute instances are not those of `instance`, which stays as this one.
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
