//! Device counts.

use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::device::{DeviceSummary, Occupancy, PartitionCounts};
use super::device_use::DeviceUse;

/// Device counts. Each device is counted once: the counts by use add up to `total`.
///
/// In JSON, `free`, `inUse` and `partitioned` are absent instead of 0 if the use of some devices is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Counts)]
pub struct DeviceCounts {
    /// All devices.
    pub total: u32,
    /// Unpartitioned devices without a process; absent if none is known and the use of some devices is unknown.
    #[serde(default)]
    pub free: u32,
    /// Unpartitioned devices with a process; absent like `free`.
    #[serde(default)]
    pub in_use: u32,
    /// Devices in MIG mode; absent like `free`.
    #[serde(default)]
    pub partitioned: u32,
    /// Unusable without intervention: failing, without a driver, or waiting for a reset.
    pub unavailable: u32,
    /// Reserved for virtual machines.
    #[serde(default, alias = "setAside")]
    pub passthrough: u32,
    /// Use unknown.
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
        if let Occupancy::Partitioned(partitions) = occupancy {
            self.partitions = self.partitions.plus(partitions);
        }
        let count = match occupancy.device_use() {
            DeviceUse::Free => &mut self.free,
            DeviceUse::InUse => &mut self.in_use,
            DeviceUse::Partitioned => &mut self.partitioned,
            DeviceUse::Unavailable => &mut self.unavailable,
            DeviceUse::Passthrough => &mut self.passthrough,
            DeviceUse::Unknown => &mut self.unknown,
        };
        *count = count.saturating_add(1);
        self.total = self.total.saturating_add(1);
        self
    }

    /// Number of devices with this use, as far as it is known.
    pub fn count(self, of: DeviceUse) -> u32 {
        match of {
            DeviceUse::Free => self.free,
            DeviceUse::InUse => self.in_use,
            DeviceUse::Partitioned => self.partitioned,
            DeviceUse::Unavailable => self.unavailable,
            DeviceUse::Passthrough => self.passthrough,
            DeviceUse::Unknown => self.unknown,
        }
    }

    /// Number of devices with this use; `None` if it is unknown, because none is known and the use of some devices is
    /// unknown.
    pub fn known_count(self, of: DeviceUse) -> Option<u32> {
        let count = self.count(of);
        let is_hidden = count == 0 && self.unknown > 0 && of.may_be_hidden();
        (!is_hidden).then_some(count)
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
            passthrough: self.passthrough.saturating_add(other.passthrough),
            unknown: self.unknown.saturating_add(other.unknown),
            partitions: self.partitions.plus(other.partitions),
        }
    }
}

impl Serialize for DeviceCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("total", &self.total)?;
        for of in DeviceUse::ALL {
            if let Some(count) = self.known_count(of) {
                fields.serialize_entry(of.json_key(), &count)?;
            }
        }
        fields.serialize_entry("partitions", &self.partitions)?;
        fields.end()
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
