//! Instances for pending pods: which proposals a policy carries out, and when.
//!
//! A proposal names the exact MIG instances of a node. The status lists it before the node is changed, with the instances, so a restarted
//! controller completes the same change. The record on the node has the times of its changes, so the limits outlive the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use octavo_model::digest::Digest;
use octavo_node::node_object::demand_layout;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, EnumString};
use utoipa::ToSchema;

use crate::next::refusal;
use crate::node::{PolicyNode, Progress};
use crate::period::Period;
use crate::record::NodeRecord;
use crate::rollout::{self, Observation, Obstacle};
use crate::status::PolicyStatus;
use crate::world::{Policy, World};

/// Instances for pending pods on the selected nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyDemand {
    /// Use of the proposals for pending pods.
    pub mode: DemandMode,
    /// Time for which the pods must be proposed instances of the node before they are created, and minimum time between two changes of a node.
    pub hold: Period,
    /// Largest number of changes of a node in an hour.
    pub changes_per_hour: u32,
    /// Time after a failed change before the node is changed again.
    pub cooldown: Period,
}

/// Use of the proposals for pending pods.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    ToSchema,
)]
pub enum DemandMode {
    /// Carry them out.
    Act,
    /// Carry out those that an administrator approves.
    Propose,
    /// Only report them.
    #[default]
    Observe,
}

/// Instances that pending pods need on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeProposal {
    /// All instances of the devices that can be planned, as a checkpoint.
    pub instances: String,
    /// The pods, as `namespace/name`.
    pub pods: Vec<String>,
    /// Explanation: created and destroyed instances.
    pub message: String,
}

/// Change of the instances of a node for pending pods.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceChange {
    /// Identifier of this proposal, for its approval.
    pub id: String,
    /// Name of the node.
    pub node: String,
    /// Name of the layout: a digest of the instances.
    pub layout: String,
    /// Pods that need the instances, as namespace/name; the first 16.
    pub pods: Vec<String>,
    /// Created and destroyed instances.
    pub message: String,
    /// Time since which the pods are proposed instances of the node.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Time at which the change began; absent for a proposal.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun: Option<Timestamp>,
    /// Instances of the node as a checkpoint; absent for a proposal.
    pub instances: Option<String>,
    /// True if pods block the change and no pod needs it any more, so the layout is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
}

/// Maximum number of changes in the status, which bounds its size: the instances of a node have up to 6 KiB.
const MAX_CHANGES: usize = 50;
/// Maximum number of pods of a change in the status.
const MAX_PODS: usize = 16;
/// Maximum length of the message of a change, in characters.
const MAX_MESSAGE_CHARS: usize = 500;
/// Period of [`PolicyDemand::changes_per_hour`].
const HOUR: SignedDuration = SignedDuration::from_hours(1);

impl Default for PolicyDemand {
    fn default() -> Self {
        Self {
            mode: DemandMode::default(),
            hold: Period::from_mins(1),
            changes_per_hour: 4,
            cooldown: Period::from_mins(30),
        }
    }
}

impl PolicyDemand {
    /// Earliest time at which a node with this record is changed.
    fn next_change(&self, node: &PolicyNode<'_>, record: &NodeRecord) -> Timestamp {
        let after = |time: Timestamp, period: SignedDuration| {
            time.saturating_add(period).unwrap_or(Timestamp::MAX)
        };
        let held = record.changes.last().map(|last| after(*last, self.hold.signed()));
        let limit = usize::try_from(self.changes_per_hour.max(1)).unwrap_or(usize::MAX);
        let used = record.changes.len().checked_sub(limit).and_then(|at| record.changes.get(at));
        let free = used.map(|first| after(*first, HOUR));
        let has_failed = matches!(node.progress(record), Progress::Failed { .. });
        let cooled = has_failed.then(|| after(record.since, self.cooldown.signed()));
        held.into_iter().chain(free).chain(cooled).max().unwrap_or(Timestamp::MIN)
    }

    /// Returns whether the limits permit to change the node now.
    pub(crate) fn may_change(&self, node: &PolicyNode<'_>, uid: &str, now: Timestamp) -> bool {
        node.record.of(uid).is_none_or(|record| self.next_change(node, record) <= now)
    }
}

impl InstanceChange {
    /// A proposal for a node that is not being changed. `before` is the last one for the node.
    fn proposed(
        node: &str,
        proposal: &NodeProposal,
        before: Option<&Self>,
        now: Timestamp,
    ) -> Self {
        let layout = demand_layout(&proposal.instances);
        let is_for = |pod: &String| proposal.pods.contains(pod);
        // Otherwise, a steady arrival of pods would delay every change.
        let since = match before {
            Some(before) if before.layout == layout => return before.clone(),
            Some(before) if before.pods.iter().all(is_for) => before.since,
            Some(_) | None => now,
        };
        let content = format!("{node} {layout} {since}");
        let id = format!("{:016x}", Digest::from_bytes(content.as_bytes()));
        Self {
            id: id.chars().take(8).collect(),
            node: node.to_owned(),
            layout,
            pods: proposal.pods.iter().take(MAX_PODS).cloned().collect(),
            message: proposal.message.chars().take(MAX_MESSAGE_CHARS).collect(),
            since,
            begun: None,
            instances: None,
            withdrawn: false,
        }
    }

