//! What a node *has*, as it was last read: plain observations, one record a device.
//!
//! Whatever could not be read is absent rather than guessed, and named in the device's `problems`. A device that answers
//! nothing at all is still listed, with the reason: one failing device is one failing device.

mod amd;
mod health;
mod links;
mod mig;
mod neuron;
mod state;
mod usage;

use std::fmt;
use std::str::FromStr;

pub use amd::{Amd, AmdPartition, Mode};
pub use health::{Health, Problem, RecoveryAction, RemappedRows};
pub use links::{Fabric, LinkRemote, NvLink, SwitchGroup};
pub use mig::{Completeness, ComputeInstance, GpuInstance, Mig, MigMode, MigState};
pub use neuron::{
    DriverLayout, LogicalCores, LogicalSource, Neuron, NeuronDevice, NeuronErrors, NeuronIdentity,
    NeuronState, Topology,
};
pub use state::{Complaint, DeviceState, Gravity, passes_on};
pub use usage::{InstanceUse, Usage};

use thiserror::Error;

use crate::domain::id::{GpuUuid, PciAddress, Sku, TypeName};
use crate::domain::quantity::{ComputeCapability, CudaVersion, DriverVersion, Mebibytes};

/// A node's accelerators and what stands between us and them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// The machine itself.
    pub machine: Machine,
    /// Whether NVML answers.
    pub nvml: NvmlState,
    /// What the Neuron driver says; `None` where it is not loaded.
    pub neuron: Option<Neuron>,
    /// Every accelerator, ordered by PCI address.
    pub devices: Vec<Device>,
}

/// Facts of the machine that do not come from a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// The firmware's product name. Source: `/sys/class/dmi/id/product_name`.
    pub product_name: Option<String>,
    /// Set when this machine is a guest with a virtual GPU.
    pub vgpu: Option<VgpuHost>,
    /// Why the PCI bus cannot be read, where it is there and cannot: what is shown of it was read before.
    pub bus_error: Option<String>,
}

/// The host below a virtual GPU. Source: the vendor capability (signature `VF`) of the GPU's PCI configuration space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VgpuHost {
    /// Version of the host's driver.
    pub driver_version: String,
    /// Branch of the host's driver.
    pub driver_branch: String,
}

/// Where the link to NVML stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvmlState {
    /// No usable library; it is looked for again.
    Absent {
        /// Why, in words for a person.
        reason: String,
    },
    /// Found, and being initialised.
    Loading,
    /// It answers.
    Ready(Driver),
    /// It answered once; the driver was unloaded or replaced since.
    Lost {
        /// Why, in words for a person.
        reason: String,
    },
    /// A call does not return. What is shown of the devices was read before.
    Stalled {
        /// The NVML function that does not return.
        call: String,
        /// The driver, unless it stalled before it said which it is.
        driver: Option<Driver>,
    },
}

impl NvmlState {
    /// The driver that the devices were read through.
    pub fn driver(&self) -> Option<&Driver> {
        match self {
            Self::Ready(driver) => Some(driver),
            Self::Stalled { driver, .. } => driver.as_ref(),
            Self::Absent { .. } | Self::Loading | Self::Lost { .. } => None,
        }
    }
}

/// The NVIDIA driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// The kernel driver's version.
    pub version: DriverVersion,
    /// The CUDA version it supports.
    pub cuda: Option<CudaVersion>,
}

/// One physical accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Where it sits; with the UUID, what it is known by.
    pub pci: PciAddress,
    /// Its UUID, when the driver told it.
    pub uuid: Option<GpuUuid>,
    /// Who makes it.
    pub vendor: Vendor,
    /// What it is.
    pub identity: Identity,
    /// Its ids in configuration space.
    pub pci_ids: PciIds,
    /// Where this record comes from and how well the device answers.
    pub condition: Condition,
    /// The driver's name for the product, such as `NVIDIA H100 80GB HBM3`.
    pub product_name: Option<String>,
    /// NVML's index; for display only, it moves.
    pub index: Option<u32>,
    /// The number in `/dev/nvidia<minor>`; for display only, it moves.
    pub minor: Option<u32>,
    /// Chip family.
    pub architecture: Option<Architecture>,
    /// CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Total memory as the driver reports it.
    pub memory: Option<Mebibytes>,
    /// The NUMA node its PCI slot belongs to.
    pub numa_node: Option<u32>,
    /// Partitioning.
    pub mig: Mig,
    /// Processes with a context on the device, ordered by pid.
    pub processes: Vec<Process>,
    /// Its active `NVLink`s, ordered by link number.
    pub links: Vec<NvLink>,
    /// Membership of a multi-node NVLink fabric.
    pub fabric: Option<Fabric>,
    /// Group of GPUs with NVLink peer-to-peer behind hidden switches without a fabric. Source: `nvmlDeviceGetP2PStatus`.
    pub p2p_group: Option<u32>,
    /// Error counters and what the driver asks for.
    pub health: Health,
    /// What AMD's driver says.
    pub amd: Option<Amd>,
    /// What could not be read, and why.
    pub problems: Vec<Problem>,
}

