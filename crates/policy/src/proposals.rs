//! Proposals for pending pods that a policy carries out, and when.
//!
//! A proposal names the exact MIG instances of a node. The status lists it before the node is changed, with the instances, so a restarted
//! controller completes the same change. The record on the node has the times of its changes, so the limits outlive the controller.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use octavo_node::node_object::{demand_layout, is_demand_layout};

use crate::demand::{DemandMode, PolicyDemand};
use crate::instance_change::{InstanceChange, NodeProposal};
use crate::limits;
use crate::node::{PolicyNode, Progress};
use crate::record::NodeRecord;
use crate::rollout::{self, Observation, Obstacle};
use crate::status::PolicyStatus;
use crate::world::{Policy, World};

/// Maximum number of changes in the status, which bounds its size.
const MAX_CHANGES: usize = 50;
/// Maximum size of the instances of a node in bytes. Those of 8 GPUs have about 6 KiB, those of 16 GPUs about 13 KiB.
const MAX_INSTANCES_BYTES: usize = 16 * 1024;

/// Obstacle to a proposal, and the next time that matters.
#[derive(Debug, Default)]
pub(crate) struct DemandWait {
    pub(crate) obstacle: Option<Obstacle>,
    pub(crate) wake_at: Option<Timestamp>,
}

/// Updates the changes of a policy: ends those that are done, and begins the next ones within the limits and the budget.
pub(crate) fn advance(
    policy: &mut Policy,
    observed: &Observation<'_>,
    world: &World<'_>,
) -> DemandWait {
    let changes = std::mem::take(&mut policy.status.changes);
    let (mut changes, proposed): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(InstanceChange::is_in_progress);
    let ended = changes.extract_if(.., |change| !policy.status.is_updating(&change.node));
    let ended: Vec<InstanceChange> = ended.filter(|change| !change.evictions.is_empty()).collect();
    if !ended.is_empty() {
        policy.status.evictions = evicted(policy, &ended, world.now);
    }
    for change in &mut changes {
        change.withdrawn |= is_obsolete(policy, change, observed, world);
    }
    let Some(demand) = policy.active_demand().copied() else {
        policy.status.changes = changes;
        return DemandWait::default();
    };
    let Some(all) = &world.proposals else {
        policy.status.changes = changes;
        policy.status.changes.extend(proposed);
        return DemandWait::default();
    };
    changes.extend(withdrawals(policy, observed, (world, all)));
    for change in &changes {
        if !policy.status.is_updating(&change.node) {
            policy.status.updating.push(change.node.clone());
        }
    }
    let candidates = selected(policy, observed, (world, all), &changes);
    let room = MAX_CHANGES.saturating_sub(changes.len());
    let known: BTreeMap<&str, &InstanceChange> =
        proposed.iter().map(|change| (change.node.as_str(), change)).collect();
    let mut candidates: Vec<Candidate<'_>> = candidates
        .into_iter()
        .map(|(node, proposal)| {
            let before = known.get(node.name()).copied();
            let change = InstanceChange::proposed(node.name(), proposal, before, world.now);
            Candidate { node, proposal, change }
        })
        .collect();
    candidates.sort_by(|one, other| {
        (one.change.since, &one.change.node).cmp(&(other.change.since, &other.change.node))
    });
    candidates.truncate(room);
    let mut wait = DemandWait::default();
    let evicted = evicted(policy, &changes, world.now);
    policy.status.changes = changes;
    let mut unknown = unknown_proposals(policy, &proposed, observed, (world, &candidates));
    unknown.truncate(room.saturating_sub(candidates.len()));
    begin(policy, observed, (&demand, world.now, evicted), &mut candidates, &mut wait);
    policy.status.changes.extend(candidates.into_iter().map(|one| one.change));
    if !unknown.is_empty() {
        let nodes = unknown.iter().map(|change| change.node.clone()).collect();
        wait.obstacle.get_or_insert(Obstacle::UnknownUse(nodes));
    }
    policy.status.changes.extend(unknown);
    wait
}

