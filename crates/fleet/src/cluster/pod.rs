//! Pod properties that decide which devices it holds or requests.

use super::amounts::Amounts;
use super::selector::{Affinity, Selector};
use super::taint::Toleration;

/// Pod of the cluster, as reported by the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterPod {
    /// Namespace and name.
    pub key: PodKey,
    /// Node that it is bound to.
    pub node: Option<String>,
    /// Lifecycle phase.
    pub phase: Phase,
    /// Requirements on a node.
    pub requirements: PodRequirements,
    /// Start time that the kubelet reported, in seconds since 1970. It comes from the API server, so all observers
    /// agree.
    pub started_at: Option<i64>,
    /// Deadline in seconds since 1970, if it has one: its start plus `activeDeadlineSeconds`.
    pub until: Option<i64>,
}

/// Namespace and name of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Lifecycle phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Phase {
    /// It waits for a node.
    #[default]
    Pending,
    /// A scheduling gate blocks it.
    Gated,
    /// It has a node and holds its requested resources there.
    Bound,
    /// All its containers have terminated permanently; it holds nothing.
    Finished,
}

/// Requirements of a pod on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodRequirements {
    /// Requested amounts as the scheduler computes them: containers, init containers and overhead.
    pub amounts: Amounts,
    /// Labels that the node must have.
    pub selector: Selector,
    /// Required node affinity, if any.
    pub affinity: Option<Affinity>,
    /// Tolerated taints.
    pub tolerations: Vec<Toleration>,
}

impl ClusterPod {
    /// Node on which the pod holds its requested resources.
    pub fn holding_node(&self) -> Option<&str> {
        match self.phase {
            Phase::Finished => None,
            Phase::Pending | Phase::Gated | Phase::Bound => self.node.as_deref(),
        }
    }

    /// Returns `true` if it waits for a node.
    pub fn is_pending(&self) -> bool {
        self.phase == Phase::Pending && self.node.is_none()
    }
}
