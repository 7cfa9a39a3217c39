//! Metrics that a driver reports about its devices. They change constantly and are therefore not part of the
//! inventory, whose changes are detected by comparison.
//!
//! A value that a board or driver does not support is absent; no number means "none".

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{GpuUuid, PciAddress};
use crate::inventory::{Process, RemappedRows};
use crate::quantity::Mebibytes;

/// Metrics of one device at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The device.
    pub pci: PciAddress,
    /// Its UUID.
    pub uuid: Option<GpuUuid>,
    /// The driver's index of the device, if reported; it is not stable.
    pub index: Option<u32>,
    /// The number in `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    /// The driver's product name.
    pub product_name: Option<String>,
    /// Its memory.
    pub memory: Option<MemoryUse>,
    /// True if it is partitioned; then the utilization of the device is not reported, only that of its partitions.
    pub is_partitioned: bool,
    /// Its partitions.
    pub partitions: Vec<PartitionReading>,
    /// Processes on the device, ordered by pid; `None` if the driver does not report them. A process that computes
    /// and renders is listed twice.
    pub processes: Option<Vec<Process>>,
    /// Utilization by process, in no particular order; empty if the driver does not report it.
    pub process_utilization: Vec<ProcessUtilization>,
    /// Measured values.
    pub metrics: DeviceMetrics,
}

impl Reading {
    /// Its index, or its address if the driver does not report an index.
    pub fn label(&self) -> String {
        match self.index {
            Some(index) => index.to_string(),
            None => self.pci.to_string(),
        }
    }
}

/// Metrics of one partition at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReading {
    /// The driver's id of its GPU instance.
    pub gpu_instance: u32,
    /// The driver's id of its compute instance.
    pub compute_instance: u32,
    /// Its UUID.
    pub uuid: String,
    /// Profile name as in NVIDIA's tools.
    pub profile: Option<String>,
    /// Memory of its GPU instance, shared by all its compute instances.
    pub memory: Option<MemoryUse>,
    /// Utilization of its GPU instance by all its compute instances since the previous reading, in percent of the GPU
    /// instance: the share of time in which a kernel ran. `None` without a previous reading, and before Hopper.
    pub compute: Option<Percent>,
}

/// Utilization of a device by one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessUtilization {
    /// The process.
    pub pid: u32,
    /// Share of time in which it used the multiprocessors.
    pub compute: Percent,
}

/// Measured values of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceMetrics {
    /// Share of time in which any kernel ran.
    pub compute: Option<Percent>,
    /// Share of time in which memory was read or written.
    pub memory: Option<Percent>,
    /// Utilization of its encoders.
    pub encoder: Option<Percent>,
    /// Utilization of its decoders.
    pub decoder: Option<Percent>,
    /// Power draw in milliwatts.
    pub power_mw: Option<u32>,
    /// Energy consumed since the driver was loaded, in millijoules.
    pub energy_mj: Option<u64>,
    /// GPU temperature in degrees Celsius.
    pub temperature: Option<u32>,
    /// Memory temperature in degrees Celsius.
    pub memory_temperature: Option<u32>,
    /// Clock of the multiprocessors, in MHz.
    pub compute_clock: Option<u32>,
    /// Clock of its memory, in MHz.
    pub memory_clock: Option<u32>,
    /// PCIe packets that were retransmitted.
    pub pcie_replays: Option<u32>,
    /// Corrected memory errors since the driver was loaded.
    pub corrected_errors: Option<u64>,
    /// Uncorrected memory errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// Remapped memory rows.
    pub remapped_rows: Option<RemappedRows>,
}

impl DeviceMetrics {
    /// Power draw in watts, rounded to the nearest.
    pub fn power_watts(&self) -> Option<u32> {
        self.power_mw.map(|milliwatts| milliwatts.saturating_add(500) / 1000)
    }
}

/// Memory of a device or partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct MemoryUse {
    /// Total memory.
    #[serde(rename = "totalMiB")]
    #[schema(value_type = u64)]
    pub total: Mebibytes,
    /// Memory used by processes.
    #[serde(rename = "usedMiB")]
    #[schema(value_type = u64)]
    pub used: Mebibytes,
    /// Memory reserved by the driver.
    #[serde(rename = "reservedMiB")]
    #[schema(value_type = u64)]
    pub reserved: Mebibytes,
}

/// Memory slices of a GPU in MIG mode. GPUs with four slices, such as A30, count each twice.
pub const MEMORY_SLICES: u64 = 8;

impl MemoryUse {
    /// Number of the [`MEMORY_SLICES`] of a device that an instance with this memory has, rounded to the nearest. `None` if the
    /// memory of the device is 0.
    pub fn slices_of(&self, device: &Self) -> Option<u64> {
        let all = device.total.get();
        let memory = self.total.get().saturating_mul(MEMORY_SLICES);
        memory.saturating_add(all / 2).checked_div(all)
    }
}

/// A percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub u8);

impl MemoryUse {
    /// Free memory.
    pub fn free(self) -> Mebibytes {
        let taken = self.used.get().saturating_add(self.reserved.get());
        Mebibytes::new(self.total.get().saturating_sub(taken))
    }
}

impl Percent {
    /// A percentage reported by a driver; values above 100 become 100.
    pub fn saturating_from(number: u32) -> Self {
        Self(u8::try_from(number.min(100)).unwrap_or(100))
    }
}
