//! Device counts.

use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;

use super::device::{DeviceSummary, Occupancy, Partitions};

/// Device counts. Each device counts once: `free`, `in_use`, `partitioned`, `unavailable`, `reserved` and `unknown`
/// add up to [`Counts::total`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Whole devices without a process.
    pub free: u32,
    /// Whole devices with a process.
    pub in_use: u32,
    /// Partitioned devices.
    pub partitioned: u32,
    /// Devices that require intervention before they can be used.
    pub unavailable: u32,
    /// Devices reserved for virtual machines, which are unavailable to pods on purpose.
    pub reserved: u32,
    /// Devices whose use is unknown, including all devices of a stale node.
    pub unknown: u32,
    /// Partitions of the partitioned devices.
    pub partitions: Partitions,
}

/// Device counts of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeCounts {
    /// The type; `None` for unidentified devices.
    pub type_name: Option<TypeName>,
    /// Number of devices whose type was set manually; the others were identified by the catalog.
    pub manual: u32,
    /// Memory of one device; the minimum if they differ.
    pub memory: Option<Mebibytes>,
    /// Counts of the devices.
    pub counts: Counts,
}

impl Counts {
    /// Total number of devices.
    pub fn total(self) -> u32 {
        [
            self.free,
            self.in_use,
            self.partitioned,
            self.unavailable,
            self.reserved,
            self.unknown,
        ]
        .into_iter()
        .fold(0, u32::saturating_add)
    }

    /// Adds one device.
    #[must_use]
    pub fn with(mut self, occupancy: Occupancy) -> Self {
        let place = match occupancy {
            Occupancy::Free => &mut self.free,
            Occupancy::InUse => &mut self.in_use,
            Occupancy::Partitioned(partitions) => {
                self.partitions = self.partitions.plus(partitions);
                &mut self.partitioned
            }
            Occupancy::Unavailable => &mut self.unavailable,
            Occupancy::Reserved => &mut self.reserved,
            Occupancy::Unknown => &mut self.unknown,
        };
        *place = place.saturating_add(1);
        self
    }

    /// Sum of both counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            free: self.free.saturating_add(other.free),
            in_use: self.in_use.saturating_add(other.in_use),
            partitioned: self.partitioned.saturating_add(other.partitioned),
            unavailable: self.unavailable.saturating_add(other.unavailable),
            reserved: self.reserved.saturating_add(other.reserved),
            unknown: self.unknown.saturating_add(other.unknown),
            partitions: self.partitions.plus(other.partitions),
        }
    }

    /// Counts of the same devices on a stale node: the last reported state is outdated.
    #[must_use]
    pub fn as_stale(self) -> Self {
        Self {
            unknown: self.total(),
            ..Self::default()
        }
    }
}

impl TypeCounts {
    /// Counts devices by type, ordered by type name, unidentified devices last.
    pub fn from_devices(devices: &[DeviceSummary]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for device in devices {
            let one = Self {
                type_name: device.type_name.clone(),
                manual: u32::from(device.is_manual_type),
                memory: device.memory,
                counts: Counts::default().with(device.occupancy),
            };
            Self::add(&mut all, &one);
        }
        all
    }

    /// Adds the counts of one type to a sorted list, preserving the order.
    pub fn add(all: &mut Vec<Self>, more: &Self) {
        match all.binary_search_by(|known| known.key().cmp(&more.key())) {
            Ok(at) => {
                if let Some(known) = all.get_mut(at) {
                    known.merge(more);
                }
            }
            Err(at) => all.insert(at, more.clone()),
        }
    }

    /// Adds the counts of more devices of the same type.
    pub fn merge(&mut self, more: &Self) {
        self.counts = self.counts.plus(more.counts);
        self.manual = self.manual.saturating_add(more.manual);
        self.memory = match (self.memory, more.memory) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    fn key(&self) -> (bool, Option<&TypeName>) {
        (self.type_name.is_none(), self.type_name.as_ref())
    }
}
