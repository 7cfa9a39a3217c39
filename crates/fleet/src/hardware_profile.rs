//! `OpenDataHub` hardware profiles: the model, the nodes that a profile reaches, findings about its configuration,
//! and drafts of new profiles.
//!
//! Existing profiles belong to their users: they are read and checked here, and never changed. Device properties that
//! the schema has no field for are stored in annotations. [`object`] reads and writes the objects; the aggregator and the
//! command line call this module. Source of the schema: opendatahub-operator, `api/infrastructure/v1`.

mod checks;
pub mod create_request;
pub mod document;
mod draft;
mod draft_error;
mod finding;
mod matching_nodes;
mod node_selection;
mod node_types;
pub mod object;
mod placement;
mod specs;
mod user_changes;

use std::fmt;

use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use serde_with::{SerializeDisplay, skip_serializing_none};
use utoipa::ToSchema;

pub use self::checks::{ClusterContext, LocalQueues, check_profile};
pub use self::create_request::{DraftRequest, NO_TAINT};
pub use self::draft::{Draft, draft};
pub use self::draft_error::{DraftError, DraftNote};
pub use self::finding::{Finding, FindingSeverity};
pub use self::matching_nodes::{CandidateNode, MatchingDevices, MatchingNodes, matching_nodes};
pub use self::node_types::{
    DevicesByType, LabeledDevices, counts_partitions, devices_from_labels, labeled_devices,
    selecting_label,
};
pub use self::placement::{NodeCapacity, PlacementTarget, ProfilePlacement, placements};
pub use self::specs::Specs;
pub use self::user_changes::{CountError, CountField, CountOverride, CountProblem, CountsError};
use crate::cluster::{Amounts, PodRequirements, Quantity, Selector, Toleration};
pub use crate::type_labels::TYPE_LABEL;
use crate::type_labels::parse_type;

/// Maximum number of profiles of a cluster or of a file.
pub const MAX_PROFILES: usize = 2000;
/// Annotation with the accelerator types of a profile, separated by commas.
pub const TYPE_ANNOTATION: &str = "octavo.dev/type";
/// Annotation with the memory of one device, in MiB.
pub const MEMORY_ANNOTATION: &str = "octavo.dev/memory-mib";
/// Annotation with the chip family.
pub const ARCHITECTURE_ANNOTATION: &str = "octavo.dev/architecture";
/// Annotation with the creator of the profile.
pub const CREATED_BY_ANNOTATION: &str = "octavo.dev/created-by";
/// Annotation with the reason for its creation.
pub const REASON_ANNOTATION: &str = "octavo.dev/reason";

/// Profile properties that decide where its workloads run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HardwareProfile {
    /// Namespace and name.
    pub key: ProfileKey,
    /// Kind of the object.
    pub kind: ProfileKind,
    /// Display name.
    pub display_name: Option<String>,
    /// Description for users.
    pub description: Option<String>,
    /// True if users cannot select it.
    pub is_disabled: bool,
    /// Requested resources.
    pub identifiers: Vec<Identifier>,
    /// Node selection.
    pub scheduling: Scheduling,
    /// Octavo's annotations.
    pub annotations: ProfileAnnotations,
    /// Unreadable parts, each prefixed with its path.
    pub unreadable: Vec<String>,
}

/// Namespace and name of a profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ProfileKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Kind of a profile object. Legacy kinds are only read; the cluster rejects new objects of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum ProfileKind {
    /// `HardwareProfile` of `infrastructure.opendatahub.io`.
    #[default]
    #[serde(rename = "hardware-profile")]
    Hardware,
    /// Legacy `HardwareProfile` of `dashboard.opendatahub.io`.
    #[serde(rename = "dashboard-profile")]
    Dashboard,
    /// Older legacy `AcceleratorProfile` of `dashboard.opendatahub.io`.
    #[serde(rename = "accelerator-profile")]
    Accelerator,
}

/// Resource that a workload of the profile requests.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identifier {
    /// Display name.
    pub display_name: String,
    /// Resource name, such as `nvidia.com/gpu`.
    #[serde(rename = "identifier")]
    pub resource: String,
    /// Minimum that a user can request.
    #[schema(value_type = String)]
    pub min: Count,
    /// Maximum; absent if unlimited.
    #[schema(value_type = Option<String>)]
    pub max: Option<Count>,
    /// Default request.
    #[schema(value_type = String)]
    pub default: Count,
    /// Resource type, if stated.
    #[serde(skip)]
    pub resource_type: Option<String>,
}

/// Count as text and as a quantity. Documents have the text.
#[derive(Debug, Clone, PartialEq, Eq, Default, SerializeDisplay, Deserialize)]
#[serde(from = "String")]
pub struct Count {
    /// Text as written.
    pub text: String,
    /// Parsed quantity.
    pub quantity: Quantity,
}

