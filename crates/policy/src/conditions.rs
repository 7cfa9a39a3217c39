//! Conditions, counts and messages of the status.

use std::collections::BTreeSet;

use jiff::Timestamp;
use octavo_model::text::{count_noun, first_names};

use crate::node::{PolicyNode, Progress};
use crate::rollout::{Observation, Obstacle};
use crate::status::{Condition, NodeCounts, PolicyState, PolicyStatus, StopAction};
use crate::world::{Policy, Relation, World};

/// Reason why a spec is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A field is invalid.
    Invalid(String),
    /// The hardware of a selected type does not support the layout.
    Infeasible(String),
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(why) | Refusal::Infeasible(why) => why,
        }
    }
}

/// Result of an evaluation.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) world: &'a World<'a>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) obstacle: Option<Obstacle>,
}

/// Maximum number of names in a message.
const MAX_NAMES: usize = 5;

/// Sets counts, state, conditions and `waitsFor`.
pub(crate) fn describe(
    policy: &mut Policy,
    observed: Option<&Observation<'_>>,
    summary: &Summary<'_>,
) {
    let now = summary.world.now;
    policy.status.nodes =
        observed.map(|observed| counts(policy, observed, now)).unwrap_or_default();
    policy.status.state = state(policy, observed, summary);
    policy.status.waits_for = waits_for(policy, observed, summary);
    let status = &mut policy.status;
    if status.state == PolicyState::Complete {
        let mut revisions = status.revisions.iter_mut();
        if let Some(current) = revisions.find(|one| one.revision == status.revision) {
            current.complete = true;
        }
    }
    let (state, waits_for) = (status.state, status.waits_for.clone().unwrap_or_default());
    let accepted = match &summary.refusal {
        None => (true, "Valid", String::new()),
        Some(Refusal::Invalid(why)) => (false, "Invalid", why.clone()),
        Some(Refusal::Infeasible(why)) => (false, "Infeasible", why.clone()),
    };
    let is_moving = matches!(state, PolicyState::RollingOut | PolicyState::RollingBack);
    let rivals = observed.map(|observed| rivals(policy, observed, summary.world));
    let conflict = rivals.unwrap_or_default();
    let stopped = stopped(&policy.status, policy.rollback_to.as_deref());
    let all = [
        ("Accepted", accepted),
        ("Progressing", (is_moving, state.into(), waits_for.clone())),
        ("Complete", (state == PolicyState::Complete, state.into(), waits_for)),
        (
            "Conflict",
            (
                !conflict.is_empty(),
                if conflict.is_empty() { "NoConflict" } else { "NodeOfTwoPolicies" },
                conflict,
            ),
        ),
        ("Stopped", stopped),
    ];
    let generation = policy.generation;
    let conditions = all.map(|(kind, (is_true, reason, message))| {
        condition(&policy.status, kind, (is_true, reason, message), (generation, now))
    });
    policy.status.conditions = conditions.to_vec();
}

fn condition(
    status: &PolicyStatus,
    kind: &str,
    (is_true, reason, message): (bool, &str, String),
    (generation, now): (i64, Timestamp),
) -> Condition {
    let word = if is_true { "True" } else { "False" };
    let before = status.condition(kind).filter(|before| before.status == word);
    Condition {
        kind: kind.to_owned(),
        status: word.to_owned(),
        observed_generation: generation,
        last_transition_time: before.map_or(now, |before| before.last_transition_time),
        reason: reason.to_owned(),
        message,
    }
}

fn stopped(status: &PolicyStatus, requested: Option<&str>) -> (bool, &'static str, String) {
    if let Some(stop) = &status.stop {
        return (true, stop.reason.into(), stop.message.clone());
    }
    match requested.filter(|requested| status.content(requested).is_none()) {
        Some(unknown) => {
            let known: Vec<&str> =
                status.revisions.iter().map(|one| one.revision.as_str()).collect();
            let message = format!(
                "the annotation octavo.dev/rollback-to names the unknown revision {unknown:?}; known: {}",
                known.join(", ")
            );
            (false, "UnknownRevision", message)
        }
        None => (false, "NotStopped", String::new()),
    }
}

fn counts(policy: &Policy, observed: &Observation<'_>, now: Timestamp) -> NodeCounts {
    let status = &policy.status;
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let updated: Vec<_> =
        observed.managed.values().filter(|node| is_updated(policy, node, now)).collect();
    NodeCounts {
        selected: number(observed.selected().count()),
        updated: number(updated.len()),
        applied: number(updated.iter().filter(|node| is_applied(policy, node)).count()),
        updating: number(status.updating.len()),
        failed: number(status.failures.len()),
        overridden: number(observed.count(Relation::Overridden)),
        conflicting: number(observed.count(Relation::Conflicting)),
        unavailable: number(observed.unavailable(status).len()),
    }
}

fn is_updated(policy: &Policy, node: &PolicyNode<'_>, now: Timestamp) -> bool {
    node.record.of(&policy.uid).is_some_and(|record| record.revision == policy.status.revision)
        && policy.patch(node, now).is_none()
}

fn is_applied(policy: &Policy, node: &PolicyNode<'_>) -> bool {
    node.record.of(&policy.uid).is_some_and(|record| node.progress(record) == Progress::Applied)
}