/// Makers of accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vendor {
    /// NVIDIA, PCI vendor 10de.
    Nvidia,
    /// AMD, PCI vendor 1002.
    Amd,
    /// Amazon (Annapurna), PCI vendor 1d0f.
    Aws,
    /// Somebody else, by PCI vendor id.
    Other(u16),
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// It has a canonical name.
    Known {
        /// The type.
        type_name: TypeName,
        /// The catalogue's finer id; absent for a type that was derived from the driver's product name.
        sku: Option<Sku>,
    },
    /// Nobody knows it but a person, who named it.
    ByHand {
        /// What the person calls it.
        type_name: TypeName,
        /// The product of the catalogue that this is the name of, if it is one.
        sku: Option<Sku>,
    },
    /// Nobody knows it; shown as `GPU - type unknown`.
    Unknown,
}

/// Ids of a PCI function. Source: `/sys/bus/pci/devices/<bdf>/`, or `nvmlDeviceGetPciInfo_v3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciIds {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem device id.
    pub subsystem_device: u16,
    /// The 24-bit class code: 0x030200 for a 3D controller; absent when only NVML was read.
    pub class: Option<u32>,
}

/// How well a device answers, which is also how much its record can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Its driver answers.
    Working,
    /// Its driver lists it and refuses to talk about it, or it fell off the bus.
    Failing {
        /// What the driver said.
        reason: String,
    },
    /// Seen on the PCI bus only: no driver library speaks for it.
    PciOnly {
        /// The kernel driver bound to it, if any.
        kernel_driver: Option<String>,
    },
}

/// Chip families. Source: `nvmlDeviceGetArchitecture`, and the catalogue for others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Architecture(String);

/// A process with a context on a device. Unknown memory is absent (NVML says so inside containers).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Process id in the namespace of the driver's host.
    pub pid: u32,
    /// What it uses the device for.
    pub kind: ProcessKind,
    /// The GPU instance it runs in.
    pub gpu_instance: Option<u32>,
    /// The compute instance it runs in.
    pub compute_instance: Option<u32>,
    /// Device memory it holds.
    pub memory: Option<Mebibytes>,
}

/// What a process uses a device for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessKind {
    /// A compute (CUDA) context.
    Compute,
    /// A graphics context.
    Graphics,
}

impl Architecture {
    /// An architecture by its common name; kept in lower case, words joined by hyphens.
    pub fn new(name: &str) -> Self {
        let words: Vec<&str> = name.split_whitespace().collect();
        Self(words.join("-").to_ascii_lowercase())
    }

    /// The name, such as `hopper` or `ada-lovelace`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Vendor {
    /// The vendor behind a PCI vendor id.
    pub fn from_pci(id: u16) -> Self {
        match id {
            0x10de => Self::Nvidia,
            0x1002 => Self::Amd,
            0x1d0f => Self::Aws,
            other => Self::Other(other),
        }
    }
}

/// Names of makers that have no variant of their own. Source: pci.ids.
const OTHERS: [(u16, &str); 2] = [(0x8086, "intel"), (0x1da3, "habana")];

impl FromStr for Vendor {
    type Err = UnknownVendor;

    /// What [`Display`](fmt::Display) writes, and `pci-<id>` of whomever.
    fn from_str(text: &str) -> Result<Self, UnknownVendor> {
        let hex = |id: &str| {
            let plain = id.len() == 4 && id.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u16::from_str_radix(id, 16).ok()).flatten()
        };
        match text {
            "nvidia" => Ok(Self::Nvidia),
            "amd" => Ok(Self::Amd),
            "aws" => Ok(Self::Aws),
            _ => {
                let mut others = OTHERS.iter();
                let named = others.find(|(_, name)| *name == text).map(|(id, _)| *id);
                let id = named.or_else(|| text.strip_prefix("pci-").and_then(hex));
                id.map(Self::Other).ok_or(UnknownVendor)
            }
        }
    }
}

