//! Preview of a roll-out: its waves, if every node applies the layout.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::node::PolicyNode;
use crate::rollout::{Observation, retarget};
use crate::validation;
use crate::world::{Policy, Relation, World};

/// Preview of a roll-out.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPlan {
    /// Reason why the policy is refused; nothing changes then.
    pub refused: Option<String>,
    /// Number of selected nodes.
    pub selected: usize,
    /// Largest number of nodes that are unavailable at the same time.
    pub max_unavailable: usize,
    /// Nodes that are unavailable now and stay so, because the policy does not change them.
    pub unavailable: Vec<String>,
    /// Nodes that already have the revision.
    pub unchanged: usize,
    /// The waves in their order.
    pub waves: Vec<Vec<PlannedNode>>,
    /// Nodes that wait, because they are not ready or because the budget is used up.
    pub waiting: Vec<PlannedNode>,
    /// Nodes whose layout another user or program chose.
    pub overridden: Vec<String>,
    /// Nodes that another policy selects too.
    pub conflicting: Vec<String>,
}

/// Node of a wave.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedNode {
    /// Name of the node.
    pub name: String,
    /// Layout that it has chosen now.
    pub layout: Option<String>,
    /// Devices and partitions in use; absent if unknown. Their workloads block the change until they end.
    pub in_use: Option<u32>,
}

impl PlannedNode {
    fn of(node: &PolicyNode<'_>) -> Self {
        Self {
            name: node.name().to_owned(),
            layout: node.layout().map(str::to_owned),
            in_use: node.in_use,
        }
    }
}

/// Plans the roll-out of a policy, stored or not. Windows, pauses and failures are not part of it.
pub fn plan(world: &World<'_>, policy: &Policy) -> PolicyPlan {
    let mut policy = policy.clone();
    let refused =
        validation::invalid(&policy.spec).or_else(|| world.infeasible.get(&policy.name).cloned());
    retarget(&mut policy, world.now);
    let target = policy.clone();
    let Some(observed) = Observation::new(world, &target) else {
        return PolicyPlan { refused, ..PolicyPlan::default() };
    };
    let named = |wanted: Relation| {
        let all = observed.others.iter().filter(move |(_, relation)| *relation == wanted);
        all.map(|(node, _)| node.name().to_owned()).collect()
    };
    let candidates = observed.candidates(&policy, world.now);
    let budget = observed.budget();
    let (ready, waiting): (Vec<&PolicyNode<'_>>, Vec<_>) =
        candidates.iter().copied().partition(|node| node.is_ready());
    let unavailable = observed.unavailable(&policy.status).into_iter();
    let unavailable: Vec<String> = unavailable
        .filter(|name| ready.iter().all(|node| node.name() != *name))
        .map(str::to_owned)
        .collect();
    let slots = budget.saturating_sub(unavailable.len());
    let mut waiting: Vec<PlannedNode> = waiting.into_iter().map(PlannedNode::of).collect();
    let ready = ready.into_iter().map(PlannedNode::of);
    let waves = if slots == 0 || refused.is_some() {
        waiting.extend(ready);
        Vec::new()
    } else {
        ready.collect::<Vec<_>>().chunks(slots).map(<[PlannedNode]>::to_vec).collect()
    };
    PolicyPlan {
        refused,
        selected: observed.selected().count(),
        max_unavailable: budget,
        unavailable,
        unchanged: observed.managed.len().saturating_sub(candidates.len()),
        waves,
        waiting,
        overridden: named(Relation::Overridden),
        conflicting: named(Relation::Conflicting),
    }
}
