//! Device data that only AMD's kernel driver reports: amdgpu in sysfs, and KFD's topology.
//!
//! AMD partitions compute (`SPX`, `DPX`, `QPX`, `TPX`, `CPX`) and memory (`NPS1`, `NPS2`, `NPS4`) for the whole
//! device at once. The modes are read here and never set.

use serde::{Deserialize, Serialize};
use serde_with::{serde_as, skip_serializing_none};
use utoipa::ToSchema;

use super::json::{Hex, is_default};
use crate::quantity::Mebibytes;

/// Compute mode of an unpartitioned device. Source: AMD, "compute partitioning modes".
const UNPARTITIONED_MODE: &str = "SPX";

/// Data that AMD's driver reports for a device.
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Amd {
    /// Version of the kernel module; absent for a driver that is part of the kernel.
    pub driver_version: Option<String>,
    /// Chip id of 16 hexadecimal digits, which identifies a device after it was moved. Source: `unique_id`.
    pub unique_id: Option<String>,
    /// Serial number of the board; absent for virtual functions.
    pub serial: Option<String>,
    /// Compilation target, such as `gfx942`. Source: KFD, `gfx_target_version`.
    pub gfx_target: Option<String>,
    /// Compute units of all partitions of the device.
    pub compute_units: Option<u32>,
    /// Hive id; devices with the same id are linked by xGMI. Source: KFD, `hive_id`, if it is not 0. JSON has 16
    /// hexadecimal digits, because many of its readers cannot hold such a number.
    #[serde_as(as = "Option<Hex<16>>")]
    #[schema(value_type = Option<String>)]
    pub hive: Option<u64>,
    /// Used memory.
    #[serde(rename = "memoryUsedMiB")]
    #[schema(value_type = Option<u64>)]
    pub memory_used: Option<Mebibytes>,
    /// Compute partitioning mode, such as `CPX`; `None` if not supported.
    #[serde(rename = "computePartition")]
    pub compute: Option<PartitioningMode>,
    /// Memory partitioning mode, such as `NPS4`; `None` if not supported.
    #[serde(rename = "memoryPartition")]
    pub memory: Option<PartitioningMode>,
    /// Partitions visible to programs: KFD's nodes of this device, ordered by render minor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<AmdPartition>,
    /// True if this is a virtual function, which has no product name and cannot be partitioned by this machine.
    #[serde(rename = "virtualFunction", default, skip_serializing_if = "is_default")]
    pub is_virtual: bool,
}

impl Amd {
    /// Returns `true` if the device has more than one partition.
    pub fn is_partitioned(&self) -> bool {
        let whole = |mode: &PartitioningMode| mode.current == UNPARTITIONED_MODE;
        // KFD may be unavailable; then the mode decides.
        self.partitions.len() > 1 || self.compute.as_ref().is_some_and(|mode| !whole(mode))
    }
}

/// Partitioning mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Mode)]
pub struct PartitioningMode {
    /// Current mode.
    pub current: String,
    /// Modes that the driver accepts, in its order.
    #[serde(default)]
    pub available: Vec<String>,
}

/// Device or partition, as visible to programs.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AmdPartition {
    /// N in `/dev/dri/renderD<N>`; for display only, because it can change.
    pub render_minor: u32,
    /// Its compute units.
    pub compute_units: Option<u32>,
    /// Visible memory, which several partitions may share.
    #[serde(rename = "memoryMiB")]
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Mebibytes>,
}
