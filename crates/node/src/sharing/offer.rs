//! Offers of a node: resources, the units of each, and the replicas of each unit.
//!
//! ```text
//!   Inventory, MIG strategy --> units.rs: units and their default resource names
//!   Targets ------------------> shares.rs: the share that applies to each unit
//!                               name.rs: conflicts between units of one resource name
//! ```

mod compile;
mod name;
mod shares;
mod units;
mod warnings;

use std::collections::BTreeSet;

use octavo_model::id::PciAddress;
use octavo_model::profile::ProfileName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::{ResourceName, ShareId};

pub use self::compile::compile;
pub use self::units::find;

/// All offers of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offers {
    /// Ordered by name, each once.
    pub resources: Vec<Offer>,
}

/// The units offered under one resource name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The name.
    pub name: ResourceName,
    /// True if a container that requests more than one is rejected.
    pub fail_requests_greater_than_one: bool,
    /// Ordered by device, then by the driver's ids of the instances.
    pub units: Vec<Unit>,
}

/// A whole device or a partition: what a container can be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// UUID of the device or partition.
    pub uuid: String,
    /// The device, or the device of the partition.
    pub pci: PciAddress,
    /// The partition; `None` for a whole device.
    pub partition: Option<Partition>,
    /// Number of replicas; `None` if it is not shared.
    pub replicas: Option<u32>,
    /// Its memory, if known.
    pub memory: Option<Mebibytes>,
    /// Memory that each replica should not exceed; `None` for equal parts.
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
    /// Name in NVIDIA's tools: `1g.10gb`, `1c.3g.40gb`.
    pub profile: ProfileName,
}

/// Offers and their warnings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompiledOffers {
    /// The offers.
    pub offers: Offers,
    /// Human-readable reasons for units that are not offered.
    pub warnings: Vec<String>,
    /// Devices with MIG mode enabled that are not offered because the MIG strategy does not fit.
    pub unoffered: BTreeSet<PciAddress>,
}

impl Unit {
    /// The ids of the unit or of its replicas.
    pub fn ids(&self) -> Vec<ShareId> {
        match self.replicas {
            None => vec![ShareId::whole(&self.uuid)],
            Some(replicas) => {
                (0..replicas).map(|number| ShareId::replica(&self.uuid, number)).collect()
            }
        }
    }

    /// Memory that each replica can use so that all of them can; not enforced. `None` if the unit is not shared, or
    /// its memory is unknown.
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

    /// Every unit with its offer.
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
    /// Number of ids.
    pub fn count(&self) -> usize {
        self.units.iter().map(|unit| unit.ids().len()).sum()
    }
}

#[cfg(test)]
mod tests;
