//! Profiles in API responses and events, read by the command line.

use std::collections::BTreeMap;

use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;
use octavo_model::reported::Reported;
use octavo_model::text::format_memory;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use strum::IntoStaticStr;
use utoipa::ToSchema;

use super::{
    Finding, FindingSeverity, HardwareProfile, Identifier, MatchingNodes, ProfileKind, Scheduling,
    Specs,
};

/// Selectable profiles, with the fields that most users need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareProfileList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `HardwareProfileList`.
    pub kind: String,
    /// Reason why this may be outdated; absent if it is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Selectable profiles, by name.
    pub items: Vec<HardwareProfileRow>,
}

/// A selectable profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareProfileRow {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Display name.
    pub display_name: String,
    /// Accelerator type; `null` if there is none, or several.
    #[schema(value_type = Option<String>)]
    pub accelerator_type: Option<TypeName>,
    /// Memory of one device, such as `141 GiB`.
    pub memory: Option<String>,
    /// Chip family.
    pub architecture: Option<String>,
    /// Number of additional workloads that fit now; `null` if unknown.
    pub available: Option<u64>,
}

/// Profiles with reachable nodes and findings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `ProfileList`.
    pub kind: String,
    /// Source of the profiles: `cluster`, `file`, `both` or `nowhere`.
    #[schema(value_type = String)]
    pub source: Reported<ProfileSource>,
    /// Reason why this may be outdated; absent if it is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// By namespace and name.
    pub items: Vec<ProfileRow>,
}

/// Source of profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileSource {
    /// Objects of the cluster.
    Cluster,
    /// A file.
    File,
    /// Objects of the cluster, and a file.
    Both,
    /// There is none.
    #[default]
    Nowhere,
}

/// A profile with reachable nodes and findings.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Kind of the object: `hardware-profile`, `dashboard-profile`, `accelerator-profile`.
    #[schema(value_type = String)]
    pub object_kind: Reported<ProfileKind>,
    /// Display name.
    pub display_name: String,
    /// Description for users.
    pub description: Option<String>,
    /// Whether users can select it.
    pub enabled: bool,
    /// Accelerator type: the declared, the selected, or the reached one. Absent if there is none, or several.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    pub type_name: Option<TypeName>,
    /// All declared types; without any, those that it reaches. `reach` has the reached ones.
    #[schema(value_type = Vec<String>)]
    pub types: Vec<TypeName>,
    /// Memory of one device.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: Option<u64>,
    /// Chip family.
    pub architecture: Option<String>,
    /// CUDA compute capability.
    pub compute_capability: Option<String>,
    /// Memory bandwidth in 10^9 bytes per second, of the slowest product of the type.
    #[serde(rename = "memoryBandwidthGBs")]
    pub memory_bandwidth_gbs: Option<f64>,
    /// Requested resources.
    pub identifiers: Vec<Identifier>,
    /// Node selection.
    pub scheduling: SchedulingSummary,
    /// Reachable nodes; absent if a queue decides, or no cluster is watched.
    pub reach: Option<MatchingNodes>,
    /// Number of additional workloads that fit now; absent if unknown.
    pub available: Option<u64>,
    /// Findings.
    pub findings: Vec<FindingRow>,
}

/// Node selection of a profile.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Scheduling)]
pub struct SchedulingSummary {
    /// `anywhere`, `node` or `queue`.
    #[schema(value_type = String)]
    pub to: Reported<SchedulingTarget>,
    /// Required node labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Keys of tolerated taints; an empty one is every key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerates: Vec<String>,
    /// The `LocalQueue`.
    pub local_queue: Option<String>,
    /// Kueue workload priority class.
    pub priority_class: Option<String>,
}

/// Mechanism that determines where the workloads of a profile run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulingTarget {
    /// Nothing.
    Anywhere,
    /// Labels and taints of nodes.
    Node,
    /// A queue.
    Queue,
}

/// Finding about a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Finding)]
pub struct FindingRow {
    /// Name: `nothing-selected`, `several-types`, `changing-label` and others.
    pub finding: String,
    /// Severity: `error`, `warning` or `note`.
    #[serde(alias = "gravity")]
    #[schema(value_type = String)]
    pub severity: Reported<FindingSeverity>,
    /// Description for users.
    pub message: String,
    /// Recommended action.
    pub remedy: String,
}

/// A profile with all details.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileDetail {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `Profile`.
    pub kind: String,
    /// Reason why this may be outdated; absent if it is current.
    pub notice: Option<String>,
    /// As in a list.
    #[serde(flatten)]
    pub row: ProfileRow,
    /// Creator, if stated.
    pub created_by: Option<String>,
    /// Reason for its creation, if stated.
    pub reason: Option<String>,
}

