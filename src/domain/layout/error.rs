//! Why a layout cannot be had on a node, and what is surprising although it can.

use std::fmt;

use thiserror::Error;

use super::Place;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Vendor};

/// Why a rule of a layout cannot be had on this node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", told(.layout, *.rule, .devices, .reason))]
pub struct RuleError {
    /// Where the reason stands.
    pub place: Place,
    /// The layout's name.
    pub layout: String,
    /// Which of its rules, counted from one; `None` when it is none in particular.
    pub rule: Option<usize>,
    /// The devices it cannot be had on, by address; none where no device is concerned.
    pub devices: Vec<DeviceRef>,
    /// Why.
    pub reason: Reason,
}

/// Something that a person may not have meant, and that is done all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleWarning {
    /// Where it stands.
    pub place: Place,
    /// The layout's name.
    pub layout: String,
    /// Which of its rules, counted from one.
    pub rule: usize,
    /// The devices concerned, by address.
    pub devices: Vec<DeviceRef>,
    /// What.
    pub surprise: Surprise,
}

/// A device as people are told of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceRef {
    /// Where it sits.
    pub pci: PciAddress,
    /// NVML's index.
    pub index: Option<u32>,
}

/// Why a rule cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Reason {
    /// No device meets the selector.
    #[error("it selects {wanted}, which is nothing here; this node has {has}")]
    Nothing {
        /// The selector, in words.
        wanted: String,
        /// What the node has instead, in words.
        has: String,
    },
    /// No rule of the layout selects a device.
    #[error("none of its rules selects a device of this node, which has {has}")]
    NothingAtAll {
        /// What the node has instead, in words.
        has: String,
    },
    /// An index that no device has.
    #[error("there is no GPU with the index {missing}; this node has {has}")]
    NoSuchIndex {
        /// The indices, or the ranges that are not all there.
        missing: String,
        /// What the node has instead, in words.
        has: String,
    },
    /// Two rules select one device, and nothing says which one counts.
    #[error(
        "rule {other_rule} ({other}) selects it as well; let each device be selected by one rule"
    )]
    Conflict {
        /// The other rule, counted from one.
        other_rule: usize,
        /// Where the other rule begins.
        other: Place,
    },
    /// The device is to be partitioned and cannot be.
    #[error(
        "it cannot be partitioned; use `devices: all`, which leaves such devices out, or name others"
    )]
    NotMigCapable,
    /// The driver tells no profiles.
    #[error(
        "the driver does not tell which profiles it offers{}",
        if *.mig_is_off {
            " while MIG mode is off, as drivers of branch 535 do; enable MIG mode first with an empty `mig: {}`, or update the driver"
        } else {
            ", and without that no name can be looked up; see the problems of the device in `octavo inspect`"
        }
    )]
    NoProfiles {
        /// Whether MIG mode is off, which is the usual reason.
        mig_is_off: bool,
    },
    /// The device does not offer a profile of that name, nor of one that is nearly the same.
    #[error("it does not offer {asked}; it offers {}{}", .offers.join(", "), use_there(.elsewhere))]
    UnknownProfile {
        /// The name.
        asked: String,
        /// What it offers, the nearest first.
        offers: Vec<String>,
        /// Devices of the node that offer it.
        elsewhere: Vec<DeviceRef>,
    },
    /// The name is not quite that of several profiles.
    #[error("{asked} could be {}; write the one that is meant", .candidates.join(" or "))]
    Ambiguous {
        /// The name.
        asked: String,
        /// The names it could stand for.
        candidates: Vec<String>,
    },
    /// The driver lists several profiles under one name.
    #[error(
        "the driver lists {} profiles named {name} (ids {}), and a layout cannot distinguish them; create the instance with \
         `nvidia-smi mig -cgi {}`, and then `octavo export` and layouts with {name} use its profile",
        .ids.len(), listed(.ids, ", "), listed(.ids, "` or `nvidia-smi mig -cgi ")
    )]
    SameName {
        /// The name.
        name: String,
        /// The driver's ids.
        ids: Vec<u32>,
    },
    /// A GPU instance cannot be split so.
    #[error("{asked} cannot be had: a GPU instance {whole} is split into {}", .legal.join(", "))]
    ComputeSplit {
        /// The name.
        asked: String,
        /// The name of the GPU instance.
        whole: String,
        /// Names of what it can be split into.
        legal: Vec<String>,
    },
    /// More than an empty device can have.
    #[error("{profile}: {asked} asked, at most {most} fit when it is empty")]
    TooMany {
        /// The profile.
        profile: String,
        /// How many are asked for.
        asked: u64,
        /// How many there can be.
        most: u64,
    },
    /// Compute instances that fit one by one, and take more GPU instances than there can be.
    #[error(
        "the compute instances in {profile} take {asked} GPU instances, at most {most} fit when it is empty"
    )]
    TooManySplit {
        /// The profile of the GPU instances.
        profile: String,
        /// How many GPU instances it takes.
        asked: u64,
        /// How many there can be.
        most: u64,
    },
}

