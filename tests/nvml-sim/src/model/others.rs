//! Accelerators that NVML does not speak for: what the kernel's files say of them is all there is.

use serde::{Deserialize, Serialize};

use super::{Code, PciAddress};

/// Whatever is on the machine beside its GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    /// AWS Neuron's, all of one chip.
    pub neuron: Option<Neuron>,
    /// AMD's, in the order of their addresses.
    pub amd: Vec<AmdDevice>,
    /// Functions that only the bus reports.
    pub functions: Vec<Function>,
}

/// A chip, as AWS Neuron's driver tells of it.
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
    /// What they are.
    pub chip: NeuronChip,
    /// Version of the driver.
    pub driver: String,
    /// Who is linked with whom, for each device by number.
    pub links: Vec<Vec<u32>>,
    /// Physical cores in a logical one, where the node is set so.
    pub logical_core: Option<u32>,
    /// Memory in use on each core of each device, MiB.
    pub used_mib: Vec<u64>,
    /// Parts that the driver calls unhealthy, for each device.
    pub unhealthy: Vec<Vec<String>>,
}

/// A chip of AMD's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AmdChip {
    /// Instinct MI210.
    Mi210,
    /// Instinct MI300X.
    Mi300x,
}

/// How a device's compute units are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ComputeMode {
    /// Whole.
    Spx,
    /// In two.
    Dpx,
    /// In four.
    Qpx,
    /// In eight.
    Cpx,
}

/// How a device's memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MemoryMode {
    /// Whole.
    Nps1,
    /// In four.
    Nps4,
}

/// A device that amdgpu drives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmdDevice {
    /// What it is.
    pub chip: AmdChip,
    /// Where it is.
    pub pci: PciAddress,
    /// Its NUMA node.
    pub numa_node: u32,
    /// Its chip's id.
    pub unique_id: u64,
    /// The hive that it is linked in; 0 for none.
    pub hive: u64,
    /// How its compute units are divided.
    pub compute: ComputeMode,
    /// How its memory is divided.
    pub memory: MemoryMode,
    /// Memory in use, MiB.
    pub used_mib: u64,
}

/// A PCI function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Where it is.
    pub pci: PciAddress,
    /// PCI vendor.
    pub vendor: u16,
    /// PCI device.
    pub device: u16,
    /// Class, subclass and interface.
    pub class: u32,
    /// Its NUMA node.
    pub numa_node: u32,
    /// The kernel driver that holds it.
    pub driver: Option<String>,
}

impl Others {
    /// AMD's devices that can be divided are divided so, all of them, as those of one hive are.
    pub fn divide(&mut self, compute: ComputeMode, memory: MemoryMode) -> Result<(), Code> {
        if !memory.goes_with(compute) {
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

    /// Whether its driver counts errors and tells serial numbers.
    pub fn is_told(self) -> bool {
        self != Self::Inferentia
    }

    /// Whether two of its cores can be one.
    pub fn has_logical_cores(self) -> bool {
        self == Self::Trainium2
    }
}

impl AmdChip {
    /// Whether it can be divided.
    pub fn has_partitions(self) -> bool {
        self == Self::Mi300x
    }

    /// All of its memory, MiB.
    pub fn memory_mib(self) -> u64 {
        match self {
            Self::Mi210 => 65_520,
            Self::Mi300x => 196_592,
        }
    }
}

impl ComputeMode {
    /// How many parts it makes.
    pub fn parts(self) -> u32 {
        match self {
            Self::Spx => 1,
            Self::Dpx => 2,
            Self::Qpx => 4,
            Self::Cpx => 8,
        }
    }

    /// As the driver writes it.
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
    /// How many parts it makes.
    pub fn parts(self) -> u32 {
        match self {
            Self::Nps1 => 1,
            Self::Nps4 => 4,
        }
    }

    /// As the driver writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nps1 => "NPS1",
            Self::Nps4 => "NPS4",
        }
    }

    /// Whether the kernel takes it beside such compute partitions: Linux, `aqua_vanjaram.c`.
    pub fn goes_with(self, compute: ComputeMode) -> bool {
        match self {
            Self::Nps1 => true,
            Self::Nps4 => matches!(compute, ComputeMode::Qpx | ComputeMode::Cpx),
        }
    }
}
