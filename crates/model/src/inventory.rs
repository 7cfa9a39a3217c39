//! Inventory of a node's accelerators as last read: plain observations, one record per device.
//!
//! Data that could not be read is absent, and listed in the device's `problems`. A device that does not answer is listed with the reason.

mod amd;
mod document;
mod health;
mod json;
mod links;
mod mig;
mod neuron;
mod remedy;
mod state;
mod usage;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay, serde_as, skip_serializing_none};
use thiserror::Error;
use utoipa::ToSchema;

use self::document::{IdentityDocument, NvmlDocument};
use self::json::{Hex, is_default, no_more_keys};
use self::links::NvLinkDocument;
use self::mig::MigDocument;

use crate::id::{GpuUuid, PciAddress, Sku, TypeName, parse_hex};
use crate::quantity::{ComputeCapability, CudaVersion, DriverVersion, Mebibytes};
use crate::text::join;
pub use amd::{Amd, AmdPartition, PartitioningMode};
pub use document::{ApiVersion, InventoryDocument, Kind};
pub use health::{Health, ReadProblem, RecoveryAction, RemappedRows};
pub use links::{Fabric, LinkRemote, NvLink, SwitchGroup};
pub use mig::{Completeness, ComputeInstance, GpuInstance, Mig, MigMode, MigState};
pub use neuron::{
    DriverLayout, LogicalCores, LogicalSource, Neuron, NeuronDevice, NeuronErrors, NeuronIdentity,
    NeuronState, Topology,
};
pub use state::{DeviceState, Issue, Severity, is_passthrough_driver};
pub use usage::{DeviceProcesses, InstanceUse};

/// Accelerators of a node, and the state of the drivers they were read through. Its JSON and YAML format is the
/// document `octavo.dev/v1` `Inventory`: `octavo inspect` writes it, and `--from FILE` reads it strictly.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// Properties of the machine.
    pub machine: Machine,
    /// State of NVML.
    pub nvml: NvmlState,
    /// Data from the Neuron driver; `None` if it is not loaded.
    pub neuron: Option<Neuron>,
    /// All accelerators, ordered by PCI address.
    pub devices: Vec<Device>,
}

/// Machine properties that do not come from a device.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Product name from the firmware. Source: `/sys/class/dmi/id/product_name`.
    pub product_name: Option<String>,
    /// Set if this machine is a guest with a virtual GPU.
    pub vgpu: Option<VgpuHost>,
    /// Reason why the PCI bus cannot be read although it exists: its data was read before that.
    pub bus_error: Option<String>,
}

/// Host of a virtual GPU. Source: the vendor capability (signature `VF`) of the GPU's PCI configuration space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VgpuHost {
    /// Driver version of the host.
    pub driver_version: String,
    /// Driver branch of the host.
    pub driver_branch: String,
}

/// State of NVML.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase", from = "NvmlDocument")]
pub enum NvmlState {
    /// No usable library; the search is repeated.
    Absent {
        /// Reason, for users.
        reason: String,
    },
    /// The library was found and is being initialized.
    #[default]
    Loading,
    /// It answers.
    Ready(Driver),
    /// It answered before; the driver was unloaded or replaced since.
    Lost {
        /// Reason, for users.
        reason: String,
    },
    /// A call does not return. The data of the devices was read before that.
    Stalled {
        /// NVML function that does not return.
        call: String,
        /// The driver, unless it stalled before reporting its version.
        #[serde(flatten)]
        driver: Option<Driver>,
    },
}

impl NvmlState {
    /// Driver through which the devices were read.
    pub fn driver(&self) -> Option<&Driver> {
        match self {
            Self::Ready(driver) => Some(driver),
            Self::Stalled { driver, .. } => driver.as_ref(),
            Self::Absent { .. } | Self::Loading | Self::Lost { .. } => None,
        }
    }
}

/// NVIDIA driver.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Driver {
    /// Version of the kernel driver.
    #[serde(rename = "driverVersion")]
    pub version: DriverVersion,
    /// Supported CUDA version.
    #[serde(rename = "cudaVersion")]
    pub cuda: Option<CudaVersion>,
}

