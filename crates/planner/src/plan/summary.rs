//! Summary of a plan in numbers: destroyed and created instances, and disruption.

use std::collections::BTreeSet;

use super::{DeviceChange, Disruption, InstanceRef, NodePlan, Step};

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
