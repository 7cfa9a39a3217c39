//! A plan in one word, and in numbers.

use super::mode::Disruption;
use super::step::{InstanceRef, Step};
use super::{Change, NodePlan, Verdict};

/// A plan in one word, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Outcome {
    /// There is nothing to do.
    #[default]
    Nothing,
    /// There are changes, and nothing is in their way.
    Changes,
    /// Something is in the way of at least one device.
    Blocked,
    /// At least one device can never have what it shall have.
    Infeasible,
}

impl NodePlan {
    /// The worst verdict on any of its devices.
    pub fn outcome(&self) -> Outcome {
        let outcomes = self.devices.iter().map(|device| device.verdict.outcome());
        outcomes.max().unwrap_or_default()
    }

    /// The most that any of its changes costs those who use the node.
    pub fn disruption(&self) -> Disruption {
        let changes = self
            .devices
            .iter()
            .filter_map(|device| device.verdict.change());
        changes.map(Change::disruption).max().unwrap_or_default()
    }
}

impl Verdict {
    /// The verdict in one word.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Unchanged => Outcome::Nothing,
            Self::Change(_) => Outcome::Changes,
            Self::Blocked(_) => Outcome::Blocked,
            Self::Infeasible(_) => Outcome::Infeasible,
        }
    }

    /// The change, where there is one.
    pub fn change(&self) -> Option<&Change> {
        match self {
            Self::Change(change) => Some(change),
            Self::Unchanged | Self::Blocked(_) | Self::Infeasible(_) => None,
        }
    }
}

impl Change {
    /// What it costs those who use the node.
    pub fn disruption(&self) -> Disruption {
        self.mode
            .as_ref()
            .map(|mode| mode.disruption)
            .unwrap_or_default()
    }

    /// How many instances it destroys: GPU instances, and compute instances within GPU instances that stay.
    pub fn destroyed(&self) -> usize {
        let goes = |id: u32| {
            self.steps.iter().any(|step| {
                matches!(step, Step::DestroyGpuInstance { gpu_instance, .. } if *gpu_instance == id)
            })
        };
        let counts = |step: &&Step| match step {
            Step::DestroyGpuInstance { .. } => true,
            Step::DestroyComputeInstance { gpu_instance, .. } => !goes(*gpu_instance),
            Step::SetMigMode { .. }
            | Step::Reset { .. }
            | Step::CreateGpuInstance { .. }
            | Step::CreateComputeInstance { .. } => false,
        };
        self.steps.iter().filter(counts).count()
    }

    /// How many instances it creates: GPU instances, and compute instances within GPU instances that stay.
    pub fn created(&self) -> usize {
        let counts = |step: &&Step| match step {
            Step::CreateGpuInstance { .. } => true,
            Step::CreateComputeInstance { gpu_instance, .. } => {
                matches!(gpu_instance, InstanceRef::Existing(_))
            }
            Step::SetMigMode { .. }
            | Step::Reset { .. }
            | Step::DestroyGpuInstance { .. }
            | Step::DestroyComputeInstance { .. } => false,
        };
        self.steps.iter().filter(counts).count()
    }
}
