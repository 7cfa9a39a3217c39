//! Preview of a roll-out: its waves, if every node applies the layout.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::drain::PolicyDrain;
use crate::next::refusal;
use crate::node::PolicyNode;
use crate::rollout::{self, Nodes, Observation};
use crate::status::Stop;
use crate::window;
use crate::world::{Policy, Relation, Target, World};

/// Preview of a roll-out.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPlan {
    /// Layout that the nodes get: that of the spec, or that of the earlier revision during a rollback.
    pub layout: Option<String>,
    /// Eviction of pods that block this layout.
    pub drain: Option<PolicyDrain>,
    /// Reason why the policy is refused; nothing changes then.
    pub refused: Option<String>,
    /// Stop of the roll-out. With the action Pause, nothing changes until the spec changes.
    pub stop: Option<Stop>,
    /// True if the policy is paused, so that no wave begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Time at which the next window opens; absent if one is open or if the policy has none. No further node is changed before.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub window_opens: Option<Timestamp>,
    /// Number of selected nodes.
    pub selected: usize,
    /// Largest number of nodes that are unavailable at the same time.
    pub max_unavailable: usize,
    /// Nodes that are unavailable now and stay so, because the policy does not change them.
    pub unavailable: Vec<String>,
    /// Nodes that already have the revision.
    pub unchanged: usize,
    /// Nodes that have the revision, but whose layout is not applied yet. The plan assumes that they apply it.
    #[serde(default)]
    pub updating: Vec<String>,
    /// The waves in their order.
    pub waves: Vec<Vec<PlannedNode>>,
    /// Nodes that wait, because they are not ready, because the budget is used up, or because the roll-out is stopped.
    pub waiting: Vec<PlannedNode>,
    /// Nodes whose layout another user or program chose.
    pub overridden: Vec<String>,
    /// Nodes that another policy selects too.
    pub conflicting: Vec<String>,
    /// Unavailable nodes now, and then during each step of the plan.
    #[serde(skip)]
    #[schema(ignore)]
    pub unavailable_by_step: Vec<BTreeSet<String>>,
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

/// Plans the roll-out of a policy, stored or not, with the rules of the controller. It assumes that the policy is not paused, that all windows are open and that no node fails.
pub fn plan(world: &World<'_>, policy: &Policy) -> PolicyPlan {
    let refused = refusal(world, policy).map(String::from);
    let mut policy = policy.clone();
    let is_lost = rollout::recover(&mut policy, world);
    rollout::retarget(&mut policy, world.now, is_lost);
    let target = policy.clone();
    let Some(observed) = Observation::new(world, &target) else {
        return PolicyPlan { refused, ..PolicyPlan::default() };
    };
    rollout::postpone(&mut policy, &observed, world.now);
    let candidates = observed.candidates(&policy, world.now);
    // A reserved GPU does not make its node unavailable.
    let current = policy.status.changing();
    let current: Vec<_> =
        current.filter_map(|name| observed.managed.get(name.as_str()).copied()).collect();
    let changed = candidates.len().saturating_add(current.len());
    let unchanged = observed.managed.len().saturating_sub(changed);
    // The budget of the current wave was checked when its nodes joined it.
    let (begun, first): (Vec<_>, Vec<_>) =
        current.into_iter().partition(|node| policy.patch(node, world.now).is_none());
    let unavailable = observed.unavailable(&policy.status);
    let unavailable_by_step = vec![unavailable.clone()];
    let mut schedule = Schedule { unavailable, unavailable_by_step, ..Schedule::default() };
    if refused.is_some() || policy.status.is_halted() {
        schedule.waiting.extend(first.into_iter().chain(candidates));
    } else {
        // With a pause, the current wave ends first. A rollback has no pauses.
        let pause = observed.spec.rollout.pause.filter(|pause| !pause.get().is_zero());
        let is_separate = pause.is_some() && policy.status.stop.is_none();
        schedule.fill((&begun, first), candidates, (observed.budget(), is_separate), &policy.uid);
    }
    let named = |wanted: Relation| {
        let all = observed.others.iter().filter(move |(_, relation)| *relation == wanted);
        all.map(|(node, _)| node.name().to_owned()).collect()
    };
    let content = match policy.target() {
        Some(Target::Content(content)) => Some(content),
        Some(Target::Nothing) | None => None,
    };
    // Windows do not delay a rollback.
    let rollout = &observed.spec.rollout;
    let windows = policy.status.stop.is_none().then_some(rollout.windows.as_slice());
    let opens = windows.and_then(|windows| window::opens_at(windows, world.now));
    PolicyPlan {
        paused: rollout.paused,
        window_opens: opens.filter(|at| *at != Timestamp::MAX),
        layout: content.and_then(|content| content.layout.clone()),
        drain: content.and_then(|content| content.drain),
        refused,
        selected: observed.selected().count(),
        max_unavailable: observed.budget(),
        unavailable: schedule.unavailable.into_iter().map(str::to_owned).collect(),
        unchanged,
        updating: rollout::names(&begun),
        waves: schedule.waves.iter().map(|wave| planned(wave)).collect(),
        waiting: planned(&schedule.waiting),
        overridden: named(Relation::Overridden),
        conflicting: named(Relation::Conflicting),
        unavailable_by_step: schedule
            .unavailable_by_step
            .iter()
            .map(|names| names.iter().map(|name| (*name).to_owned()).collect())
            .collect(),
        stop: policy.status.stop,
    }
}

fn planned(nodes: &[&PolicyNode<'_>]) -> Vec<PlannedNode> {
    nodes.iter().map(|node| PlannedNode::of(node)).collect()
}

/// Waves of a plan, and the nodes that are in none.
#[derive(Debug, Default)]
struct Schedule<'a> {
    waves: Vec<Nodes<'a>>,
    waiting: Nodes<'a>,
    /// Names of unavailable nodes that no wave changes.
    unavailable: BTreeSet<&'a str>,
    /// Unavailable nodes now, and during each step.
    unavailable_by_step: Vec<BTreeSet<&'a str>>,
}

impl<'a> Schedule<'a> {
    /// Divides the candidates into waves. `first` is the beginning of the first wave, during which changes that have begun end. Other
    /// nodes do not join it if `is_separate`.
    fn fill(
        &mut self,
        (begun, first): (&Nodes<'a>, Nodes<'a>),
        candidates: Nodes<'a>,
        (budget, is_separate): (usize, bool),
        uid: &str,
    ) {
        let (ready, not_ready) = rollout::ordered(candidates, &self.unavailable);
        let mut rest = ready.as_slice();
        let mut busy = begun.len().saturating_add(first.len());
        let mut wave = first;
        loop {
            let count = if is_separate && busy > 0 {
                0
            } else {
                rollout::joining(rest, &self.unavailable, (budget, busy), uid)
            };
            let (joining, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            wave.extend(joining);
            if wave.is_empty() && busy == 0 {
                break;
            }
            let joined = wave.iter().map(|node| node.name());
            let names = self.unavailable.iter().copied().chain(joined);
            self.unavailable_by_step.push(names.collect());
            for node in begun.iter().chain(&wave) {
                self.unavailable.remove(node.name());
            }
            if !wave.is_empty() {
                self.waves.push(std::mem::take(&mut wave));
            }
            (busy, rest) = (0, later);
        }
        self.waiting.extend(not_ready.iter().chain(rest));
    }
}