/// Physical accelerator.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// NVML index; for display only, because it can change.
    pub index: Option<u32>,
    /// Minor number in `/dev/nvidia<minor>`; for display only, because it can change.
    pub minor: Option<u32>,
    /// PCI address; together with the UUID it identifies the device.
    #[schema(value_type = String)]
    pub pci: PciAddress,
    /// UUID, if the driver reported it.
    #[schema(value_type = Option<String>)]
    pub uuid: Option<GpuUuid>,
    /// Vendor.
    #[schema(value_type = String)]
    pub vendor: Vendor,
    /// Product.
    #[serde(flatten)]
    #[schema(inline, value_type = IdentityDocument)]
    pub identity: Identity,
    /// Product name that the driver reports, such as `NVIDIA H100 80GB HBM3`.
    pub product_name: Option<String>,
    /// Chip family.
    #[schema(value_type = Option<String>)]
    pub architecture: Option<Architecture>,
    /// CUDA compute capability.
    #[schema(value_type = Option<String>)]
    pub compute_capability: Option<ComputeCapability>,
    /// Total memory as the driver reports it.
    #[serde(rename = "memoryMiB")]
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Mebibytes>,
    /// NUMA node of its PCI slot.
    pub numa_node: Option<u32>,
    /// Source of this record, and how well the device answers.
    pub condition: Condition,
    /// PCI ids from configuration space.
    pub pci_ids: PciIds,
    /// MIG state.
    #[schema(value_type = MigDocument)]
    pub mig: Mig,
    /// Processes with a context on the device, ordered by pid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// Its active `NVLink` connections, ordered by link number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<NvLinkDocument>)]
    pub links: Vec<NvLink>,
    /// Membership of a multi-node NVLink fabric.
    pub fabric: Option<Fabric>,
    /// Group of GPUs with NVLink peer-to-peer behind hidden switches without a fabric. Source: `nvmlDeviceGetP2PStatus`.
    pub p2p_group: Option<u32>,
    /// Error counters, and the recovery action that the driver requests.
    #[serde(default, skip_serializing_if = "is_default")]
    pub health: Health,
    /// Data from AMD's driver.
    pub amd: Option<Amd>,
    /// Data that could not be read, with the errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ReadProblem>,
}

/// Vendor of accelerators.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr,
)]
pub enum Vendor {
    /// NVIDIA, PCI vendor 10de.
    Nvidia,
    /// AMD, PCI vendor 1002.
    Amd,
    /// Amazon (Annapurna), PCI vendor 1d0f.
    Aws,
    /// Other vendor, by PCI vendor id.
    Other(u16),
}

/// Product identity of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "IdentityDocument", into = "IdentityDocument")]
pub enum Identity {
    /// Identified by its hardware or driver.
    Known {
        /// The type.
        type_name: TypeName,
        /// Catalog id; absent for a type derived from the driver's product name.
        sku: Option<Sku>,
    },
    /// Not identified, but named manually.
    Manual {
        /// Type from the manual override.
        type_name: TypeName,
        /// Product of the catalog that the override refers to, if any.
        sku: Option<Sku>,
    },
    /// Not identified; displayed as `GPU - type unknown`.
    Unknown,
}

/// Ids of a PCI function. Source: `/sys/bus/pci/devices/<bdf>/`, or `nvmlDeviceGetPciInfo_v3`.
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PciIds {
    /// Vendor id.
    #[serde_as(as = "Hex<4>")]
    #[schema(value_type = String)]
    pub vendor: u16,
    /// Device id.
    #[serde_as(as = "Hex<4>")]
    #[schema(value_type = String)]
    pub device: u16,
    /// Subsystem vendor id.
    #[serde_as(as = "Hex<4>")]
    #[schema(value_type = String)]
    pub subsystem_vendor: u16,
    /// Subsystem device id.
    #[serde_as(as = "Hex<4>")]
    #[schema(value_type = String)]
    pub subsystem_device: u16,
    /// 24-bit class code: 0x030200 for a 3D controller; absent if only NVML was read.
    #[serde_as(as = "Option<Hex<6>>")]
    #[schema(value_type = Option<String>)]
    pub class: Option<u32>,
}

/// How well a device answers, which determines how much of its record is known.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "camelCase", deny_unknown_fields)]
pub enum Condition {
    /// Its driver answers.
    #[serde(deserialize_with = "no_more_keys")]
    Working,
    /// Its driver lists it but returns errors for it, or it fell off the bus.
    Failing {
        /// Error that the driver reports.
        reason: String,
    },
    /// Present on the PCI bus only, without a driver library.
    #[serde(rename_all = "camelCase")]
    PciOnly {
        /// Bound kernel driver, if any.
        kernel_driver: Option<String>,
    },
}

