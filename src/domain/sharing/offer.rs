//! What a node gives out: resources, the units of each, and the replicas of each unit.
//!
//! ```text
//!   Inventory, MIG strategy --> units.rs: what can be given out, under which name
//!   Targets ------------------> shares.rs: which share counts for which unit
//!                               name.rs: what is under one name, and does not go together
//! ```

mod compile;
mod name;
mod shares;
mod units;
mod warnings;

use std::collections::BTreeSet;

pub use self::compile::compile;
pub use self::units::find;
use super::resource::{ResourceName, ShareId};
use crate::domain::id::PciAddress;
use crate::domain::profile::ProfileName;
use crate::domain::quantity::Mebibytes;

/// All that a node gives out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offers {
    /// Ordered by name, each once.
    pub resources: Vec<Offer>,
}

/// What is given out under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The name.
    pub name: ResourceName,
    /// Whether a container that asks for more than one is refused.
    pub fail_requests_greater_than_one: bool,
    /// Ordered by device, then by the driver's ids of the instances.
    pub units: Vec<Unit>,
}

/// A whole device or a partition: what a container can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// UUID of the device or partition.
    pub uuid: String,
    /// The device, or the one that the partition is of.
    pub pci: PciAddress,
    /// Which partition; `None` for a whole device.
    pub partition: Option<Partition>,
    /// How many have it by turns; `None` where one has it alone.
    pub replicas: Option<u32>,
    /// Its memory, where it is known.
    pub memory: Option<Mebibytes>,
    /// How much of it each shall be content with; `None` where nobody says, and then it is the same for all.
    pub memory_per_replica: Option<Mebibytes>,
    /// The NUMA node of the device's slot.
    pub numa_node: Option<u32>,
}

/// A partition, by the driver's ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    /// The GPU instance.
    pub gpu_instance: u32,
    /// The compute instance within it.
    pub compute_instance: u32,
    /// What NVIDIA's tools call it: `1g.10gb`, `1c.3g.40gb`.
    pub profile: ProfileName,
}

/// What is given out, and what is to be known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    /// What is given out.
    pub offers: Offers,
    /// What is not, and why, in words for a person.
    pub warnings: Vec<String>,
    /// Devices with MIG mode enabled of which nothing is offered because the MIG strategy does not fit.
    pub unoffered: BTreeSet<PciAddress>,
}

impl Unit {
    /// The ids of all that is given out of it.
    pub fn ids(&self) -> Vec<ShareId> {
        match self.replicas {
            None => vec![ShareId::whole(&self.uuid)],
            Some(replicas) => (0..replicas)
                .map(|number| ShareId::replica(&self.uuid, number))
                .collect(),
        }
    }

    /// How much memory each may use, so that all can: nobody enforces it. `None` where one has all of it, or its size is not
    /// known.
    pub fn fair_share(&self) -> Option<Mebibytes> {
        let replicas = self.replicas?;
        let equal = || {
            let memory = self.memory?.get().checked_div(u64::from(replicas))?;
            Some(Mebibytes::new(memory))
        };
        self.memory_per_replica.or_else(equal)
    }
}

impl Offers {
    /// The offer of this name.
    pub fn by_name(&self, name: &ResourceName) -> Option<&Offer> {
        self.resources.iter().find(|offer| offer.name == *name)
    }

    /// Every unit, with what it is given out as.
    pub fn units(&self) -> impl Iterator<Item = (&Offer, &Unit)> {
        let all = self.resources.iter();
        all.flat_map(|offer| offer.units.iter().map(move |unit| (offer, unit)))
    }

    /// The unit with this UUID.
    pub fn unit(&self, uuid: &str) -> Option<(&Offer, &Unit)> {
        self.units().find(|(_, unit)| unit.uuid == uuid)
    }
}

impl Offer {
    /// How many there are of it.
    pub fn count(&self) -> usize {
        self.units.iter().map(|unit| unit.ids().len()).sum()
    }
}

#[cfg(test)]
mod tests;
