//! The JSON and YAML format of a plan, `octavo.dev/v1` `Plan`: the changes that applying a layout to a node would make.
//!
//! It is printed by `octavo plan -o json` and returned by the aggregator for a dry run. Fields are only ever added, so
//! readers must ignore unknown ones. Values that do not apply or are unknown are omitted. Messages are human-readable
//! sentences and may change; all other fields are for programs. `docs/plan-document.md` describes the fields.

mod blocked;
mod sharing;
mod unsupported;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::blocked::{CauseJson, CauseKind, HolderJson, PodJson};
pub use self::sharing::{ShareJson, TimeSlicingJson};
pub use self::unsupported::refused;
pub use self::write::{PlanInputs, document};
use super::api::API_VERSION;

/// A plan as a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Plan)]
pub struct Document {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `Plan`.
    pub kind: String,
    /// The layout that would be put in force.
    pub layout: String,
    /// The node, where it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What it comes to, the gravest of all devices.
    pub outcome: OutcomeJson,
    /// The most that it costs anybody.
    pub disruption: DisruptionJson,
    /// Instances that would be destroyed: GPU instances, and compute instances in GPU instances that stay.
    pub destroyed: usize,
    /// Instances that would be created, counted alike.
    pub created: usize,
    /// What is odd about the layout on this node, and does not keep it from being planned.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The devices that the layout speaks of and those whose change was interrupted, by PCI address. All others stay untouched.
    pub devices: Vec<DeviceJson>,
}

/// What a plan comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutcomeJson {
    /// Everything is as it shall be.
    Nothing,
    /// There is something to do, and it can be done.
    Changes,
    /// Of at least one device the change must wait.
    Blocked,
    /// At least one device can never have it.
    Infeasible,
}

/// What a change costs those who use the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DisruptionJson {
    /// Nobody notices.
    None,
    /// Whoever has the device open must let go and come back.
    ClientsBounce,
    /// The device is reset.
    GpuReset,
    /// The machine is rebooted.
    Reboot,
}

/// What would happen to one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedDevice)]
pub struct DeviceJson {
    /// NVML's index; for display only, it moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Where it sits.
    pub pci: String,
    /// Its UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Its type; left out when it is unknown.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// What would happen to it.
    pub verdict: VerdictJson,
    /// How many memory slices it has, where it can be partitioned and says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
    /// The GPU instances it has now, by place.
    #[serde(default)]
    pub before: Vec<PresentInstanceJson>,
    /// Those it would have; left out where it is blocked or infeasible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<PlannedInstanceJson>>,
    /// What would be done, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepJson>,
    /// The change of MIG mode, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_change: Option<ModeChangeJson>,
    /// What is in the way; only of a device that is blocked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<CauseJson>,
    /// Why it cannot be; only of a device that never can have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infeasible: Option<InfeasibleJson>,
    /// The layout of its interrupted change, where an apply finishes that, or takes it back: the layout of this plan does not speak
    /// of the device, or the device cannot have it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted_layout: Option<String>,
    /// How it or its partitions shall be shared. It is read and checked; no step of this plan puts it in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_slicing: Option<TimeSlicingJson>,
}

/// What would happen to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum VerdictJson {
    /// Nothing: it has what it shall have.
    Unchanged,
    /// Its steps.
    Change,
    /// Nothing now.
    Blocked,
    /// Nothing ever.
    Infeasible,
}

/// A stretch of memory slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedPlacement)]
pub struct PlacementJson {
    /// First slice.
    pub start: u32,
    /// Number of slices.
    pub size: u32,
}

/// A GPU instance that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PresentInstance)]
pub struct PresentInstanceJson {
    /// The driver's id.
    pub gpu_instance: u32,
    /// The name of its profile; left out where the device does not offer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The driver's id of its profile.
    pub profile_id: u32,
    /// Where it lies.
    pub placement: PlacementJson,
    /// Its compute instances.
    pub compute_instances: Vec<PresentComputeJson>,
    /// Whether somebody uses it; left out where the driver would not say, which counts as in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<bool>,
    /// Whether it stays; left out where the device is blocked or infeasible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
}

