//! Observed state: the status of an `AcceleratorPolicy`.
//!
//! The status is the only memory of the controller. [`PolicyStatus::updating`] is written before a node of a wave is changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use octavo_fleet::cluster::Taint;
use octavo_model::digest::Digest;
use octavo_model::tone::Tone;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, EnumIter, IntoStaticStr};
use utoipa::ToSchema;

use crate::drain::PolicyDrain;
use crate::instance_change::InstanceChange;
use crate::spec::PolicySpec;

/// Observed state of a policy.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyStatus {
    /// Generation of the spec that this status describes.
    pub observed_generation: i64,
    /// Summary of the state.
    pub state: PolicyState,
    /// Reason why no further node is changed at the moment.
    pub waits_for: Option<String>,
    /// Conditions: Accepted, Progressing, Complete, Conflict and Stopped.
    pub conditions: Vec<Condition>,
    /// Numbers of nodes.
    pub nodes: NodeCounts,
    /// Revision that is rolled out: a hash of layout, labels, taints and drain.
    pub revision: String,
    /// Number of the roll-out; increases whenever another revision is rolled out.
    pub rollout: i64,
    /// Reason why the roll-out was stopped, and the reaction.
    pub stop: Option<Stop>,
    /// Last value of the annotation octavo.dev/rollback-to that was carried out.
    pub rollback_to: Option<String>,
    /// Nodes of the current wave. Written before the nodes are changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub updating: Vec<String>,
    /// End of the last wave.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub wave_ended: Option<Timestamp>,
    /// Nodes on which the roll-out failed. The first 50 have a message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<NodeFailure>,
    /// Changes of instances for pending pods: proposed and in progress. At most 50.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<InstanceChange>,
    /// Times at which changes that evict pods ended, one for each pod. Those of the last hour count.
    #[schema(value_type = Vec<String>)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Timestamp>,
    /// Retained revisions, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<Revision>,
}

/// Summary of the state of a policy.
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
    IntoStaticStr,
    EnumIter,
    ToSchema,
)]
pub enum PolicyState {
    /// The controller has not evaluated the policy yet.
    #[default]
    Unknown,
    /// The spec is invalid, or the layout is infeasible on a selected node.
    Refused,
    /// Every selected node has the revision, except overridden and conflicting nodes.
    Complete,
    /// Nodes are being changed.
    RollingOut,
    /// Changed nodes are being returned to an earlier revision.
    RollingBack,
    /// Every changed node was returned to an earlier revision.
    RolledBack,
    /// The roll-out continues later, for the reason in `waitsFor`.
    Waiting,
    /// An administrator paused the roll-out.
    Paused,
    /// Too many nodes failed.
    Stopped,
    /// Another policy selects some of the nodes, and everything else is complete.
    Conflict,
}

impl PolicyState {
    /// Severity of the state.
    pub fn tone(self) -> Tone {
        match self {
            Self::Complete => Tone::Good,
            Self::Unknown | Self::RollingOut | Self::Waiting => Tone::Neutral,
            Self::RollingBack | Self::RolledBack | Self::Paused | Self::Conflict => Tone::Warning,
            Self::Refused | Self::Stopped => Tone::Bad,
        }
    }
}

/// Numbers of selected nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCounts {
    /// Selected nodes.
    pub selected: u32,
    /// Nodes with labels, taints and chosen layout of the revision.
    pub updated: u32,
    /// Updated nodes on which the layout is applied.
    pub applied: u32,
    /// Nodes of the current wave.
    pub updating: u32,
    /// Nodes on which the roll-out failed.
    pub failed: u32,
    /// Nodes whose layout another user or program chose.
    pub overridden: u32,
    /// Nodes that another policy selects too.
    pub conflicting: u32,
    /// Unavailable nodes: not ready, being changed, or with a layout that is not applied.
    pub unavailable: u32,
}