fn state(
    policy: &Policy,
    observed: Option<&Observation<'_>>,
    summary: &Summary<'_>,
) -> PolicyState {
    let status = &policy.status;
    if summary.refusal.is_some() {
        return PolicyState::Refused;
    }
    let is_idle = summary.obstacle.is_none() && status.updating.is_empty();
    match status.stop.as_ref().map(|stop| stop.action) {
        Some(StopAction::Pause) => return PolicyState::Stopped,
        Some(StopAction::RollBack | StopAction::Remove) if is_idle => {
            return PolicyState::RolledBack;
        }
        Some(StopAction::RollBack | StopAction::Remove) => return PolicyState::RollingBack,
        None => {}
    }
    if summary.obstacle == Some(Obstacle::Paused) {
        return PolicyState::Paused;
    }
    if status.changing().next().is_some() {
        return PolicyState::RollingOut;
    }
    let (nodes, occupied) =
        (status.nodes, observed.map_or(0, |observed| observed.count(Relation::Occupied)));
    if summary.obstacle.is_some() || nodes.applied < nodes.updated || occupied > 0 {
        return PolicyState::Waiting;
    }
    if nodes.conflicting > 0 { PolicyState::Conflict } else { PolicyState::Complete }
}

/// One sentence about an obstacle; `None` if the nodes that are being changed explain it.
fn obstacle_text(obstacle: &Obstacle, policy: &str) -> Option<String> {
    let names = |names: &[String]| first_names(names, MAX_NAMES);
    Some(match obstacle {
        Obstacle::Stopped => "a new spec, because too many nodes failed".to_owned(),
        Obstacle::Paused => "spec.rollout.paused to be false".to_owned(),
        Obstacle::Window(at) if *at == Timestamp::MAX => {
            "a window; none of the windows ever opens".to_owned()
        }
        Obstacle::Window(at) => format!("the window that opens at {at}"),
        Obstacle::Pause(at) => format!("the end of the pause at {at}"),
        Obstacle::NotReady(nodes) => format!("nodes to be ready: {}", names(nodes)),
        Obstacle::WaveRuns => return None,
        Obstacle::Budget { limit, unavailable } => {
            let limit = count_noun(*limit, "unavailable node", "unavailable nodes");
            format!("the budget of {limit}; unavailable: {}", names(unavailable))
        }
        Obstacle::Approval(nodes) => format!(
            "approval of the proposed instances of {} (octavo policy approve {policy})",
            names(nodes)
        ),
        Obstacle::UnknownUse(nodes) => format!(
            "the agents of these nodes to report the use of their devices: {}",
            names(nodes)
        ),
        Obstacle::Limits(at) => {
            format!("{at}, when the limits of spec.demand permit the next change")
        }
    })
}

/// One sentence about the reason why no further node is changed.
fn waits_for(
    policy: &Policy,
    observed: Option<&Observation<'_>>,
    summary: &Summary<'_>,
) -> Option<String> {
    let (status, observed) = (&policy.status, observed?);
    if summary.refusal.is_some() {
        return None;
    }
    let obstacle = summary.obstacle.as_ref();
    let text = obstacle.and_then(|obstacle| obstacle_text(obstacle, &policy.name));
    // The nodes that are being changed explain more than the other obstacles.
    let precedes_changes = |obstacle: &Obstacle| match obstacle {
        Obstacle::Stopped
        | Obstacle::Paused
        | Obstacle::Window(_)
        | Obstacle::Pause(_)
        | Obstacle::NotReady(_) => true,
        Obstacle::WaveRuns
        | Obstacle::Budget { .. }
        | Obstacle::Approval(_)
        | Obstacle::UnknownUse(_)
        | Obstacle::Limits(_) => false,
    };
    if obstacle.is_some_and(precedes_changes) {
        return text;
    }
    let blocked = status.changing().find_map(|name| {
        let node = observed.managed.get(name.as_str())?;
        match node.progress(node.record.of(&policy.uid)?) {
            Progress::Pending(Some(message)) => {
                Some(format!("{name}, which is blocked: {message}"))
            }
            Progress::Pending(None) | Progress::Applied | Progress::Failed { .. } => None,
        }
    });
    if blocked.is_some() {
        return blocked;
    }
    if status.changing().next().is_some() {
        let changing: Vec<String> = status.changing().cloned().collect();
        let names = first_names(&changing, MAX_NAMES);
        return Some(format!("the nodes that are being changed: {names}"));
    }
    match text {
        Some(text) => Some(text),
        _ if let Some(node) = status.updating.first() => Some(reservation(node)),
        _ if status.nodes.applied < status.nodes.updated => {
            let all = observed
                .managed
                .values()
                .filter(|node| node.record.of(&policy.uid).is_some() && !is_applied(policy, node));
            let names: Vec<String> = all.map(|node| node.name().to_owned()).collect();
            Some(format!("the layout to be applied on: {}", first_names(&names, MAX_NAMES)))
        }
        _ if observed.count(Relation::Occupied) > 0 => {
            Some("another policy to release nodes".to_owned())
        }
        _ => None,
    }
}

fn reservation(node: &str) -> String {
    format!("pods of {node} to end, where a GPU is reserved")
}

/// Names of the policies that select the same nodes, with some of the nodes.
fn rivals(policy: &Policy, observed: &Observation<'_>, world: &World<'_>) -> String {
    let shared = observed.others.iter().filter(|(_, relation)| *relation == Relation::Conflicting);
    let nodes: Vec<&PolicyNode<'_>> = shared.map(|(node, _)| *node).collect();
    if nodes.is_empty() {
        return String::new();
    }
    let others: BTreeSet<&str> = nodes
        .iter()
        .flat_map(|node| world.rivals(policy, node))
        .map(|other| other.name.as_str())
        .collect();
    let names: Vec<String> = nodes.iter().map(|node| node.name().to_owned()).collect();
    let others: Vec<String> = others.into_iter().map(str::to_owned).collect();
    format!("{} selected by: {}", first_names(&names, MAX_NAMES), first_names(&others, MAX_NAMES))
}