    /// Returns whether the node is being changed.
    pub fn is_in_progress(&self) -> bool {
        self.begun.is_some()
    }

    /// Returns whether a record is that of this change. An earlier change can have had the same instances.
    pub(crate) fn is_recorded(&self, record: &NodeRecord) -> bool {
        record.layout.as_ref() == Some(&self.layout) && record.changes.last().copied() >= self.begun
    }
}

/// Event about the change of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEvent {
    /// Reason in CamelCase.
    pub reason: &'static str,
    /// Node, and created and destroyed instances of each pod.
    pub message: String,
    /// True if the change failed.
    pub is_warning: bool,
}

/// Events about the changes that differ between two states of a policy.
pub fn change_events(policy: &Policy, after: &PolicyStatus) -> Vec<ChangeEvent> {
    let before = &policy.status.changes;
    let is_same = |one: &InstanceChange, other: &InstanceChange| {
        one.id == other.id && one.is_in_progress() == other.is_in_progress()
    };
    let waits = active(policy).is_some_and(|demand| demand.mode == DemandMode::Propose);
    let new = after.changes.iter().filter(|change| !before.iter().any(|one| is_same(one, change)));
    let begun = new.filter(|change| change.is_in_progress() || waits).map(|change| {
        let reason =
            if change.is_in_progress() { "InstancesChanging" } else { "InstancesProposed" };
        ChangeEvent { reason, message: change.text(), is_warning: false }
    });
    let ended = before.iter().filter(|change| {
        change.is_in_progress() && !after.changes.iter().any(|one| is_same(one, change))
    });
    let ended = ended.map(|change| {
        let failure = after.failures.iter().find(|failure| failure.node == change.node);
        let (reason, message) = match failure {
            Some(failure) => (
                "InstancesFailed",
                format!("{}: {}: {}", change.node, failure.reason, failure.message),
            ),
            None if change.withdrawn => ("InstancesWithdrawn", change.text()),
            None => ("InstancesChanged", change.text()),
        };
        ChangeEvent { reason, message, is_warning: failure.is_some() }
    });
    begun.chain(ended).collect()
}

/// Reason why no change can be approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalError {
    /// The policy does not wait for approvals.
    OtherMode(Option<DemandMode>),
    /// No change is proposed for this node, or its change is in progress.
    NotProposed(String),
    /// No change is proposed.
    Nothing,
}

impl fmt::Display for ApprovalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherMode(None) => f.write_str("it has no spec.demand"),
            Self::OtherMode(Some(mode)) => {
                write!(f, "its spec.demand.mode is {mode}; only Propose needs approvals")
            }
            Self::NotProposed(node) => write!(f, "it proposes no change of node {node}"),
            Self::Nothing => f.write_str("it proposes no change"),
        }
    }
}

impl Error for ApprovalError {}

/// Returns the proposed changes of these nodes, or of all nodes without any.
pub fn approvable<'a>(
    policy: &'a Policy,
    nodes: &[String],
) -> Result<Vec<&'a InstanceChange>, ApprovalError> {
    let demand = policy.spec.as_ref().ok().and_then(|spec| spec.demand);
    let mode = demand.map(|demand| demand.mode);
    if mode != Some(DemandMode::Propose) {
        return Err(ApprovalError::OtherMode(mode));
    }
    let proposed = policy.status.changes.iter().filter(|change| !change.is_in_progress());
    let all: BTreeMap<&str, &InstanceChange> =
        proposed.map(|change| (change.node.as_str(), change)).collect();
    if all.is_empty() {
        return Err(ApprovalError::Nothing);
    }
    if nodes.is_empty() {
        return Ok(all.into_values().collect());
    }
    let find = |node: &String| {
        let found = all.get(node.as_str()).copied();
        found.ok_or_else(|| ApprovalError::NotProposed(node.clone()))
    };
    nodes.iter().map(find).collect()
}

/// Value of the annotation `octavo.dev/approve` with further approved changes. Approvals of changes that are no longer proposed are removed.
pub fn approval(policy: &Policy, approved: &[&InstanceChange]) -> String {
    let ids = policy.status.changes.iter().map(|change| change.id.as_str());
    let is_approved = |id: &&str| {
        policy.approved.contains(*id) || approved.iter().any(|change| change.id == **id)
    };
    ids.filter(is_approved).collect::<Vec<&str>>().join(",")
}

/// Times of the changes of a node within the last hour, with one more change now.
pub(crate) fn with_change(changes: &[Timestamp], now: Timestamp) -> Vec<Timestamp> {
    let recent = changes.iter().filter(|time| time.saturating_add(HOUR).is_ok_and(|end| end > now));
    recent.copied().chain([now]).collect()
}

