//! The document of a plan, `octavo.dev/v1` `Plan`: `octavo plan -o json` prints it, and the aggregator returns it for a
//! dry run.
//!
//! It adds names and texts to the plan. Fields are only ever added, so readers must ignore unknown ones. Values that do
//! not apply or are unknown are omitted. Messages are human-readable sentences and may change; all other fields are for
//! programs. `docs/reference/plan-document.md` describes the fields.

mod blocked;
mod build;
mod time_slicing;
mod unsupported;

use std::collections::BTreeMap;

use octavo_model::catalog::Placement;
use octavo_model::id::{GpuUuid, PciAddress, TypeName};
use octavo_model::inventory::MigMode;
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

pub use self::blocked::{BlockCause, BlockCauseKind, BlockingHolder};
pub use self::build::PlanInputs;
pub use self::time_slicing::{PlannedShare, PlannedTimeSlicing};
use super::{Disruption, ModeChange, PlanOutcome, ResetScope};

/// A plan as a document.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Plan)]
pub struct PlanDocument {
    /// `octavo.dev/v1`.
    #[schema(value_type = String)]
    pub api_version: &'static str,
    /// `Plan`.
    #[schema(value_type = String)]
    pub kind: &'static str,
    /// Name of the layout.
    pub layout: String,
    /// Name of the node, if known.
    pub node: Option<String>,
    /// The worst outcome of all devices.
    pub outcome: PlanOutcome,
    /// The largest disruption of all devices.
    pub disruption: Disruption,
    /// Number of destroyed instances: GPU instances, and compute instances in GPU instances that stay.
    pub destroyed: usize,
    /// Number of created instances, counted the same way.
    pub created: usize,
    /// Warnings about the layout on this node, which do not prevent the plan.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The devices that the layout covers and those with an interrupted change, by PCI address. No other device changes.
    pub devices: Vec<PlannedDevice>,
}

/// The plan of one device.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedDevice {
    /// NVML's index; for display only, because it changes.
    pub index: Option<u32>,
    /// PCI address.
    #[schema(value_type = String)]
    pub pci: PciAddress,
    /// UUID.
    #[schema(value_type = Option<String>)]
    pub uuid: Option<GpuUuid>,
    /// Type; absent if unknown.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    pub type_name: Option<TypeName>,
    /// Result for the device.
    pub verdict: DeviceVerdict,
    /// Number of memory slices, if the device can be partitioned and reports it.
    pub slices: Option<u32>,
    /// The current GPU instances, by placement.
    #[serde(default)]
    pub before: Vec<PresentInstance>,
    /// The resulting GPU instances; absent if the device is blocked or infeasible.
    pub after: Option<Vec<ResultingInstance>>,
    /// The steps, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PlannedStep>,
    /// The change of MIG mode, if any.
    pub mode_change: Option<ModeChange>,
    /// The causes that block the change; only of a blocked device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<BlockCause>,
    /// Why the hardware does not support the layout; only of an infeasible device.
    pub infeasible: Option<InfeasibleDevice>,
    /// The layout of the interrupted change that an apply finishes or rolls back first: the layout of this plan does not
    /// cover the device, or the device does not support it now.
    pub interrupted_layout: Option<String>,
    /// Desired time-slicing. It is validated, but no step of this plan applies it.
    pub time_slicing: Option<PlannedTimeSlicing>,
}

/// Result for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = VerdictJson)]
pub enum DeviceVerdict {
    /// Nothing changes: the device has its desired state.
    Unchanged,
    /// The steps are executed.
    Change,
    /// Nothing changes now.
    Blocked,
    /// The hardware does not support the layout.
    Infeasible,
}

/// An existing GPU instance.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PresentInstance {
    /// The driver's id.
    pub gpu_instance: u32,
    /// Name of its profile; absent if the device does not offer it.
    pub profile: Option<String>,
    /// The driver's id of its profile.
    pub profile_id: u32,
    /// Placement.
    pub placement: Placement,
    /// Compute instances.
    pub compute_instances: Vec<PresentComputeInstance>,
    /// Whether it is in use; absent if the driver does not report it, which counts as in use.
    pub in_use: Option<bool>,
    /// Whether it stays; absent if the device is blocked or infeasible.
    pub kept: Option<bool>,
}

/// An existing compute instance.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct PresentComputeInstance {
    /// The driver's id within its GPU instance.
    pub id: u32,
    /// Number of compute slices, if known.
    pub slices: Option<u32>,
}

/// A GPU instance after the change.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlannedInstance)]
pub struct ResultingInstance {
    /// The driver's id, if the instance already exists.
    pub gpu_instance: Option<u32>,
    /// Name of its profile; absent if the device does not offer it.
    pub profile: Option<String>,
    /// The driver's id of its profile.
    pub profile_id: u32,
    /// Placement.
    pub placement: Placement,
    /// Compute instances.
    pub compute_instances: Vec<ResultingComputeInstance>,
}

/// A compute instance after the change.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PlannedComputeInstance)]
pub struct ResultingComputeInstance {
    /// The driver's id within its GPU instance, if the compute instance already exists.
    pub id: Option<u32>,
    /// Number of compute slices, if known.
    pub slices: Option<u32>,
}

/// A step, with the name of the profile. Each is one driver call or one reset.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "action", rename_all = "camelCase")]
#[schema(as = PlanStep)]
pub enum PlannedStep {
    /// Destroys a compute instance.
    #[serde(rename_all = "camelCase")]
    DestroyComputeInstance {
        /// The driver's id of the GPU instance.
        gpu_instance: u32,
        /// The driver's id of the compute instance within it.
        compute_instance: u32,
    },
    /// Destroys a GPU instance.
    #[serde(rename_all = "camelCase")]
    DestroyGpuInstance {
        /// The driver's id.
        gpu_instance: u32,
        /// Name of its profile.
        profile: Option<String>,
        /// The driver's id of its profile.
        profile_id: u32,
        /// Placement.
        placement: Placement,
    },
    /// Sets the MIG mode.
    SetMigMode {
        /// The desired mode.
        mode: MigMode,
    },
    /// Resets the device.
    Reset(ResetScope),
    /// Creates a GPU instance.
    #[serde(rename_all = "camelCase")]
    CreateGpuInstance {
        /// Index in the device's `after`, from 0.
        instance: usize,
        /// Name of its profile.
        profile: Option<String>,
        /// The driver's id of its profile.
        profile_id: u32,
        /// Placement.
        placement: Placement,
    },
    /// Creates a compute instance, in an existing GPU instance or in one that an earlier step creates.
    #[serde(rename_all = "camelCase")]
    CreateComputeInstance {
        /// The driver's id of the GPU instance, if it exists.
        gpu_instance: Option<u32>,
        /// Index in the device's `after`, from 0, if an earlier step creates the GPU instance.
        instance: Option<usize>,
        /// Number of compute slices.
        slices: u32,
    },
}

/// Why a device can never support the layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Infeasible)]
pub struct InfeasibleDevice {
    /// The violated hardware rule: `notMigCapable`, `noSuchProfile`, `tooMany`, `gpuSlices`, `memorySlices`, `exclusive`,
    /// `noArrangement`, `computeSplit`.
    #[schema(value_type = String)]
    pub rule: &'static str,
    /// The rule as a sentence.
    pub message: String,
    /// Alternatives that fit, closest first: counts by profile, as in a layout.
    pub nearest: Vec<BTreeMap<String, u32>>,
}

#[cfg(test)]
mod tests;
