//! What the devices of one node shall have: a layout after its names were looked up in each device's own catalogue.

use super::{Place, TimeSlicing};
use crate::domain::catalog::Placement;
use crate::domain::id::PciAddress;

/// What the devices of a node shall have. A device that is not listed is never touched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targets {
    /// Ordered by PCI address, each once.
    pub devices: Vec<DeviceTarget>,
    /// Devices that a rule selects and whose state cannot be read, ordered by PCI address. Nothing is done to them, and a node that has one
    /// is not applied.
    pub unverified: Vec<UnverifiedDevice>,
}

/// A device that a rule selects and whose state cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnverifiedDevice {
    /// The device.
    pub pci: PciAddress,
    /// Where the rule starts.
    pub rule: Place,
    /// Why its state cannot be read, in words for a person.
    pub reason: String,
}

/// What one device shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTarget {
    /// The device.
    pub pci: PciAddress,
    /// Where the rule stands that says so.
    pub rule: Place,
    /// How it is partitioned; `None` leaves it as it is.
    pub mig: Option<MigTarget>,
    /// How it, or its partitions, are shared; `None` leaves it as it is.
    pub time_slicing: Option<TimeSlicing>,
}

/// Partitioning that one device shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigTarget {
    /// MIG mode off.
    Disabled,
    /// MIG mode on with these GPU instances and no other, in the order of their profile's id, then of the split, then of
    /// the place.
    Enabled(Vec<InstanceTarget>),
}

/// A GPU instance that shall be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceTarget {
    /// The driver's id of its profile on this device.
    pub profile_id: u32,
    /// Compute slices of each of its compute instances, the largest first; one that has all of them is the usual case.
    pub compute: Vec<u32>,
    /// Where it shall lie, in memory slices; `None` leaves that to the planner. What is restored is restored in its place.
    pub placement: Option<Placement>,
}
