//! Summary of one device for the fleet.

use std::sync::Arc;

use octavo_model::id::TypeName;
use octavo_model::inventory::{
    Amd, Condition, Device, DeviceProcesses, DeviceState, Issue, Mig, MigState, NeuronState,
    NvmlState,
};
use octavo_model::quantity::Mebibytes;
use octavo_model::sharing_mode::Sharing;
use octavo_model::tone::Tone;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::device_facts::DeviceFacts;
use super::device_use::DeviceUse;
use super::instance_use::instances;
use super::node_state::NodeState;

/// Summary of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Identity and partitions, shared by summaries of the same report.
    pub facts: Arc<DeviceFacts>,
    /// Its type, if known.
    pub type_name: Option<TypeName>,
    /// True if the type was set manually.
    pub is_manual_type: bool,
    /// Its memory.
    pub memory: Option<Mebibytes>,
    /// Its health.
    pub health: DeviceHealth,
    /// Its contribution to the state of its node.
    pub node_state: NodeState,
    /// Its current use.
    pub occupancy: Occupancy,
    /// Last known sharing mode; `None` if never reported.
    pub sharing: Option<Sharing>,
    /// Most severe issue as text, prefixed with the device name; `None` if there is none. It contains driver messages
    /// and can therefore contain any character.
    pub worst_issue: Option<String>,
}

/// Health of a device, as `octavo inspect` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceHealth {
    /// The state.
    pub state: HealthState,
    /// Its color; the same state can be more or less severe.
    pub tone: Tone,
}

/// Health state of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// Of a device that the bus shows.
    Device(DeviceState),
    /// Of a device that the Neuron driver reports.
    Neuron(NeuronState),
}

/// Maximum length of an issue in characters.
const MAX_ISSUE_CHARS: usize = 1000;

/// Current use of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupancy {
    /// Whole, without a process.
    Free,
    /// Whole, with a process.
    InUse,
    /// MIG mode is on: its partitions are allocated.
    Partitioned(PartitionCounts),
    /// Unusable: it fails, has no driver, or requires a reset, reboot or replacement.
    Unavailable,
    /// Unavailable on purpose: reserved for a virtual machine.
    Passthrough,
    /// Unknown at the moment.
    Unknown,
}

/// Partition counts. A partition is a compute instance, the unit that a container receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Partitions)]
pub struct PartitionCounts {
    /// All partitions.
    pub total: u32,
    /// Partitions without a process.
    pub free: u32,
    /// Partitions with a process.
    pub in_use: u32,
}

impl DeviceSummary {
    /// Summarizes `device` on a node whose NVML is in this state.
    pub fn new(device: &Device, nvml: &NvmlState) -> Self {
        let state = device.state(nvml);
        let facts = DeviceFacts::new(device);
        let worst_issue =
            (state != DeviceState::Ok).then(|| most_severe(&facts.name, device.issues())).flatten();
        Self {
            facts: Arc::new(facts),
            type_name: device.identity.type_name().cloned(),
            is_manual_type: device.identity.is_manual(),
            memory: device.memory,
            health: DeviceHealth { state: HealthState::Device(state), tone: device.tone(nvml) },
            node_state: node_state(state),
            occupancy: occupancy(device, state),
            sharing: sharing_mode(device),
            worst_issue,
        }
    }
}

impl DeviceSummary {
    /// Name of the device and its most severe issue; `None` if there is no issue.
    pub fn named_issue(&self) -> Option<(&str, &str)> {
        self.worst_issue.as_deref()?.split_once(ISSUE_SEPARATOR)
    }
}

impl DeviceHealth {
    /// Healthy device.
    pub const OK: Self = Self { state: HealthState::Device(DeviceState::Ok), tone: Tone::Good };
}

impl HealthState {
    /// Word, such as `ok` or `needs-reset`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Device(state) => state.as_str(),
            Self::Neuron(state) => state.as_str(),
        }
    }

    /// Recommended action, as sentences.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Device(state) => state.remedy(),
            Self::Neuron(state) => state.remedy(),
        }
    }
}

/// Text between the name of a device and its issue.
const ISSUE_SEPARATOR: &str = ": ";