/// Nobody is called so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no maker is called so")]
pub struct UnknownVendor;

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvidia => f.pad("nvidia"),
            Self::Amd => f.pad("amd"),
            Self::Aws => f.pad("aws"),
            Self::Other(id) => match OTHERS.iter().find(|(known, _)| known == id) {
                Some((_, name)) => f.pad(name),
                None => f.pad(&format!("pci-{id:04x}")),
            },
        }
    }
}

/// `10de:25b6`, and what stands behind it where the function has a subsystem: several products may share the first half.
impl fmt::Display for PciIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)?;
        if (self.subsystem_vendor, self.subsystem_device) == (0, 0) {
            return Ok(());
        }
        let (vendor, device) = (self.subsystem_vendor, self.subsystem_device);
        write!(f, ", subsystem {vendor:04x}:{device:04x}")
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { type_name, .. } | Self::ByHand { type_name, .. } => {
                f.pad(type_name.as_str())
            }
            Self::Unknown => f.pad("GPU - type unknown"),
        }
    }
}

impl Identity {
    /// The type, where it has a name.
    pub fn type_name(&self) -> Option<&TypeName> {
        match self {
            Self::Known { type_name, .. } | Self::ByHand { type_name, .. } => Some(type_name),
            Self::Unknown => None,
        }
    }

    /// The product of the catalogue, where it is known.
    pub fn sku(&self) -> Option<&Sku> {
        match self {
            Self::Known { sku, .. } | Self::ByHand { sku, .. } => sku.as_ref(),
            Self::Unknown => None,
        }
    }

    /// Whether a person named it.
    pub fn is_by_hand(&self) -> bool {
        matches!(self, Self::ByHand { .. })
    }
}

impl Device {
    /// A device of which only the address and the ids are known, and for which the kernel has no driver.
    pub fn new(pci: PciAddress, pci_ids: PciIds) -> Self {
        Self {
            pci,
            uuid: None,
            vendor: Vendor::from_pci(pci_ids.vendor),
            identity: Identity::Unknown,
            pci_ids,
            condition: Condition::PciOnly {
                kernel_driver: None,
            },
            product_name: None,
            index: None,
            minor: None,
            architecture: None,
            compute_capability: None,
            memory: None,
            numa_node: None,
            mig: Mig::Unknown,
            processes: Vec::new(),
            links: Vec::new(),
            fabric: None,
            p2p_group: None,
            health: Health::default(),
            amd: None,
            problems: Vec::new(),
        }
    }
}

/// What tests of the inventory and of what is told of it begin with.
#[cfg(test)]
pub(in crate::domain) mod tests_support {
    use super::*;
    use crate::domain::catalog::Placement;

    /// A GPU that works and has told nothing else.
    pub(in crate::domain) fn gpu() -> Device {
        let ids = PciIds {
            vendor: 0x10de,
            device: 0x2330,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: None,
        };
        let mut device = Device::new(PciAddress::new(0, 7, 0, 0).unwrap(), ids);
        device.condition = Condition::Working;
        device
    }

    /// A GPU instance of profile 19 without a compute instance.
    pub(in crate::domain) fn gpu_instance(id: u32, start: u32, size: u32) -> GpuInstance {
        GpuInstance {
            id,
            profile_id: 19,
            placement: Placement { start, size },
            compute_instances: Vec::new(),
        }
    }

    /// A compute instance of which only the id is known.
    pub(in crate::domain) fn compute_instance(id: u32) -> ComputeInstance {
        ComputeInstance {
            id,
            profile_id: 0,
            placement: None,
            uuid: None,
            memory: None,
            resources: None,
        }
    }

    /// A process that computes, in these instances.
    pub(in crate::domain) fn process(
        pid: u32,
        gpu_instance: Option<u32>,
        compute_instance: Option<u32>,
    ) -> Process {
        Process {
            pid,
            kind: ProcessKind::Compute,
            gpu_instance,
            compute_instance,
            memory: None,
        }
    }
}
