//! The next steps of all policies.

use jiff::Timestamp;

use crate::change_event::{ChangeEvent, change_events};
use crate::conditions;
use crate::node::Progress;
use crate::proposals;
use crate::rollout::{self, Observation, Obstacle};
use crate::status::PolicyStatus;
use crate::validation;
use crate::world::{Policy, World};

/// One write of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Add the finalizer to a policy.
    AddFinalizer {
        /// Name of the policy.
        policy: String,
    },
    /// Remove the finalizer from a policy that is being deleted.
    RemoveFinalizer {
        /// Name of the policy.
        policy: String,
    },
    /// Write the status of a policy.
    WriteStatus {
        /// Name of the policy.
        policy: String,
        /// The status.
        status: Box<PolicyStatus>,
        /// Events about changes of instances.
        events: Vec<ChangeEvent>,
    },
    /// Read a node and apply [`World::patch`] of this policy.
    ChangeNode {
        /// Name of the policy.
        policy: String,
        /// Name of the node.
        node: String,
    },
    /// Read a node, and remove the record if its policy does not exist.
    ReleaseOrphan {
        /// Name of the policy in the record.
        policy: String,
        /// UID of the policy in the record.
        uid: String,
        /// Name of the node.
        node: String,
    },
}

/// The next steps, and when the time alone leads to others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Writes in their order. After a failed write, the others of the same policy must be decided again.
    pub steps: Vec<Step>,
    /// Time of the next decision, if nothing changes before.
    pub wake_at: Option<Timestamp>,
}

/// Decides the next steps.
///
/// A node is changed only if the stored status names it: the step that adds a node to the status and the step that changes it are never
/// in the same decision.
pub fn next(world: &World<'_>) -> Decision {
    let mut decision = Decision::default();
    for policy in world.policies {
        if policy.is_deleting {
            delete(world, policy, &mut decision);
        } else if !policy.has_finalizer {
            decision.steps.push(Step::AddFinalizer { policy: policy.name.clone() });
        } else {
            advance(world, policy, &mut decision);
        }
    }
    release_orphans(world, &mut decision);
    decision
}

/// Status of a policy after the present observation, and the next time that matters.
pub(crate) fn status(world: &World<'_>, policy: &Policy) -> (PolicyStatus, Option<Timestamp>) {
    let mut after = policy.clone();
    let refusal = refusal(world, policy);
    let mut wake_at = None;
    let mut obstacle = None;
    let is_lost = rollout::recover(&mut after, world);
    if refusal.is_none() {
        rollout::retarget(&mut after, world.now, is_lost);
    } else if policy.status.stop.is_none() {
        // A stop ends with the next spec that is accepted.
        after.status.observed_generation = policy.generation;
    }
    // Relation depends on the target, so it is determined after the target.
    let observed_policy = after.clone();
    let observed = Observation::new(world, &observed_policy);
    if let Some(observed) = &observed {
        rollout::postpone(&mut after, observed, world.now);
        rollout::settle(&mut after, observed, world.now);
        if refusal.is_none() {
            obstacle = rollout::extend(&mut after, observed, world.now);
            let wait = proposals::advance(&mut after, observed, world);
            obstacle = obstacle.or(wait.obstacle);
            wake_at = wait.wake_at;
        }
        wake_at =
            wake_at.into_iter().chain(wake(&after, observed, obstacle.as_ref(), world.now)).min();
    }
    let summary = conditions::Summary { world, refusal, obstacle };
    conditions::describe(&mut after, observed.as_ref(), &summary);
    (after.status, wake_at)
}

/// Reason why the spec is not carried out.
pub(crate) fn refusal(world: &World<'_>, policy: &Policy) -> Option<conditions::Refusal> {
    if let Some(why) = validation::invalid(&policy.spec) {
        return Some(conditions::Refusal::Invalid(why));
    }
    // A rollback away from an infeasible layout continues.
    let is_stopped =
        policy.status.stop.is_some() && policy.status.observed_generation == policy.generation;
    let infeasible = world.infeasible.get(&policy.name).filter(|_| !is_stopped);
    infeasible.map(|message| conditions::Refusal::Infeasible(message.clone()))
}

/// Earliest time at which a window opens, a pause ends or a node exceeds its deadline.
fn wake(
    policy: &Policy,
    observed: &Observation<'_>,
    obstacle: Option<&Obstacle>,
    now: Timestamp,
) -> Option<Timestamp> {
    let at = match obstacle {
        Some(Obstacle::Window(at) | Obstacle::Pause(at)) => Some(*at),
        _ => None,
    };
    let deadline = observed.spec.rollout.node_deadline.signed();
    let deadlines = policy.status.updating.iter().filter_map(|name| {
        let node = observed.managed.get(name.as_str())?;
        let record = node.record.of(&policy.uid)?;
        let until_deadline = matches!(node.progress(record), Progress::Pending(_));
        let deadline = record.since.saturating_add(deadline).ok().filter(|_| until_deadline);
        let reliable = record.unreliable_until().filter(|until| now < *until);
        reliable.or(deadline)
    });
    deadlines.chain(at).min()
}

fn advance(world: &World<'_>, policy: &Policy, decision: &mut Decision) {
    let name = || policy.name.clone();
    let (status, wake_at) = status(world, policy);
    decision.wake_at = decision.wake_at.into_iter().chain(wake_at).min();
    if status != policy.status {
        let events = change_events(world, policy, &status);
        let status = Box::new(status);
        decision.steps.push(Step::WriteStatus { policy: name(), status, events });
        return;
    }
    let is_paused = policy.spec.as_ref().is_ok_and(|spec| spec.rollout.paused);
    let is_halted = policy.status.is_halted() || is_paused || refusal(world, policy).is_some();
    for node in world.nodes.values() {
        let must_release =
            World::must_release(policy, node) || policy.status.is_ending_reservation(node.name());
        if (must_release || !is_halted) && world.patch(policy, node).is_some() {
            decision.steps.push(Step::ChangeNode { policy: name(), node: node.name().to_owned() });
        }
    }
}

fn delete(world: &World<'_>, policy: &Policy, decision: &mut Decision) {
    let before = decision.steps.len();
    for node in world.nodes.values().filter(|node| World::must_release(policy, node)) {
        decision
            .steps
            .push(Step::ChangeNode { policy: policy.name.clone(), node: node.name().to_owned() });
    }
    if decision.steps.len() == before && policy.has_finalizer {
        decision.steps.push(Step::RemoveFinalizer { policy: policy.name.clone() });
    }
}

fn release_orphans(world: &World<'_>, decision: &mut Decision) {
    for node in world.nodes.values() {
        let Some(record) = node.record.valid() else { continue };
        if world.policies.iter().all(|policy| policy.uid != record.uid) {
            decision.steps.push(Step::ReleaseOrphan {
                policy: record.policy.clone(),
                uid: record.uid.clone(),
                node: node.name().to_owned(),
            });
        }
    }
}
