//! Progress of one policy: its status after the present observation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use octavo_model::text::count_noun;
use octavo_node::node_object::is_demand_layout;

use crate::limits;
use crate::node::{PolicyNode, Progress};
use crate::record::NodeRecord;
use crate::spec::{OnFailure, PolicySpec};
use crate::status::{Content, NodeFailure, PolicyStatus, Revision, Stop, StopAction, StopReason};
use crate::window;
use crate::world::{Policy, Relation, World};

/// Maximum number of nodes of a wave, which bounds the size of the status.
const MAX_WAVE: usize = 500;
/// Number of failures in the status that have a message.
const MAX_MESSAGES: usize = 50;
/// Maximum length of the message of a failure, in characters.
const MAX_MESSAGE_CHARS: usize = 300;
/// Reason of a node that exceeded its deadline.
const DEADLINE_EXCEEDED: &str = "deadline-exceeded";

/// Observation of the nodes of one policy.
#[derive(Debug)]
pub(crate) struct Observation<'a> {
    pub(crate) spec: &'a PolicySpec,
    /// Selected nodes that the policy may change.
    pub(crate) managed: BTreeMap<&'a str, &'a PolicyNode<'a>>,
    /// Selected nodes with another relation.
    pub(crate) others: Vec<(&'a PolicyNode<'a>, Relation)>,
}

/// Obstacle to the next wave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Paused,
    Stopped,
    Window(Timestamp),
    Pause(Timestamp),
    WaveRuns,
    Budget {
        limit: usize,
        unavailable: Vec<String>,
    },
    NotReady(Vec<String>),
    /// Changes of instances on these nodes wait for an approval.
    Approval(Vec<String>),
    /// Changes of instances wait for reports from the agents of these nodes.
    UnknownUse(Vec<String>),
    /// Changes of instances wait for the limits of the policy.
    Limits(Timestamp),
}

impl<'a> Observation<'a> {
    /// Sorts the selected nodes by relation; `None` if the spec cannot be read.
    pub(crate) fn new(world: &'a World<'a>, policy: &'a Policy) -> Option<Self> {
        let spec = policy.spec.as_ref().ok()?;
        let (mut managed, mut others) = (BTreeMap::new(), Vec::new());
        for node in world.nodes.values().filter(|node| policy.selects(node.node)) {
            match world.relation(policy, node) {
                Relation::Managed => {
                    managed.insert(node.name(), node);
                }
                relation @ (Relation::Conflicting | Relation::Overridden | Relation::Occupied) => {
                    others.push((node, relation));
                }
            }
        }
        Some(Self { spec, managed, others })
    }

    /// All selected nodes.
    pub(crate) fn selected(&self) -> impl Iterator<Item = &'a PolicyNode<'a>> + '_ {
        self.managed.values().copied().chain(self.others.iter().map(|(node, _)| *node))
    }

    /// Number of selected nodes with this relation.
    pub(crate) fn count(&self, relation: Relation) -> usize {
        self.others.iter().filter(|(_, one)| *one == relation).count()
    }

    /// Returns whether a change that began at `since` has exceeded the deadline of a node.
    pub(crate) fn is_overdue(&self, since: Timestamp, now: Timestamp) -> bool {
        let deadline = self.spec.rollout.node_deadline.signed();
        since.saturating_add(deadline).is_ok_and(|until| until <= now)
    }

    /// Largest number of unavailable nodes.
    pub(crate) fn budget(&self) -> usize {
        self.spec.rollout.max_unavailable.of(self.selected().count())
    }

    /// Names of unavailable nodes.
    pub(crate) fn unavailable(&self, status: &PolicyStatus) -> BTreeSet<&'a str> {
        // A controller with an older view of the nodes must not overlook one that the status names.
        let failed = status.failures.iter().map(|one| &one.node);
        let named: BTreeSet<&str> =
            status.updating.iter().chain(failed).map(String::as_str).collect();
        let nodes = self.selected();
        let is_unavailable = |node: &&PolicyNode<'_>| {
            if status.is_reserving(node.name()) {
                return !node.is_ready();
            }
            !node.is_available() || named.contains(node.name())
        };
        nodes.filter(is_unavailable).map(PolicyNode::name).collect()
    }

    /// Nodes that the target still changes, in the order of the waves.
    pub(crate) fn candidates(&self, policy: &Policy, now: Timestamp) -> Vec<&'a PolicyNode<'a>> {
        let status = &policy.status;
        let is_changed = |node: &PolicyNode<'_>| node.record.of(&policy.uid).is_some();
        // A rollback concerns the nodes that were changed.
        let must_be_changed = status.stop.is_some() && !status.is_halted();
        let mut all: Vec<_> = self.managed.values().copied().collect();
        all.retain(|node| {
            let is_new = !status.is_updating(node.name());
            let is_candidate = !must_be_changed || is_changed(node);
            is_new && is_candidate && needs_change(policy, node, now)
        });
        all.sort_by_key(|node| node.order());
        all
    }
}

