//! Snapshot of a cluster's nodes and pods: the properties that decide which pods fit on which node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use octavo_model::reason::Reason;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PODS;
use super::amounts::Amounts;
use super::selector::{Affinity, Selector};
use super::taint::{Taint, Toleration};

/// Snapshot of a cluster. Successive snapshots share unchanged objects, so that neither many consumers nor frequent
/// updates require full copies.
#[derive(Debug, Clone, Default)]
pub struct ClusterSnapshot {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<ClusterNode>>,
    /// Pods by namespace and name. The keys are shared too, because snapshots of many pods are taken several times
    /// per second.
    pods: BTreeMap<Arc<PodKey>, Arc<ClusterPod>>,
    /// The same pods by the node on which they hold resources.
    pods_by_node: BTreeMap<Arc<str>, Arc<NodePods>>,
    /// Pods that hold nothing on any node.
    other_pods: Arc<NodePods>,
}

impl ClusterSnapshot {
    /// Creates a snapshot of these nodes and pods.
    pub fn new(
        nodes: impl IntoIterator<Item = ClusterNode>,
        pods: impl IntoIterator<Item = ClusterPod>,
    ) -> Self {
        let nodes = nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node)));
        let mut snapshot = Self::with_nodes(nodes.collect());
        for pod in pods {
            snapshot.insert_pod(Arc::new(pod));
        }
        snapshot
    }

    /// Creates a snapshot of these nodes without pods.
    pub fn with_nodes(nodes: BTreeMap<String, Arc<ClusterNode>>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// The pods by namespace and name.
    pub fn pods(&self) -> &BTreeMap<Arc<PodKey>, Arc<ClusterPod>> {
        &self.pods
    }

    /// The pod with this namespace and name, as `namespace/name`.
    pub fn pod(&self, reference: &str) -> Option<&ClusterPod> {
        let (namespace, name) = reference.split_once('/')?;
        let key = PodKey { namespace: namespace.to_owned(), name: name.to_owned() };
        self.pods.get(&key).map(Arc::as_ref)
    }

    /// Adds a pod, or replaces the one with the same name.
    pub fn insert_pod(&mut self, pod: Arc<ClusterPod>) {
        let before = self.pods.get(&pod.key).map(Arc::clone);
        if let Some(before) = before.filter(|one| one.holding_node() != pod.holding_node()) {
            self.remove_from_node(&before);
        }
        let pods = match pod.holding_node() {
            None => &mut self.other_pods,
            Some(node) => self.pods_by_node.entry(node.into()).or_default(),
        };
        Arc::make_mut(pods).insert(Arc::clone(&pod));
        self.pods.insert(Arc::new(pod.key.clone()), pod);
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, key: &PodKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.remove_from_node(&pod);
        }
    }

    fn remove_from_node(&mut self, pod: &ClusterPod) {
        let Some(node) = pod.holding_node() else {
            Arc::make_mut(&mut self.other_pods).remove(&pod.key);
            return;
        };
        if let Some(pods) = self.pods_by_node.get_mut(node) {
            let pods = Arc::make_mut(pods);
            pods.remove(&pod.key);
            if pods.is_empty() {
                self.pods_by_node.remove(node);
            }
        }
    }

    /// Pods that hold resources on the node with this name; `None` if there are none.
    pub fn pods_on(&self, node: &str) -> Option<&Arc<NodePods>> {
        self.pods_by_node.get(node)
    }

    /// Amounts that pods hold on the node with this name, including the number of pods; `None` if there are no pods.
    pub fn held_on(&self, node: &str) -> Option<&Amounts> {
        self.pods_on(node).map(|pods| pods.held())
    }

    /// Amounts that pods hold on each node, including the number of pods.
    pub fn held(&self) -> BTreeMap<&str, Amounts> {
        let nodes = self.pods_by_node.iter();
        nodes.map(|(name, pods)| (name.as_ref(), pods.held().clone())).collect()
    }

    /// Pods that wait for a node, ordered by namespace and name.
    pub fn pending_pods(&self) -> impl Iterator<Item = &ClusterPod> {
        self.other_pods.iter().filter(|pod| pod.is_pending())
    }
}

/// The other fields follow from these.
impl PartialEq for ClusterSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes && self.pods == other.pods
    }
}

impl Eq for ClusterSnapshot {}

