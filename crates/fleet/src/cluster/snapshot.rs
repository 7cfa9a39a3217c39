//! Snapshot of a cluster's nodes and pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::PODS;
use super::amounts::Amounts;
use super::node::ClusterNode;
use super::pod::{ClusterPod, PodKey};

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

#[cfg(test)]
mod tests {
    use super::super::{Phase, PodRequirements};
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