fn listed(ids: &[u32], between: &str) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(between)
}

/// What a person may not have meant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Surprise {
    /// The device spells a profile otherwise.
    #[error("{asked} is called {own} here; taken as that")]
    OtherSpelling {
        /// As it was written.
        asked: String,
        /// As the device spells it.
        own: String,
    },
    /// An earlier rule selects the device too and says something else.
    #[error("overrides rule {other_rule} ({other}), which selects it too: the last rule counts")]
    Overrides {
        /// The other rule, counted from one.
        other_rule: usize,
        /// Where the other rule begins.
        other: Place,
    },
    /// The device is bound to a driver for virtual machines.
    #[error("not selected: it is passed through to virtual machines")]
    PassedThrough,
    /// The state of the device cannot be read. It stays as it is, and the node is not applied.
    #[error("its state cannot be read: {why}")]
    Unverified {
        /// Why not.
        why: String,
    },
    /// A profile is shared and the rule makes no partition of it.
    #[error("{profile} is shared, and this rule makes no partition of it")]
    NothingToShare {
        /// The profile.
        profile: String,
    },
    /// The other rules select every device.
    #[error("the rest is nothing: other rules select every device")]
    NoRest,
}

impl RuleError {
    /// Where in the file the reason stands; zero for a layout that was made and not read.
    pub fn place(&self) -> Place {
        self.place
    }
}

impl RuleWarning {
    /// Where in the file it stands; zero for a layout that was made and not read.
    pub fn place(&self) -> Place {
        self.place
    }
}

impl fmt::Display for RuleWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = told(&self.layout, Some(self.rule), &self.devices, &self.surprise);
        f.write_str(&text)
    }
}

impl DeviceRef {
    /// How people are told of `device`.
    pub fn of(device: &Device) -> Self {
        Self {
            pci: device.pci,
            index: device.index.filter(|_| device.vendor == Vendor::Nvidia),
        }
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

fn told(
    layout: &str,
    rule: Option<usize>,
    devices: &[DeviceRef],
    what: &dyn fmt::Display,
) -> String {
    let rule = rule.map_or_else(String::new, |rule| format!(", rule {rule}"));
    let devices = if devices.is_empty() {
        String::new()
    } else {
        format!("{}: ", joined(devices))
    };
    format!("layout {layout:?}{rule}: {devices}{what}")
}

fn use_there(devices: &[DeviceRef]) -> String {
    match devices {
        [] => String::new(),
        [one] => format!(" ({one} offers it; use a rule of its own)"),
        several => format!(" ({} offer it; use a rule of their own)", joined(several)),
    }
}

fn joined(devices: &[DeviceRef]) -> String {
    let words: Vec<String> = devices.iter().map(DeviceRef::to_string).collect();
    words.join(", ")
}
