//! Errors and warnings of resolving a layout on a node.

use std::fmt;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory, Vendor};
use octavo_model::source_position::SourcePosition;
use octavo_model::text::join;
use thiserror::Error;

/// A message about a rule of a layout on this node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("layout {layout:?}{}: {}{kind}", rule_number(*.rule), device_list(.devices))]
pub struct RuleMessage<K> {
    /// Position in the file that the message refers to; zero for a generated layout.
    pub position: SourcePosition,
    /// Layout name.
    pub layout: String,
    /// One-based number of the rule; `None` if the message concerns the whole layout.
    pub rule: Option<usize>,
    /// The affected devices, ordered by address; empty if the message concerns no device.
    pub devices: Vec<DeviceRef>,
    /// The cause.
    pub kind: K,
}

/// A rule of a layout that cannot be applied on this node.
pub type RuleError = RuleMessage<RuleErrorKind>;

/// A possibly unintended effect of a rule, which is applied nevertheless.
pub type RuleWarning = RuleMessage<RuleWarningKind>;

/// A device as shown in messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceRef {
    /// PCI address.
    pub pci: PciAddress,
    /// NVML index.
    pub index: Option<u32>,
}

/// Reason why a rule cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleErrorKind {
    /// No device matches the selector.
    #[error("it selects {wanted}, which matches no device; this node has {has}")]
    NoMatchingDevice {
        /// The selector as text.
        wanted: String,
        /// Description of the node's devices.
        has: String,
    },
    /// No rule of the layout selects a device.
    #[error("none of its rules selects a device of this node; this node has {has}")]
    NoDeviceSelected {
        /// Description of the node's devices.
        has: String,
    },
    /// No device has one of the indices.
    #[error("no GPU has the index {missing}; this node has {has}")]
    NoSuchIndex {
        /// The missing indices, or ranges of which some indices are missing.
        missing: String,
        /// Description of the node's devices.
        has: String,
    },
    /// Two rules select one device, and the dialect defines no precedence.
    #[error(
        "rule {other_rule} ({other}) also selects it; each device must be selected by only one rule"
    )]
    Conflict {
        /// One-based number of the other rule.
        other_rule: usize,
        /// Start of the other rule.
        other: SourcePosition,
    },
    /// The rule partitions a device that does not support it.
    #[error(
        "it cannot be partitioned; use `devices: all`, which skips such devices, or select other devices"
    )]
    NotMigCapable,
    /// The driver reports no profiles.
    #[error(
        "the driver does not report its profiles{}",
        if *.mig_is_off {
            " while MIG mode is off, as is the case for branch 535; enable MIG mode first with an empty `mig: {}`, \
             or update the driver"
        } else {
            ", so profile names cannot be resolved; see the problems of the device in `octavo inspect`"
        }
    )]
    NoProfiles {
        /// True if MIG mode is off, which is the usual cause.
        mig_is_off: bool,
    },
    /// The device offers no profile with this or a nearly equal name.
    #[error("it does not offer {requested}; it offers {}{}", .offers.join(", "), elsewhere_hint(.elsewhere))]
    UnknownProfile {
        /// The requested profile.
        requested: String,
        /// The offered profiles, closest match first.
        offers: Vec<String>,
        /// Devices of the node that offer the profile.
        elsewhere: Vec<DeviceRef>,
    },
    /// The name nearly equals that of several profiles.
    #[error("{requested} is ambiguous: it matches {}; use the exact name", .candidates.join(" or "))]
    AmbiguousProfile {
        /// The requested profile.
        requested: String,
        /// The candidates.
        candidates: Vec<String>,
    },
    /// The driver lists several profiles under one name.
    #[error(
        "the driver lists {} profiles named {name} (ids {}), which a layout cannot distinguish; create the \
         instance with `nvidia-smi mig -cgi {}`; `octavo export` and layouts with {name} then use its profile",
        .ids.len(), join_ids(.ids, ", "), join_ids(.ids, "` or `nvidia-smi mig -cgi ")
    )]
    DuplicateProfileName {
        /// The profile name.
        name: String,
        /// The driver's profile ids.
        ids: Vec<u32>,
    },
    /// A GPU instance cannot be split this way.
    #[error("{requested} is not available: a GPU instance {whole} can be split into {}", .legal.join(", "))]
    ComputeSplit {
        /// The requested compute instance profile.
        requested: String,
        /// The profile of the GPU instance.
        whole: String,
        /// Valid compute instance profiles.
        legal: Vec<String>,
    },
    /// The count exceeds what fits on an empty device.
    #[error("{profile}: {requested} requested, but at most {most} fit on an empty device")]
    TooMany {
        /// The profile.
        profile: String,
        /// The requested count.
        requested: u64,
        /// The maximum count.
        most: u64,
    },
    /// Each count of compute instances fits, but together they require too many GPU instances.
    #[error(
        "the compute instances in {profile} need {requested} GPU instances, but at most {most} fit on an empty device"
    )]
    TooManyGpuInstances {
        /// The profile of the GPU instances.
        profile: String,
        /// Number of GPU instances required.
        requested: u64,
        /// The maximum count.
        most: u64,
    },
}