/// Returns whether a node must be changed: it differs from the target, or an earlier attempt at the same layout failed.
fn needs_change(policy: &Policy, node: &PolicyNode<'_>, now: Timestamp) -> bool {
    let is_retry = node.record.of(&policy.uid).is_some_and(|record| {
        record.rollout != policy.status.rollout
            && matches!(node.progress(record), Progress::Failed { .. })
    });
    policy.patch(node, now).is_some() || is_retry
}

/// Corrects a status that was lost or restored from a backup, and returns whether it was: the status names a roll-out before the records
/// do, so it is older than a record with a later number. A policy whose spec cannot be read changes no nodes, so it can wait.
///
/// A controller with an outdated view of the policy comes to the same result, but the API server refuses its status.
pub(crate) fn recover(policy: &mut Policy, world: &World<'_>) -> bool {
    let recorded = world.last_rollout(policy);
    let Some(budget) = Observation::new(world, policy).map(|observed| observed.budget()) else {
        return false;
    };
    if recorded <= policy.status.rollout {
        return false;
    }
    let selected = || world.nodes.values().filter(|node| policy.selects(node.node));
    let records = selected().filter_map(|node| node.record.of(&policy.uid));
    let evictions =
        records.flat_map(|record| limits::recent(&record.evictions, world.now)).collect();
    let changing = selected().filter_map(|node| {
        let record = node.record.of(&policy.uid)?;
        let is_reliable = record.is_reliable(world.now);
        // Instances for pending pods that running pods block are withdrawn, unless a pod needs them.
        let is_demand = record.layout.as_deref().is_some_and(is_demand_layout);
        let is_blocked = matches!(node.progress(record), Progress::Pending(Some(_)));
        let is_changing = !(node.is_available() || is_demand && is_blocked);
        (is_changing || !is_reliable).then_some((node, record.since))
    });
    let mut changing: Vec<_> = changing.collect();
    // A node whose report is unreliable only looks available, so the wave must name it. Of the others, those of the last wave are probably
    // the latest. More than the budget would be too many: some can be available again before their next change.
    changing.sort_by_key(|(node, since)| (!node.is_available(), Reverse(*since)));
    let unreliable = changing.iter().filter(|(node, _)| node.is_available()).count();
    changing.truncate(budget.max(unreliable).min(MAX_WAVE));
    let status = &mut policy.status;
    status.rollout = recorded;
    status.evictions = evictions;
    status.updating = changing.into_iter().map(|(node, _)| node.name().to_owned()).collect();
    status.failures.clear();
    // The request may have been carried out.
    status.rollback_to.clone_from(&policy.rollback_to);
    true
}

