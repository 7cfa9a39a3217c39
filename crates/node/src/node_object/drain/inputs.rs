//! Inputs of a drain.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_planner::reconcile::NodeLayoutStatus;
use strum::IntoStaticStr;

use super::pod::{Pod, PodId};

/// Eviction policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The pods to evict.
    pub scope: Scope,
    /// Maximum duration of an attempt.
    pub deadline: Duration,
}

/// The pods to evict when some block a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Scope {
    /// Pods that block the layout.
    Affected,
    /// All evictable pods of the node.
    Node,
}

/// Current state of the node.
#[derive(Debug, Clone, Copy)]
pub struct DrainInputs<'a> {
    /// Status of the node's devices.
    pub status: &'a NodeLayoutStatus,
    /// True if that status belongs to the layout that the Node selects now.
    pub is_current: bool,
    /// Responses of the API server.
    pub pod_observations: &'a PodObservations,
    /// True if operands on this node can be paused to release a device.
    pub pauses_operands: bool,
    /// True if the taint was observed on the Node.
    pub is_tainted: bool,
}

/// State of the node's pods according to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodObservations {
    /// The node's pods; `None` before the first list.
    pub pods: Option<Vec<Pod>>,
    /// The error of the latest list, if it failed.
    pub trouble: Option<ListError>,
    /// Results of evictions, by pod.
    pub answers: BTreeMap<PodId, EvictionResult>,
}

/// Error of listing pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListError {
    /// The agent lacks the permission.
    Forbidden,
    /// A transient error.
    Other(String),
}

/// Result of an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionResult {
    /// The pod is terminating.
    Ending,
    /// The pod no longer exists.
    Gone,
    /// A disruption budget does not allow the eviction.
    Budget,
    /// The agent lacks the permission.
    Forbidden,
    /// Any other error; the eviction is retried.
    Refused(String),
}

impl Scope {
    /// Returns the value of the setting.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