/// Draft of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileDraft {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `ProfileDraft`.
    pub kind: String,
    /// The object, as the API server takes it.
    #[schema(value_type = Object)]
    pub profile: Value,
    /// The same as YAML.
    pub yaml: String,
    /// Nodes that it was drafted from.
    pub nodes: Vec<String>,
    /// Notes for the user before it is created.
    pub notes: Vec<String>,
}

/// Result of creating a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileMade {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `ProfileMade`.
    pub kind: String,
    /// `created`, `replaced` or `unchanged`; with a dry run, what would happen.
    pub outcome: String,
    /// Whether it was a dry run: the API server checked the object and stored nothing.
    pub dry_run: bool,
    /// The object, as the API server has it or would have it.
    #[schema(value_type = Object)]
    pub profile: Value,
    /// Differences from the previous object, line by line; empty without one.
    pub differences: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Event of the hardware profile stream, one JSON object each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is almost always a profile"
)]
pub enum ProfileEvent {
    /// A profile that is new or has changed, including its availability.
    Profile {
        /// As in a list.
        profile: ProfileRow,
    },
    /// A profile that was deleted, or no longer matches the filter.
    Removed {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Kind of the object.
        #[schema(value_type = String)]
        object_kind: Reported<ProfileKind>,
    },
    /// All known profiles have been sent. Also sent when `notice` changes.
    Synced {
        /// Increases with each change while the aggregator runs.
        revision: u64,
        /// Reason why the data may be outdated; absent if it is current.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
    },
}

impl From<&Scheduling> for SchedulingSummary {
    fn from(scheduling: &Scheduling) -> Self {
        match scheduling {
            Scheduling::Anywhere => {
                Self { to: SchedulingTarget::Anywhere.into(), ..Self::default() }
            }
            Scheduling::Node { selector, tolerations } => Self {
                to: SchedulingTarget::Node.into(),
                node_selector: selector.clone(),
                tolerates: tolerations.iter().map(|one| one.key.clone()).collect(),
                ..Self::default()
            },
            Scheduling::Queue { local_queue, priority_class } => Self {
                to: SchedulingTarget::Queue.into(),
                local_queue: Some(local_queue.clone()),
                priority_class: priority_class.clone(),
                ..Self::default()
            },
        }
    }
}

impl From<&Finding> for FindingRow {
    fn from(finding: &Finding) -> Self {
        Self {
            finding: finding.name().to_owned(),
            severity: finding.severity().into(),
            message: finding.to_string(),
            remedy: finding.remedy(),
        }
    }
}

impl ProfileRow {
    /// Creates the row of a profile with its reach and findings. `specs` returns the known specifications of a type.
    pub fn new(
        profile: &HardwareProfile,
        (reach, findings): (Option<&MatchingNodes>, &[Finding]),
        specs: impl Fn(&TypeName) -> Specs,
    ) -> Self {
        let types = profile.types(reach);
        let only = match types.as_slice() {
            [one] => Some(one),
            _ => None,
        };
        let type_name = only.cloned();
        let specs = only.map(specs).unwrap_or_default();
        let annotations = &profile.annotations;
        Self {
            namespace: profile.key.namespace.clone(),
            name: profile.key.name.clone(),
            object_kind: profile.kind.into(),
            display_name: profile.shown().to_owned(),
            description: profile.description.clone(),
            enabled: !profile.is_disabled,
            type_name,
            types,
            memory_mib: specs.memory_mib.or(annotations.memory_mib),
            architecture: specs.architecture.or_else(|| annotations.architecture.clone()),
            compute_capability: specs.compute_capability,
            memory_bandwidth_gbs: specs.memory_bandwidth_gbs,
            identifiers: profile.identifiers.clone(),
            scheduling: SchedulingSummary::from(&profile.scheduling),
            reach: reach.map(MatchingNodes::documented),
            available: reach.map(|reach| reach.free),
            findings: findings.iter().map(FindingRow::from).collect(),
        }
    }

    /// Reduces the row to the fields needed to choose a profile.
    pub fn short(&self) -> HardwareProfileRow {
        HardwareProfileRow {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            display_name: self.display_name.clone(),
            accelerator_type: self.type_name.clone(),
            memory: self.memory_mib.map(|mib| format_memory(Mebibytes::new(mib))),
            architecture: self.architecture.clone(),
            available: self.available,
        }
    }
}

impl ProfileEvent {
    /// Name of the event in the stream.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}
