//! Allocations by namespace and type, for a node and summed over a fleet.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::{PciAddress, TypeName};

use super::{is_time_sliced, place};
use crate::sharing::usage::Usage;

/// Allocations of one type to the pods of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HoldingCounts {
    /// Number of pods.
    pub pods: u64,
    /// Whole devices allocated exclusively.
    pub devices: u64,
    /// MIG partitions allocated exclusively.
    pub partitions: u64,
    /// Replicas of shared devices and partitions.
    pub replicas: u64,
}

/// Allocations by namespace and type; the type is `None` for unknown devices.
pub type Holdings = BTreeMap<(String, Option<TypeName>), HoldingCounts>;

impl HoldingCounts {
    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.pods = self.pods.saturating_add(other.pods);
        self.devices = self.devices.saturating_add(other.devices);
        self.partitions = self.partitions.saturating_add(other.partitions);
        self.replicas = self.replicas.saturating_add(other.replicas);
    }
}

/// Returns the allocations to the pods of a node, given the types of its devices. A pod with several types counts for
/// each.
pub fn holdings(usage: &Usage, types: &BTreeMap<PciAddress, TypeName>) -> Holdings {
    let mut found = Holdings::new();
    let mut pods = BTreeSet::new();
    for device in &usage.devices {
        let kind = types.get(&device.pci);
        for unit in &device.units {
            for tenant in unit.tenants.iter().filter(|tenant| !tenant.ids.is_empty()) {
                let Some(place) = place(tenant) else { continue };
                let group = (place.namespace().to_owned(), kind.cloned());
                let held = found.entry(group).or_default();
                let is_another = pods.insert((place, kind));
                held.pods = held.pods.saturating_add(u64::from(is_another));
                let ids = u64::try_from(tenant.ids.len()).unwrap_or(u64::MAX);
                let (count, more) = match (is_time_sliced(unit, tenant), unit.gpu_instance) {
                    (true, _) => (&mut held.replicas, ids),
                    (false, Some(_)) => (&mut held.partitions, 1),
                    (false, None) => (&mut held.devices, 1),
                };
                *count = count.saturating_add(more);
            }
        }
    }
    found
}