/// Node selection of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// Any node.
    #[default]
    Anywhere,
    /// Selected nodes.
    Node {
        /// Required node labels.
        selector: Selector,
        /// Tolerated taints.
        tolerations: Vec<Toleration>,
    },
    /// A Kueue queue, whose resource flavors decide.
    Queue {
        /// Name of the `LocalQueue`, which is local to each namespace.
        local_queue: String,
        /// Kueue workload priority class.
        priority_class: Option<String>,
    },
}

/// Octavo's annotations on a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileAnnotations {
    /// Accelerator types; empty if not stated.
    pub types: Vec<TypeName>,
    /// Memory of one device in MiB.
    pub memory_mib: Option<u64>,
    /// Chip family.
    pub architecture: Option<String>,
    /// Creator.
    pub by: Option<String>,
    /// Reason for the creation.
    pub reason: Option<String>,
}

impl HardwareProfile {
    /// Display name, otherwise the object name.
    pub fn shown(&self) -> &str {
        let shown = self.display_name.as_deref();
        shown.filter(|name| !name.is_empty()).unwrap_or(&self.key.name)
    }

    /// Requirements of a workload with the default counts. Source: the webhooks of workbenches-operator and
    /// odh-model-controller.
    pub fn requirements(&self) -> PodRequirements {
        let of = |one: &Identifier| (one.resource.clone(), one.default.quantity);
        let all: Vec<(String, Quantity)> = self.identifiers.iter().map(of).collect();
        let amounts =
            Amounts::from_quantities(all.iter().map(|(name, count)| (name.as_str(), *count)));
        let (selector, tolerations) = match &self.scheduling {
            Scheduling::Node { selector, tolerations } => (selector.clone(), tolerations.clone()),
            Scheduling::Anywhere | Scheduling::Queue { .. } => Default::default(),
        };
        PodRequirements { amounts, selector, affinity: None, tolerations }
    }

    /// Requested device resources.
    pub fn devices(&self) -> Vec<String> {
        let of = |one: &Identifier| Amounts::default().with(&one.resource, 1);
        let amounts = self.identifiers.iter().map(of);
        amounts
            .flat_map(|one| {
                let named: Vec<String> = one.devices().map(|(name, _)| name.to_owned()).collect();
                named
            })
            .collect()
    }

    /// Node selector, if it selects nodes.
    pub fn selector(&self) -> Option<&Selector> {
        match &self.scheduling {
            Scheduling::Node { selector, .. } => Some(selector),
            Scheduling::Anywhere | Scheduling::Queue { .. } => None,
        }
    }

    /// Accelerator types of the profile: from its annotation, otherwise from the type label in its selector,
    /// otherwise those that it reaches. Empty for workloads without devices.
    pub fn types(&self, reach: Option<&MatchingNodes>) -> Vec<TypeName> {
        if !self.annotations.types.is_empty() {
            return self.annotations.types.clone();
        }
        if let Some(selected) = self.selected_type() {
            return vec![selected];
        }
        let reached = reach.filter(|_| !self.devices().is_empty());
        let reached = reached.map(MatchingNodes::names).unwrap_or_default();
        reached.into_iter().cloned().collect()
    }

    /// Type in its selector, by Octavo's type label.
    pub fn selected_type(&self) -> Option<TypeName> {
        parse_type(self.selector()?.get(TYPE_LABEL)?)
    }
}

impl AsRef<str> for ProfileKind {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl ProfileKind {
    /// All kinds, the current one first.
    pub const ALL: [Self; 3] = [Self::Hardware, Self::Dashboard, Self::Accelerator];

    /// Group, version, kind and plural name in the API.
    pub fn api(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Hardware => {
                ("infrastructure.opendatahub.io", "v1", "HardwareProfile", "hardwareprofiles")
            }
            Self::Dashboard => {
                ("dashboard.opendatahub.io", "v1alpha1", "HardwareProfile", "hardwareprofiles")
            }
            Self::Accelerator => {
                ("dashboard.opendatahub.io", "v1", "AcceleratorProfile", "acceleratorprofiles")
            }
        }
    }

    /// Versions that clusters serve, the one of [`Self::api`] first; the relevant fields are the same. Source:
    /// odh-dashboard, `manifests/common/crd` and before that `manifests/crd`, until 2025-10.
    pub fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Hardware => &["v1"],
            Self::Dashboard => &["v1alpha1", "v1"],
            Self::Accelerator => &["v1", "v1alpha"],
        }
    }

    /// Name in API responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hardware => "hardware-profile",
            Self::Dashboard => "dashboard-profile",
            Self::Accelerator => "accelerator-profile",
        }
    }

    /// Returns `true` if new objects of this kind are created.
    pub fn is_current(self) -> bool {
        self == Self::Hardware
    }
}

impl Count {
    /// Count of whole units.
    pub fn whole(count: u64) -> Self {
        Self { text: count.to_string(), quantity: Quantity::whole(count) }
    }
}

/// The quantity of a text that is none is 0: an object with an unreadable count is shown too.
impl From<String> for Count {
    fn from(text: String) -> Self {
        Self { quantity: text.parse().unwrap_or_default(), text }
    }
}

impl fmt::Display for ProfileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests;