/// Contribution of a device state to the node state.
fn node_state(device: DeviceState) -> NodeState {
    match device {
        DeviceState::Passthrough => NodeState::Passthrough,
        DeviceState::Ok | DeviceState::NotRead => NodeState::Ok,
        DeviceState::Partial
        | DeviceState::Stale
        | DeviceState::NeedsAction
        | DeviceState::NeedsDrain => NodeState::Attention,
        DeviceState::NeedsReset
        | DeviceState::NeedsReboot
        | DeviceState::Replace
        | DeviceState::Failing => NodeState::Degraded,
        DeviceState::NoDriver => NodeState::NoDriver,
    }
}

fn sharing_mode(device: &Device) -> Option<Sharing> {
    if device.amd.as_ref().is_some_and(Amd::is_partitioned) {
        return Some(Sharing::Partitioned);
    }
    match (device.mig == Mig::Unknown, device.mig.is_enabled()) {
        (true, _) => None,
        (false, true) => Some(Sharing::Mig),
        (false, false) => Some(Sharing::Exclusive),
    }
}

/// First of the most severe issues, prefixed with the device name.
pub(super) fn most_severe(which: &str, complaints: Vec<Issue>) -> Option<String> {
    let mut most_severe: Option<Issue> = None;
    for complaint in complaints {
        if most_severe.as_ref().is_none_or(|known| known.severity < complaint.severity) {
            most_severe = Some(complaint);
        }
    }
    Some(truncated(&format!("{which}{ISSUE_SEPARATOR}{}", most_severe?.text)))
}

/// Start of an issue.
pub(super) fn truncated(text: &str) -> String {
    text.chars().take(MAX_ISSUE_CHARS).collect()
}

fn occupancy(device: &Device, state: DeviceState) -> Occupancy {
    match state {
        DeviceState::Failing
        | DeviceState::NoDriver
        | DeviceState::Replace
        | DeviceState::NeedsReboot
        | DeviceState::NeedsReset => return Occupancy::Unavailable,
        DeviceState::Passthrough => return Occupancy::Passthrough,
        DeviceState::Stale | DeviceState::NotRead => return Occupancy::Unknown,
        DeviceState::Ok
        | DeviceState::Partial
        | DeviceState::NeedsAction
        | DeviceState::NeedsDrain => {}
    }
    debug_assert!(matches!(device.condition, Condition::Working));
    match (&device.mig, device.usage()) {
        (_, DeviceProcesses::Unknown) | (Mig::Unknown, _) => Occupancy::Unknown,
        (Mig::Capable(mig), _) if device.mig.is_enabled() => partitioned(device, mig),
        (Mig::Capable(_) | Mig::NotCapable, DeviceProcesses::Known([])) => Occupancy::Free,
        (Mig::Capable(_) | Mig::NotCapable, DeviceProcesses::Known(_)) => Occupancy::InUse,
    }
}

fn partitioned(device: &Device, mig: &MigState) -> Occupancy {
    if !device.mig.is_fully_known() {
        return Occupancy::Unknown;
    }
    let partitions = instances(device, mig).into_iter();
    let counts = partitions.fold(PartitionCounts::default(), |sum, (_, _, used)| sum.with(used));
    Occupancy::Partitioned(counts)
}

impl Occupancy {
    /// Word for this use.
    pub fn device_use(self) -> DeviceUse {
        match self {
            Self::Free => DeviceUse::Free,
            Self::InUse => DeviceUse::InUse,
            Self::Partitioned(_) => DeviceUse::Partitioned,
            Self::Unavailable => DeviceUse::Unavailable,
            Self::Passthrough => DeviceUse::Passthrough,
            Self::Unknown => DeviceUse::Unknown,
        }
    }
}

impl PartitionCounts {
    /// Adds one partition.
    #[must_use]
    pub fn with(self, is_used: bool) -> Self {
        let used = u32::from(is_used);
        self.plus(Self { total: 1, free: 1_u32.saturating_sub(used), in_use: used })
    }

    /// Sum of both counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            free: self.free.saturating_add(other.free),
            in_use: self.in_use.saturating_add(other.in_use),
        }
    }
}
