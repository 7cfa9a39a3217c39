//! Use of proposals by node, for the planner of proposals.

use std::collections::BTreeMap;

use crate::demand::DemandMode;
use crate::next::refusal;
use crate::rollout::Observation;
use crate::world::World;

/// Use of proposals on the nodes of policies that carry them out. Other nodes are absent.
pub fn demand_modes(world: &World<'_>) -> BTreeMap<String, DemandMode> {
    let mut modes = BTreeMap::new();
    for policy in world.policies {
        let Some(demand) = policy.active_demand() else { continue };
        let is_running = policy.status.stop.is_none() && refusal(world, policy).is_none();
        let observed = Observation::new(world, policy);
        let observed = observed.filter(|one| is_running && !one.spec.rollout.paused);
        let nodes = observed.iter().flat_map(|observed| observed.managed.keys());
        modes.extend(nodes.map(|node| ((*node).to_owned(), demand.mode)));
    }
    modes
}
