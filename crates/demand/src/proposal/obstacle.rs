//! Obstacles to a pod on a node that do not depend on the instances of the node.

use octavo_fleet::cluster::{
    Amounts, ClusterNode, PODS, PlacementObstacle, PodRequirements, Readiness, placement_obstacle,
};

use super::{PlannedNode, Planning, is_instance};
use crate::report::Obstacle;

impl Planning<'_> {
    /// Returns the obstacle to a pod on a node that does not depend on the instances of the node.
    pub(super) fn obstacle(
        &self,
        node: &PlannedNode<'_>,
        requirements: &PodRequirements,
    ) -> Option<Obstacle> {
        let held = self.held.get(node.cluster.name.as_str());
        if let Some(obstacle) = scheduling_obstacle(requirements, node.cluster) {
            return Some(obstacle);
        }
        if node.observed.is_stale {
            return Some(Obstacle::Stale);
        }
        if !node.observed.are_users_known {
            return Some(Obstacle::Unknown);
        }
        let has_room = has_other_resources(requirements, node.cluster, held);
        (!has_room).then_some(Obstacle::OtherResources)
    }
}

/// Returns the obstacle for which the scheduler does not place a pod on a node, whatever is free.
fn scheduling_obstacle(wants: &PodRequirements, node: &ClusterNode) -> Option<Obstacle> {
    match placement_obstacle(wants, node) {
        Some(PlacementObstacle::Cordoned) => Some(Obstacle::Unschedulable),
        Some(PlacementObstacle::Tainted(_)) => Some(Obstacle::Tainted),
        Some(PlacementObstacle::Selector(_) | PlacementObstacle::Affinity) => {
            Some(Obstacle::NotSelected)
        }
        None if node.readiness != Readiness::Ready => Some(Obstacle::Unschedulable),
        None => None,
    }
}

/// Returns whether everything that the pod requests besides MIG instances is free on the node.
fn has_other_resources(
    wants: &PodRequirements,
    node: &ClusterNode,
    held: Option<&Amounts>,
) -> bool {
    let mut others = wants.amounts.iter().filter(|(name, _)| !is_instance(name));
    let has_free = |name: &str, count: u64| {
        let held = held.map_or(0, |held| held.get(name));
        node.allocatable.get(name).saturating_sub(held) >= count
    };
    others.all(|(name, count)| has_free(name, count)) && has_free(PODS, 1)
}
