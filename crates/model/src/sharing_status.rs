//! Status of sharing: whether the offered resources match the desired ones.

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, IntoStaticStr};
use utoipa::ToSchema;

use super::resource::{ResourceName, ShareId};
use crate::holder::DeviceAllocation;
use crate::id::PciAddress;
use crate::reason::Reason;
use crate::reported::Reported;
use crate::text::{MAX_TEXT_BYTES, MAX_WORD_BYTES, truncate, truncated_word};

/// Provider of devices to kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, AsRefStr, IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum DeviceProvider {
    /// NVIDIA's device plugin, configured by Octavo.
    HandOff,
    /// The agent's built-in device plugin.
    Embedded,
    /// The agent, to resource claims.
    Dra,
}

/// Maximum number of resources that a node reports.
pub const MAX_RESOURCES: usize = 64;
/// Maximum number of units that a node reports per resource: whole devices, or all partitions of all devices.
pub const MAX_UNITS: usize = 1024;
/// Maximum number of ids that a node reports as retained for pods.
pub const MAX_RETAINED: usize = 256;
/// Maximum length of the reported configuration of NVIDIA's plugin, in bytes.
pub const MAX_CONFIG_BYTES: usize = 32 * 1024;

/// Allocation status that a node reports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Sharing)]
pub struct SharingStatus {
    /// Component that allocates devices: `hand-off` (NVIDIA's device plugin), `embedded` (the agent), `dra` (the agent, to
    /// resource claims).
    #[schema(value_type = String)]
    pub mode: Reported<DeviceProvider>,
    /// State: `sharing-in-force`, `sharing-pending`, `sharing-held`, `sharing-not-in-force`, `sharing-refused`,
    /// `device-plugin-conflict`, `claims-served`, `claims-not-served`.
    #[schema(value_type = String)]
    pub state: Reported<Reason>,
    /// Explanation for users; absent if there is nothing to explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Resources, ordered by name.
    pub resources: Vec<ResourceStatus>,
    /// GPUs that claims cannot use because the layout determines their partitions; only of `dra`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub covered: Vec<PciAddress>,
    /// Devices and partitions that several claims share, with their replicas; only of `dra`.
    #[serde(rename = "claimShares", default, skip_serializing_if = "Vec::is_empty")]
    pub claim_shares: Vec<UnitStatus>,
    /// Allocations that deviate from the desired ones until their pods release them.
    #[serde(rename = "kept", default, skip_serializing_if = "Vec::is_empty")]
    pub retained: Vec<RetainedId>,
    /// Key of the `ConfigMap` that contains the desired configuration of NVIDIA's plugin.
    #[serde(rename = "pluginConfigKey", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub hand_off: Option<HandOffConfig>,
    /// Configuration key that the node's plugin currently refers to and cannot start without.
    #[serde(skip)]
    pub named: Option<String>,
}

impl SharingStatus {
    /// Returns the status with lists and texts of limited length, for reporting. A configuration that is too long is
    /// omitted, because a truncated one would have another meaning.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let fits = |hand_off: &&HandOffConfig| {
            hand_off.key.len() <= MAX_WORD_BYTES && hand_off.config.len() <= MAX_CONFIG_BYTES
        };
        let resources = self.resources.iter().take(MAX_RESOURCES);
        Self {
            mode: self.mode.clone(),
            state: self.state.clone(),
            message: self.message.as_deref().map(truncated_text),
            resources: resources.map(ResourceStatus::bounded).collect(),
            covered: self.covered.iter().take(MAX_UNITS).copied().collect(),
            claim_shares: self
                .claim_shares
                .iter()
                .take(MAX_UNITS)
                .map(UnitStatus::bounded)
                .collect(),
            retained: self.retained.iter().take(MAX_RETAINED).map(RetainedId::bounded).collect(),
            hand_off: self.hand_off.as_ref().filter(fits).cloned(),
            named: self.named.as_deref().map(truncated_word),
        }
    }

    /// Devices and partitions with the resource of each, where what the node allocates is what the layout desires;
    /// empty otherwise.
    ///
    /// A fault of one device does not affect the others: then only resources count for which the Node offers all
    /// healthy units.
    pub fn applied_units(&self) -> impl Iterator<Item = (&ResourceName, &UnitStatus)> {
        let reason = self.state.known();
        let resources = self.resources.iter().filter(move |one| match reason {
            Some(Reason::SharingInForce | Reason::SharingHeld) => true,
            Some(Reason::SharingNotInForce) => one.is_fully_offered(),
            Some(_) | None => false,
        });
        resources.flat_map(|one| one.units.iter().map(move |unit| (&one.name, unit)))
    }

    /// Truncates lists to `few` items and descriptions to `most` bytes. The configuration of NVIDIA's plugin is never
    /// truncated.
    pub fn shorten(&mut self, few: usize, most: usize) {
        self.retained.truncate(few);
        if let Some(text) = &mut self.message {
            *text = truncate(text, most);
        }
        for resource in &mut self.resources {
            resource.units.truncate(few);
            for unit in &mut resource.units {
                if let Health::Unhealthy { reason } = &mut unit.health {
                    *reason = truncate(reason, most);
                }
            }
        }
    }
}

