//! Nodes where the scheduler would place a pod of a profile that requests a device resource.

use super::matching_nodes::untolerated_permanent_taints;
use super::{HardwareProfile, Scheduling};
use crate::accelerator_resource::is_accelerator;
use crate::cluster::{Amounts, ClusterNode, ClusterSnapshot, PodRequirements, free_slots};

/// Device resource of a profile, with its limits and the nodes it reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfilePlacement {
    /// Resource name, such as `nvidia.com/gpu`.
    pub resource: String,
    /// Minimum that a user can request.
    pub min: u64,
    /// Maximum; `None` if unlimited.
    pub max: Option<u64>,
    /// Placement of the profile's pods.
    pub to: PlacementTarget,
}

/// Placement of a profile's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementTarget {
    /// On these nodes only.
    Nodes(Vec<NodeCapacity>),
    /// Decided by this Kueue queue.
    Queue(String),
    /// Unknown, because there is no cluster data.
    Unknown,
}

/// Node that a profile reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCapacity {
    /// Node name.
    pub node: String,
    /// Units that one additional pod of the profile could be allocated there now, along with its other requests.
    pub free: u64,
}

/// Placements of `profile`, one per requested accelerator resource, in order; empty for workloads without devices.
pub fn placements(
    profile: &HardwareProfile,
    cluster: Option<&ClusterSnapshot>,
) -> Vec<ProfilePlacement> {
    let wants = profile.requirements();
    let accelerators = profile.identifiers.iter();
    let accelerators = accelerators.filter(|one| is_accelerator(&one.resource));
    accelerators
        .map(|one| ProfilePlacement {
            resource: one.resource.clone(),
            min: one.min.quantity.rounded_up(),
            max: one.max.as_ref().map(|max| max.quantity.rounded_up()),
            to: match (&profile.scheduling, cluster) {
                (Scheduling::Queue { local_queue, .. }, _) => {
                    PlacementTarget::Queue(local_queue.clone())
                }
                (Scheduling::Anywhere | Scheduling::Node { .. }, None) => PlacementTarget::Unknown,
                (Scheduling::Anywhere | Scheduling::Node { .. }, Some(cluster)) => {
                    PlacementTarget::Nodes(reachable_nodes(&wants, &one.resource, cluster))
                }
            },
        })
        .collect()
}

/// Nodes that match the selector, have some of each requested device resource, and have no untolerated permanent
/// taint.
fn reachable_nodes(
    wants: &PodRequirements,
    resource: &str,
    snapshot: &ClusterSnapshot,
) -> Vec<NodeCapacity> {
    let nothing = Amounts::default();
    // The callers check the requested amount of this resource.
    let beside =
        PodRequirements { amounts: wants.amounts.clone().with(resource, 0), ..wants.clone() };
    let nodes = snapshot.nodes.values().filter(|node| {
        let mut selector = wants.selector.iter();
        let gives = |name: &str| node.allocatable.get(name) > 0;
        selector.all(|(key, value)| node.label(key) == Some(value))
            && wants.amounts.devices().all(|(name, _)| gives(name))
            && untolerated_permanent_taints(wants, node).is_empty()
    });
    nodes
        .map(|node| {
            let held = snapshot.held_on(&node.name).unwrap_or(&nothing);
            NodeCapacity { node: node.name.clone(), free: free(&beside, resource, node, held) }
        })
        .collect()
}

