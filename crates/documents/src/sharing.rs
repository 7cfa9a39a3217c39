//! Sharing status of a node's resources, as JSON.

use octavo_fleet::fleet::SharingReport;
use octavo_model::sharing_status::{Health, ResourceStatus, RetainedId, UnitStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far what a node gives out to pods is what shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharingJson {
    /// Who gives devices out: `hand-off` (NVIDIA's device plugin), `embedded` (the agent).
    pub mode: String,
    /// How far it is: `sharing-in-force`, `sharing-pending`, `sharing-held`, `sharing-not-in-force`, `sharing-refused`,
    /// `device-plugin-conflict`.
    pub state: String,
    /// Why, in words for a person; absent where there is nothing to explain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Ordered by name.
    pub resources: Vec<SharedResourceJson>,
    /// What is given out otherwise than it shall be for as long as pods have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptJson>,
    /// The key of the `ConfigMap` that NVIDIA's device plugin shall follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_config_key: Option<String>,
}

/// How far a resource is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedResourceJson {
    /// Its name: `nvidia.com/gpu`.
    pub name: String,
    /// How many there shall be.
    pub wanted: u64,
    /// How many of them the Node offers to pods; absent where nobody looks at the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<u64>,
    /// Whole devices or partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<SharedUnitJson>,
}

/// How a whole device or a partition is given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedUnitJson {
    /// Its UUID.
    pub uuid: String,
    /// How many have it by turns; absent where one has it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Why it is not fit to be given out; absent where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
}

/// An id that is kept for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptJson {
    /// The id.
    pub id: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// As what it was given.
    pub resource: String,
}

impl From<&SharingReport> for SharingJson {
    fn from(report: &SharingReport) -> Self {
        let hand_off = report.hand_off.as_ref();
        Self {
            mode: report.mode.clone(),
            state: report.state.clone(),
            message: report.message.clone(),
            resources: report
                .resources
                .iter()
                .map(SharedResourceJson::from)
                .collect(),
            kept: report.retained.iter().map(KeptJson::from).collect(),
            plugin_config_key: hand_off.map(|told| told.key.clone()),
        }
    }
}

impl From<&ResourceStatus> for SharedResourceJson {
    fn from(resource: &ResourceStatus) -> Self {
        Self {
            name: resource.name.to_string(),
            wanted: resource.wanted,
            allocatable: resource.allocatable,
            units: resource.units.iter().map(SharedUnitJson::from).collect(),
        }
    }
}

impl From<&UnitStatus> for SharedUnitJson {
    fn from(unit: &UnitStatus) -> Self {
        Self {
            uuid: unit.uuid.clone(),
            replicas: unit.replicas,
            unhealthy: match &unit.health {
                Health::Healthy => None,
                Health::Unhealthy { reason } => Some(reason.clone()),
            },
        }
    }
}

impl From<&RetainedId> for KeptJson {
    fn from(kept: &RetainedId) -> Self {
        Self {
            id: kept.id.to_string(),
            namespace: kept.by.namespace.clone(),
            pod: kept.by.pod.clone(),
            container: kept.by.container.clone(),
            resource: kept.by.resource.clone(),
        }
    }
}
