//! A plan in one word.

use super::mode::Disruption;
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
}
