//! Overall result of a plan.

use serde::Serialize;
use utoipa::ToSchema;

use super::mode::Disruption;
use super::{DeviceChange, DevicePlanResult, NodePlan};

/// Overall result of a plan, worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OutcomeJson)]
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