/// Listed proposals of nodes whose use is unknown. They stay while their pods wait and no policy lists other instances for these pods.
/// Otherwise, a restart of an agent would withdraw them with their approvals.
fn unknown_proposals(
    policy: &Policy,
    listed: &[InstanceChange],
    observed: &Observation<'_>,
    (world, candidates): (&World<'_>, &[Candidate<'_>]),
) -> Vec<InstanceChange> {
    let demand = observed.spec.demand.unwrap_or_default();
    let others = world.policies.iter().filter(|other| other.uid != policy.uid);
    let others = others.filter(|other| other.active_demand().is_some());
    let others = others
        .flat_map(|other| &other.status.changes)
        .filter(|change| change.is_in_progress() || !world.unknown_nodes.contains(&change.node));
    let others = others.chain(&policy.status.changes);
    // A pod with a reservation can get instances elsewhere earlier.
    let others = others.filter(|change| change.reserved_device.is_none());
    let others = others.chain(candidates.iter().map(|candidate| &candidate.change));
    let served: BTreeSet<&String> = others.flat_map(|change| &change.pods).collect();
    let is_unknown = |change: &&InstanceChange| {
        let node = observed.managed.get(change.node.as_str());
        world.unknown_nodes.contains(&change.node)
            && node.is_some_and(|node| node.is_ready())
            && !policy.status.is_updating(&change.node)
            && demand.permits(change.evictions.len(), change.reserved_device.is_some())
            && change.pods.iter().any(|pod| world.waiting.contains(pod))
            && !change.pods.iter().any(|pod| served.contains(pod))
    };
    listed.iter().filter(is_unknown).cloned().collect()
}

/// Proposal for a node that is not being changed.
struct Candidate<'a> {
    node: &'a PolicyNode<'a>,
    proposal: &'a NodeProposal,
    change: InstanceChange,
}

/// Begins the changes that the limits, the mode and the budget permit.
fn begin(
    policy: &mut Policy,
    observed: &Observation<'_>,
    (demand, now, mut evicted): (&PolicyDemand, Timestamp, Vec<Timestamp>),
    candidates: &mut [Candidate<'_>],
    wait: &mut DemandWait,
) {
    let mut due = Vec::new();
    let mut unapproved = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let change = &candidate.change;
        let is_approved = policy.approved.contains(&change.id);
        let held = change.since.saturating_add(demand.hold.signed()).unwrap_or(Timestamp::MAX);
        let record = candidate.node.record.of(&policy.uid);
        let limited = record
            .map(|record| demand.next_change((candidate.node, record), change.waits_for_pods()));
        let from = limited.into_iter().chain((!is_approved).then_some(held)).max();
        match from.filter(|from| *from > now) {
            _ if demand.mode == DemandMode::Propose && !is_approved => {
                unapproved.push(change.node.clone());
            }
            Some(from) => wait.wake_at = wait.wake_at.into_iter().chain([from]).min(),
            None => due.push(index),
        }
    }
    wait.obstacle = if unapproved.is_empty() {
        wait.wake_at.map(Obstacle::Limits)
    } else {
        Some(Obstacle::Approval(unapproved))
    };
    if due.is_empty() {
        return;
    }
    if let Some(obstacle) = rollout::obstacle(policy, observed.spec, now) {
        wait.obstacle = Some(obstacle);
        return;
    }
    let mut reservations = policy.status.changes.iter().filter(|change| change.is_reservation());
    let mut budget = NodeBudget {
        limit: observed.budget(),
        unavailable: observed.unavailable(&policy.status),
        changing: policy.status.changing().count(),
        has_reservation: reservations.next().is_some(),
    };
    for index in due {
        let Some(candidate) = candidates.get_mut(index) else { continue };
        let evictable = demand.next_eviction(&evicted, candidate.change.evictions.len());
        if let Some(at) = evictable.filter(|at| *at > now) {
            wait.obstacle = Some(Obstacle::Limits(at));
            wait.wake_at = wait.wake_at.into_iter().chain([at]).min();
            continue;
        }
        let name = candidate.node.name();
        if let Some(obstacle) = budget.admit(&policy.status, candidate) {
            wait.obstacle = Some(obstacle);
            continue;
        }
        policy.status.failures.retain(|failure| failure.node != name);
        policy.status.updating.push(name.to_owned());
        evicted.extend(std::iter::repeat_n(now, candidate.change.evictions.len()));
        candidate.change.begun = Some(now);
        candidate.change.instances = Some(candidate.proposal.instances.clone());
    }
}

