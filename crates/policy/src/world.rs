//! Policies and nodes at one moment: which policy selects which nodes, and which of them it may change.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use octavo_fleet::cluster::ClusterNode;
use octavo_node::node_object::is_demand_layout;

use crate::change::{self, NewInstances, NodePatch, NodeTarget, Owner};
use crate::demand::{DemandMode, PolicyDemand};
use crate::instance_change::NodeProposal;
use crate::node::{PolicyNode, Progress};
use crate::record::{NodeRecord, Record};
use crate::spec::PolicySpec;
use crate::status::{Content, PolicyStatus, StopAction};

/// A policy as the API server stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Time of its creation.
    pub created: Option<Timestamp>,
    /// True if it is being deleted.
    pub is_deleting: bool,
    /// True if it has the controller's finalizer.
    pub has_finalizer: bool,
    /// Requested earlier revision.
    pub rollback_to: Option<String>,
    /// Identifiers of approved changes of instances.
    pub approved: BTreeSet<String>,
    /// Desired state, or the reason why it cannot be read.
    pub spec: Result<PolicySpec, String>,
    /// Observed state.
    pub status: PolicyStatus,
}

/// All policies and nodes at one moment.
#[derive(Debug)]
pub struct World<'a> {
    /// The policies.
    pub policies: &'a [Policy],
    /// The nodes by name.
    pub nodes: BTreeMap<&'a str, PolicyNode<'a>>,
    /// Policies whose layout is infeasible on a selected type, with the explanation.
    pub infeasible: BTreeMap<String, String>,
    /// Instances that pending pods need, by node; `None` if they are not known at the moment.
    pub proposals: Option<BTreeMap<String, NodeProposal>>,
    /// Nodes whose agents do not report the users of all devices at the moment, so `proposals` does not contain them.
    pub unknown_nodes: BTreeSet<String>,
    /// Pods of changes that wait for a node, as `namespace/name`.
    pub waiting: BTreeSet<String>,
    /// Current time.
    pub now: Timestamp,
}

/// Relation of a policy to a selected node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The policy may change the node.
    Managed,
    /// Another policy selects the node too.
    Conflicting,
    /// Another user or program chose the layout, or changed the record.
    Overridden,
    /// Another policy has not removed its record yet.
    Occupied,
}

/// State that the policy gives to nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// This content.
    Content(&'a Content),
    /// Nothing: the record and its values are removed.
    Nothing,
}

impl Policy {
    /// Returns whether the policy selects the node.
    pub fn selects(&self, node: &ClusterNode) -> bool {
        let spec = self.spec.as_ref().ok().filter(|_| !self.is_deleting);
        spec.is_some_and(|spec| spec.node_selector.matches(&node.labels))
    }

    /// State that nodes get; `None` if no revision was accepted yet.
    pub(crate) fn target(&self) -> Option<Target<'_>> {
        let status = &self.status;
        if status.stop.as_ref().is_some_and(|stop| stop.action == StopAction::Remove) {
            return Some(Target::Nothing);
        }
        status.content(&status.revision).map(Target::Content)
    }

    /// The settings of a policy that carries out proposals now.
    pub(crate) fn active_demand(&self) -> Option<&PolicyDemand> {
        let spec = self.spec.as_ref().ok().filter(|spec| !spec.rollout.paused)?;
        let demand = spec.demand.as_ref().filter(|demand| demand.mode != DemandMode::Observe);
        demand.filter(|_| self.status.stop.is_none())
    }

    /// Returns whether the instances of the node with this record are being changed.
    pub(crate) fn is_changing_instances(&self, node: &str, record: &NodeRecord) -> bool {
        let mut changes = self.status.changes.iter();
        record.layout.as_deref().is_none_or(is_demand_layout)
            && changes.any(|change| change.node == node && change.is_in_progress())
    }

    /// Returns whether the budget permits a change of this node of the wave. A node that was unavailable when it joined the wave did
    /// not count. If it is available before its change, it counts beside all other nodes that the status names.
    ///
    /// The result depends on the status and on this node only, because the view of other nodes can be outdated.
    pub(crate) fn has_budget_for(&self, node: &PolicyNode<'_>, budget: usize) -> bool {
        let status = &self.status;
        if status.updating.len().saturating_add(status.failures.len()) <= budget
            || !node.is_available()
            || status.is_reserving(node.name())
        {
            return true;
        }
        let failed = status.failures.iter().map(|failure| &failure.node);
        let named: BTreeSet<&String> = status.changing().chain(failed).collect();
        named.into_iter().filter(|name| *name != node.name()).count() < budget
    }

    fn owner(&self) -> Owner<'_> {
        Owner {
            policy: &self.name,
            uid: &self.uid,
            revision: &self.status.revision,
            rollout: self.status.rollout,
        }
    }

    /// State that a node gets: the content, with the layout of a change for pending pods.
    fn node_target<'a>(
        &'a self,
        content: &'a Content,
        node: &'a PolicyNode<'_>,
        now: Timestamp,
    ) -> NodeTarget<'a> {
        let is_in_wave = self.status.is_updating(node.name());
        let target = NodeTarget {
            content,
            layout: content.layout.as_deref(),
            instances: None,
            withdrawn: None,
            is_in_wave,
        };
        let Ok(spec) = &self.spec else { return target };
        let Some(demand) = spec.demand.filter(|_| content.layout.is_none()) else { return target };
        let record = node.record.of(&self.uid);
        // Without its label or after a failure, the layout is removed: its instances cannot be written again.
        let is_usable = |record: &&NodeRecord| {
            let has_failed = matches!(node.progress(record), Progress::Failed { .. });
            let is_retried = record.rollout != self.status.rollout;
            node.layout() == record.layout.as_deref() && !(has_failed && is_retried)
        };
        let usable = record.filter(is_usable).and_then(|record| record.layout.as_deref());
        let current =
            NodeTarget { layout: usable.filter(|layout| is_demand_layout(layout)), ..target };
        let change = self.status.changes.iter().find(|change| change.node == node.name());
        if let Some(change) = change.filter(|change| change.withdrawn) {
            return NodeTarget { withdrawn: Some(&change.layout), ..target };
        }
        match change.filter(|change| change.instances.is_some()) {
            Some(change) if record.is_some_and(|record| change.is_recorded(record)) => current,
            Some(change) if demand.can_change((node, &self.uid), change.waits_for_pods(), now) => {
                let deadline = spec.rollout.node_deadline.signed();
                let until = change.begun.and_then(|begun| begun.saturating_add(deadline).ok());
                let instances = NewInstances { change, until: until.unwrap_or(now) };
                NodeTarget { layout: Some(&change.layout), instances: Some(instances), ..target }
            }
            Some(_) | None => current,
        }
    }

    /// Patch that gives the node the target; `None` if nothing differs.
    pub(crate) fn patch(&self, node: &PolicyNode<'_>, now: Timestamp) -> Option<NodePatch> {
        match self.target()? {
            Target::Content(content) => {
                let target = self.node_target(content, node, now);
                change::update(node, self.owner(), target, now)
            }
            Target::Nothing => node.record.of(&self.uid).map(|_| change::release(node)),
        }
    }
}

