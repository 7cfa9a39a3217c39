//! Accelerators outside of NVML, known only from kernel files.

use serde::{Deserialize, Serialize};

use super::{Code, PciAddress};

/// Devices of the machine other than its GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherDevices {
    /// AWS Neuron devices, all with the same chip.
    pub neuron: Option<Neuron>,
    /// AMD devices, ordered by address.
    pub amd: Vec<AmdDevice>,
    /// Functions that only the bus reports.
    pub functions: Vec<Function>,
}

/// A chip of AWS Neuron.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NeuronChip {
    /// Inferentia.
    Inferentia,
    /// Inferentia2.
    Inferentia2,
    /// Trainium1.
    Trainium1,
    /// Trainium2.
    Trainium2,
}

/// Neuron devices of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neuron {
    /// Their chip.
    pub chip: NeuronChip,
    /// Version of the driver.
    pub driver: String,
    /// Linked devices of each device, by number.
    pub links: Vec<Vec<u32>>,
    /// Physical cores per logical core, if configured.
    pub logical_core: Option<u32>,
    /// Memory in use on each core of each device, MiB.
    pub used_mib: Vec<u64>,
    /// Unhealthy parts of each device according to the driver.
    pub unhealthy: Vec<Vec<String>>,
}

/// A chip of AMD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AmdChip {
    /// Instinct MI210.
    Mi210,
    /// Instinct MI300X.
    Mi300x,
}

/// Partitioning of a device's compute units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ComputeMode {
    /// Whole.
    Spx,
    /// Two partitions.
    Dpx,
    /// Four partitions.
    Qpx,
    /// Eight partitions.
    Cpx,
}

/// Partitioning of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MemoryMode {
    /// Whole.
    Nps1,
    /// Four partitions.
    Nps4,
}

/// A device that amdgpu drives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmdDevice {
    /// Its chip.
    pub chip: AmdChip,
    /// Its address.
    pub pci: PciAddress,
    /// Its NUMA node.
    pub numa_node: u32,
    /// Its chip's id.
    pub unique_id: u64,
    /// Its hive; 0 for none.
    pub hive: u64,
    /// Partitioning of its compute units.
    pub compute: ComputeMode,
    /// Partitioning of its memory.
    pub memory: MemoryMode,
    /// Memory in use, MiB.
    pub used_mib: u64,
}

/// A PCI function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its address.
    pub pci: PciAddress,
    /// PCI vendor.
    pub vendor: u16,
    /// PCI device.
    pub device: u16,
    /// Class, subclass and interface.
    pub class: u32,
    /// Its NUMA node.
    pub numa_node: u32,
    /// The kernel driver bound to it.
    pub driver: Option<String>,
}

impl OtherDevices {
    /// Partitions all AMD devices that support it, as in a hive.
    pub fn divide(&mut self, compute: ComputeMode, memory: MemoryMode) -> Result<(), Code> {
        if !memory.is_compatible_with(compute) {
            return Err(Code::InvalidArgument);
        }
        let mut found = false;
        for device in self.amd.iter_mut().filter(|one| one.chip.has_partitions()) {
            (device.compute, device.memory, found) = (compute, memory, true);
        }
        if found { Ok(()) } else { Err(Code::NotSupported) }
    }
}

impl NeuronChip {
    /// Physical cores of a device.
    pub fn cores(self) -> u32 {
        match self {
            Self::Inferentia => 4,
            Self::Inferentia2 | Self::Trainium1 => 2,
            Self::Trainium2 => 8,
        }
    }

    /// Memory of a device, GiB.
    pub fn memory_gib(self) -> u64 {
        match self {
            Self::Inferentia => 8,
            Self::Inferentia2 | Self::Trainium1 => 32,
            Self::Trainium2 => 96,
        }
    }

    /// True if its driver reports error counters and serial numbers.
    pub fn reports_errors_and_serial(self) -> bool {
        self != Self::Inferentia
    }

    /// True if two of its cores can form a logical core.
    pub fn has_logical_cores(self) -> bool {
        self == Self::Trainium2
    }
}

impl AmdChip {
    /// True if it can be partitioned.
    pub fn has_partitions(self) -> bool {
        self == Self::Mi300x
    }

    /// Its memory, MiB.
    pub fn memory_mib(self) -> u64 {
        match self {
            Self::Mi210 => 65_520,
            Self::Mi300x => 196_592,
        }
    }
}

impl ComputeMode {
    /// Number of partitions.
    pub fn parts(self) -> u32 {
        match self {
            Self::Spx => 1,
            Self::Dpx => 2,
            Self::Qpx => 4,
            Self::Cpx => 8,
        }
    }

    /// The driver's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spx => "SPX",
            Self::Dpx => "DPX",
            Self::Qpx => "QPX",
            Self::Cpx => "CPX",
        }
    }
}

impl MemoryMode {
    /// Number of partitions.
    pub fn parts(self) -> u32 {
        match self {
            Self::Nps1 => 1,
            Self::Nps4 => 4,
        }
    }

    /// The driver's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nps1 => "NPS1",
            Self::Nps4 => "NPS4",
        }
    }

    /// True if the kernel allows it with these compute partitions: Linux, `aqua_vanjaram.c`.
    pub fn is_compatible_with(self, compute: ComputeMode) -> bool {
        match self {
            Self::Nps1 => true,
            Self::Nps4 => matches!(compute, ComputeMode::Qpx | ComputeMode::Cpx),
        }
    }
}