/// Nodes that may be changed at the same time.
struct NodeBudget<'a> {
    limit: usize,
    unavailable: BTreeSet<&'a str>,
    /// Number of unavailable nodes that the policy changes.
    changing: usize,
    /// True if a GPU is reserved.
    has_reservation: bool,
}

impl<'a> NodeBudget<'a> {
    /// Adds the node of a change. Returns the obstacle, and adds nothing, if the change must wait.
    fn admit(&mut self, status: &PolicyStatus, candidate: &Candidate<'a>) -> Option<Obstacle> {
        let name = candidate.node.name();
        if candidate.change.reserved_device.is_some() {
            // A reserved GPU does not make its node unavailable, so only one is reserved at a time.
            return std::mem::replace(&mut self.has_reservation, true)
                .then_some(Obstacle::WaveRuns);
        }
        let mut joined = self.unavailable.clone();
        joined.insert(name);
        // A failed node is unavailable anyway. Others can only look so, in an outdated view.
        let is_failed = status.failures.iter().any(|failure| failure.node == name);
        let has_budget = joined.len() <= self.limit || is_failed;
        if !has_budget || self.changing >= self.limit.min(MAX_CHANGES) {
            let unavailable = self.unavailable.iter().map(|name| (*name).to_owned()).collect();
            return Some(Obstacle::Budget { limit: self.limit, unavailable });
        }
        self.unavailable = joined;
        self.changing = self.changing.saturating_add(1);
        None
    }
}

/// Times in the last hour at which pods may have been evicted. The pods of changes in progress can be evicted at any time.
fn evicted(policy: &Policy, changes: &[InstanceChange], now: Timestamp) -> Vec<Timestamp> {
    let mut all = limits::recent(&policy.status.evictions, now);
    all.extend(changes.iter().flat_map(|change| &change.evictions).map(|_| now));
    all
}

/// Proposals for nodes that the policy may change, and that are not being changed.
fn selected<'a>(
    policy: &Policy,
    observed: &Observation<'a>,
    (world, proposals): (&World<'_>, &'a BTreeMap<String, NodeProposal>),
    changes: &[InstanceChange],
) -> Vec<(&'a PolicyNode<'a>, &'a NodeProposal)> {
    let demand = observed.spec.demand.unwrap_or_default();
    // A pod that waits for a change needs no other one.
    let policies = world.policies.iter().filter(|policy| policy.active_demand().is_some());
    let all = policies.flat_map(|policy| &policy.status.changes);
    // A pod with a reservation can get instances elsewhere earlier.
    let running = all.filter(|change| change.is_in_progress()).chain(changes);
    let running = running.filter(|change| change.reserved_device.is_none());
    let served: BTreeSet<&str> =
        running.flat_map(|change| &change.pods).map(String::as_str).collect();
    let nodes = observed.managed.values().copied();
    let found = nodes.filter_map(|node| Some((node, proposals.get(node.name())?)));
    found
        .filter(|(node, proposal)| {
            let layout = demand_layout(&proposal.instances);
            // The agent retries a failed layout itself.
            let record = node.record.of(&policy.uid);
            let is_new = record.is_none_or(|record| record.layout.as_ref() != Some(&layout));
            is_new
                && proposal.instances.len() <= MAX_INSTANCES_BYTES
                && demand.permits(proposal.evictions.len(), proposal.reserved_device.is_some())
                && node.is_ready()
                && !policy.status.is_updating(node.name())
                && proposal.pods.iter().all(|(pod, _)| !served.contains(pod.as_str()))
        })
        .collect()
}

