//! API responses about profiles, read by the command line.

use std::collections::BTreeMap;

use octavo_fleet::hardware_profile::{
    Count, Finding, HardwareProfile, Identifier, Reach, Scheduling, Specs,
};
use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Profiles with no more than most who pick one need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareProfileList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `HardwareProfileList`.
    pub kind: String,
    /// Why this may not be how it is now; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Those that people can pick, by name.
    pub items: Vec<HardwareProfileRow>,
}

/// A profile that people can pick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareProfileRow {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What people are shown.
    pub display_name: String,
    /// The type of accelerator; `null` where it is for none, or for several.
    pub accelerator_type: Option<String>,
    /// Memory of one device, such as `141 GiB`.
    pub memory: Option<String>,
    /// Chip family.
    pub architecture: Option<String>,
    /// How many more workloads of it fit now; `null` where nobody can tell.
    pub available: Option<u64>,
}

/// Profiles with what they reach and what is wrong with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `ProfileList`.
    pub kind: String,
    /// Where profiles are from: `cluster`, `file`, `both` or `nowhere`.
    pub source: String,
    /// Why this may not be how it is now; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// By namespace and name.
    pub items: Vec<ProfileRow>,
}

/// A profile with what it reaches and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What kind of object it is: `hardware-profile`, `dashboard-profile`, `accelerator-profile`.
    pub object_kind: String,
    /// What people are shown.
    pub display_name: String,
    /// What else people are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether people can pick it.
    pub enabled: bool,
    /// The type of accelerator: what it says itself, what it selects, or the one it reaches. Absent where that is none or several.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// All types that it says it is for; those that it reaches only where it says none. What is reached is in `reach`.
    pub types: Vec<String>,
    /// Memory of one device.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Chip family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// CUDA compute capability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// Memory bandwidth in 10^9 bytes a second, of the slowest product with this type.
    #[serde(
        default,
        rename = "memoryBandwidthGBs",
        skip_serializing_if = "Option::is_none"
    )]
    pub memory_bandwidth_gbs: Option<f64>,
    /// What a workload asks for.
    pub identifiers: Vec<IdentifierJson>,
    /// Where it goes.
    pub scheduling: SchedulingJson,
    /// What it reaches; absent where a queue decides, or no cluster is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<ReachJson>,
    /// How many more workloads of it fit now; absent where nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u64>,
    /// What somebody should know about it.
    pub findings: Vec<FindingJson>,
}

/// One resource that a workload asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentifierJson {
    /// What people are shown.
    pub display_name: String,
    /// The resource.
    pub identifier: String,
    /// The least, as it is written.
    pub min: String,
    /// The most; absent for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// What is asked for where nobody says.
    pub default: String,
}

/// Where the work of a profile goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingJson {
    /// `anywhere`, `node` or `queue`.
    pub to: String,
    /// Labels that nodes have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that do not matter, by key; an empty one is every key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerates: Vec<String>,
    /// The `LocalQueue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_queue: Option<String>,
    /// Kueue's class of priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
}

/// What a profile reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReachJson {
    /// Nodes with the labels that it selects by.
    pub selected: u32,
    /// Of these, those with what it asks for and without a lasting taint against it.
    pub nodes: u32,
    /// Of these, those that take nothing now: cordoned, not ready, being changed.
    pub closed: u32,
    /// Of these, those with several types at once.
    pub mixed: u32,
    /// How many more workloads fit now on nodes with several types at once.
    #[serde(default)]
    pub mixed_available: u64,
    /// What they have.
    pub types: Vec<TypeReachJson>,
}

/// The devices of one type that a profile reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeReachJson {
    /// The type; absent for devices nobody knows.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// Nodes that have it.
    pub nodes: u32,
    /// Devices of this type on them, allocated or not.
    pub devices: u64,
    /// Of the nodes, those that have other types, too.
    #[serde(default)]
    pub mixed_nodes: u32,
    /// Devices of this type on such nodes.
    #[serde(default)]
    pub mixed_devices: u64,
    /// How many more workloads fit now on nodes with this type alone.
    pub available: u64,
}

/// Something that somebody should know about a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingJson {
    /// What it is: `nothing-selected`, `several-types`, `changing-label` and others.
    pub finding: String,
    /// How grave it is: `error`, `warning` or `note`.
    pub gravity: String,
    /// What is so, in words for a person.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// One profile whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileDetail {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `Profile`.
    pub kind: String,
    /// Why this may not be how it is now; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// As in a list.
    #[serde(flatten)]
    pub row: ProfileRow,
    /// Who made it, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Why, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A new profile that nobody has made yet.
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
    /// The nodes that it was made of.
    pub nodes: Vec<String>,
    /// What a person should know before it is made.
    pub notes: Vec<String>,
}