/// Begins another roll-out if the spec, a request for a rollback or a lost status demands it.
pub(crate) fn retarget(policy: &mut Policy, now: Timestamp, is_lost: bool) {
    let Ok(spec) = &policy.spec else { return };
    let content = Content::of(spec);
    let revision = content.revision();
    let limit = usize::try_from(spec.revision_history_limit.max(1)).unwrap_or(1);
    let status = &mut policy.status;
    let is_new_spec = status.observed_generation != policy.generation;
    let ends_stop = is_new_spec && status.stop.is_some();
    if ends_stop || (status.stop.is_none() && status.revision != revision) {
        status.stop = None;
        let is_known = |one: &&Revision| one.revision == revision;
        // Failures of a revision that was complete must not remove it from all nodes, and a lost status does not show that.
        let complete = is_lost || status.revisions.iter().any(|one| is_known(&one) && one.complete);
        status.revisions.retain(|one| one.revision != revision);
        let first = Revision { revision: revision.clone(), time: now, complete, content };
        status.revisions.insert(0, first);
        status.revisions.truncate(limit);
        begin(status, revision);
    } else if is_lost && !status.is_halted() {
        let revision = std::mem::take(&mut status.revision);
        begin(status, revision);
    }
    status.observed_generation = policy.generation;
    if status.rollback_to != policy.rollback_to {
        status.rollback_to.clone_from(&policy.rollback_to);
        let wanted = policy.rollback_to.as_ref();
        let wanted = wanted.filter(|wanted| **wanted != status.revision);
        if let Some(wanted) = wanted.filter(|wanted| status.content(wanted).is_some()) {
            let message =
                format!("the annotation octavo.dev/rollback-to requested revision {wanted}");
            let from = std::mem::take(&mut status.revision);
            let reason = StopReason::RollbackRequested;
            status.stop =
                Some(Stop { reason, action: StopAction::RollBack, revision: from, message });
            begin(status, wanted.clone());
        }
    }
}

/// Begins the roll-out of a revision, with a number that no record has. Failed nodes join its first wave: they are usually
/// unavailable until they have it.
fn begin(status: &mut PolicyStatus, revision: String) {
    status.revision = revision;
    status.rollout = status.rollout.saturating_add(1);
    for failure in std::mem::take(&mut status.failures) {
        if !status.updating.contains(&failure.node) {
            status.updating.push(failure.node);
        }
    }
    status.wave_ended = None;
}

/// Removes nodes from the wave that became available before their change and would exceed the budget. They join a later wave.
pub(crate) fn postpone(policy: &mut Policy, observed: &Observation<'_>, now: Timestamp) {
    let budget = observed.budget();
    for name in policy.status.updating.clone().into_iter().rev() {
        let Some(node) = observed.managed.get(name.as_str()) else { continue };
        let mut changes = policy.status.changes.iter();
        // A change for pending pods ends by its deadline.
        let has_deadline = changes.any(|change| change.node == name && change.is_in_progress());
        // An outdated report makes a node look available.
        let is_reliable = node.record.of(&policy.uid).is_none_or(|record| record.is_reliable(now));
        let patch = policy.patch(node, now).filter(|_| is_reliable && !has_deadline);
        if patch.is_some_and(|patch| patch.sets_layout()) && !policy.has_budget_for(node, budget) {
            policy.status.updating.retain(|one| *one != name);
        }
    }
}