/// The settings of a policy that carries out proposals.
pub(crate) fn active(policy: &Policy) -> Option<&PolicyDemand> {
    let spec = policy.spec.as_ref().ok()?;
    spec.demand.as_ref().filter(|demand| demand.mode != DemandMode::Observe)
}

/// Use of proposals on the nodes of policies that carry them out. Other nodes are absent.
pub fn demand_modes(world: &World<'_>) -> BTreeMap<String, DemandMode> {
    let mut modes = BTreeMap::new();
    for policy in world.policies {
        let Some(demand) = active(policy) else { continue };
        let is_running = policy.status.stop.is_none() && refusal(world, policy).is_none();
        let observed = Observation::new(world, policy);
        let observed = observed.filter(|one| is_running && !one.spec.rollout.paused);
        let nodes = observed.iter().flat_map(|observed| observed.managed.keys());
        modes.extend(nodes.map(|node| ((*node).to_owned(), demand.mode)));
    }
    modes
}

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
    changes.retain(|change| policy.status.is_updating(&change.node));
    for change in &mut changes {
        change.withdrawn |= is_obsolete(policy, change, observed, world);
    }
    let Some(demand) = active(policy).copied() else {
        policy.status.changes = changes;
        return DemandWait::default();
    };
    let Some(all) = &world.proposals else {
        policy.status.changes = changes;
        policy.status.changes.extend(proposed);
        return DemandWait::default();
    };
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
    begin(policy, observed, (&demand, world.now), &mut candidates, &mut wait);
    policy.status.changes = changes;
    policy.status.changes.extend(candidates.into_iter().map(|one| one.change));
    wait
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
    (demand, now): (&PolicyDemand, Timestamp),
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
        let limited = record.map(|record| demand.next_change(candidate.node, record));
        let from = limited.into_iter().chain((!is_approved).then_some(held)).max();
        match from.filter(|from| *from > now) {
            _ if demand.mode == DemandMode::Propose && !is_approved => {
                unapproved.push(change.node.clone());
            }
            Some(from) => wait.wake_at = wait.wake_at.into_iter().chain([from]).min(),
            None => due.push(index),
        }
    }
    if !unapproved.is_empty() {
        wait.obstacle = Some(Obstacle::Approval(unapproved));
    }
    if due.is_empty() {
        return;
    }
    if let Some(obstacle) = rollout::obstacle(policy, observed.spec, now) {
        wait.obstacle = Some(obstacle);
        return;
    }
    let budget = observed.budget();
    let mut unavailable = observed.unavailable(&policy.status);
    for index in due {
        let Some(candidate) = candidates.get_mut(index) else { continue };
        let name = candidate.node.name();
        let mut joined = unavailable.clone();
        joined.insert(name);
        // A node that is unavailable anyway costs nothing.
        let has_budget = joined.len() <= budget.max(unavailable.len());
        if !has_budget || policy.status.updating.len() >= budget.min(MAX_CHANGES) {
            let names = unavailable.iter().map(|name| (*name).to_owned()).collect();
            wait.obstacle = Some(Obstacle::Budget { limit: budget, unavailable: names });
            continue;
        }
        unavailable = joined;
        policy.status.failures.retain(|failure| failure.node != name);
        policy.status.updating.push(name.to_owned());
        candidate.change.begun = Some(now);
        candidate.change.instances = Some(candidate.proposal.instances.clone());
    }
}

/// Proposals for nodes that the policy may change, and that are not being changed.
fn selected<'a>(
    policy: &Policy,
    observed: &Observation<'a>,
    (world, proposals): (&World<'_>, &'a BTreeMap<String, NodeProposal>),
    changes: &[InstanceChange],
) -> Vec<(&'a PolicyNode<'a>, &'a NodeProposal)> {
    // A pod that waits for a change needs no other one.
    let all = world.policies.iter().flat_map(|policy| &policy.status.changes);
    let running = all.filter(|change| change.is_in_progress()).chain(changes);
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
                && node.is_ready()
                && !policy.status.is_updating(node.name())
                && proposal.pods.iter().all(|pod| !served.contains(pod.as_str()))
        })
        .collect()
}

/// Returns whether workloads block a change that the demand no longer needs.
fn is_obsolete(
    policy: &Policy,
    change: &InstanceChange,
    observed: &Observation<'_>,
    world: &World<'_>,
) -> bool {
    let Some(node) = observed.managed.get(change.node.as_str()) else { return false };
    let record = node.record.of(&policy.uid).filter(|record| {
        change.is_recorded(record)
            && record.unreliable_until().is_none_or(|until| until <= world.now)
    });
    let is_blocked =
        record.is_some_and(|record| matches!(node.progress(record), Progress::Pending(Some(_))));
    let is_needed = world.proposals.as_ref().is_none_or(|proposals| {
        let proposal = proposals.get(change.node.as_str());
        proposal.is_some_and(|proposal| demand_layout(&proposal.instances) == change.layout)
    });
    is_blocked && !is_needed
}
