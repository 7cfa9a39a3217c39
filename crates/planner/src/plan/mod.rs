//! Plans: the changes that bring a node's devices into the state that a layout requests, as data.
//!
//! A plan is exact. Of all ways to reach the target, the planner chooses the one that destroys the fewest partitions in
//! use (if any, the change is blocked), then destroys the fewest partitions, then creates the fewest, then leaves the
//! most room, and then comes first in the order of placements. Equal inputs therefore always produce the same plan.
//! `Cost` in `search.rs` and the key in `arrange::resplit` are this order.
//! Each device is planned alone; devices are independent except, on some boards, for a reset.
//!
//! A partition is counted as a compute instance, because that is what workloads use. A GPU instance stays if the target
//! has one with the same profile at its placement; then as many of its compute instances stay as the desired split
//! allows. All others are destroyed, as are all compute instances in destroyed GPU instances; in case of a tie,
//! destroying fewer GPU instances wins. Created instances are counted the same way. Room is the number of pairs of a
//! profile and a placement where one more instance could be created afterwards. The order of placements compares
//! arrangements instance by instance from the left, by start, size, profile id and split.
//!
//! A placement that the hardware refuses is a [`RefusedPlacement`]. The caller adds it to the question and plans again. Each
//! refusal permanently excludes one placement of one profile, so this terminates: with an arrangement that the hardware
//! accepts, or with [`Cause::HardwareRefused`].

mod alternatives;
mod arrange;
mod build;
mod cache;
mod combinations;
mod device;
pub mod document;
mod guard;
pub mod messages;
mod mode_planning;
mod outcome;
mod profile_table;
mod rules;
mod search;
mod usage;
mod work_budget;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use octavo_model::catalog::Placement;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::interconnect::InterconnectKind;
use octavo_model::inventory::{Inventory, MigMode};
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as, skip_serializing_none};
use utoipa::ToSchema;

pub use self::combinations::{Combinations, PlacementBits};
pub use self::device::{Feasibility, feasible};
pub use self::guard::{blocking_cause, is_in_use};
pub use self::outcome::{InstanceEffect, PlanOutcome, PlanSummary};
use crate::layout::{InstanceTarget, MigTarget, Targets};

/// All inputs of a plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// The last known state of the node.
    pub inventory: &'a Inventory,
    /// The desired state.
    pub targets: &'a Targets,
    /// Holders of devices, in addition to the processes in the inventory, which also count as in use.
    pub holders: &'a [Holder],
    /// Permitted actions.
    pub policy: &'a Policy,
    /// Placements that the hardware refused although its tables allow them.
    pub refused: &'a BTreeSet<RefusedPlacement>,
}

/// Permitted actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Maximum disruption of a mode change.
    pub max_disruption: Disruption,
}

/// A free placement that a device refused nevertheless, as boards with defects do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedPlacement {
    /// The device.
    pub device: PciAddress,
    /// The profile.
    pub profile_id: u32,
    /// The placement.
    pub placement: Placement,
}

/// The plan for a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlan {
    /// One plan for each target, and for each device whose state cannot be read, ordered by address.
    pub devices: Vec<DevicePlan>,
}

/// The plan for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePlan {
    /// The device.
    pub pci: PciAddress,
    /// The result for the device.
    pub verdict: DevicePlanResult,
}

/// Result of planning a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DevicePlanResult {
    /// Nothing changes: the device matches its target, or the target does not concern partitions.
    Unchanged,
    /// The device changes.
    Change(DeviceChange),
    /// Nothing changes now; the change requires that holders release the device, or that the policy allows more.
    Blocked(Blocked),
    /// The hardware does not support the target.
    Infeasible(Infeasible),
}

/// The change of one device from its current to its desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceChange {
    /// Steps, in order.
    pub steps: Vec<Step>,
    /// The resulting GPU instances, ordered by placement. Empty if MIG mode ends up disabled.
    pub after: Vec<PlannedInstance>,
    /// The change of MIG mode, if any.
    pub mode: Option<ModeChange>,
    /// Number of pairs of profile and placement still possible afterwards.
    pub room: u32,
}

/// A GPU instance after a change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedInstance {
    /// Placement in memory slices.
    pub placement: Placement,
    /// The driver's profile id.
    pub profile_id: u32,
    /// The driver's id, if the instance already exists.
    pub existing_id: Option<u32>,
    /// Compute instances: existing ones first by id, then new ones with the largest first.
    pub compute: Vec<PlannedCompute>,
}

