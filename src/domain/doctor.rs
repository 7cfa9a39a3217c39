//! What stands between a node's accelerators and the pods that want them, and what to do about it.
//!
//! The checks follow the way that a device takes to a pod, so the first that fails is most often the cause of the others:
//!
//! ```text
//! on the bus -> driver loaded -> bound to it -> library, device files -> healthy, partitions whole, as the layout says
//!   -> a device plugin registered with kubelet -> as many offered as there are, once -> labels say what there is
//! ```
//!
//! Facts come in, findings go out; who gathers the facts is the caller's business. What nobody tells is a verdict of its own, and never
//! taken for good or bad.

mod amd;
mod bus;
mod drivers;
mod facts;
mod groups;
mod health;
mod kubelet;
mod labels;
mod layout;
mod managers;
mod mig;
mod neuron;
mod nvidia;
mod offered;
mod shared;
mod vendor_labels;

use std::fmt;
use std::str::FromStr;

pub use facts::{
    Facts, FeatureLabels, Files, GroupVersion, Groups, Installed, InstanceFiles, Kubelet, Layout,
    LayoutDevice, PodGroups, Processes, Registered, Roots, Told, Traces,
};
pub use managers::{GFD, MIG_MANAGER};

use crate::domain::id::PciAddress;

/// What is looked at, in the order of the way. Words are only ever added: scripts know checks by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Which accelerators the bus shows, and whether each is known.
    Accelerators,
    /// NVIDIA's kernel driver.
    NvidiaDriver,
    /// AWS's kernel driver for Inferentia and Trainium.
    NeuronDriver,
    /// AMD's kernel driver.
    AmdDriver,
    /// Which kernel driver is bound to a device.
    KernelDriver,
    /// NVML, through which NVIDIA's driver is asked.
    NvidiaLibrary,
    /// Whether the Neuron driver shows as many devices as there are on the bus.
    NeuronDevices,
    /// Device files of NVIDIA's driver.
    NvidiaDeviceFiles,
    /// Device files of the Neuron driver.
    NeuronDeviceFiles,
    /// Device files of AMD's driver.
    AmdDeviceFiles,
    /// What a device says of itself.
    DeviceHealth,
    /// Whether a MIG mode waits for a reset.
    MigMode,
    /// Whether what is partitioned can be used.
    MigInstances,
    /// Device files of partitions.
    MigDeviceFiles,
    /// Whether the node has the layout that was chosen for it.
    Layout,
    /// Whether containers keep the device files that they were given.
    ControlGroups,
    /// Whether it can be told which process and which pod uses a device.
    Processes,
    /// Whether somebody gives a vendor's devices out to pods.
    DevicePlugin,
    /// Whether kubelet offers what the node has.
    Allocatable,
    /// Whether a device is offered twice.
    ResourceOwners,
    /// Whether devices are shared by turns, and by whose configuration.
    TimeSlicing,
    /// Who else partitions devices and writes labels here.
    OtherManagers,
    /// Whether the labels that were written are those of the hardware.
    Labels,
    /// The same of labels that others write.
    VendorLabels,
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The machine.
    Node,
    /// A device on the bus.
    Device(PciAddress),
    /// A device of the Neuron driver, by its number.
    Neuron(u32),
    /// Resources of a vendor, or one of them.
    Resource(String),
}

/// How it is, the gravest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// There is nothing here that it could be said of.
    NotApplicable,
    /// As it should be.
    Ok,
    /// Nobody tells.
    Unknown,
    /// It works, and somebody should look.
    Warning,
    /// Pods do not get what is there.
    Failing,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// Of what.
    pub subject: Subject,
    /// How it is.
    pub verdict: Verdict,
    /// What was read, and where. Parts of it are a driver's or a file's own, and may hold any character.
    pub evidence: String,
    /// What to do.
    pub remedy: Option<String>,
}

/// How many findings have each verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// As it should be.
    pub ok: usize,
    /// To be looked at.
    pub warning: usize,
    /// Failing.
    pub failing: usize,
    /// Not told.
    pub unknown: usize,
    /// Not here.
    pub not_applicable: usize,
}

/// All findings, in the order of the way; each check has one at least.
pub fn examine(facts: &Facts<'_>) -> Vec<Finding> {
    let parts = [
        bus::findings(facts),
        nvidia::findings(facts),
        neuron::findings(facts),
        amd::findings(facts),
        health::findings(facts),
        mig::findings(facts),
        layout::findings(facts),
        groups::findings(facts),
        kubelet::findings(facts),
        managers::findings(facts),
        labels::findings(facts),
        vendor_labels::findings(facts),
    ];
    let mut all: Vec<Finding> = parts.into_iter().flatten().collect();
    all.sort_by_key(|finding| finding.check);
    all
}

