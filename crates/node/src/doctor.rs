//! Diagnosis of why a node's accelerators are not available to pods, with remedies.
//!
//! The checks are ordered from the device to the pod, so the first failure is usually the cause of later ones:
//!
//! ```text
//! on the bus -> driver loaded -> driver bound -> library, device files -> healthy, partitions complete, as the layout requires
//!   -> device plugin registered with the kubelet -> all units offered, each once -> labels match the hardware
//! ```
//!
//! Checks turn facts into findings; the caller gathers the facts. Missing information has its own verdict, `unknown`,
//! and never counts as good or bad.

mod allocatable;
mod bus;
mod claims;
mod control_groups;
mod drivers;
mod facts;
mod health;
mod kubelet;
mod labels;
mod layout;
mod mig;
mod other_managers;
mod owners;
mod vendor_labels;

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

pub use facts::{
    ExaminedPaths, Facts, FeatureLabels, InstanceFiles, Kubelet, LayoutDevice, LayoutProgress,
    Processes, RegisteredResources, claim_service,
};
use octavo_model::id::PciAddress;
use octavo_model::inventory::ApiVersion;
use octavo_model::text::{count_noun, first_names};
pub use other_managers::{GFD, MIG_MANAGER};
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Check, in order from the device to the pod. Names are only ever added, because scripts refer to checks by name.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Accelerators on the bus are in the catalog.
    Accelerators,
    /// NVIDIA's kernel driver is loaded.
    NvidiaDriver,
    /// AWS's kernel driver for Inferentia and Trainium is loaded.
    NeuronDriver,
    /// AMD's kernel driver is loaded.
    AmdDriver,
    /// The right kernel driver is bound to each device.
    KernelDriver,
    /// NVML, the library of NVIDIA's driver, answers.
    NvidiaLibrary,
    /// The Neuron driver reports as many devices as the bus.
    NeuronDevices,
    /// Device files of NVIDIA's driver exist.
    NvidiaDeviceFiles,
    /// Device files of the Neuron driver exist.
    NeuronDeviceFiles,
    /// Device files of AMD's driver exist.
    AmdDeviceFiles,
    /// Health that a driver reports for a device.
    DeviceHealth,
    /// No MIG mode change waits for a reset.
    MigMode,
    /// Partitioned devices are usable.
    MigInstances,
    /// Device files of partitions exist.
    MigDeviceFiles,
    /// The node is in its desired layout.
    Layout,
    /// Containers retain the device files allocated to them.
    ControlGroups,
    /// Processes and pods that use a device can be determined.
    Processes,
    /// A device plugin or DRA driver offers a vendor's devices.
    DevicePlugin,
    /// The kubelet offers all devices and partitions.
    Allocatable,
    /// No device is offered twice.
    ResourceOwners,
    /// Time-slicing of devices, and the configuration behind it.
    TimeSlicing,
    /// The agent serves resource claims, and all of them are prepared.
    ResourceClaims,
    /// Other software that partitions devices or writes labels here.
    OtherManagers,
    /// Octavo's labels match the hardware.
    Labels,
    /// Labels of other software match the hardware.
    VendorLabels,
}

/// Object of a finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub enum Subject {
    /// The node.
    Node,
    /// A device on the bus.
    Device(PciAddress),
    /// A device of the Neuron driver, by its number.
    Neuron(u32),
    /// Resources of a vendor, or one of them.
    Resource(String),
}

/// Result of a check, in order of severity.
#[derive(IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    /// The check does not apply to this node.
    NotApplicable,
    /// As expected.
    Ok,
    /// The information is not available.
    Unknown,
    /// It works, but needs attention.
    Warning,
    /// Pods cannot use all existing devices.
    Failing,
}

/// Result of a check for one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// Check that was run.
    pub check: Check,
    /// Object that was checked.
    pub subject: Subject,
    /// Result of the check.
    pub verdict: CheckResult,
    /// Observed values and their sources. Parts come from drivers and files and can contain any character.
    pub evidence: String,
    /// Recommended action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Number of findings by verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerdictCounts {
    /// Number of [`CheckResult::Ok`] findings.
    pub ok: usize,
    /// Number of [`CheckResult::Warning`] findings.
    pub warning: usize,
    /// Number of [`CheckResult::Failing`] findings.
    pub failing: usize,
    /// Number of [`CheckResult::Unknown`] findings.
    pub unknown: usize,
    /// Number of [`CheckResult::NotApplicable`] findings.
    pub not_applicable: usize,
}

