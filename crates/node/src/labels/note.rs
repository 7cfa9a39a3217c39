//! Notes about compiled labels: every truncated, omitted or chosen value is reported.

use std::collections::BTreeMap;
use std::fmt;

use octavo_model::id::PciAddress;
use octavo_model::label::{LabelKey, LabelValue};
use strum::Display;

use super::CompiledLabels;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
pub enum Omission {
    /// No responding device reports its memory.
    #[strum(to_string = "no responding device reports its memory")]
    MemoryUnknown,
    /// Devices of one type report different values.
    #[strum(to_string = "devices of one type report different values")]
    DevicesDisagree,
    /// No device responds.
    #[strum(to_string = "no device responds")]
    NoDeviceResponds,
    /// The links between devices are unknown.
    #[strum(to_string = "the links between the devices are unknown")]
    LinksUnknown,
    /// The driver does not respond, so its version is unknown.
    #[strum(to_string = "the driver does not respond")]
    DriverNotReady,
    /// The driver does not report its CUDA version.
    #[strum(to_string = "the driver does not report its CUDA version")]
    CudaVersionUnknown,
    /// The driver does not report the compute capability.
    #[strum(to_string = "the driver does not report the compute capability")]
    ComputeCapabilityUnknown,
    /// The driver does not report the attributes of a MIG device.
    #[strum(to_string = "the driver does not report the attributes of the partition")]
    AttributesUnknown,
    /// The driver does not report whether a GPU is in MIG mode, or its MIG devices.
    #[strum(to_string = "the driver does not report the partitions")]
    PartitionsUnknown,
    /// The profile of a MIG device has no name.
    #[strum(to_string = "the profile of a partition has no name")]
    ProfileUnknown,
    /// The driver does not report its version.
    #[strum(to_string = "the driver does not report its version")]
    DriverVersionUnknown,
    /// The node has several drivers, or several versions of one.
    #[strum(to_string = "the devices have different drivers")]
    MultipleDrivers,
    /// A Neuron device does not report its core count.
    #[strum(to_string = "a Neuron device does not report its cores")]
    CoreCountUnknown,
    /// The number of physical cores per logical core is unknown.
    #[strum(to_string = "the size of a logical core is unknown")]
    LogicalCoresUnknown,
    /// The catalog does not list a device under its driver's name for it.
    #[strum(
        to_string = "the catalog does not list a device under the name that its driver reports"
    )]
    NotInCatalog,
    /// The key is not a valid label key.
    #[strum(to_string = "it is not a valid label key")]
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
            Self::Truncated { key, original, value } => {
                write!(
                    f,
                    "{key}: {original:?} is not a valid label value and was changed to {value}"
                )
            }
            Self::Omitted { key, reason } => write!(f, "{key} is omitted: {reason}"),
            Self::ModelChosen { model, others } => write!(
                f,
                "nvidia.com/gpu.* describes {model}; the node also has {}",
                others.join(", ")
            ),
            Self::NotReportedByDriver { device } => {
                write!(f, "{device} is not counted in nvidia.com/*: its driver does not report it")
            }
            Self::DefaultLogicalCoreSize { size } => write!(
                f,
                "octavo.dev/neuron-logical-*: the node does not set the size of a logical core; the chip's default \
                 is {size}"
            ),
            Self::InvalidMig(reason) => {
                write!(f, "nvidia.com/gpu.product is MIG-INVALID: {reason}")
            }
        }
    }
}

/// Labels and notes collected so far.
#[derive(Debug, Default)]
pub(super) struct LabelsBuilder {
    labels: BTreeMap<LabelKey, LabelValue>,
    notes: Vec<Note>,
}

impl LabelsBuilder {
    pub(super) fn put<T: fmt::Display + ?Sized>(&mut self, key: &str, value: &T) {
        self.put_parts(key, &value.to_string(), "");
    }

    /// Sets a label to `head` followed by `tail`; truncates the head if both are too long.
    pub(super) fn put_parts(&mut self, key: &str, head: &str, tail: &str) {
        let Ok(key) = key.parse::<LabelKey>() else {
            return self.omit(key, Omission::InvalidKey);
        };
        self.notes.retain(|note| !note.is_about(&key));
        let value = LabelValue::from_parts(head, tail);
        let original = format!("{head}{tail}");
        if value.as_str() != original {
            self.notes.push(Note::Truncated { key: key.clone(), original, value: value.clone() });
        }
        self.labels.insert(key, value);
    }

    /// Notes that a label is omitted and removes any value set earlier, because that value is unknown too.
    pub(super) fn omit(&mut self, key: &str, reason: Omission) {
        self.labels.retain(|known, _| known.as_str() != key);
        self.notes.retain(
            |note| !matches!(note, Note::Truncated { key: cut, .. } if cut.as_str() == key),
        );
        self.note(Note::Omitted { key: key.to_owned(), reason });
    }

    /// Adds a note unless it already exists.
    pub(super) fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn finish(self) -> CompiledLabels {
        CompiledLabels { labels: self.labels.into_iter().collect(), notes: self.notes }
    }
}