/// Removes nodes from the wave that are done, have failed or are no longer the policy's, and stops the roll-out after too many failures.
pub(crate) fn settle(policy: &mut Policy, observed: &Observation<'_>, now: Timestamp) {
    let deadline = observed.spec.rollout.node_deadline.signed();
    let (mut updating, mut failed) = (Vec::new(), Vec::new());
    for name in &policy.status.updating {
        let Some(node) = observed.managed.get(name.as_str()) else { continue };
        if policy.patch(node, now).is_some() {
            updating.push(name.clone());
            continue;
        }
        // Without a record, the removal is done.
        let Some(record) = node.record.of(&policy.uid) else { continue };
        if !record.is_reliable(now) {
            updating.push(name.clone());
            continue;
        }
        match node.progress(record) {
            Progress::Applied => {}
            Progress::Failed { reason, message } => {
                failed.push(failure(record, name, (reason.as_ref(), &message)));
            }
            // A blocked change of instances is withdrawn.
            Progress::Pending(Some(_)) if policy.is_changing_instances(name, record) => {
                updating.push(name.clone());
            }
            // The instances of a reservation begin to change when the last pod has ended, which can be just before the deadline.
            Progress::Pending(None)
                if policy.status.is_reserving(name)
                    && record
                        .since
                        .saturating_add(deadline.saturating_mul(2))
                        .is_ok_and(|until| until > now) =>
            {
                updating.push(name.clone());
            }
            Progress::Pending(message) if observed.is_overdue(record.since, now) => {
                let message =
                    message.unwrap_or_else(|| "the layout was not applied in time".to_owned());
                failed.push(failure(record, name, (DEADLINE_EXCEEDED, &message)));
            }
            Progress::Pending(_) => updating.push(name.clone()),
        }
    }
    let (uid, rollout) = (policy.uid.clone(), policy.status.rollout);
    let was_changing = policy.status.changing().next().is_some();
    let status = &mut policy.status;
    status.failures.retain(|one| {
        let node = observed.managed.get(one.node.as_str());
        node.is_some_and(|node| {
            // An outdated view shows the record of an earlier roll-out or layout.
            let is_same = |record: &&NodeRecord| {
                record.rollout == rollout && (one.layout.is_none() || record.layout == one.layout)
            };
            let record = node.record.of(&uid).filter(is_same);
            record.is_none_or(|record| node.progress(record) != Progress::Applied)
        })
    });
    status.failures.retain(|one| failed.iter().all(|new| new.node != one.node));
    status.failures.extend(failed);
    status.updating = updating;
    if was_changing && status.changing().next().is_none() {
        status.wave_ended = Some(now);
    }
    let allowed = usize::try_from(observed.spec.rollout.max_failures).unwrap_or(usize::MAX);
    if status.failures.len() > allowed {
        stop(status, observed.spec.rollout.on_failure);
    }
    status.failures.iter_mut().skip(MAX_MESSAGES).for_each(|one| one.message.clear());
}

fn failure(record: &NodeRecord, node: &str, (reason, message): (&str, &str)) -> NodeFailure {
    let message = message.chars().take(MAX_MESSAGE_CHARS).collect();
    let layout = record.layout.clone();
    NodeFailure { node: node.to_owned(), reason: reason.to_owned(), message, layout }
}

/// Stops the roll-out. Failures do not stop a rollback: the other nodes are still better off with the earlier revision.
fn stop(status: &mut PolicyStatus, reaction: OnFailure) {
    if status.stop.is_some() {
        return;
    }
    let count = status.failures.len();
    let first =
        status.failures.first().map(|one| format!("{}: {}: {}", one.node, one.reason, one.message));
    let nodes = count_noun(count, "node", "nodes");
    let message = format!("{nodes} failed; {}", first.unwrap_or_default());
    let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
    let mut earlier = status.revisions.iter().skip(1);
    let previous = earlier.clone().find(|one| one.complete).or_else(|| earlier.next());
    let previous = previous.map(|one| one.revision.clone());
    let was_complete = status.revisions.first().is_some_and(|one| one.complete);
    let (action, target) = match (reaction, previous) {
        (OnFailure::Pause, _) => (StopAction::Pause, None),
        (OnFailure::RollBack, Some(previous)) => (StopAction::RollBack, Some(previous)),
        // Other nodes work with it.
        (OnFailure::RollBack, None) if was_complete => (StopAction::Pause, None),
        (OnFailure::RollBack, None) => (StopAction::Remove, Some(String::new())),
    };
    let revision = status.revision.clone();
    status.stop = Some(Stop { reason: StopReason::TooManyFailures, action, revision, message });
    if let Some(target) = target {
        begin(status, target);
    }
}

