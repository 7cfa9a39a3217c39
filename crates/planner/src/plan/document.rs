//! The document of a plan, `octavo.dev/v1` `Plan`: `octavo plan -o json` prints it, and the aggregator returns it for a
//! dry run.
//!
//! It adds names and texts to the plan. Fields are only ever added, so readers must ignore unknown ones. Values that do
//! not apply or are unknown are omitted. Messages are human-readable sentences and may change; all other fields are for
//! programs. `docs/reference/plan-document.md` describes the fields.

mod blocked;
mod build;

use std::collections::BTreeMap;

use octavo_model::catalog::Placement;
use octavo_model::id::{GpuUuid, PciAddress, TypeName};
use octavo_model::inventory::MigMode;
use octavo_model::profile::ProfileName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::ResourceName;
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

pub use self::blocked::{BlockCause, BlockCauseKind, BlockingHolder};
pub use self::build::PlanInputs;
use super::{Disruption, ModeChange, PlanOutcome, ResetScope};
use crate::layout::{
    ResourceRename, Share, ShareTarget, TimeSlice, TimeSlicing, UnitRef, UnitSelector,
};

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
    /// `dra` if resource claims determine the partitions; the plan then changes the MIG mode only.
    pub claims: Option<&'static str>,
}

/// Result for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Verdict)]
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

/// Time-slicing of a device or its partitions.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedTimeSlicing {
    /// Replicas of every unit of the device; absent if only some units are shared, or none.
    pub replicas: Option<u32>,
    /// Whether the resource of every unit has the suffix `.shared`.
    pub rename: bool,
    /// Whether a container that requests more than one is rejected.
    pub fail_requests_greater_than_one: bool,
    /// Time slice: `short`, `medium` or `long`; absent for the driver's default.
    #[schema(value_type = Option<String>)]
    pub slice: Option<TimeSlice>,
    /// All entries. If several entries match a unit, the most specific one counts, then the first.
    #[serde(default)]
    pub shares: Vec<PlannedShare>,
}

/// Time-slicing of units of one kind.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedShare {
    /// Profile whose partitions are shared.
    #[schema(value_type = Option<String>)]
    pub profile: Option<ProfileName>,
    /// Shared resource, by its name before renaming. Without profile and resource, every unit is shared.
    #[schema(value_type = Option<String>)]
    pub resource: Option<ResourceName>,
    /// Units of the resource, by index, `index:partition` or UUID; absent for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Number of units of the resource, from the first; absent for all.
    pub first: Option<u32>,
    /// Replicas per unit.
    pub replicas: u32,
    /// New name of the resource; `.shared` for a suffix, absent if it is not renamed.
    pub renamed_to: Option<String>,
    /// Whether a container that requests more than one is rejected.
    pub fail_requests_greater_than_one: bool,
    /// Memory that each replica is expected to use at most, in MiB; absent if it is divided equally.
    #[schema(value_type = Option<u64>)]
    pub memory_per_replica_mib: Option<Mebibytes>,
}

impl From<&TimeSlicing> for PlannedTimeSlicing {
    fn from(sharing: &TimeSlicing) -> Self {
        let mut shares = sharing.shares.iter();
        let every = shares.find(|share| share.of == ShareTarget::AllUnits);
        Self {
            replicas: every.map(|share| share.replicas),
            rename: every.is_some_and(|share| share.rename != ResourceRename::No),
            fail_requests_greater_than_one: every
                .is_some_and(|share| share.fail_requests_greater_than_one),
            slice: sharing.slice,
            shares: sharing.shares.iter().map(PlannedShare::from).collect(),
        }
    }
}

impl From<&Share> for PlannedShare {
    fn from(share: &Share) -> Self {
        let (profile, resource, which) = match share.of.clone() {
            ShareTarget::AllUnits => (None, None, UnitSelector::All),
            ShareTarget::Profile(profile) => (Some(profile), None, UnitSelector::All),
            ShareTarget::Resource { name, which } => (None, Some(name), which),
        };
        let (devices, first) = match which {
            UnitSelector::All => (Vec::new(), None),
            UnitSelector::First(count) => (Vec::new(), Some(count)),
            UnitSelector::Listed(items) => (items.iter().map(UnitRef::to_string).collect(), None),
        };
        Self {
            profile,
            resource,
            devices,
            first,
            replicas: share.replicas,
            renamed_to: match &share.rename {
                ResourceRename::No => None,
                ResourceRename::Shared => Some(".shared".to_owned()),
                ResourceRename::To(name) => Some(name.to_string()),
            },
            fail_requests_greater_than_one: share.fail_requests_greater_than_one,
            memory_per_replica_mib: share.memory_per_replica,
        }
    }
}

#[cfg(test)]
mod tests;
