//! Targets: the desired state of the devices of one node, with profile names resolved in the catalog of each device.

use octavo_model::catalog::Placement;
use octavo_model::id::PciAddress;
use octavo_model::source_position::SourcePosition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::TimeSlicing;

/// The desired state of a node's devices. Octavo never changes a device that is not listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targets {
    /// Unique devices, ordered by PCI address.
    pub devices: Vec<DeviceTarget>,
    /// Devices that a rule selects but whose state cannot be read, ordered by PCI address. They are not changed, and a
    /// node with one does not count as applied.
    pub unverified: Vec<UnverifiedDevice>,
}

/// A device that a rule selects but whose state cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnverifiedDevice {
    /// PCI address.
    pub pci: PciAddress,
    /// Start of the rule in the file.
    pub rule: SourcePosition,
    /// The cause, for messages.
    pub reason: String,
}

/// The desired state of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTarget {
    /// PCI address.
    pub pci: PciAddress,
    /// Start of the rule in the file.
    pub rule: SourcePosition,
    /// Desired partitioning; `None` leaves it unchanged.
    pub mig: Option<MigTarget>,
    /// Desired sharing of the device or its partitions; `None` leaves it unchanged.
    pub time_slicing: Option<TimeSlicing>,
}

/// Desired partitioning of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigTarget {
    /// MIG mode off.
    Disabled,
    /// MIG mode on with exactly these GPU instances, ordered by profile id, then by split, then by placement.
    Enabled(Vec<InstanceTarget>),
}

/// A desired GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "InstanceDocument", into = "InstanceDocument")]
pub struct InstanceTarget {
    /// The driver's profile id on this device.
    pub profile_id: u32,
    /// Compute slices of each compute instance, largest first; usually one that has all slices.
    pub compute: Vec<u32>,
    /// Desired placement in memory slices; `None` lets the planner choose. A rollback restores the original placement.
    pub placement: Option<Placement>,
}

/// JSON shape of [`InstanceTarget`]. A flattened `Option` would hide invalid values.
#[skip_serializing_none]
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceDocument {
    profile: u32,
    compute: Vec<u32>,
    start: Option<u32>,
    size: Option<u32>,
}

impl From<InstanceDocument> for InstanceTarget {
    fn from(document: InstanceDocument) -> Self {
        let InstanceDocument { profile, compute, start, size } = document;
        let placement = start.zip(size).map(|(start, size)| Placement { start, size });
        Self { profile_id: profile, compute, placement }
    }
}

impl From<InstanceTarget> for InstanceDocument {
    fn from(target: InstanceTarget) -> Self {
        let InstanceTarget { profile_id, compute, placement } = target;
        let (start, size) = placement.map(|Placement { start, size }| (start, size)).unzip();
        Self { profile: profile_id, compute, start, size }
    }
}
