//! Overall result of a plan.

use super::mode::Disruption;
use super::{Change, NodePlan, Verdict};

/// Overall result of a plan, worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Outcome {
    /// Nothing has to be done.
    #[default]
    Nothing,
    /// There are changes, and nothing blocks them.
    Changes,
    /// At least one device is blocked.
    Blocked,
    /// At least one device can never reach its target.
    Infeasible,
}

impl NodePlan {
    /// Returns the worst result of all devices.
    pub fn outcome(&self) -> Outcome {
        let outcomes = self.devices.iter().map(|device| device.verdict.outcome());
        outcomes.max().unwrap_or_default()
    }

    /// Returns the largest disruption of all changes.
    pub fn disruption(&self) -> Disruption {
        let changes = self
            .devices
            .iter()
            .filter_map(|device| device.verdict.change());
        changes.map(Change::disruption).max().unwrap_or_default()
    }
}

impl Verdict {
    /// Returns the result as an [`Outcome`].
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Unchanged => Outcome::Nothing,
            Self::Change(_) => Outcome::Changes,
            Self::Blocked(_) => Outcome::Blocked,
            Self::Infeasible(_) => Outcome::Infeasible,
        }
    }

    /// Returns the change, if there is one.
    pub fn change(&self) -> Option<&Change> {
        match self {
            Self::Change(change) => Some(change),
            Self::Unchanged | Self::Blocked(_) | Self::Infeasible(_) => None,
        }
    }
}

impl Change {
    /// Returns the disruption of the change.
    pub fn disruption(&self) -> Disruption {
        self.mode
            .as_ref()
            .map(|mode| mode.disruption)
            .unwrap_or_default()
    }
}
