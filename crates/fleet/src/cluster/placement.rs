//! Placement rules: which pod fits on which node, and how many.

use thiserror::Error;

use super::amounts::Amounts;
use super::snapshot::{ClusterNode, PodRequirements};
use super::taint::{Effect, Taint, Toleration};

/// Reason why a pod cannot be placed on a node, regardless of free capacity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum PlacementObstacle {
    /// The node is cordoned.
    #[error("it is cordoned")]
    Cordoned,
    /// The pod does not tolerate this taint.
    #[error("the taint {0} is not tolerated")]
    Tainted(Taint),
    /// The node does not match the pod's node selector; this is the first label that differs.
    #[error("it is not selected by the label {0}")]
    Selector(String),
    /// The node does not match the pod's node affinity.
    #[error("the node affinity requires other nodes")]
    Affinity,
}

/// Taint key that stands for a cordon and can be tolerated. Source: Kubernetes,
/// `pkg/scheduler/framework/plugins/nodeunschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Reason why a pod with these requirements cannot be placed on `node`; `None` if it can, given enough capacity.
///
/// Follows the scheduler, which considers taints and no conditions: a node that is not ready has a corresponding
/// taint.
pub fn placement_obstacle(
    wants: &PodRequirements,
    node: &ClusterNode,
) -> Option<PlacementObstacle> {
    if node.is_cordoned && !tolerates_a_cordon(&wants.tolerations) {
        return Some(PlacementObstacle::Cordoned);
    }
    let mut forbidding = node.taints.iter().filter(|taint| taint.forbids());
    if let Some(taint) = forbidding.find(|taint| !taint.is_tolerated(&wants.tolerations)) {
        return Some(PlacementObstacle::Tainted(taint.clone()));
    }
    let mut selected = wants.selector.iter();
    if let Some((key, _)) = selected.find(|(key, value)| node.label(key) != Some(value)) {
        return Some(PlacementObstacle::Selector(key.clone()));
    }
    let affinity = wants.affinity.as_ref();
    affinity
        .is_some_and(|affinity| !affinity.fits(&node.name, &node.labels))
        .then_some(PlacementObstacle::Affinity)
}

/// Number of additional pods with these requirements that fit on `node`, given the amounts already `held` by pods.
pub fn free_slots(wants: &PodRequirements, node: &ClusterNode, held: &Amounts) -> u64 {
    if placement_obstacle(wants, node).is_some() {
        return 0;
    }
    node.allocatable.how_many_fit(held, &wants.amounts)
}

fn tolerates_a_cordon(tolerations: &[Toleration]) -> bool {
    let cordon =
        Taint { key: UNSCHEDULABLE.to_owned(), value: String::new(), effect: Effect::NoSchedule };
    cordon.is_tolerated(tolerations)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Affinity, Readiness};
    use super::*;

    const GPU: &str = "nvidia.com/gpu";

    fn node() -> ClusterNode {
        ClusterNode {
            name: "node-a".to_owned(),
            labels: BTreeMap::from([("octavo.dev/type".to_owned(), "nvidia-t4-16gb".to_owned())]),
            readiness: Readiness::Ready,
            allocatable: Amounts::default().with(GPU, 8).with("pods", 110),
            ..ClusterNode::default()
        }
    }

    fn wants() -> PodRequirements {
        PodRequirements { amounts: Amounts::default().with(GPU, 2), ..PodRequirements::default() }
    }

    #[test]
    fn free_slots_exclude_held_amounts() {
        let held = Amounts::default().with(GPU, 3).with("pods", 2);
        assert_eq!(free_slots(&wants(), &node(), &Amounts::default()), 4);
        assert_eq!(free_slots(&wants(), &node(), &held), 2);
        assert_eq!(free_slots(&wants(), &node(), &Amounts::default().with("pods", 110)), 0);
    }

    #[test]
    fn each_placement_obstacle_is_found_and_named() {
        let taint = Taint { key: "gpu".into(), value: "mig".into(), effect: Effect::NoSchedule };
        let mut cordoned = node();
        cordoned.is_cordoned = true;
        let mut tainted = node();
        tainted.taints.push(taint);
        let mut selecting = wants();
        selecting.selector =
            BTreeMap::from([("octavo.dev/type".into(), "nvidia-h200-141gb".into())]);
        let mut picky = wants();
        picky.affinity = Some(Affinity::default());
        for (wants, node, expected) in [
            (&wants(), &cordoned, "it is cordoned"),
            (&wants(), &tainted, "the taint gpu=mig:NoSchedule is not tolerated"),
            (&selecting, &node(), "it is not selected by the label octavo.dev/type"),
            (&picky, &node(), "the node affinity requires other nodes"),
        ] {
            let found = placement_obstacle(wants, node).unwrap();
            assert_eq!(found.to_string(), expected);
            assert_eq!(free_slots(wants, node, &Amounts::default()), 0);
        }
        let mut tolerant = wants();
        tolerant.tolerations = vec![Toleration::for_key("gpu"), Toleration::for_key(UNSCHEDULABLE)];
        assert_eq!(
            (placement_obstacle(&tolerant, &tainted), placement_obstacle(&tolerant, &cordoned)),
            (None, None)
        );
    }

    #[test]
    fn prefer_no_schedule_taint_is_no_obstacle() {
        let mut node = node();
        node.taints.push(Taint {
            key: "spot".into(),
            value: String::new(),
            effect: Effect::PreferNoSchedule,
        });
        assert_eq!(placement_obstacle(&wants(), &node), None);
    }
}
