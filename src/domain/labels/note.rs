//! What a person should know about labels beyond the labels: nothing is cut, left out or chosen in silence.

use std::fmt;

use crate::domain::id::PciAddress;
use crate::domain::labels::{LabelKey, LabelValue};

/// Something about the labels that the labels do not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A value that Kubernetes would refuse was cut, so it is not what gpu-feature-discovery would write.
    Cut {
        /// The label.
        key: LabelKey,
        /// The whole value.
        original: String,
        /// What became of it.
        value: LabelValue,
    },
    /// A label was left out.
    Omitted {
        /// The key, or the beginning of several.
        key: String,
        /// Why.
        reason: Omission,
    },
    /// NVIDIA's keys have room for one model of GPU, and the node has several.
    Chosen {
        /// The model they describe.
        model: String,
        /// The others.
        others: Vec<String>,
    },
    /// A GPU is in our own counts and not in NVIDIA's keys, because its driver does not speak for it.
    NotCounted {
        /// The GPU.
        device: PciAddress,
    },
    /// No setting of the node was found for how large a logical Neuron core is, and the labels say the chip's default.
    LogicalDefault {
        /// Physical cores in a logical one.
        size: u32,
    },
    /// The single strategy does not fit the partitions there are, and NVIDIA's keys say `MIG-INVALID`.
    InvalidMig(InvalidMig),
}

/// Why a label was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Omission {
    /// No device that answers tells its memory.
    MemoryUnknown,
    /// Devices of one type tell different values.
    DevicesDisagree,
    /// No device answers.
    NothingAnswers,
    /// How the devices are linked is not known.
    LinksUnknown,
    /// The driver does not answer, so its version is not known.
    DriverNotReady,
    /// The driver does not tell its CUDA version.
    CudaUnknown,
    /// The driver does not tell the compute capability.
    ComputeCapabilityUnknown,
    /// The driver does not tell what a partition has.
    AttributesUnknown,
    /// The driver does not tell whether a GPU is partitioned, or into what.
    PartitionsUnknown,
    /// A partition was made from a profile that has no name.
    ProfileUnknown,
    /// The driver does not tell its version.
    DriverVersionUnknown,
    /// The node has several drivers, or one in several versions.
    SeveralDrivers,
    /// A Neuron device does not tell how many cores it has.
    CoresUnknown,
    /// Nobody tells how many physical cores are one logical core.
    LogicalCoresUnknown,
    /// The catalogue does not know a device by what its driver calls it.
    NotInCatalog,
    /// The key is none.
    InvalidKey,
}

/// Why the single strategy does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InvalidMig {
    /// A GPU in MIG mode has no partition.
    EmptyGpu,
    /// Some GPUs are in MIG mode and some are not.
    SomeGpusWhole,
    /// There is more than one profile.
    SeveralProfiles,
    /// A partition was made from a profile that has no name.
    ProfileUnknown,
}

impl Note {
    /// Whether it is about the label `key`.
    pub(super) fn is_about(&self, key: &LabelKey) -> bool {
        match self {
            Self::Cut { key: cut, .. } => cut == key,
            Self::Omitted { key: omitted, .. } => omitted == key.as_str(),
            Self::Chosen { .. }
            | Self::NotCounted { .. }
            | Self::LogicalDefault { .. }
            | Self::InvalidMig(_) => false,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut {
                key,
                original,
                value,
            } => write!(
                f,
                "{key}: {original:?} cannot be a label's value and became {value}"
            ),
            Self::Omitted { key, reason } => write!(f, "{key} is left out: {reason}"),
            Self::Chosen { model, others } => write!(
                f,
                "nvidia.com/gpu.* describes {model}; the node also has {}",
                others.join(", ")
            ),
            Self::NotCounted { device } => write!(
                f,
                "{device} is not in nvidia.com/*: its driver does not speak for it"
            ),
            Self::LogicalDefault { size } => write!(
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
            Self::NothingAnswers => "no device answers",
            Self::LinksUnknown => "how the devices are linked is not known",
            Self::DriverNotReady => "the driver does not answer",
            Self::CudaUnknown => "the driver does not tell its CUDA version",
            Self::ComputeCapabilityUnknown => "the driver does not tell the compute capability",
            Self::PartitionsUnknown => "the driver does not tell the partitions",
            Self::AttributesUnknown => "the driver does not tell what the partition has",
            Self::ProfileUnknown => "a partition was made from a profile that has no name",
            Self::DriverVersionUnknown => "the driver does not tell its version",
            Self::SeveralDrivers => "the devices have several drivers",
            Self::CoresUnknown => "a Neuron device does not tell its cores",
            Self::LogicalCoresUnknown => "nobody tells how large a logical core is",
            Self::NotInCatalog => {
                "the catalogue does not know a device by its driver's name for it"
            }
            Self::InvalidKey => "it cannot be a label's key",
        })
    }
}

impl fmt::Display for InvalidMig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EmptyGpu => "a GPU in MIG mode has no partition",
            Self::SomeGpusWhole => "some GPUs are in MIG mode and some are not",
            Self::SeveralProfiles => "there is more than one profile",
            Self::ProfileUnknown => "a partition was made from a profile that has no name",
        })
    }
}
