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
        // Pods need not wait for a node that failed or reached its limits.
        let nodes = nodes.filter(|node| demand.can_change(node, &policy.uid, world.now));
        settings.extend(nodes.map(|node| (node.name().to_owned(), *demand)));
    }
    settings
}
