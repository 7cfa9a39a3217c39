//! Device counts.

use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::device::{DeviceSummary, Occupancy, PartitionCounts};

/// Device counts. Each device is counted once: the six states add up to `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CountsJson)]
pub struct DeviceCounts {
    /// All devices.
    pub total: u32,
    /// Unpartitioned devices without a process.
    pub free: u32,
    /// Unpartitioned devices with a process.
    pub in_use: u32,
    /// Devices in MIG mode.
    pub partitioned: u32,
    /// Unusable without intervention: failing, without a driver, or waiting for a reset.
    pub unavailable: u32,
    /// Reserved for virtual machines.
    #[serde(default)]
    pub set_aside: u32,
    /// State unknown.
    pub unknown: u32,
    /// Partitions of the partitioned devices.
    pub partitions: PartitionCounts,
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
    pub counts: DeviceCounts,
}

impl DeviceCounts {
    /// Counts devices whose state is unknown, such as those of a stale node.
    pub fn all_unknown(total: u32) -> Self {
        Self { total, unknown: total, ..Self::default() }
    }

    /// Adds one device.
    #[must_use]
    pub fn with(mut self, occupancy: Occupancy) -> Self {
        let state = match occupancy {
            Occupancy::Free => &mut self.free,
            Occupancy::InUse => &mut self.in_use,
            Occupancy::Partitioned(partitions) => {
                self.partitions = self.partitions.plus(partitions);
                &mut self.partitioned
            }
            Occupancy::Unavailable => &mut self.unavailable,
            Occupancy::Reserved => &mut self.set_aside,
            Occupancy::Unknown => &mut self.unknown,
        };
        *state = state.saturating_add(1);
        self.total = self.total.saturating_add(1);
        self
    }

    /// Sum of both counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            free: self.free.saturating_add(other.free),
            in_use: self.in_use.saturating_add(other.in_use),
            partitioned: self.partitioned.saturating_add(other.partitioned),
            unavailable: self.unavailable.saturating_add(other.unavailable),
            set_aside: self.set_aside.saturating_add(other.set_aside),
            unknown: self.unknown.saturating_add(other.unknown),
            partitions: self.partitions.plus(other.partitions),
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
                counts: DeviceCounts::default().with(device.occupancy),
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
        self.memory = [self.memory, more.memory].into_iter().flatten().min();
    }

    fn key(&self) -> (bool, Option<&TypeName>) {
        (self.type_name.is_none(), self.type_name.as_ref())
    }
}