/// Runs all checks. Returns at least one finding per check, in order of the checks.
pub fn run_checks(facts: &Facts<'_>) -> Vec<Finding> {
    let checks: [fn(&Facts<'_>) -> Vec<Finding>; 9] = [
        bus::findings,
        drivers::nvidia_findings,
        drivers::neuron_findings,
        drivers::amd_findings,
        health::findings,
        mig::findings,
        kubelet::findings,
        other_managers::findings,
        vendor_labels::findings,
    ];
    let mut all: Vec<Finding> = checks.iter().flat_map(|check| check(facts)).collect();
    all.extend([layout::finding(facts), control_groups::finding(facts), labels::finding(facts)]);
    all.push(claims::finding(facts));
    all.sort_by_key(|finding| finding.check);
    all
}

/// Counts findings by verdict.
pub fn count_verdicts(findings: &[Finding]) -> VerdictCounts {
    let count = |verdict| {
        let all = findings.iter();
        all.filter(|finding| finding.verdict == verdict).count()
    };
    VerdictCounts {
        ok: count(CheckResult::Ok),
        warning: count(CheckResult::Warning),
        failing: count(CheckResult::Failing),
        unknown: count(CheckResult::Unknown),
        not_applicable: count(CheckResult::NotApplicable),
    }
}

impl Check {
    /// All checks, in order from the device to the pod.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Name, such as `nvidia-driver`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn finding(self, verdict: CheckResult, evidence: impl Into<String>) -> Finding {
        Finding {
            check: self,
            subject: Subject::Node,
            verdict,
            evidence: evidence.into(),
            remedy: None,
        }
    }

    fn ok(self, evidence: impl Into<String>) -> Finding {
        self.finding(CheckResult::Ok, evidence)
    }

    fn failing(self, evidence: impl Into<String>, remedy: &str) -> Finding {
        Finding { remedy: Some(remedy.to_owned()), ..self.finding(CheckResult::Failing, evidence) }
    }

    fn warning(self, evidence: impl Into<String>, remedy: &str) -> Finding {
        Finding { remedy: Some(remedy.to_owned()), ..self.finding(CheckResult::Warning, evidence) }
    }

    fn unknown(self, evidence: impl Into<String>) -> Finding {
        self.finding(CheckResult::Unknown, evidence)
    }

    fn not_applicable(self, evidence: impl Into<String>) -> Finding {
        self.finding(CheckResult::NotApplicable, evidence)
    }
}

impl Finding {
    /// The same finding about another subject than the node.
    fn about(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }
}

impl CheckResult {
    /// Name, such as `not-applicable`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Reads the format of `Display`. Everything that is no other object is a resource.
impl FromStr for Subject {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let neuron = || text.strip_prefix("neuron")?.parse().ok();
        Ok(match (text, text.parse(), neuron()) {
            ("node", ..) => Self::Node,
            (_, Ok(address), _) => Self::Device(address),
            (_, Err(_), Some(number)) => Self::Neuron(number),
            (_, Err(_), None) => Self::Resource(text.to_owned()),
        })
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

/// First few names of a list, for display.
fn format_list(names: &[String]) -> String {
    first_names(names, 8)
}

// The output of `octavo doctor -o json`: findings, as `octavo.dev/v1` `Diagnosis`.
//
// New checks may be added at any time, so other readers must treat check names as free text. All other fields are
// strict.

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Diagnosis {
    api_version: ApiVersion,
    kind: Kind,
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Diagnosis,
}

impl Diagnosis {
    /// Creates the document of these findings.
    pub fn new(findings: Vec<Finding>) -> Self {
        Self { api_version: ApiVersion::V1, kind: Kind::Diagnosis, findings }
    }
}

#[cfg(test)]
mod tests;