impl From<&Identifier> for IdentifierJson {
    fn from(one: &Identifier) -> Self {
        Self {
            display_name: one.display_name.clone(),
            identifier: one.resource.clone(),
            min: one.min.text.clone(),
            max: one.max.as_ref().map(|max: &Count| max.text.clone()),
            default: one.default.text.clone(),
        }
    }
}

impl From<&Scheduling> for SchedulingJson {
    fn from(scheduling: &Scheduling) -> Self {
        let nothing = Self {
            to: "anywhere".to_owned(),
            node_selector: BTreeMap::new(),
            tolerates: Vec::new(),
            local_queue: None,
            priority_class: None,
        };
        match scheduling {
            Scheduling::Anywhere => nothing,
            Scheduling::Node {
                selector,
                tolerations,
            } => Self {
                to: "node".to_owned(),
                node_selector: selector.clone(),
                tolerates: tolerations.iter().map(|one| one.key.clone()).collect(),
                ..nothing
            },
            Scheduling::Queue {
                local_queue,
                priority_class,
            } => Self {
                to: "queue".to_owned(),
                local_queue: Some(local_queue.clone()),
                priority_class: priority_class.clone(),
                ..nothing
            },
        }
    }
}

impl From<&Reach> for ReachJson {
    fn from(reach: &Reach) -> Self {
        let types = reach.types.iter().map(|one| TypeReachJson {
            type_name: one.type_name.as_ref().map(ToString::to_string),
            nodes: one.nodes,
            devices: one.devices,
            mixed_nodes: one.mixed_nodes,
            mixed_devices: one.mixed_devices,
            available: one.free,
        });
        Self {
            selected: reach.selected,
            nodes: reach.nodes,
            closed: reach.unavailable_nodes,
            mixed: reach.mixed,
            mixed_available: reach.mixed_free,
            types: types.collect(),
        }
    }
}

impl From<&Finding> for FindingJson {
    fn from(finding: &Finding) -> Self {
        Self {
            finding: finding.name().to_owned(),
            gravity: finding.severity().as_str().to_owned(),
            message: finding.to_string(),
            remedy: finding.remedy(),
        }
    }
}

impl ProfileRow {
    /// Creates the row of a profile with its reach and findings. `specs` returns the known specifications of a type.
    pub fn new(
        profile: &HardwareProfile,
        (reach, findings): (Option<&Reach>, &[Finding]),
        specs: impl Fn(&TypeName) -> Specs,
    ) -> Self {
        let types = profile.types(reach);
        let only = match types.as_slice() {
            [one] => Some(one),
            _ => None,
        };
        let specs = only.map(specs).unwrap_or_default();
        let said = &profile.said;
        Self {
            namespace: profile.key.namespace.clone(),
            name: profile.key.name.clone(),
            object_kind: profile.kind.as_str().to_owned(),
            display_name: profile.shown().to_owned(),
            description: profile.description.clone(),
            enabled: !profile.is_disabled,
            type_name: only.map(ToString::to_string),
            memory_mib: specs.memory_mib.or(said.memory_mib),
            architecture: specs.architecture.or_else(|| said.architecture.clone()),
            compute_capability: specs.compute_capability,
            memory_bandwidth_gbs: specs.memory_bandwidth_gbs,
            types: types.iter().map(ToString::to_string).collect(),
            identifiers: profile
                .identifiers
                .iter()
                .map(IdentifierJson::from)
                .collect(),
            scheduling: SchedulingJson::from(&profile.scheduling),
            reach: reach.map(ReachJson::from),
            available: reach.map(|reach| reach.free),
            findings: findings.iter().map(FindingJson::from).collect(),
        }
    }

    /// Reduces the row to the fields needed to choose a profile.
    pub fn short(&self) -> HardwareProfileRow {
        HardwareProfileRow {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            display_name: self.display_name.clone(),
            accelerator_type: self.type_name.clone(),
            memory: self.memory_mib.map(memory),
            architecture: self.architecture.clone(),
            available: self.available,
        }
    }
}

/// Formats an amount of memory in MiB or GiB, whichever is shorter.
fn memory(mib: u64) -> String {
    match mib {
        0..1024 => format!("{mib} MiB"),
        _ => format!("{} GiB", mib.saturating_add(512) / 1024),
    }
}
