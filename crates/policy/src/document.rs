//! Documents of the API.

use jiff::Timestamp;
use octavo_fleet::node_plan::{NodePlanRow, NodePlanTotals};
use octavo_model::reported::Reported;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::Display;
use utoipa::ToSchema;

use crate::member::PolicyMember;
use crate::plan::PolicyPlan;
use crate::spec::PolicySpec;
use crate::status::{Condition, NodeCounts, PolicyState, PolicyStatus};
use crate::world::Policy;

/// Policies of the cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `PolicyList`.
    pub kind: String,
    /// Source of the policies.
    #[schema(value_type = PolicySource)]
    pub source: Reported<PolicySource>,
    /// Reason why the policies may be outdated or incomplete; absent if they are not.
    pub notice: Option<String>,
    /// The policies, ordered by name.
    pub items: Vec<PolicyRow>,
}

/// Source of the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PolicySource {
    /// The aggregator runs without `--policies`, so policies have no effect.
    Disabled,
    /// The cluster does not have the custom resource definition.
    Absent,
    /// The policies have not been read yet.
    Starting,
    /// The cluster.
    Cluster,
}

/// Summary of a policy.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRow {
    /// Name.
    pub name: String,
    /// Layout of the spec.
    pub layout: Option<String>,
    /// Summary of the state.
    #[schema(value_type = PolicyState)]
    pub state: Reported<PolicyState>,
    /// Reason why no further node is changed at the moment.
    pub waits_for: Option<String>,
    /// Numbers of nodes.
    pub nodes: NodeCounts,
    /// Revision that is rolled out.
    pub revision: String,
    /// Time of the creation.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created: Option<Timestamp>,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// Policy with its nodes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDetail {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `Policy`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Time of the creation.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created: Option<Timestamp>,
    /// Reason why the data may be outdated or incomplete; absent if it is not.
    pub notice: Option<String>,
    /// Desired state; absent if it cannot be read.
    pub spec: Option<PolicySpec>,
    /// Reason why the desired state cannot be read.
    pub spec_error: Option<String>,
    /// Observed state, with the retained revisions.
    pub status: PolicyStatus,
    /// Selected nodes with their progress, those that need attention first. At most 1000.
    pub members: Vec<PolicyMember>,
    /// Number of selected nodes that are not listed.
    pub more_members: usize,
}

/// Preview of a policy: its waves, and the effect of its layout on the nodes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPlanDocument {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `PolicyPlan`.
    pub kind: String,
    /// Name of the policy.
    pub name: String,
    /// True if the cluster has a policy with this name.
    pub exists: bool,
    /// Reason why the data may be outdated or incomplete; absent if it is not.
    pub notice: Option<String>,
    /// The waves.
    #[serde(flatten)]
    pub rollout: PolicyPlan,
    /// Types on which the layout is infeasible.
    pub infeasible: Vec<InfeasibleNodes>,
    /// Sums over the listed nodes.
    pub totals: NodePlanTotals,
    /// Effect of the layout on the nodes of the waves and the waiting nodes, in their order. At most 100.
    pub nodes: Vec<NodePlanRow>,
    /// Number of these nodes that are not listed.
    pub more_nodes: usize,
    /// Available nodes and devices during the roll-out.
    pub capacity: RolloutCapacity,
    /// Duration of the roll-out; absent if no node changes.
    pub duration: Option<RolloutDuration>,
}

/// Nodes of a combination of types on which a layout is infeasible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfeasibleNodes {
    /// Types of the nodes' devices.
    pub types: Vec<String>,
    /// Number of nodes.
    pub nodes: usize,
    /// Explanation for the first node.
    pub reason: String,
}

/// Available nodes and devices of a policy. Nodes that are being changed are not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutCapacity {
    /// Nodes that are available now.
    pub nodes: usize,
    /// Their devices.
    pub devices: u64,
    /// Smallest number of available nodes during the roll-out.
    pub min_nodes: usize,
    /// Smallest number of available devices during the roll-out.
    pub min_devices: u64,
}

/// Limits of the duration of a roll-out, without the time outside of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutDuration {
    /// The pauses between the waves.
    pub min_seconds: u64,
    /// The pauses and the deadlines of all waves.
    pub max_seconds: u64,
}

/// Policy to plan, as in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyManifest {
    /// `octavo.dev/v1alpha1`.
    pub api_version: String,
    /// `AcceleratorPolicy`.
    pub kind: String,
    /// Metadata; only the name has an effect.
    pub metadata: ManifestMetadata,
    /// Desired state.
    pub spec: PolicySpec,
}

/// Metadata of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestMetadata {
    /// Name of the policy.
    pub name: String,
}

impl PolicyRow {
    /// Summary of a policy.
    pub fn of(policy: &Policy) -> Self {
        let status = &policy.status;
        Self {
            name: policy.name.clone(),
            layout: policy.spec.as_ref().ok().and_then(|spec| spec.layout.clone()),
            state: status.state.into(),
            waits_for: waits_for(policy),
            nodes: status.nodes,
            revision: status.revision.clone(),
            created: policy.created,
            conditions: status.conditions.clone(),
        }
    }
}

/// Reason why no further node is changed. The controller does not write the status of a policy that is being deleted.
pub fn waits_for(policy: &Policy) -> Option<String> {
    if policy.is_deleting {
        return Some("its removal from the nodes, because it is being deleted".to_owned());
    }
    policy.status.waits_for.clone()
}