fn free(beside: &PodRequirements, resource: &str, node: &ClusterNode, held: &Amounts) -> u64 {
    if free_slots(beside, node, held) == 0 {
        return 0;
    }
    let all = node.allocatable.get(resource);
    all.saturating_sub(held.get(resource))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::collections::BTreeMap;

    use super::super::{CandidateNode, Count, Identifier, matching_nodes};
    use super::*;
    use crate::cluster::{ClusterPod, Effect, Phase, PodKey, Readiness, Taint};

    const GPU: &str = "nvidia.com/gpu";
    const TYPE: &str = "octavo.dev/type";

    fn node(name: &str, kind: &str, gpus: u64, cpus: u64) -> ClusterNode {
        let all = Amounts::default().with(GPU, gpus).with("cpu", cpus * 1000).with("pods", 110);
        ClusterNode {
            name: name.to_owned(),
            labels: BTreeMap::from([(TYPE.to_owned(), kind.to_owned())]),
            readiness: Readiness::Ready,
            capacity: all.clone(),
            allocatable: all,
            ..ClusterNode::default()
        }
    }

    /// A pod that holds this many devices on a node.
    fn pod(node: &str, gpus: u64) -> ClusterPod {
        ClusterPod {
            key: PodKey { namespace: "team".to_owned(), name: format!("on-{node}") },
            node: Some(node.to_owned()),
            phase: Phase::Bound,
            requirements: PodRequirements {
                amounts: Amounts::default().with(GPU, gpus),
                ..PodRequirements::default()
            },
            ..ClusterPod::default()
        }
    }

    fn identifier(resource: &str, default: u64, max: Option<u64>) -> Identifier {
        Identifier {
            display_name: String::new(),
            resource: resource.to_owned(),
            min: Count::whole(1),
            max: max.map(Count::whole),
            default: Count::whole(default),
            resource_type: None,
        }
    }

    fn profile(kind: &str, gpus: u64) -> HardwareProfile {
        HardwareProfile {
            identifiers: vec![identifier("cpu", 4, None), identifier(GPU, gpus, Some(4))],
            scheduling: Scheduling::Node {
                selector: BTreeMap::from([(TYPE.to_owned(), kind.to_owned())]),
                tolerations: Vec::new(),
            },
            ..HardwareProfile::default()
        }
    }

    #[test]
    fn placement_lists_each_reached_node_with_its_free_slots() {
        let mut tainted = node("d", "l4", 8, 64);
        tainted.taints.push(Taint {
            key: "team".to_owned(),
            value: "a".to_owned(),
            effect: Effect::NoSchedule,
        });
        let mut cordoned = node("c", "l4", 8, 64);
        cordoned.is_cordoned = true;
        let nodes = [
            node("a", "l4", 8, 64),
            // Its CPUs are allocated: no pod of the profile fits, regardless of free devices.
            node("b", "l4", 8, 3),
            cordoned,
            tainted,
            node("e", "h200", 8, 64),
            node("f", "l4", 0, 64),
        ];
        let snapshot = ClusterSnapshot::new(nodes, [pod("a", 3)]);
        let found = placements(&profile("l4", 1), Some(&snapshot));
        let [way] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((&*way.resource, way.min, way.max), (GPU, 1, Some(4)));
        let place = |node: &str, free| NodeCapacity { node: node.to_owned(), free };
        let places = vec![place("a", 5), place("b", 0), place("c", 0)];
        assert_eq!(way.to, PlacementTarget::Nodes(places));
    }

    #[test]
    fn placement_is_unknown_with_a_queue_or_without_a_cluster() {
        let found = placements(&profile("l4", 1), None);
        assert_eq!(found[0].to, PlacementTarget::Unknown);
        let queued = HardwareProfile {
            scheduling: Scheduling::Queue { local_queue: "gpu".to_owned(), priority_class: None },
            ..profile("l4", 1)
        };
        assert_eq!(placements(&queued, None)[0].to, PlacementTarget::Queue("gpu".into()));
        let plain =
            HardwareProfile { identifiers: vec![identifier("cpu", 4, None)], ..profile("l4", 1) };
        assert_eq!(placements(&plain, None), []);
    }

    proptest! {
        #[test]
        fn pod_fits_exactly_where_its_count_is_free(
            nodes in prop::collection::vec((0..9_u64, 0..20_u64, any::<bool>()), 1..6),
            taken in prop::collection::vec(0..9_u64, 1..6),
            count in 1..9_u64,
        ) {
            let nodes: Vec<ClusterNode> = nodes.iter().enumerate().map(|(at, (gpus, cpus, other))| {
                node(&format!("n{at}"), if *other { "h200" } else { "l4" }, *gpus, *cpus)
            }).collect();
            let pods = nodes.iter().zip(&taken).map(|(node, taken)| pod(&node.name, *taken));
            let snapshot = ClusterSnapshot::new(nodes.iter().cloned(), pods);
            let found = placements(&profile("l4", 1), Some(&snapshot));
            let PlacementTarget::Nodes(places) = &found[0].to else { panic!() };
            let fits = places.iter().any(|place| place.free >= count);
            let types = BTreeMap::new();
            let all = CandidateNode::all(&snapshot, &types);
            let profile = profile("l4", count);
            let selected = CandidateNode::select(&all, profile.selector());
            let reached = matching_nodes(&profile, &selected);
            prop_assert_eq!(fits, reached.unwrap().free > 0);
        }
    }
}
