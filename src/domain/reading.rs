//! What a driver reads off its devices from moment to moment. It changes all the time and so is no part of the inventory, by
//! which others tell whether anything is new.
//!
//! Whatever a board or a driver does not have is absent: there is no number that means "none".

use crate::domain::id::{GpuUuid, PciAddress};
use crate::domain::inventory::{Process, RemappedRows};
use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::usage::{MemoryUse, Percent};

/// One device at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The device.
    pub pci: PciAddress,
    /// Its UUID.
    pub uuid: Option<GpuUuid>,
    /// The number that people call it by, where the driver tells; it moves.
    pub index: Option<u32>,
    /// The number in `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    /// The driver's name for the product.
    pub product_name: Option<String>,
    /// Its memory.
    pub memory: Option<MemoryUse>,
    /// Whether it is partitioned; then utilisation is not told.
    pub is_partitioned: bool,
    /// Its partitions.
    pub partitions: Vec<PartitionReading>,
    /// Who runs on it, ordered by pid; `None` where the driver would not say. One that computes and draws is in it twice.
    pub processes: Option<Vec<Process>>,
    /// How busy its processes keep it, in no order; none where the driver does not tell.
    pub busy: Vec<Busy>,
    /// What is measured of it.
    pub vitals: Vitals,
}

impl Reading {
    /// What tells it from others: its number, or its address where the driver does not tell that.
    pub fn label(&self) -> String {
        match self.index {
            Some(index) => index.to_string(),
            None => self.pci.to_string(),
        }
    }
}

/// One partition at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReading {
    /// The driver's id of its GPU instance.
    pub gpu_instance: u32,
    /// The driver's id of its compute instance.
    pub compute_instance: u32,
    /// Its UUID.
    pub uuid: String,
    /// What NVIDIA's tools call it.
    pub profile: Option<String>,
    /// Its GPU instance's memory, which all compute instances of that one share.
    pub memory: Option<MemoryUse>,
}

/// How busy a process keeps a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Busy {
    /// The process.
    pub pid: u32,
    /// For which part of the time it had the multiprocessors.
    pub compute: Percent,
}

/// What is measured of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// For which part of the time anything ran.
    pub compute: Option<Percent>,
    /// For which part of the time memory was read or written.
    pub memory: Option<Percent>,
    /// How busy its encoders are.
    pub encoder: Option<Percent>,
    /// How busy its decoders are.
    pub decoder: Option<Percent>,
    /// What it draws, in milliwatts.
    pub power_mw: Option<u32>,
    /// What it has drawn since the driver was loaded, in millijoules.
    pub energy_mj: Option<u64>,
    /// The chip's temperature, in degrees Celsius.
    pub temperature: Option<u32>,
    /// Its memory's, in degrees Celsius.
    pub memory_temperature: Option<u32>,
    /// Clock of the multiprocessors, in MHz.
    pub compute_clock: Option<u32>,
    /// Clock of its memory, in MHz.
    pub memory_clock: Option<u32>,
    /// PCIe packets that were sent again.
    pub pcie_replays: Option<u32>,
    /// Memory errors since the driver was loaded that were corrected.
    pub corrected_errors: Option<u64>,
    /// And those that were not.
    pub uncorrected_errors: Option<u64>,
    /// Rows of memory that were remapped.
    pub remapped_rows: Option<RemappedRows>,
}

impl MemoryUse {
    /// What nobody uses.
    pub fn free(self) -> Mebibytes {
        let taken = self.used.get().saturating_add(self.reserved.get());
        Mebibytes::new(self.total.get().saturating_sub(taken))
    }
}

impl Percent {
    /// A part of a hundred as a driver says it; more than all is all.
    pub fn of(number: u32) -> Self {
        Self(u8::try_from(number.min(100)).unwrap_or(100))
    }
}
