//! One device, as far as a fleet is interested in it.

use super::node::{NodeState, Sharing};
use super::parts;
use crate::domain::id::TypeName;
use crate::domain::inventory::{
    Amd, Complaint, Condition, Device, DeviceState, Mig, MigState, NvmlState, Usage,
};
use crate::domain::quantity::Mebibytes;

/// What a fleet counts of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Its type, where it has a name.
    pub type_name: Option<TypeName>,
    /// Whether a person said which type it is.
    pub by_hand: bool,
    /// Its memory.
    pub memory: Option<Mebibytes>,
    /// What it makes of its node.
    pub state: NodeState,
    /// What can be done with it.
    pub occupancy: Occupancy,
    /// How it can be given out, as was told last; `None` where that was never told.
    pub given: Option<Sharing>,
    /// The gravest of what is wrong with it, in words for a person, after which device it is; absent where nothing is. Parts of
    /// it are the driver's own, and may hold any character.
    pub trouble: Option<String>,
}

/// Longest trouble that is kept, in characters: a list shows it, and the node's own page has all of it.
const LONGEST_TROUBLE: usize = 160;

/// What can be done with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupancy {
    /// Whole, and no process is on it.
    Free,
    /// Whole, and a process is on it.
    InUse,
    /// MIG mode is on: it is given out in parts.
    Partitioned(Partitions),
    /// Nothing: it fails, has no driver, or waits for a reset, a reboot or its replacement.
    Unavailable,
    /// Nothing, on purpose: it is set aside for a virtual machine.
    SetAside,
    /// Nobody can tell now.
    Unknown,
}

/// Partitions of one device or of many. A partition is a compute instance: what a container can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Partitions {
    /// How many there are.
    pub count: u32,
    /// How many of them have a process.
    pub in_use: u32,
}

impl DeviceSummary {
    /// Of `device`, on a node whose NVML is in this state.
    pub fn of(device: &Device, nvml: &NvmlState) -> Self {
        let state = device.state(nvml);
        Self {
            type_name: device.identity.type_name().cloned(),
            by_hand: device.identity.is_by_hand(),
            memory: device.memory,
            state: weight(state),
            occupancy: occupancy(device, state),
            given: given(device),
            trouble: (state != DeviceState::Ok)
                .then(|| trouble(device))
                .flatten(),
        }
    }
}

/// What a device makes of its node.
fn weight(device: DeviceState) -> NodeState {
    match device {
        DeviceState::Ok | DeviceState::Passthrough | DeviceState::Unread => NodeState::Ok,
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

fn given(device: &Device) -> Option<Sharing> {
    if device.amd.as_ref().is_some_and(Amd::is_partitioned) {
        return Some(Sharing::Partitioned);
    }
    match (device.mig == Mig::Unknown, device.mig.is_enabled()) {
        (true, _) => None,
        (false, true) => Some(Sharing::Mig),
        (false, false) => Some(Sharing::Exclusive),
    }
}

fn trouble(device: &Device) -> Option<String> {
    let which = match device.index {
        Some(index) => format!("GPU {index}"),
        None => device.pci.to_string(),
    };
    gravest(&which, device.complaints())
}

/// The first of the gravest, after which device it is.
pub(super) fn gravest(which: &str, complaints: Vec<Complaint>) -> Option<String> {
    let mut gravest: Option<Complaint> = None;
    for complaint in complaints {
        if gravest
            .as_ref()
            .is_none_or(|known| known.gravity < complaint.gravity)
        {
            gravest = Some(complaint);
        }
    }
    Some(short(&format!("{which}: {}", gravest?.text)))
}

/// The beginning of what is wrong.
pub(super) fn short(text: &str) -> String {
    text.chars().take(LONGEST_TROUBLE).collect()
}

fn occupancy(device: &Device, state: DeviceState) -> Occupancy {
    match state {
        DeviceState::Failing
        | DeviceState::NoDriver
        | DeviceState::Replace
        | DeviceState::NeedsReboot
        | DeviceState::NeedsReset => return Occupancy::Unavailable,
        DeviceState::Passthrough => return Occupancy::SetAside,
        DeviceState::Stale | DeviceState::Unread => return Occupancy::Unknown,
        DeviceState::Ok
        | DeviceState::Partial
        | DeviceState::NeedsAction
        | DeviceState::NeedsDrain => {}
    }
    debug_assert!(matches!(device.condition, Condition::Working));
    match (&device.mig, device.usage()) {
        (_, Usage::Unknown) | (Mig::Unknown, _) => Occupancy::Unknown,
        (Mig::Capable(mig), _) if device.mig.is_enabled() => partitioned(device, mig),
        (Mig::Capable(_) | Mig::NotCapable, Usage::Known([])) => Occupancy::Free,
        (Mig::Capable(_) | Mig::NotCapable, Usage::Known(_)) => Occupancy::InUse,
    }
}

fn partitioned(device: &Device, mig: &MigState) -> Occupancy {
    if !device.mig.is_told() {
        return Occupancy::Unknown;
    }
    let mut partitions = Partitions::default();
    for (_, _, used) in parts::instances(device, mig) {
        partitions.count = partitions.count.saturating_add(1);
        partitions.in_use = partitions.in_use.saturating_add(u32::from(used));
    }
    Occupancy::Partitioned(partitions)
}

impl Partitions {
    /// How many have no process.
    pub fn free(self) -> u32 {
        self.count.saturating_sub(self.in_use)
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            in_use: self.in_use.saturating_add(other.in_use),
        }
    }
}
