//! Selected nodes of a policy with their progress, for readers.

use jiff::Timestamp;
use octavo_model::reported::Reported;
use octavo_model::tone::Tone;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, EnumIter, IntoStaticStr};
use utoipa::ToSchema;

use crate::node::{PolicyNode, Progress};
use crate::record::Record;
use crate::status::NodeFailure;
use crate::world::{Policy, Relation, World};

/// Progress of a policy on a selected node, those that need attention first.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    IntoStaticStr,
    EnumIter,
    ToSchema,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum MemberState {
    /// The roll-out failed on the node.
    Failed,
    /// The node is being changed, and workloads block its layout.
    Blocked,
    /// The node is being changed.
    Updating,
    /// The node waits for its wave, or for another policy to release it.
    Waiting,
    /// Another policy selects the node too.
    Conflicting,
    /// Another user or program chose the layout of the node.
    Overridden,
    /// The node has the revision, and its layout is applied.
    Applied,
}

impl MemberState {
    /// Severity of the state.
    pub fn tone(self) -> Tone {
        match self {
            Self::Applied => Tone::Good,
            Self::Updating | Self::Waiting => Tone::Neutral,
            Self::Blocked | Self::Conflicting | Self::Overridden => Tone::Warning,
            Self::Failed => Tone::Bad,
        }
    }
}

/// Selected node with its progress.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyMember {
    /// Name of the node.
    pub name: String,
    /// Progress.
    #[schema(value_type = MemberState)]
    pub state: Reported<MemberState>,
    /// Revision of the policy that the node has.
    pub revision: Option<String>,
    /// Time at which the policy changed the node.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Layout that the node has chosen.
    pub layout: Option<String>,
    /// Devices and partitions in use; absent if unknown.
    pub in_use: Option<u32>,
    /// Explanation: the blockers, the failure, or the other policy.
    pub message: Option<String>,
}

/// Returns the selected nodes of a policy, ordered by state and name.
pub fn members(world: &World<'_>, policy: &Policy) -> Vec<PolicyMember> {
    let nodes = world.nodes.values().filter(|node| policy.selects(node.node));
    let mut all: Vec<PolicyMember> = nodes.map(|node| member(world, policy, node)).collect();
    all.sort_by(|one, other| (&one.state, &one.name).cmp(&(&other.state, &other.name)));
    all
}

fn member(world: &World<'_>, policy: &Policy, node: &PolicyNode<'_>) -> PolicyMember {
    let record = node.record.of(&policy.uid);
    let (state, message) = match world.relation(policy, node) {
        Relation::Managed => managed(world, policy, node),
        Relation::Conflicting => {
            let names: Vec<&str> =
                world.rivals(policy, node).map(|other| other.name.as_str()).collect();
            (MemberState::Conflicting, Some(format!("also selected by {}", names.join(", "))))
        }
        Relation::Overridden => {
            let message = match node.layout() {
                Some(layout) => format!("another user or program chose the layout {layout}"),
                None if node.record.valid().is_some() || node.record == Record::Absent => {
                    "the settings of its agent choose a layout".to_owned()
                }
                None => "the record of the policy is invalid".to_owned(),
            };
            (MemberState::Overridden, Some(message))
        }
        Relation::Occupied => {
            let other = node.record.valid().map_or("", |record| record.policy.as_str());
            (MemberState::Waiting, Some(format!("policy {other} has not released the node yet")))
        }
    };
    PolicyMember {
        name: node.name().to_owned(),
        state: state.into(),
        revision: record.map(|record| record.revision.clone()),
        since: record.map(|record| record.since),
        layout: node.layout().map(str::to_owned),
        in_use: node.in_use,
        message,
    }
}

/// State of a node that the policy may change.
fn managed(
    world: &World<'_>,
    policy: &Policy,
    node: &PolicyNode<'_>,
) -> (MemberState, Option<String>) {
    let status = &policy.status;
    if let Some(NodeFailure { reason, message, .. }) =
        status.failures.iter().find(|failure| failure.node == node.name())
    {
        let message =
            if message.is_empty() { reason.clone() } else { format!("{reason}: {message}") };
        return (MemberState::Failed, Some(message));
    }
    let is_in_wave = status.is_updating(node.name());
    let needs_change = policy.patch(node, world.now).is_some();
    let record = node.record.of(&policy.uid);
    match record.filter(|_| !needs_change).map(|record| node.progress(record)) {
        Some(Progress::Applied) => (MemberState::Applied, None),
        Some(Progress::Failed { reason, message }) => {
            (MemberState::Failed, Some(format!("{}: {message}", reason.as_ref())))
        }
        Some(Progress::Pending(Some(message))) => (MemberState::Blocked, Some(message)),
        Some(Progress::Pending(None)) => (MemberState::Updating, None),
        None if is_in_wave => (MemberState::Updating, None),
        None if needs_change && !node.is_ready() => {
            (MemberState::Waiting, Some("the node is not ready".to_owned()))
        }
        None => (MemberState::Waiting, None),
    }
}