impl World<'_> {
    /// Relation of a policy to a node that it selects.
    pub(crate) fn relation(&self, policy: &Policy, node: &PolicyNode<'_>) -> Relation {
        if self.rivals(policy, node).next().is_some() {
            return Relation::Conflicting;
        }
        match &node.record {
            Record::Invalid => Relation::Overridden,
            Record::Valid(record) if record.uid != policy.uid => Relation::Occupied,
            Record::Valid(_) | Record::Absent if is_overridden(policy, node) => {
                Relation::Overridden
            }
            Record::Valid(_) | Record::Absent => Relation::Managed,
        }
    }

    /// Other policies that select the node.
    pub(crate) fn rivals(
        &self,
        policy: &Policy,
        node: &PolicyNode<'_>,
    ) -> impl Iterator<Item = &Policy> {
        self.policies
            .iter()
            .filter(move |other| other.uid != policy.uid && other.selects(node.node))
    }

    /// Number of the last roll-out that a record of the policy names; 0 without a record.
    pub(crate) fn last_rollout(&self, policy: &Policy) -> i64 {
        let records = self.nodes.values().filter_map(|node| node.record.of(&policy.uid));
        records.map(|record| record.rollout).max().unwrap_or_default()
    }

    /// Returns whether the policy must remove its record from the node: it is being deleted, or no longer selects the node.
    pub(crate) fn must_release(policy: &Policy, node: &PolicyNode<'_>) -> bool {
        // An unreadable spec selects nothing, but its nodes stay as they are.
        let is_known = policy.is_deleting || policy.spec.is_ok();
        node.record.of(&policy.uid).is_some() && is_known && !policy.selects(node.node)
    }

    /// The patch that the policy may apply to this node now; `None` if it may not change it or if nothing differs.
    ///
    /// The controller calls it with the node that it has just read, so a decision about an older state has no effect.
    pub fn patch(&self, policy: &Policy, node: &PolicyNode<'_>) -> Option<NodePatch> {
        // A later roll-out changed the node, so this view of the policy is outdated, or its status was lost and the next status has
        // a later number. A deletion is final.
        let is_later = |record: &NodeRecord| record.rollout > policy.status.rollout;
        if !policy.is_deleting && node.record.of(&policy.uid).is_some_and(is_later) {
            return None;
        }
        if Self::must_release(policy, node) {
            return Some(change::release(node));
        }
        let is_in_wave = policy.status.is_updating(node.name());
        let may_change = is_in_wave
            && policy.selects(node.node)
            && self.relation(policy, node) == Relation::Managed;
        let patch = may_change.then(|| policy.patch(node, self.now)).flatten()?;
        let selected = usize::try_from(policy.status.nodes.selected).unwrap_or(usize::MAX);
        let spec = policy.spec.as_ref().ok()?;
        let budget = spec.rollout.max_unavailable.of(selected);
        (!patch.sets_layout() || policy.has_budget_for(node, budget)).then_some(patch)
    }
}

/// Removes a record whose policy does not exist.
pub fn release_orphan(node: &PolicyNode<'_>) -> NodePatch {
    change::release(node)
}

/// Returns whether the label of the layout has a value that neither the record nor the target names. Without the label, the policy
/// sets it, except that it sets no instances beside a layout of the agent's settings.
fn is_overridden(policy: &Policy, node: &PolicyNode<'_>) -> bool {
    let has_demand = policy.spec.as_ref().is_ok_and(|spec| spec.demand.is_some());
    let Some(chosen) = node.layout() else {
        let report = node.node.layout_report.as_ref();
        let reported = report.and_then(|report| report.layout.as_deref());
        return has_demand && reported.is_some_and(|layout| !is_demand_layout(layout));
    };
    let recorded = node.record.valid().and_then(|record| record.layout.as_deref());
    let wanted = match policy.target() {
        Some(Target::Content(content)) => content.layout.as_deref(),
        Some(Target::Nothing) => None,
        None => policy.spec.as_ref().ok().and_then(|spec| spec.layout.as_deref()),
    };
    let is_unmanaged = recorded.is_none() && wanted.is_none() && !has_demand;
    recorded != Some(chosen) && wanted != Some(chosen) && !is_unmanaged
}