/// Pods that hold resources on one node. Successive snapshots share it until one of these pods changes, so its address
/// identifies their state.
#[derive(Debug, Clone, Default)]
pub struct NodePods {
    /// Ordered by namespace and name.
    pods: Vec<Arc<ClusterPod>>,
    /// Calculated for the first reader.
    held: OnceLock<Amounts>,
}

impl NodePods {
    /// The pods, ordered by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterPod> {
        self.pods.iter().map(AsRef::as_ref)
    }

    /// Amounts that these pods hold, including the number of pods.
    pub fn held(&self) -> &Amounts {
        self.held.get_or_init(|| {
            let mut sum = Amounts::default();
            for pod in &self.pods {
                sum.add(&pod.requirements.amounts);
            }
            let pods = u64::try_from(self.pods.len()).unwrap_or(u64::MAX);
            sum.add(&Amounts::default().with(PODS, pods));
            sum
        })
    }

    /// Returns `true` if there are none.
    fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Adds a pod, or replaces the one with the same name.
    fn insert(&mut self, pod: Arc<ClusterPod>) {
        self.held = OnceLock::new();
        match self.place(&pod.key) {
            Ok(at) => {
                if let Some(place) = self.pods.get_mut(at) {
                    *place = pod;
                }
            }
            Err(at) => self.pods.insert(at, pod),
        }
    }

    /// Removes a pod.
    fn remove(&mut self, key: &PodKey) {
        if let Ok(at) = self.place(key) {
            self.held = OnceLock::new();
            self.pods.remove(at);
        }
    }

    fn place(&self, key: &PodKey) -> Result<usize, usize> {
        self.pods.binary_search_by(|pod| pod.key.cmp(key))
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
    use proptest::prelude::*;

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
        let mut snapshot = ClusterSnapshot::new([], pods);
        let held = |gpus, pods| Amounts::default().with("nvidia.com/gpu", gpus).with(PODS, pods);
        assert_eq!(snapshot.held_on("node-a"), Some(&held(4, 2)));
        let pending = snapshot.pending_pods().map(|pod| pod.key.name.as_str());
        assert_eq!(pending.collect::<Vec<_>>(), ["waits"]);
        snapshot.remove_pod(&PodKey { namespace: "team-a".to_owned(), name: "runs".to_owned() });
        assert_eq!(snapshot.held_on("node-a"), Some(&held(2, 1)));
        assert_eq!(snapshot.held_on("node-b"), None);
    }

    fn any_pod() -> impl Strategy<Value = ClusterPod> {
        let node = prop::sample::select(vec![None, Some("node-a"), Some("node-b")]);
        let phase = prop::sample::select(vec![Phase::Pending, Phase::Bound, Phase::Finished]);
        (0..6_u64, node, phase, 0..3_u64).prop_map(|(name, node, phase, count)| ClusterPod {
            key: PodKey { namespace: "team-a".to_owned(), name: format!("pod-{name}") },
            node: node.map(str::to_owned),
            phase,
            requirements: PodRequirements {
                amounts: Amounts::default().with("nvidia.com/gpu", count),
                ..PodRequirements::default()
            },
            ..ClusterPod::default()
        })
    }

    proptest! {
        /// A snapshot after single changes equals one of the same pods, and earlier snapshots stay as they were.
        #[test]
        fn changed_snapshot_equals_a_new_one(
            changes in prop::collection::vec((any_pod(), any::<bool>()), 0..20),
        ) {
            let mut snapshots = vec![ClusterSnapshot::default()];
            for (pod, is_removed) in changes {
                let mut next = snapshots[snapshots.len() - 1].clone();
                if is_removed {
                    next.remove_pod(&pod.key);
                } else {
                    next.insert_pod(Arc::new(pod));
                }
                snapshots.push(next);
            }
            for snapshot in snapshots {
                let pods = snapshot.pods().values().map(|pod| ClusterPod::clone(pod));
                let new = ClusterSnapshot::new([], pods);
                let text = |of: &ClusterSnapshot| {
                    let nodes = of.pods_by_node.iter();
                    let held = nodes.map(|(name, pods)| (Arc::clone(name), pods.held().clone()));
                    let held: Vec<_> = held.collect();
                    let pending = of.pending_pods().map(|pod| pod.key.name.clone());
                    (held, pending.collect::<Vec<_>>())
                };
                prop_assert_eq!(text(&snapshot), text(&new));
                prop_assert_eq!(snapshot, new);
            }
        }
    }
}
