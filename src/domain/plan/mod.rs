//! Plans: what would change on a node so that its devices have what a layout asks for, as data.
//!
//! A plan is exact. Of all ways to reach the target it is the one that destroys nothing in use, then destroys the fewest
//! partitions, then creates the fewest, then leaves the most room for what may come, and then comes first in the order of
//! places, so that the same question always has the same answer. It is made for each device alone; devices share nothing
//! but, on some boards, a reset.
//!
//! What is counted: a partition is a compute instance, as that is what people use. A GPU instance stays where one of the same
//! profile is wanted at its place, and then as many of its compute instances stay as the wanted split has. All others are
//! destroyed, and so are all those in GPU instances that go; between ways that destroy as many, the one that destroys fewer
//! GPU instances is better. Created are counted alike. Room is the number
//! of pairs of a profile and a place at which the device could have one more instance afterwards. The order of places compares
//! arrangements, instance by instance from the left, by where one begins, its size, its profile's id and its split.
//!
//! A place that the hardware refuses is a [`Refusal`]. Whoever was refused adds it to what the question has and asks again. Each
//! takes one place of one profile away for good, so that this ends: with an arrangement that the hardware gives, or with
//! [`Cause::Refused`].

mod arrange;
mod blocked;
mod board;
mod build;
mod device;
mod fate;
mod guard;
mod infeasible;
mod memo;
mod mode;
mod modes;
mod offers;
mod outcome;
mod pins;
mod rules;
mod search;
mod splits;
mod step;
mod tally;
pub mod words;
mod work;

use std::collections::BTreeSet;

pub use self::blocked::{Blocked, Cause};
pub use self::fate::Fate;
pub use self::guard::{in_the_way, is_in_use};
pub use self::infeasible::{HardwareRule, Infeasible, Offer};
pub use self::mode::{Disruption, ModeChange, ResetScope};
pub use self::outcome::Outcome;
pub use self::step::{InstanceRef, Step};
pub use self::tally::Tally;
use crate::domain::catalog::Placement;
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Inventory};
use crate::domain::layout::{InstanceTarget, Targets};

/// Everything that a plan follows from.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The node as it was last read.
    pub inventory: &'a Inventory,
    /// What it shall have.
    pub targets: &'a Targets,
    /// Who uses its devices, beside the processes that the inventory names: these count as in use as well.
    pub holders: &'a [Holder],
    /// What may be done.
    pub policy: &'a Policy,
    /// What the hardware refused although its own tables allow it.
    pub refused: &'a BTreeSet<Refusal>,
}

/// What may be done without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The most that a mode change may cost.
    pub most_disruption: Disruption,
}

/// A place that a device did not give, although it is free by its tables: boards with defects do that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The device.
    pub device: PciAddress,
    /// The profile.
    pub profile_id: u32,
    /// The place.
    pub placement: Placement,
}

/// What would happen to the devices that the targets speak of, in the order of their addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlan {
    /// One for each target, and for each device whose state cannot be read.
    pub devices: Vec<DevicePlan>,
}

/// What would happen to one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePlan {
    /// The device.
    pub pci: PciAddress,
    /// What would happen.
    pub verdict: Verdict,
}

/// What would happen to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it has what it shall have, or nothing about its partitions is asked for.
    Unchanged,
    /// This.
    Change(Change),
    /// Nothing now; it would be possible once somebody lets go, or more is allowed.
    Blocked(Blocked),
    /// Nothing ever: the hardware cannot.
    Infeasible(Infeasible),
}

/// How one device gets from what it has to what it shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// What it has afterwards, ordered by place. Empty where MIG mode is then off.
    pub after: Vec<PlannedInstance>,
    /// The change of MIG mode, if any.
    pub mode: Option<ModeChange>,
    /// How many profile placements are still possible afterwards.
    pub room: u32,
}

/// A GPU instance as it is after a change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedInstance {
    /// Where it lies, in memory slices.
    pub placement: Placement,
    /// The driver's id of its profile.
    pub profile_id: u32,
    /// Whether it is there already: the driver's id.
    pub kept: Option<u32>,
    /// Its compute instances, kept ones first by id, new ones after them with the largest first.
    pub compute: Vec<PlannedCompute>,
}

/// A compute instance as it is after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedCompute {
    /// Whether it is there already: the driver's id within its GPU instance.
    pub kept: Option<u32>,
    /// How many compute slices it has.
    pub slices: u32,
}

/// The plan that follows from `question`.
pub fn plan(question: &Question<'_>) -> NodePlan {
    let mut memo = memo::Memo::new();
    let mut devices: Vec<DevicePlan> = question
        .targets
        .devices
        .iter()
        .map(|target| DevicePlan {
            pci: target.pci,
            verdict: target.mig.as_ref().map_or(Verdict::Unchanged, |mig| {
                device::verdict(question, target.pci, mig, &mut memo)
            }),
        })
        .collect();
    let has_target = |pci| question.targets.devices.iter().any(|one| one.pci == pci);
    let unverified = question.targets.unverified.iter();
    let unverified = unverified.filter(|one| !has_target(one.pci));
    devices.extend(unverified.map(|one| DevicePlan {
        pci: one.pci,
        verdict: device::unverified(&one.reason),
    }));
    devices.sort_by_key(|device| device.pci);
    NodePlan { devices }
}

/// Whether a device can have something when nothing else is on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feasible {
    /// It can.
    Yes,
    /// It cannot be told: the device does not say enough, or so much that nobody can look through it.
    Untold,
}

/// Whether `device` can have `instances` when nothing else is on it, or which rule of the hardware forbids it.
pub fn feasible(device: &Device, instances: &[InstanceTarget]) -> Result<Feasible, Infeasible> {
    device::feasible(device, instances)
}

impl Default for Policy {
    /// Everything short of a reboot, which nobody does by the way.
    fn default() -> Self {
        Self {
            most_disruption: Disruption::GpuReset,
        }
    }
}

#[cfg(test)]
mod tests;
