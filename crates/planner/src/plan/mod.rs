//! Plans: the changes that bring a node's devices into the state that a layout requests, as data.
//!
//! A plan is exact. Of all ways to reach the target, the planner chooses the one that destroys the fewest partitions in
//! use (if any, the change is blocked), then destroys the fewest partitions, then creates the fewest, then leaves the
//! most room, and then comes first in the order of placements. Equal inputs therefore always produce the same plan.
//! `Cost` in `search.rs` and the key in `splits::resplit` are this order.
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
mod blocked;
mod board;
mod build;
mod cache;
mod device;
pub mod document;
mod guard;
mod infeasible;
mod instance_effect;
pub mod messages;
mod mode;
mod mode_planning;
mod outcome;
mod rules;
mod search;
mod splits;
mod step;
mod summary;
mod usage;
mod work_budget;

use std::collections::BTreeSet;

use octavo_model::catalog::Placement;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;

pub use self::blocked::{Blocked, Cause};
pub use self::device::{Feasibility, feasible};
pub use self::guard::{blocking_cause, is_in_use};
pub use self::infeasible::{HardwareRule, Infeasible};
pub use self::instance_effect::InstanceEffect;
pub use self::mode::{Disruption, ModeChange, ResetScope};
pub use self::outcome::PlanOutcome;
pub use self::step::{InstanceRef, Step};
pub use self::summary::PlanSummary;
use crate::layout::Targets;

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

/// Calculates the plan for `question`.
pub fn plan(question: &PlanInput<'_>) -> NodePlan {
    let mut cache = cache::PlanCache::new();
    let mut devices: Vec<DevicePlan> = question
        .targets
        .devices
        .iter()
        .map(|target| DevicePlan {
            pci: target.pci,
            verdict: target.mig.as_ref().map_or(DevicePlanResult::Unchanged, |mig| {
                device::verdict(question, target.pci, mig, &mut cache)
            }),
        })
        .collect();
    let has_target = |pci| question.targets.devices.iter().any(|one| one.pci == pci);
    let unverified = question.targets.unverified.iter();
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

#[cfg(test)]
mod tests;
