//! Overall result of a plan.

use std::collections::BTreeSet;

use octavo_model::inventory::GpuInstance;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Cause, DeviceChange, DevicePlanResult, Disruption, InstanceRef, NodePlan, PlannedInstance, Step,
};

/// Overall result of a plan, worst last.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "camelCase")]
#[schema(as = Outcome)]
pub enum PlanOutcome {
    /// Nothing has to be done.
    #[default]
    #[serde(rename = "nothing")]
    Unchanged,
    /// There are changes, and nothing blocks them.
    Changes,
    /// At least one device is blocked.
    Blocked,
    /// At least one device can never reach its target.
    Infeasible,
}

impl NodePlan {
    /// Returns the worst result of all devices.
    pub fn outcome(&self) -> PlanOutcome {
        let outcomes = self.devices.iter().map(|device| device.verdict.outcome());
        outcomes.max().unwrap_or_default()
    }
}

impl DevicePlanResult {
    /// Returns the result as an [`PlanOutcome`].
    pub fn outcome(&self) -> PlanOutcome {
        match self {
            Self::Unchanged => PlanOutcome::Unchanged,
            Self::Change(_) => PlanOutcome::Changes,
            Self::Blocked(_) => PlanOutcome::Blocked,
            Self::Infeasible(_) => PlanOutcome::Infeasible,
        }
    }

    /// Returns the change, if there is one.
    pub fn change(&self) -> Option<&DeviceChange> {
        match self {
            Self::Change(change) => Some(change),
            Self::Unchanged | Self::Blocked(_) | Self::Infeasible(_) => None,
        }
    }
}

impl DeviceChange {
    /// Returns the disruption of the change.
    pub fn disruption(&self) -> Disruption {
        self.mode.as_ref().map(|mode| mode.disruption).unwrap_or_default()
    }
}

/// Summary of a change, or of all changes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanSummary {
    /// Destroyed GPU instances.
    pub destroyed: usize,
    /// Created GPU instances.
    pub created: usize,
    /// Destroyed compute instances within GPU instances that stay.
    pub compute_destroyed: usize,
    /// Created compute instances within GPU instances that stay.
    pub compute_created: usize,
    /// Largest disruption.
    pub disruption: Disruption,
}

impl PlanSummary {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            destroyed: self.destroyed.saturating_add(other.destroyed),
            created: self.created.saturating_add(other.created),
            compute_destroyed: self.compute_destroyed.saturating_add(other.compute_destroyed),
            compute_created: self.compute_created.saturating_add(other.compute_created),
            disruption: self.disruption.max(other.disruption),
        }
    }
}

impl DeviceChange {
    /// Returns the summary of the change.
    pub fn summary(&self) -> PlanSummary {
        let destroyed = self.steps.iter().filter_map(|step| match step {
            Step::DestroyGpuInstance { gpu_instance, .. } => Some(*gpu_instance),
            Step::DestroyComputeInstance { .. }
            | Step::SetMigMode { .. }
            | Step::Reset { .. }
            | Step::CreateGpuInstance { .. }
            | Step::CreateComputeInstance { .. } => None,
        });
        let gone: BTreeSet<u32> = destroyed.collect();
        let mut tally = PlanSummary {
            destroyed: gone.len(),
            disruption: self.disruption(),
            ..PlanSummary::default()
        };
        for step in &self.steps {
            let count = match step {
                Step::CreateGpuInstance { .. } => &mut tally.created,
                Step::DestroyComputeInstance { gpu_instance, .. }
                    if !gone.contains(gpu_instance) =>
                {
                    &mut tally.compute_destroyed
                }
                Step::CreateComputeInstance { gpu_instance: InstanceRef::Existing(_), .. } => {
                    &mut tally.compute_created
                }
                Step::CreateComputeInstance { .. }
                | Step::DestroyComputeInstance { .. }
                | Step::DestroyGpuInstance { .. }
                | Step::SetMigMode { .. }
                | Step::Reset { .. } => continue,
            };
            *count = count.saturating_add(1);
        }
        tally
    }
}

impl NodePlan {
    /// Returns the summary of all devices.
    pub fn summary(&self) -> PlanSummary {
        let changes = self.devices.iter().filter_map(|device| device.verdict.change());
        changes.map(DeviceChange::summary).fold(PlanSummary::default(), PlanSummary::plus)
    }
}

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

#[cfg(test)]
mod tests {
    use octavo_model::catalog::Placement;

    use super::*;
    use crate::plan::PlannedInstance;

    fn change(steps: Vec<Step>) -> DeviceChange {
        DeviceChange { steps, after: Vec::<PlannedInstance>::new(), mode: None, room: 0 }
    }

    #[test]
    fn compute_instances_count_only_within_retained_gpu_instances() {
        let placement = Placement { start: 0, size: 1 };
        let compute =
            |gpu_instance| Step::DestroyComputeInstance { gpu_instance, compute_instance: 0 };
        let create = |gpu_instance| Step::CreateComputeInstance { gpu_instance, slices: 1 };
        let tally = change(vec![
            compute(7),
            compute(8),
            Step::DestroyGpuInstance { gpu_instance: 7, profile_id: 19, placement },
            create(InstanceRef::Existing(8)),
            Step::CreateGpuInstance { instance: 0, profile_id: 19, placement },
            create(InstanceRef::Planned(0)),
        ])
        .summary();
        let expected = PlanSummary {
            destroyed: 1,
            created: 1,
            compute_destroyed: 1,
            compute_created: 1,
            disruption: Disruption::None,
        };
        assert_eq!(tally, expected);
        let both = tally.plus(PlanSummary { disruption: Disruption::GpuReset, ..expected });
        assert_eq!((both.destroyed, both.disruption), (2, Disruption::GpuReset));
    }
}