/// Status of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SharedResource)]
pub struct ResourceStatus {
    /// Resource name, such as `nvidia.com/gpu`.
    #[schema(value_type = String)]
    pub name: ResourceName,
    /// Desired count.
    pub wanted: u64,
    /// Count that the Node offers to pods; absent if the Node is not watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<u64>,
    /// Whole devices or partitions, ordered by device, then by the driver's ids of the instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitStatus>,
}

impl ResourceStatus {
    /// Returns whether the Node offers all healthy units of the resource, and there are some.
    fn is_fully_offered(&self) -> bool {
        let healthy = self.units.iter().filter(|unit| unit.health.is_healthy());
        let count: u64 = healthy.map(|unit| u64::from(unit.replicas.unwrap_or(1))).sum();
        count > 0 && self.allocatable == Some(count)
    }

    fn bounded(&self) -> Self {
        Self {
            name: self.name.clone(),
            wanted: self.wanted,
            allocatable: self.allocatable,
            units: self.units.iter().take(MAX_UNITS).map(UnitStatus::bounded).collect(),
        }
    }
}

impl UnitStatus {
    fn bounded(&self) -> Self {
        Self {
            uuid: truncated_word(&self.uuid),
            replicas: self.replicas,
            health: match &self.health {
                Health::Healthy => Health::Healthy,
                Health::Unhealthy { reason } => {
                    Health::Unhealthy { reason: truncated_text(reason) }
                }
            },
        }
    }
}

/// Status of a unit: a whole device or a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SharedUnit)]
pub struct UnitStatus {
    /// UUID of the device or partition.
    pub uuid: String,
    /// Number of replicas; absent if it is not shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Why the unit is unhealthy; absent if it is healthy.
    #[serde(rename = "unhealthy", default, skip_serializing_if = "Health::is_healthy")]
    #[schema(value_type = Option<String>)]
    pub health: Health,
}

/// An id that differs from the desired offers and stays offered because a pod holds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[schema(as = Kept)]
pub struct RetainedId {
    /// The id.
    #[schema(value_type = String)]
    pub id: ShareId,
    /// Namespace of the pod that holds it.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Resource that the id was allocated as.
    pub resource: String,
}

impl RetainedId {
    /// Creates the entry of `id`, which is allocated as `by`.
    pub fn new(id: ShareId, by: &DeviceAllocation) -> Self {
        Self {
            id,
            namespace: by.namespace.clone(),
            pod: by.pod.clone(),
            container: by.container.clone(),
            resource: by.resource.clone(),
        }
    }

    fn bounded(&self) -> Self {
        Self {
            id: self.id.clone(),
            namespace: truncated_word(&self.namespace),
            pod: truncated_word(&self.pod),
            container: truncated_word(&self.container),
            resource: truncated_word(&self.resource),
        }
    }
}

fn truncated_text(text: &str) -> String {
    truncate(text, MAX_TEXT_BYTES)
}

/// Desired configuration of NVIDIA's plugin. Documents contain only its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct HandOffConfig {
    /// The key of the `ConfigMap`, which is also the value of the Node's label.
    pub key: String,
    /// The configuration, in NVIDIA's format `version: v1`.
    pub config: String,
}

impl From<HandOffConfig> for String {
    fn from(hand_off: HandOffConfig) -> Self {
        hand_off.key
    }
}

impl From<String> for HandOffConfig {
    fn from(key: String) -> Self {
        let config = String::new();
        Self { key, config }
    }
}

/// Health of a unit. Documents contain the reason of an unhealthy unit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Option<String>", into = "Option<String>")]
pub enum Health {
    /// The unit can be allocated.
    #[default]
    Healthy,
    /// The unit must not be allocated.
    Unhealthy {
        /// Human-readable reason and condition of recovery. The text is constant while both are.
        reason: String,
    },
}

impl From<Health> for Option<String> {
    fn from(health: Health) -> Self {
        match health {
            Health::Healthy => None,
            Health::Unhealthy { reason } => Some(reason),
        }
    }
}

impl From<Option<String>> for Health {
    fn from(reason: Option<String>) -> Self {
        reason.map_or(Self::Healthy, |reason| Self::Unhealthy { reason })
    }
}

impl Health {
    /// Returns whether the unit is healthy.
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }
}
