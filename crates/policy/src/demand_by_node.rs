//! Settings of policies by node, for the planner of proposals.

use std::collections::BTreeMap;

use crate::demand::PolicyDemand;
use crate::next::refusal;
use crate::rollout::Observation;
use crate::world::World;

/// Settings of the nodes whose policies can carry out proposals now. Other nodes are absent.
pub fn demand_by_node(world: &World<'_>) -> BTreeMap<String, PolicyDemand> {
    let mut settings = BTreeMap::new();
    for policy in world.policies {
        let Some(demand) = policy.active_demand() else { continue };
        if refusal(world, policy).is_some() {
            continue;
        }
        let observed = Observation::new(world, policy);
        let nodes = observed.iter().flat_map(|observed| observed.managed.values());
        for node in nodes {
            let can_change =
                |waits_for_pods| demand.can_change((node, &policy.uid), waits_for_pods, world.now);
            // Pods need not wait for a node that failed or reached its limits, or of which a GPU is reserved.
            if !can_change(false) || policy.status.is_reserving(node.name()) {
                continue;
            }
            let current = if can_change(true) {
                *demand
            } else {
                PolicyDemand { evictions_per_hour: 0, reserve_after: None, ..*demand }
            };
            settings.insert(node.name().to_owned(), current);
        }
    }
    settings
}