/// Returns whether a change is withdrawn: workloads block it and no pod needs it, or its deadline passed before it was written or while it
/// was blocked.
fn is_obsolete(
    policy: &Policy,
    change: &InstanceChange,
    observed: &Observation<'_>,
    world: &World<'_>,
) -> bool {
    let Some(node) = observed.managed.get(change.node.as_str()) else { return false };
    let record = node.record.of(&policy.uid).filter(|record| change.is_recorded(record));
    let is_late = change.begun.is_some_and(|begun| observed.is_overdue(begun, world.now));
    if change.waits_for_pods() {
        // While pods are evicted, the node is tainted, so no proposal contains it.
        let is_needed = change.pods.iter().any(|pod| world.waiting.contains(pod))
            && !has_other_change(change, world);
        let can_end = record.is_none_or(|record| is_blocked(node, record, world.now));
        return can_end && (!is_needed || is_late);
    }
    let Some(record) = record else { return is_late };
    let is_proposed = |all: &BTreeMap<_, _>| is_proposed(all, node.name(), &change.layout);
    let is_needed = if world.unknown_nodes.contains(node.name()) {
        change.pods.iter().any(|pod| world.waiting.contains(pod))
    } else {
        world.proposals.as_ref().is_none_or(is_proposed)
    };
    let is_unneeded = !is_needed && !record.is_recent(world.now);
    is_blocked(node, record, world.now)
        && (is_unneeded || observed.is_overdue(record.since, world.now))
}

/// Returns whether other instances are being created for a pod of a reservation.
fn has_other_change(change: &InstanceChange, world: &World<'_>) -> bool {
    let mut changes = world.policies.iter().flat_map(|policy| &policy.status.changes);
    change.reserved_device.is_some()
        && changes.any(|other| {
            let is_effective = other.is_in_progress() && !other.withdrawn;
            is_effective
                && other.reserved_device.is_none()
                && other.pods.iter().any(|pod| change.pods.contains(pod))
        })
}

/// Withdrawals of layouts that no change has: blocked ones that are not needed, and ones that fail after they were applied.
fn withdrawals(
    policy: &Policy,
    observed: &Observation<'_>,
    (world, proposals): (&World<'_>, &BTreeMap<String, NodeProposal>),
) -> Vec<InstanceChange> {
    let status = &policy.status;
    let has_failed = |name: &str| status.failures.iter().any(|failure| failure.node == name);
    let nodes = observed.managed.values().filter(|node| {
        !status.is_updating(node.name()) && !has_failed(node.name()) && node.is_ready()
    });
    let found = nodes.filter_map(|node| {
        let record = node.record.of(&policy.uid)?;
        let layout = record.layout.as_deref().filter(|layout| is_demand_layout(layout))?;
        let is_unusable = record.is_reliable(world.now)
            && matches!(node.progress(record), Progress::Failed { .. });
        let is_overdue = observed.is_overdue(record.since, world.now);
        let is_unknown = world.unknown_nodes.contains(node.name());
        let is_obsolete = is_blocked(node, record, world.now)
            && !is_proposed(proposals, node.name(), layout)
            && (is_overdue || !(is_unknown || record.is_recent(world.now)));
        (is_unusable || is_obsolete)
            .then(|| InstanceChange::withdrawal(node.name(), layout, world.now))
    });
    found.take(MAX_CHANGES).collect()
}

fn is_blocked(node: &PolicyNode<'_>, record: &NodeRecord, now: Timestamp) -> bool {
    record.is_reliable(now) && matches!(node.progress(record), Progress::Pending(Some(_)))
}

fn is_proposed(proposals: &BTreeMap<String, NodeProposal>, node: &str, layout: &str) -> bool {
    let proposal = proposals.get(node).filter(|proposal| !proposal.waits_for_pods());
    proposal.is_some_and(|proposal| demand_layout(&proposal.instances) == layout)
}
