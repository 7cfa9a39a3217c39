//! Status of sharing: whether the offered resources match the desired ones.

use super::resource::{ResourceName, ShareId};
use crate::holder::DeviceAllocation;

/// Provider of devices to kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingMode {
    /// NVIDIA's device plugin, configured by Octavo.
    HandOff,
    /// The agent's built-in device plugin.
    Embedded,
}

impl SharingMode {
    /// The value of `--sharing`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HandOff => "hand-off",
            Self::Embedded => "embedded",
        }
    }
}

/// Status of sharing on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingStatus {
    /// Provider of devices.
    pub mode: SharingMode,
    /// One of the words of [`crate::reason::Reason`] for sharing: `sharing-in-force`, `sharing-pending`, `sharing-held`,
    /// `sharing-not-in-force`, `sharing-refused`, `device-plugin-conflict`.
    pub state: &'static str,
    /// Human-readable reason and remedy; absent if there is nothing to explain.
    pub message: Option<String>,
    /// Ordered by name.
    pub resources: Vec<ResourceStatus>,
    /// Ids that differ from the desired offers and stay offered because pods hold them.
    pub retained: Vec<RetainedId>,
    /// Desired configuration of NVIDIA's plugin; absent if it is not configured by us.
    pub hand_off: Option<HandOff>,
    /// The key that the Node's label names now, if we own the label: the plugin does not start without this key,
    /// whatever its desired configuration.
    pub named: Option<String>,
}

/// Status of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceStatus {
    /// Its name.
    pub name: ResourceName,
    /// Desired count.
    pub wanted: u64,
    /// Count that the Node offers to pods; `None` if the Node is not watched.
    pub allocatable: Option<u64>,
    /// Ordered by device, then by the driver's ids of the instances.
    pub units: Vec<UnitStatus>,
}

/// Status of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitStatus {
    /// UUID of the device or partition.
    pub uuid: String,
    /// Number of replicas; `None` if it is not shared.
    pub replicas: Option<u32>,
    /// Health of the unit.
    pub health: Health,
}

/// An id that differs from the desired offers and stays offered because a pod holds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetainedId {
    /// The id.
    pub id: ShareId,
    /// The pod that holds it.
    pub by: DeviceAllocation,
}

/// Desired configuration of NVIDIA's plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOff {
    /// The key of the `ConfigMap`, which is also the value of the Node's label.
    pub key: String,
    /// The configuration, in NVIDIA's format `version: v1`.
    pub config: String,
}

/// Health of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

impl Health {
    /// Returns whether the unit is healthy.
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }
}
