//! Snapshot of a cluster's nodes and pods: the properties that decide which pods fit on which node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use octavo_model::reason::Reason;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PODS;
use super::amounts::Amounts;
use super::selector::{Affinity, Selector};
use super::taint::{Taint, Toleration};

/// Snapshot of a cluster. Successive snapshots share unchanged objects, so that neither many consumers nor frequent
/// updates require full copies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterSnapshot {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<ClusterNode>>,
    /// Pods by namespace and name. The keys are shared too, because snapshots of many pods are taken several times
    /// per second.
    pub pods: BTreeMap<Arc<PodKey>, Arc<ClusterPod>>,
}

impl ClusterSnapshot {
    /// The pod with this namespace and name, as `namespace/name`.
    pub fn pod(&self, reference: &str) -> Option<&ClusterPod> {
        let (namespace, name) = reference.split_once('/')?;
        let key = PodKey { namespace: namespace.to_owned(), name: name.to_owned() };
        self.pods.get(&key).map(Arc::as_ref)
    }

    /// Creates a snapshot of these nodes and pods.
    pub fn new(
        nodes: impl IntoIterator<Item = ClusterNode>,
        pods: impl IntoIterator<Item = ClusterPod>,
    ) -> Self {
        let nodes = nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node)));
        let pods = pods.into_iter().map(|pod| (Arc::new(pod.key.clone()), Arc::new(pod)));
        Self { nodes: nodes.collect(), pods: pods.collect() }
    }

    /// Amounts that pods hold on each node, including the number of pods.
    pub fn held(&self) -> BTreeMap<&str, Amounts> {
        let mut held: BTreeMap<&str, Amounts> = BTreeMap::new();
        for pod in self.pods.values() {
            let Some(node) = pod.holding_node() else {
                continue;
            };
            let sum = held.entry(node).or_default();
            sum.add(&pod.requirements.amounts);
            sum.add(&Amounts::default().with(PODS, 1));
        }
        held
    }
}

/// Node of the cluster, as reported by the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// UID of the Node object: a node that is deleted and created again has another one.
    #[serde(skip)]
    pub uid: String,
    /// ID of the machine at its cloud provider, of bounded length; empty if there is none.
    #[serde(skip)]
    pub provider_id: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// True if an administrator cordoned it.
    #[serde(rename = "cordoned")]
    pub is_cordoned: bool,
    /// Condition `Ready`, as the kubelet reports it.
    pub readiness: Readiness,
    /// Capacity that the kubelet reports.
    #[schema(value_type = BTreeMap<String, String>)]
    pub capacity: Amounts,
    /// Part of the capacity that pods may be allocated.
    #[schema(value_type = BTreeMap<String, String>)]
    pub allocatable: Amounts,
    /// Layout status that the agent wrote to the Node; `None` without an agent that writes to it.
    #[serde(skip)]
    pub layout_report: Option<LayoutReport>,
    /// Annotation `octavo.dev/policy`: the record of the policy that changed the node.
    #[serde(skip)]
    pub policy_record: Option<String>,
    /// Annotation `octavo.dev/drain`, of bounded length.
    #[serde(skip)]
    pub drain: Option<String>,
}

/// Layout status in the annotation `octavo.dev/status` of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutReport {
    /// Name of the chosen layout.
    pub layout: Option<String>,
    /// State of the layout; `None` if it is absent or unknown.
    pub state: Option<Reason>,
    /// Explanation of the state, of bounded length.
    pub message: String,
}

impl LayoutReport {
    /// Returns whether this layout is applied.
    pub fn is_applied(&self, layout: &str) -> bool {
        self.layout.as_deref() == Some(layout) && self.state == Some(Reason::Applied)
    }
}

/// Condition `Ready` of a node.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// It is ready.
    Ready,
    /// It is not ready.
    NotReady,
    /// Its kubelet has never reported, or not for a while.
    #[default]
    Unknown,
}

impl ClusterNode {
    /// Value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// Pod of the cluster, as reported by the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterPod {
    /// Namespace and name.
    pub key: PodKey,
    /// Its UID, if it requests devices.
    pub uid: Option<String>,
    /// Node that it is bound to.
    pub node: Option<String>,
    /// Lifecycle phase.
    pub phase: Phase,
    /// Requirements on a node.
    pub requirements: PodRequirements,
    /// Creation time in seconds since 1970, if it requests devices.
    pub created_at: Option<i64>,
    /// Start time that the kubelet reported, in seconds since 1970. It comes from the API server, so all observers
    /// agree.
    pub started_at: Option<i64>,
    /// Deadline in seconds since 1970, if it has one: its start plus `activeDeadlineSeconds`.
    pub until: Option<i64>,
    /// Workload that owns it, if it requests devices.
    pub owner: Option<PodOwner>,
    /// Its labels, if it requests devices.
    pub labels: BTreeMap<String, String>,
    /// Its priority.
    pub priority: i32,
    /// True if it is being deleted.
    pub is_terminating: bool,
}

/// Workload that owns a pod: its controller, or the Deployment of its `ReplicaSet`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodOwner {
    /// Kind of the object, such as `Job`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
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

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_holds_resources_until_finished() {
        let pods = [
            ("runs", Phase::Bound, Some("node-a")),
            ("was-bound", Phase::Pending, Some("node-a")),
            ("ended", Phase::Finished, Some("node-a")),
            ("waits", Phase::Pending, None),
        ]
        .map(|(name, phase, node)| ClusterPod {
            key: PodKey { namespace: "team-a".to_owned(), name: name.to_owned() },
            node: node.map(str::to_owned),
            phase,
            requirements: PodRequirements {
                amounts: Amounts::default().with("nvidia.com/gpu", 2),
                ..PodRequirements::default()
            },
            ..ClusterPod::default()
        });
        let snapshot = ClusterSnapshot::new([], pods);
        let all = Amounts::default().with("nvidia.com/gpu", 4).with(PODS, 2);
        assert_eq!(snapshot.held(), BTreeMap::from([("node-a", all)]));
    }
}