/// Adds the next nodes to the wave. Returns the obstacle if a node waits.
pub(crate) fn extend(
    policy: &mut Policy,
    observed: &Observation<'_>,
    now: Timestamp,
) -> Option<Obstacle> {
    let candidates = observed.candidates(policy, now);
    if candidates.is_empty() {
        return None;
    }
    if let Some(obstacle) = obstacle(policy, observed.spec, now) {
        return Some(obstacle);
    }
    let budget = observed.budget();
    let status = &mut policy.status;
    let unavailable = observed.unavailable(status);
    let (ready, not_ready) = ordered(candidates, &unavailable);
    let count = joining(&ready, &unavailable, (budget, status.changing().count()), &policy.uid);
    status.updating.extend(names(ready.iter().take(count)));
    if count < ready.len() {
        let unavailable = unavailable.iter().map(|name| (*name).to_owned()).collect();
        return Some(Obstacle::Budget { limit: budget, unavailable });
    }
    (!not_ready.is_empty()).then(|| Obstacle::NotReady(names(&not_ready)))
}

/// Nodes in an order.
pub(crate) type Nodes<'a> = Vec<&'a PolicyNode<'a>>;

/// Separates the candidates that are ready from the others, and puts those first that are unavailable anyway.
pub(crate) fn ordered<'a>(
    candidates: Nodes<'a>,
    unavailable: &BTreeSet<&str>,
) -> (Nodes<'a>, Nodes<'a>) {
    let (mut ready, not_ready): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|node| node.is_ready());
    ready.sort_by_key(|node| node.is_available() || !unavailable.contains(node.name()));
    (ready, not_ready)
}

/// Number of the first of these nodes that join a wave of the policy with this UID, which has `busy` nodes already.
pub(crate) fn joining(
    ready: &[&PolicyNode<'_>],
    unavailable: &BTreeSet<&str>,
    (budget, busy): (usize, usize),
    uid: &str,
) -> usize {
    let mut joined = unavailable.clone();
    let mut is_first = busy == 0;
    let free = budget.min(MAX_WAVE).saturating_sub(busy);
    let nodes = ready.iter().take(free).take_while(|node| {
        joined.insert(node.name());
        // A node that is unavailable anyway costs nothing: a changed layout is often its remedy. In an outdated view, a node that an
        // earlier wave changed only looks unavailable, so such nodes join one at a time.
        let is_certain = node.record.of(uid).is_none();
        let is_free = !node.is_available() && (is_certain || is_first);
        is_first = false;
        is_free || joined.len() <= budget
    });
    nodes.count()
}

/// Names of the nodes.
pub(crate) fn names<'a>(nodes: impl IntoIterator<Item = &'a &'a PolicyNode<'a>>) -> Vec<String> {
    nodes.into_iter().map(|node| node.name().to_owned()).collect()
}

pub(crate) fn obstacle(policy: &Policy, spec: &PolicySpec, now: Timestamp) -> Option<Obstacle> {
    let status = &policy.status;
    if status.is_halted() {
        return Some(Obstacle::Stopped);
    }
    if spec.rollout.paused {
        return Some(Obstacle::Paused);
    }
    // A rollback repairs the pool, so neither windows nor pauses delay it.
    if status.stop.is_some() {
        return None;
    }
    if let Some(opens) = window::opens_at(&spec.rollout.windows, now) {
        return Some(Obstacle::Window(opens));
    }
    let pause = spec.rollout.pause.filter(|pause| !pause.get().is_zero())?;
    if status.changing().next().is_some() {
        return Some(Obstacle::WaveRuns);
    }
    let until = status.wave_ended?.saturating_add(pause.signed()).ok()?;
    (until > now).then_some(Obstacle::Pause(until))
}