fn join_ids(ids: &[u32], between: &str) -> String {
    join(ids.iter(), between)
}

/// A possibly unintended effect of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleWarningKind {
    /// The device spells a profile name differently.
    #[error("{requested} is read as {own}, the name on this device")]
    OtherSpelling {
        /// The name in the layout.
        requested: String,
        /// The name on the device.
        own: String,
    },
    /// An earlier rule selects the device too and requests something else.
    #[error(
        "overrides rule {other_rule} ({other}), which also selects it: the last rule takes precedence"
    )]
    Overrides {
        /// One-based number of the other rule.
        other_rule: usize,
        /// Start of the other rule.
        other: SourcePosition,
    },
    /// The device is bound to a passthrough driver for virtual machines.
    #[error("not selected: it is passed through to virtual machines")]
    Passthrough,
    /// The state of the device cannot be read. The device is not changed, and the node does not count as applied.
    #[error("its state cannot be read: {why}")]
    StateUnreadable {
        /// The cause.
        why: String,
    },
    /// The rule shares a profile but creates no partition of it.
    #[error("{profile} is shared, but this rule creates no such partition")]
    SharedProfileMissing {
        /// The profile.
        profile: String,
    },
    /// Other rules already select every device.
    #[error("`rest` matches no device: other rules select every device")]
    RestIsEmpty,
}

impl RuleErrorKind {
    /// Returns the violated hardware rule, if the reason is one.
    pub fn hardware_rule(&self) -> Option<&'static str> {
        match self {
            Self::NotMigCapable => Some("notMigCapable"),
            Self::UnknownProfile { .. } => Some("noSuchProfile"),
            Self::ComputeSplit { .. } => Some("computeSplit"),
            Self::TooMany { .. } | Self::TooManyGpuInstances { .. } => Some("tooMany"),
            Self::NoMatchingDevice { .. }
            | Self::NoDeviceSelected { .. }
            | Self::NoSuchIndex { .. }
            | Self::Conflict { .. }
            | Self::NoProfiles { .. }
            | Self::AmbiguousProfile { .. }
            | Self::DuplicateProfileName { .. } => None,
        }
    }
}

impl DeviceRef {
    /// Returns the reference of the device at `pci`, which may be absent from `inventory`.
    pub fn new(inventory: &Inventory, pci: PciAddress) -> Self {
        inventory.device(pci).map_or(Self { pci, index: None }, Self::from_device)
    }

    /// Returns the reference of `device`.
    pub fn from_device(device: &Device) -> Self {
        Self { pci: device.pci, index: device.index.filter(|_| device.vendor == Vendor::Nvidia) }
    }
}

impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "GPU {index} ({})", self.pci),
            None => write!(f, "device {}", self.pci),
        }
    }
}

fn rule_number(rule: Option<usize>) -> String {
    rule.map_or_else(String::new, |rule| format!(", rule {rule}"))
}

fn device_list(devices: &[DeviceRef]) -> String {
    if devices.is_empty() { String::new() } else { format!("{}: ", join_devices(devices)) }
}

fn elsewhere_hint(devices: &[DeviceRef]) -> String {
    match devices {
        [] => String::new(),
        [one] => format!(" ({one} offers it; use a separate rule for this device)"),
        several => {
            format!(" ({} offer it; use a separate rule for these devices)", join_devices(several))
        }
    }
}

fn join_devices(devices: &[DeviceRef]) -> String {
    join(devices.iter(), ", ")
}