/// A compute instance that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PresentComputeInstance)]
pub struct PresentComputeJson {
    /// The driver's id within its GPU instance.
    pub id: u32,
    /// Its compute slices, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
}

/// A GPU instance that would be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedInstance)]
pub struct PlannedInstanceJson {
    /// The driver's id, of one that is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// The name of its profile; left out where the device does not offer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The driver's id of its profile.
    pub profile_id: u32,
    /// Where it lies.
    pub placement: PlacementJson,
    /// Its compute instances.
    pub compute_instances: Vec<PlannedComputeJson>,
}

/// A compute instance that would be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedComputeInstance)]
pub struct PlannedComputeJson {
    /// The driver's id within its GPU instance, of one that is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Its compute slices, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
}

/// One call to the driver, or one reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "action", rename_all = "camelCase")]
#[schema(as = PlanStep)]
pub enum StepJson {
    /// Destroy a compute instance.
    #[serde(rename_all = "camelCase")]
    DestroyComputeInstance {
        /// The GPU instance, by the driver's id.
        gpu_instance: u32,
        /// The compute instance, by the driver's id within it.
        compute_instance: u32,
    },
    /// Destroy a GPU instance.
    #[serde(rename_all = "camelCase")]
    DestroyGpuInstance {
        /// The driver's id.
        gpu_instance: u32,
        /// The name of its profile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
        /// The driver's id of its profile.
        profile_id: u32,
        /// Where it lies.
        placement: PlacementJson,
    },
    /// Set the MIG mode.
    SetMigMode {
        /// The mode.
        mode: ModeJson,
    },
    /// Reset the device.
    Reset(ResetJson),
    /// Create a GPU instance.
    #[serde(rename_all = "camelCase")]
    CreateGpuInstance {
        /// Which of the device's `after` it is, counted from 0.
        instance: usize,
        /// The name of its profile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
        /// The driver's id of its profile.
        profile_id: u32,
        /// Where it shall lie.
        placement: PlacementJson,
    },
    /// Create a compute instance, in a GPU instance that is there or in one that was created before.
    #[serde(rename_all = "camelCase")]
    CreateComputeInstance {
        /// The GPU instance that is there, by the driver's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu_instance: Option<u32>,
        /// Which of the device's `after` it is, counted from 0, where an earlier step creates it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<usize>,
        /// How many compute slices it shall have.
        slices: u32,
    },
}

/// MIG mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedMigMode)]
pub enum ModeJson {
    /// One whole GPU.
    Disabled,
    /// Partitionable.
    Enabled,
}

/// A change of MIG mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ModeChange)]
pub struct ModeChangeJson {
    /// The mode to have.
    pub to: ModeJson,
    /// Whether the driver has been told already and only the reset is missing.
    pub pending: bool,
    /// What it costs.
    pub disruption: DisruptionJson,
    /// What a reset concerns, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<ResetJson>,
}

/// What a reset concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ResetScope)]
pub struct ResetJson {
    /// The device itself, by PCI address.
    pub device: String,
    /// Devices that the driver may want to reset with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coupled: Vec<String>,
    /// What couples them: `nvlink`, `nvswitch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<String>,
}

/// Why a device can never have what is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Infeasible)]
pub struct InfeasibleJson {
    /// The rule of the hardware that forbids it: `notMigCapable`, `noSuchProfile`, `tooMany`, `gpuSlices`, `memorySlices`,
    /// `exclusive`, `noArrangement`, `computeSplit`.
    pub rule: String,
    /// The same in words.
    pub message: String,
    /// What would fit, the nearest first: counts by profile, as a layout has them.
    pub nearest: Vec<BTreeMap<String, u32>>,
}

#[cfg(test)]
mod tests;