/// Node on which the roll-out failed.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFailure {
    /// Name of the node.
    pub node: String,
    /// Reason: the state of the layout, or deadline-exceeded.
    pub reason: String,
    /// Explanation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Layout that failed.
    pub layout: Option<String>,
}

/// Stop of a roll-out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stop {
    /// Cause.
    pub reason: StopReason,
    /// Reaction.
    pub action: StopAction,
    /// Revision whose roll-out was stopped.
    pub revision: String,
    /// Explanation.
    pub message: String,
}

/// Cause of a stop.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr, ToSchema,
)]
pub enum StopReason {
    /// More nodes failed than the policy allows.
    TooManyFailures,
    /// The annotation octavo.dev/rollback-to requested an earlier revision.
    RollbackRequested,
}

/// Reaction to a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, ToSchema)]
pub enum StopAction {
    /// No further node is changed.
    Pause,
    /// The changed nodes return to the revision in the status.
    RollBack,
    /// Everything that the policy set is removed from the changed nodes, because no earlier revision exists.
    Remove,
}

/// Condition of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PolicyCondition)]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// Generation of the spec that the condition describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// Time of the last change of the status.
    #[schema(value_type = String, format = DateTime)]
    pub last_transition_time: Timestamp,
    /// Reason in CamelCase.
    pub reason: String,
    /// Explanation.
    #[serde(default)]
    pub message: String,
}

/// Revision of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Hash of the content.
    pub revision: String,
    /// Time at which its roll-out began.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// True if every node had it once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete: bool,
    /// Layout, labels, taints and drain.
    #[serde(flatten)]
    pub content: Content,
}

/// Layout, labels, taints and drain of a revision.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Content {
    /// Name of the layout.
    pub layout: Option<String>,
    /// Labels of the nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Eviction of pods that block the layout.
    pub drain: Option<PolicyDrain>,
}

impl Content {
    /// The content of a spec.
    pub fn of(spec: &PolicySpec) -> Self {
        Self {
            layout: spec.layout.clone(),
            node_labels: spec.node_labels.clone(),
            taints: spec.taints.clone(),
            drain: spec.drain,
        }
    }

    /// Hash of the content, in 10 hexadecimal digits. The order of the taints has no effect.
    pub fn revision(&self) -> String {
        let mut sorted = self.clone();
        sorted.taints.sort();
        let text = serde_json::to_string(&sorted).unwrap_or_default();
        format!("{:016x}", Digest::from_bytes(text.as_bytes())).chars().take(10).collect()
    }
}

impl PolicyStatus {
    /// Returns whether the node is part of the current wave.
    pub(crate) fn is_updating(&self, node: &str) -> bool {
        self.updating.iter().any(|name| name == node)
    }

    /// Returns whether the policy changes the node only to reserve a GPU. The node stays available: only idle instances of the GPU are not.
    pub(crate) fn is_reserving(&self, node: &str) -> bool {
        let has_layout =
            self.content(&self.revision).is_some_and(|content| content.layout.is_some());
        let mut changes = self.changes.iter();
        !has_layout
            && changes.any(|change| change.node == node && change.is_reservation())
            && self.is_updating(node)
    }

    /// Returns whether the reservation of a GPU of the node ends. A pause must not withhold the GPU.
    pub(crate) fn is_ending_reservation(&self, node: &str) -> bool {
        let mut changes = self.changes.iter().filter(|change| change.node == node);
        changes.any(|change| change.withdrawn && change.is_reservation())
    }

    /// Nodes of the current wave that are unavailable.
    pub(crate) fn changing(&self) -> impl Iterator<Item = &String> {
        self.updating.iter().filter(|name| !self.is_reserving(name))
    }

    /// Returns whether the roll-out is stopped without a rollback, so that no node is changed.
    pub fn is_halted(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.action == StopAction::Pause)
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|one| one.kind == kind)
    }

    /// Content of a retained revision.
    pub fn content(&self, revision: &str) -> Option<&Content> {
        self.revisions.iter().find(|one| one.revision == revision).map(|one| &one.content)
    }
}