/// A compute instance after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedCompute {
    /// The driver's id within its GPU instance, if the compute instance already exists.
    pub existing_id: Option<u32>,
    /// Number of compute slices.
    pub slices: u32,
}

/// Calculates the plan for `input`.
pub fn plan(input: &PlanInput<'_>) -> NodePlan {
    let wanted = input.targets.devices.iter().map(|target| {
        let device = input.inventory.device(target.pci);
        (target.pci, target.partitioning(device.and_then(|device| device.mig.state())))
    });
    let wanted: Vec<(PciAddress, Option<Cow<'_, MigTarget>>)> = wanted.collect();
    let mut cache = cache::PlanCache::new();
    let mut devices: Vec<DevicePlan> = wanted
        .iter()
        .map(|(pci, mig)| DevicePlan {
            pci: *pci,
            verdict: mig.as_ref().map_or(DevicePlanResult::Unchanged, |mig| {
                device::verdict(input, *pci, mig, &mut cache)
            }),
        })
        .collect();
    let has_target = |pci| input.targets.devices.iter().any(|one| one.pci == pci);
    let unverified = input.targets.unverified.iter();
    let unverified = unverified.filter(|one| !has_target(one.pci));
    devices.extend(
        unverified.map(|one| DevicePlan { pci: one.pci, verdict: device::unverified(&one.reason) }),
    );
    devices.sort_by_key(|device| device.pci);
    NodePlan { devices }
}

impl Default for Policy {
    /// Allows everything except a reboot, which must be requested explicitly.
    fn default() -> Self {
        Self { max_disruption: Disruption::GpuReset }
    }
}

/// The causes that block a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// All causes; never empty. Of all ways to reach the target, these block the one with the fewest instances in use.
    pub causes: Vec<Cause>,
}

/// A cause that blocks a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A GPU instance, or some of its compute instances, must be destroyed but is in use.
    InstanceInUse {
        /// The driver's id of the GPU instance.
        gpu_instance: u32,
        /// Profile of the GPU instance.
        profile_id: u32,
        /// Placement of the GPU instance.
        placement: Placement,
        /// Ids of the compute instances that are in use and must be destroyed; empty for the whole GPU instance.
        compute_instances: Vec<u32>,
        /// The holders; empty if the driver does not report them, which counts as in use.
        holders: Vec<Holder>,
    },
    /// The MIG mode must change but the device is in use.
    DeviceInUse {
        /// The holders; empty if the driver does not report them, which counts as in use.
        holders: Vec<Holder>,
    },
    /// A mode change exceeds the allowed disruption.
    NotAllowed {
        /// Disruption of the mode change.
        disruption: Disruption,
    },
    /// The device does not respond, or does not report its state.
    StateUnknown {
        /// The missing information, as text.
        reason: String,
    },
    /// The hardware refused every arrangement that its profile tables allow.
    HardwareRefused,
}

impl Cause {
    /// Returns the known holders that block the change, mutably.
    pub(crate) fn holders_mut(&mut self) -> &mut [Holder] {
        match self {
            Self::InstanceInUse { holders, .. } | Self::DeviceInUse { holders } => holders,
            Self::NotAllowed { .. } | Self::StateUnknown { .. } | Self::HardwareRefused => &mut [],
        }
    }

    /// Returns the known holders that block the change.
    pub fn holders(&self) -> &[Holder] {
        match self {
            Self::InstanceInUse { holders, .. } | Self::DeviceInUse { holders } => holders,
            Self::NotAllowed { .. } | Self::StateUnknown { .. } | Self::HardwareRefused => &[],
        }
    }
}

/// Reason why a device can never support a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Infeasible {
    /// The violated hardware rule.
    pub rule: HardwareRule,
    /// Sets of GPU instances that fit, closest first; at most three. Each is ordered as in
    /// [`crate::layout::MigTarget::Enabled`].
    pub alternatives: Vec<Vec<InstanceTarget>>,
}

