//! Settings of a policy for the instances of pending pods.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::Display;
use utoipa::ToSchema;

use crate::period::Period;

/// Instances for pending pods on the selected nodes.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyDemand {
    /// Use of the proposals for pending pods.
    pub mode: DemandMode,
    /// Time for which pods must need instances on a node before they are created, and minimum time between two changes of a node.
    pub hold: Period,
    /// Maximum number of changes of a node per hour.
    pub changes_per_hour: u32,
    /// Time after a failed change of a node, and after a withdrawn one before pods are evicted or a GPU is reserved there again.
    pub cooldown: Period,
    /// Maximum number of pods per hour, on all nodes of the policy, that are evicted to make room for a pending pod.
    pub evictions_per_hour: u32,
    /// Time for which a pod waits before a GPU is reserved for it. Without it, no GPU is reserved.
    pub reserve_after: Option<Period>,
}

impl PolicyDemand {
    /// Maximum number of evicted pods per hour.
    pub fn max_evictions(&self) -> usize {
        usize::try_from(self.evictions_per_hour).unwrap_or(usize::MAX)
    }

    /// Returns whether a change may evict this number of pods, and reserve a GPU.
    pub(crate) fn permits(&self, evictions: usize, is_reservation: bool) -> bool {
        evictions <= self.max_evictions() && (!is_reservation || self.reserve_after.is_some())
    }
}

/// Use of the proposals for pending pods.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    Display,
    ToSchema,
)]
pub enum DemandMode {
    /// Carry out proposals.
    Act,
    /// Carry out approved proposals.
    Propose,
    /// Report proposals only.
    #[default]
    Observe,
}

impl Default for PolicyDemand {
    fn default() -> Self {
        Self {
            mode: DemandMode::default(),
            hold: Period::from_mins(1),
            changes_per_hour: 12,
            cooldown: Period::from_mins(30),
            evictions_per_hour: 0,
            reserve_after: None,
        }
    }
}