/// Chip family. Source: `nvmlDeviceGetArchitecture`, and the catalog for others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Architecture(String);

/// Process with a context on the device. Unknown memory is absent, because NVML does not report it inside containers.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    /// Process id in the PID namespace of the driver's host.
    pub pid: u32,
    /// Kind of use.
    pub kind: ProcessKind,
    /// GPU instance it runs in.
    pub gpu_instance: Option<u32>,
    /// Compute instance it runs in.
    pub compute_instance: Option<u32>,
    /// Device memory it uses.
    #[serde(rename = "memoryMiB")]
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Mebibytes>,
}

/// Kind of a process' context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProcessKind {
    /// Compute (CUDA) context.
    Compute,
    /// Graphics context.
    Graphics,
}

impl From<String> for Architecture {
    fn from(name: String) -> Self {
        Self::new(&name)
    }
}

impl Architecture {
    /// Creates an architecture from its common name, in lower case with words joined by hyphens.
    pub fn new(name: &str) -> Self {
        Self(join(name.split_whitespace(), "-").to_ascii_lowercase())
    }

    /// Name, such as `hopper` or `ada-lovelace`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Vendor {
    /// Vendor with this PCI vendor id.
    pub fn from_pci(id: u16) -> Self {
        match id {
            0x10de => Self::Nvidia,
            0x1002 => Self::Amd,
            0x1d0f => Self::Aws,
            other => Self::Other(other),
        }
    }
}

/// Names of vendors without a variant of their own. Source: pci.ids.
const OTHER_VENDORS: [(u16, &str); 2] = [(0x8086, "intel"), (0x1da3, "habana")];

impl FromStr for Vendor {
    type Err = UnknownVendor;

    /// Parses the output of [`Display`](fmt::Display), and `pci-<id>` of any vendor.
    fn from_str(text: &str) -> Result<Self, UnknownVendor> {
        match text {
            "nvidia" => Ok(Self::Nvidia),
            "amd" => Ok(Self::Amd),
            "aws" => Ok(Self::Aws),
            _ => {
                let mut others = OTHER_VENDORS.iter();
                let named = others.find(|(_, name)| *name == text).map(|(id, _)| *id);
                let id = named.or_else(|| parse_hex(text.strip_prefix("pci-")?, 4..=4));
                id.map(Self::Other).ok_or(UnknownVendor)
            }
        }
    }
}

/// Name that is not that of a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected nvidia, amd, aws, intel, habana or pci-<vendor id>")]
pub struct UnknownVendor;

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvidia => f.pad("nvidia"),
            Self::Amd => f.pad("amd"),
            Self::Aws => f.pad("aws"),
            Self::Other(id) => match OTHER_VENDORS.iter().find(|(known, _)| known == id) {
                Some((_, name)) => f.pad(name),
                None => f.pad(&format!("pci-{id:04x}")),
            },
        }
    }
}

/// Formats the ids as `10de:25b6`, followed by the subsystem ids if the function has any, because several products
/// may share the first part.
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
            Self::Known { type_name, .. } | Self::Manual { type_name, .. } => {
                f.pad(type_name.as_str())
            }
            Self::Unknown => f.pad("GPU - type unknown"),
        }
    }
}

impl Identity {
    /// The type, if known.
    pub fn type_name(&self) -> Option<&TypeName> {
        match self {
            Self::Known { type_name, .. } | Self::Manual { type_name, .. } => Some(type_name),
            Self::Unknown => None,
        }
    }

    /// Product of the catalog, if known.
    pub fn sku(&self) -> Option<&Sku> {
        match self {
            Self::Known { sku, .. } | Self::Manual { sku, .. } => sku.as_ref(),
            Self::Unknown => None,
        }
    }

    /// Returns `true` if the type was set manually.
    pub fn is_manual(&self) -> bool {
        matches!(self, Self::Manual { .. })
    }
}

impl Device {
    /// Creates a device of which only the address and the ids are known, without a kernel driver.
    pub fn new(pci: PciAddress, pci_ids: PciIds) -> Self {
        Self {
            pci,
            uuid: None,
            vendor: Vendor::from_pci(pci_ids.vendor),
            identity: Identity::Unknown,
            pci_ids,
            condition: Condition::PciOnly { kernel_driver: None },
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