/// A hardware rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HardwareRule {
    /// The device cannot be partitioned.
    NotMigCapable,
    /// The device does not offer the profile.
    NoSuchProfile {
        /// The driver's profile id in the target.
        profile_id: u32,
    },
    /// Too many instances of one profile.
    TooMany {
        /// The profile.
        profile_id: u32,
        /// Requested count.
        requested: u32,
        /// Maximum count.
        most: u32,
    },
    /// All instances together exceed the GPU slices of the device.
    GpuSlices {
        /// Requested slices.
        requested: u32,
        /// Available slices.
        most: u32,
    },
    /// All instances together exceed the memory slices of the device.
    MemorySlices {
        /// Requested slices.
        requested: u32,
        /// Available slices.
        most: u32,
    },
    /// Two profiles require the same media engines, of which there is one set: `+me` and `+me.all`.
    Exclusive {
        /// One profile.
        profile_id: u32,
        /// The other profile; the same if only one instance is possible.
        other: u32,
    },
    /// The slices suffice, but the possible placements of the profiles always overlap.
    NoArrangement,
    /// A GPU instance cannot be split this way.
    ComputeSplit {
        /// The profile.
        profile_id: u32,
        /// The requested split.
        compute: Vec<u32>,
    },
}

/// A step that changes a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Destroys a compute instance.
    DestroyComputeInstance {
        /// The driver's id of the GPU instance.
        gpu_instance: u32,
        /// The driver's id of the compute instance within it.
        compute_instance: u32,
    },
    /// Destroys a GPU instance, which must have no compute instances.
    DestroyGpuInstance {
        /// The driver's id.
        gpu_instance: u32,
        /// Its profile.
        profile_id: u32,
        /// Its placement.
        placement: Placement,
    },
    /// Sets the MIG mode.
    SetMigMode {
        /// The desired mode.
        to: MigMode,
    },
    /// Resets the device to activate a pending MIG mode.
    Reset {
        /// Devices affected by the reset.
        scope: ResetScope,
    },
    /// Creates a GPU instance at a placement.
    CreateGpuInstance {
        /// Index in [`DeviceChange::after`].
        instance: usize,
        /// The profile.
        profile_id: u32,
        /// The placement.
        placement: Placement,
    },
    /// Creates a compute instance.
    CreateComputeInstance {
        /// The GPU instance to create it in.
        gpu_instance: InstanceRef,
        /// Number of compute slices.
        slices: u32,
    },
}

impl Step {
    /// Returns true if the step requires that its object is not in use, which is checked immediately before it.
    pub fn needs_idle(&self) -> bool {
        match self {
            Self::DestroyComputeInstance { .. }
            | Self::DestroyGpuInstance { .. }
            | Self::SetMigMode { .. } => true,
            Self::Reset { .. }
            | Self::CreateGpuInstance { .. }
            | Self::CreateComputeInstance { .. } => false,
        }
    }
}

/// A GPU instance that a step refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceRef {
    /// An existing one, by the driver's id.
    Existing(u32),
    /// One created by an earlier step, by index in [`DeviceChange::after`].
    Planned(usize),
}

/// Disruption of workloads by a change, smallest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Disruption {
    /// Nothing is affected.
    #[default]
    None,
    /// All clients of the device must close it temporarily: monitoring, the device plugin, persistence.
    ClientsBounce,
    /// The device is reset.
    GpuReset,
    /// The machine is rebooted.
    Reboot,
}

/// A change of MIG mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModeChange {
    /// The desired mode.
    pub to: MigMode,
    /// True if the mode is already set and only the reset is missing.
    pub pending: bool,
    /// Disruption of the change. Source: NVIDIA MIG User Guide, "Enable MIG Mode": GPUs up to Ampere need a reset,
    /// since Hopper they do not.
    pub disruption: Disruption,
    /// Devices affected by the reset, if one is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<ResetScope>,
}

/// Devices affected by a reset.
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResetScope {
    /// PCI address of the device itself.
    #[schema(value_type = String)]
    pub device: PciAddress,
    /// Devices linked to it directly or indirectly, which the driver may require to be reset together; ordered by
    /// address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub coupled: Vec<PciAddress>,
    /// Kind of the links: `nvlink`, `nvswitch`.
    #[serde_as(as = "Option<DisplayFromStr>")]
    #[schema(value_type = Option<String>)]
    pub links: Option<InterconnectKind>,
}

impl Disruption {
    /// All values, smallest first.
    pub const ALL: [Self; 4] = [Self::None, Self::ClientsBounce, Self::GpuReset, Self::Reboot];

    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ClientsBounce => "clients-bounce",
            Self::GpuReset => "gpu-reset",
            Self::Reboot => "reboot",
        }
    }
}

impl fmt::Display for Disruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests;
