//! Notes about compiled labels: every truncated, omitted or chosen value is reported.

use std::fmt;

use octavo_model::id::PciAddress;
use octavo_model::label::{LabelKey, LabelValue};

use crate::mig_strategy::InvalidMig;

/// A remark about the labels that the labels themselves cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A value that Kubernetes would reject was truncated, so it differs from gpu-feature-discovery's.
    Truncated {
        /// Label key.
        key: LabelKey,
        /// The full value.
        original: String,
        /// The truncated value.
        value: LabelValue,
    },
    /// A label was omitted.
    Omitted {
        /// The key, or the common prefix of several.
        key: String,
        /// Reason for the omission.
        reason: Omission,
    },
    /// The node has several GPU models, but NVIDIA's keys can describe only one.
    ModelChosen {
        /// The model that the keys describe.
        model: String,
        /// The other models.
        others: Vec<String>,
    },
    /// A GPU is included in Octavo's counts but not in NVIDIA's keys, because its driver does not report it.
    NotReportedByDriver {
        /// PCI address of the GPU.
        device: PciAddress,
    },
    /// The node does not configure the logical Neuron core size; the labels use the chip's default.
    DefaultLogicalCoreSize {
        /// Physical cores per logical core.
        size: u32,
    },
    /// The single strategy does not match the MIG devices of the node, so NVIDIA's keys contain `MIG-INVALID`.
    InvalidMig(InvalidMig),
}

/// Reason why a label is omitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Omission {
    /// No responding device reports its memory.
    MemoryUnknown,
    /// Devices of one type report different values.
    DevicesDisagree,
    /// No device responds.
    NoDeviceResponds,
    /// The links between devices are unknown.
    LinksUnknown,
    /// The driver does not respond, so its version is unknown.
    DriverNotReady,
    /// The driver does not report its CUDA version.
    CudaVersionUnknown,
    /// The driver does not report the compute capability.
    ComputeCapabilityUnknown,
    /// The driver does not report the attributes of a MIG device.
    AttributesUnknown,
    /// The driver does not report whether a GPU is in MIG mode, or its MIG devices.
    PartitionsUnknown,
    /// The profile of a MIG device has no name.
    ProfileUnknown,
    /// The driver does not report its version.
    DriverVersionUnknown,
    /// The node has several drivers, or several versions of one.
    MultipleDrivers,
    /// A Neuron device does not report its core count.
    CoreCountUnknown,
    /// The number of physical cores per logical core is unknown.
    LogicalCoresUnknown,
    /// The catalog does not list a device under its driver's name for it.
    NotInCatalog,
    /// The key is not a valid label key.
    InvalidKey,
}

impl Note {
    /// Returns true if the note concerns the label `key`.
    pub(super) fn is_about(&self, key: &LabelKey) -> bool {
        match self {
            Self::Truncated { key: cut, .. } => cut == key,
            Self::Omitted { key: omitted, .. } => omitted == key.as_str(),
            Self::ModelChosen { .. }
            | Self::NotReportedByDriver { .. }
            | Self::DefaultLogicalCoreSize { .. }
            | Self::InvalidMig(_) => false,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated {
                key,
                original,
                value,
            } => write!(
                f,
                "{key}: {original:?} cannot be a label's value and became {value}"
            ),
            Self::Omitted { key, reason } => write!(f, "{key} is left out: {reason}"),
            Self::ModelChosen { model, others } => write!(
                f,
                "nvidia.com/gpu.* describes {model}; the node also has {}",
                others.join(", ")
            ),
            Self::NotReportedByDriver { device } => write!(
                f,
                "{device} is not in nvidia.com/*: its driver does not speak for it"
            ),
            Self::DefaultLogicalCoreSize { size } => write!(
                f,
                "octavo.dev/neuron-logical-*: no setting of the node was found for how large a logical core is, and {size} is the chip's default"
            ),
            Self::InvalidMig(reason) => {
                write!(f, "nvidia.com/gpu.product says MIG-INVALID: {reason}")
            }
        }
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MemoryUnknown => "no device that answers tells its memory",
            Self::DevicesDisagree => "devices of one type tell different values",
            Self::NoDeviceResponds => "no device answers",
            Self::LinksUnknown => "how the devices are linked is not known",
            Self::DriverNotReady => "the driver does not answer",
            Self::CudaVersionUnknown => "the driver does not tell its CUDA version",
            Self::ComputeCapabilityUnknown => "the driver does not tell the compute capability",
            Self::PartitionsUnknown => "the driver does not tell the partitions",
            Self::AttributesUnknown => "the driver does not tell what the partition has",
            Self::ProfileUnknown => "a partition was made from a profile that has no name",
            Self::DriverVersionUnknown => "the driver does not tell its version",
            Self::MultipleDrivers => "the devices have several drivers",
            Self::CoreCountUnknown => "a Neuron device does not tell its cores",
            Self::LogicalCoresUnknown => "nobody tells how large a logical core is",
            Self::NotInCatalog => {
                "the catalogue does not know a device by its driver's name for it"
            }
            Self::InvalidKey => "it cannot be a label's key",
        })
    }
}