/// How many there are of each verdict.
pub fn tally(findings: &[Finding]) -> Tally {
    let count = |verdict| {
        let all = findings.iter();
        all.filter(|finding| finding.verdict == verdict).count()
    };
    Tally {
        ok: count(Verdict::Ok),
        warning: count(Verdict::Warning),
        failing: count(Verdict::Failing),
        unknown: count(Verdict::Unknown),
        not_applicable: count(Verdict::NotApplicable),
    }
}

impl Check {
    /// All of them, in the order of the way.
    pub const ALL: [Self; 24] = [
        Self::Accelerators,
        Self::NvidiaDriver,
        Self::NeuronDriver,
        Self::AmdDriver,
        Self::KernelDriver,
        Self::NvidiaLibrary,
        Self::NeuronDevices,
        Self::NvidiaDeviceFiles,
        Self::NeuronDeviceFiles,
        Self::AmdDeviceFiles,
        Self::DeviceHealth,
        Self::MigMode,
        Self::MigInstances,
        Self::MigDeviceFiles,
        Self::Layout,
        Self::ControlGroups,
        Self::Processes,
        Self::DevicePlugin,
        Self::Allocatable,
        Self::ResourceOwners,
        Self::TimeSlicing,
        Self::OtherManagers,
        Self::Labels,
        Self::VendorLabels,
    ];

    /// The word, such as `nvidia-driver`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accelerators => "accelerators",
            Self::NvidiaDriver => "nvidia-driver",
            Self::NeuronDriver => "neuron-driver",
            Self::AmdDriver => "amd-driver",
            Self::KernelDriver => "kernel-driver",
            Self::NvidiaLibrary => "nvidia-library",
            Self::NeuronDevices => "neuron-devices",
            Self::NvidiaDeviceFiles => "nvidia-device-files",
            Self::NeuronDeviceFiles => "neuron-device-files",
            Self::AmdDeviceFiles => "amd-device-files",
            Self::DeviceHealth => "device-health",
            Self::MigMode => "mig-mode",
            Self::MigInstances => "mig-instances",
            Self::MigDeviceFiles => "mig-device-files",
            Self::Layout => "layout",
            Self::ControlGroups => "control-groups",
            Self::Processes => "processes",
            Self::DevicePlugin => "device-plugin",
            Self::Allocatable => "allocatable",
            Self::ResourceOwners => "resource-owners",
            Self::TimeSlicing => "time-slicing",
            Self::OtherManagers => "other-managers",
            Self::Labels => "labels",
            Self::VendorLabels => "vendor-labels",
        }
    }

    fn found(
        self,
        subject: Subject,
        verdict: Verdict,
        evidence: impl Into<String>,
        remedy: Option<&str>,
    ) -> Finding {
        Finding {
            check: self,
            subject,
            verdict,
            evidence: evidence.into(),
            remedy: remedy.map(ToOwned::to_owned),
        }
    }

    fn ok(self, subject: Subject, evidence: impl Into<String>) -> Finding {
        self.found(subject, Verdict::Ok, evidence, None)
    }

    fn failing(self, subject: Subject, evidence: impl Into<String>, remedy: &str) -> Finding {
        self.found(subject, Verdict::Failing, evidence, Some(remedy))
    }

    fn warning(self, subject: Subject, evidence: impl Into<String>, remedy: &str) -> Finding {
        self.found(subject, Verdict::Warning, evidence, Some(remedy))
    }

    fn unknown(self, subject: Subject, evidence: impl Into<String>) -> Finding {
        self.found(subject, Verdict::Unknown, evidence, None)
    }

    /// Of the whole node: where there is nothing, there is no other subject.
    fn not_applicable(self, evidence: impl Into<String>) -> Finding {
        self.found(Subject::Node, Verdict::NotApplicable, evidence, None)
    }
}

impl Verdict {
    /// The word, such as `not-applicable`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotApplicable => "not-applicable",
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Failing => "failing",
        }
    }
}

/// A word that no check has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no check")]
pub struct UnknownCheck(String);

impl FromStr for Check {
    type Err = UnknownCheck;

    fn from_str(word: &str) -> Result<Self, UnknownCheck> {
        let found = Self::ALL.into_iter().find(|check| check.as_str() == word);
        found.ok_or_else(|| UnknownCheck(word.to_owned()))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.pad("node"),
            Self::Device(address) => f.pad(&address.to_string()),
            Self::Neuron(number) => f.pad(&format!("neuron{number}")),
            Self::Resource(name) => f.pad(name),
        }
    }
}

/// A count with its noun.
fn counted(count: usize, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

/// The first few of many, for a person.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
