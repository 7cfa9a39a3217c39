//! Outputs of a drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_model::id::PciAddress;
use octavo_planner::reconcile::NodeLayoutStatus;
use serde::Serialize;
use strum::{EnumString, IntoStaticStr};

use super::pod::{Pod, PodId};

/// Requests for the component that accesses the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodRequests {
    /// Interval of listing the node's pods; `None` if not needed.
    pub list: Option<Duration>,
    /// Pods to evict.
    pub evict: Vec<PodId>,
}

/// Desired state and results of a drain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrainOutcome {
    /// True if the Node must have the taint.
    pub is_tainted: bool,
    /// Requests for the API server.
    pub pod_requests: PodRequests,
    /// True if pods must go before operands are paused.
    pub waits_for_pods: bool,
    /// Latest time of the next reconciliation.
    pub again: Option<Duration>,
    /// Devices that pods were evicted for, for the current choice of a layout.
    pub devices: BTreeSet<PciAddress>,
    /// Events that just happened.
    pub events: Vec<DrainEvent>,
    /// Status of the drain; `None` while there is none.
    pub drain_status: Option<DrainStatus>,
}

/// Stage of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Stage {
    /// Listing the pods that block devices.
    #[strum(serialize = "looking")]
    Listing,
    /// Evicting nothing.
    Refused,
    /// Waiting for the taint.
    Tainting,
    /// Evicting pods.
    #[strum(serialize = "emptying")]
    Evicting,
    /// The deadline has passed; retried after a backoff.
    GaveUp,
    /// The latest attempt did not give up; another one follows after a backoff.
    Waiting,
}

impl Stage {
    /// Returns the stage as written in the annotation.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl DrainStatus {
    /// Returns the status without processes, which change with every scan.
    #[must_use]
    pub fn without_processes(&self) -> Self {
        let mut steady = self.clone();
        let comes_and_goes = |who: &BlockerName| matches!(who, BlockerName::Process(_));
        steady.waits_for.retain(|one| !comes_and_goes(&one.name));
        steady
    }
}

/// Status of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainStatus {
    /// `affected` or `node`.
    pub policy: &'static str,
    /// Stage of the drain.
    pub phase: Stage,
    /// An error that no pod causes.
    pub message: Option<String>,
    /// The remaining blockers.
    pub waits_for: Vec<Blocker>,
}

/// A blocker that the drain waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Blocker {
    /// The blocker.
    #[serde(flatten)]
    pub name: BlockerName,
    /// Reason why it still exists.
    pub reason: String,
}

/// Name of a blocker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BlockerName {
    /// A pod, as `namespace/name`, or by its UID if nothing else is known.
    Pod(String),
    /// A process outside any pod.
    Process(String),
}

/// Something to report as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainEvent {
    /// The pods that block these devices will be evicted.
    Began {
        /// Scope of the evictions.
        scope: Scope,
        /// Names of the devices.
        devices: Vec<String>,
        /// The blocking pods.
        pods: Vec<String>,
    },
    /// No blockers remain.
    Ended,
    /// The choice of a layout changed.
    Withdrawn,
    /// The drain is suspended.
    Interrupted,
    /// The deadline has passed.
    GaveUp {
        /// Duration of the attempt.
        after: Duration,
        /// The backoff before the next attempt.
        retry: Duration,
        /// The remaining blockers.
        waits_for: Vec<Blocker>,
    },
    /// No further pods are evicted because of these blockers.
    Refused {
        /// The blockers that stay.
        waits_for: Vec<Blocker>,
    },
    /// The agent lacks the permission to list or evict pods.
    Forbidden,
}

/// Eviction policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The pods to evict.
    pub scope: Scope,
    /// Maximum duration of an attempt.
    pub deadline: Duration,
}

/// The pods to evict when some block a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr)]
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
    /// UIDs of the only pods that may be evicted; `None` if every pod may be.
    pub evictable: Option<&'a BTreeSet<String>>,
}

/// State of the node's pods according to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodObservations {
    /// The node's pods; `None` before the first list.
    pub pods: Option<Vec<Pod>>,
    /// The error of the latest list, if it failed.
    pub error: Option<ListError>,
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
