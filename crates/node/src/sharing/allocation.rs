//! Preferred allocation: the units that a container should get among the available ones. Kubelet makes the final
//! choice; a preference always exists.
//!
//! Whole devices are chosen by their links (`linked`). Replicas and partitions are chosen by the following rules; the
//! first rule that distinguishes two candidates decides:
//!
//! 1. A container that requests several gets them on different devices, as evenly as availability permits: two replicas
//!    of one device provide the compute of one device.
//! 2. `Spread` prefers the unit, then the device, with the fewest allocations; `Pack` the one with the most.
//! 3. The NUMA node of most of the chosen units.
//! 4. The order of addresses, instances and replica numbers, so that the result is deterministic.
//!
//! Only the ids in the request count: a lost device that is no longer offered does not affect the others.

mod linked;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::resource::ShareId;

use super::offer::{Offer, Partition, Unit};

/// A preferred-allocation request of kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllocationRequest {
    /// The ids to choose from.
    pub available: Vec<ShareId>,
    /// Ids that must be chosen; a subset of `available`.
    pub must_include: Vec<ShareId>,
    /// Number of ids to choose.
    pub size: usize,
}

/// Distribution of replicas over units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllocationPolicy {
    /// Prefer the unit with the most free replicas.
    #[default]
    Spread,
    /// Prefer the unit with the fewest free replicas.
    Pack,
}

/// Returns the preferred ids: `size` of the available ones, or all if there are fewer, each once. The required ids
/// come first and are all included, even if they exceed `size`. Ids that are not in the offer are taken last.
pub fn preferred_ids(
    question: &AllocationRequest,
    policy: AllocationPolicy,
    offer: &Offer,
    inventory: &Inventory,
) -> Vec<ShareId> {
    let must: BTreeSet<&ShareId> = question.must_include.iter().collect();
    let available: BTreeSet<&ShareId> = question.available.iter().collect();
    let free: BTreeSet<&ShareId> = available.difference(&must).copied().collect();
    let table = Candidates::new(offer, &free, &must);
    let mut chosen: Vec<ShareId> = must.into_iter().cloned().collect();
    let missing = question.size.saturating_sub(chosen.len());
    let advice = linked::choose(&table.rows, missing, inventory)
        .unwrap_or_else(|| one_by_one(table.rows, missing, policy));
    chosen.extend(advice);
    let missing = question.size.saturating_sub(chosen.len());
    chosen.extend(table.unoffered.into_iter().take(missing).cloned());
    chosen
}

/// The candidates of a request.
struct Candidates<'a> {
    /// One for each unit of the offer, ordered by address.
    rows: Vec<CandidateUnit<'a>>,
    /// Available ids that are not in the offer.
    unoffered: Vec<&'a ShareId>,
}

/// A unit and its free ids.
#[derive(Debug)]
struct CandidateUnit<'a> {
    unit: &'a Unit,
    /// Its free ids; the first is taken last.
    free: Vec<&'a ShareId>,
    /// Number of its ids that must be chosen.
    must: usize,
    /// Number of its ids that are allocated, including those just chosen.
    taken: u64,
}

/// Allocations of a device.
#[derive(Debug, Clone, Copy, Default)]
struct DeviceLoad {
    chosen: usize,
    taken: u64,
}

impl<'a> Candidates<'a> {
    fn new(offer: &'a Offer, free: &BTreeSet<&'a ShareId>, must: &BTreeSet<&ShareId>) -> Self {
        let mut by_uuid: BTreeMap<&str, Vec<&ShareId>> = BTreeMap::new();
        for id in free.iter().rev() {
            by_uuid.entry(id.uuid()).or_default().push(id);
        }
        let mut rows = Vec::new();
        for unit in &offer.units {
            let all = by_uuid.remove(unit.uuid.as_str()).unwrap_or_default();
            let (free, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|id| is_of(id, unit));
            if !others.is_empty() {
                by_uuid.insert(&unit.uuid, others);
            }
            let count = u64::from(unit.replicas.unwrap_or(1));
            rows.push(CandidateUnit {
                unit,
                must: must.iter().filter(|id| is_of(id, unit)).count(),
                taken: count.saturating_sub(free.len() as u64),
                free,
            });
        }
        rows.sort_by(|a, b| a.place().cmp(&b.place()));
        let unoffered = by_uuid.into_values().flatten().collect();
        Self { rows, unoffered }
    }
}

impl<'a> CandidateUnit<'a> {
    fn place(&self) -> (PciAddress, Option<&'a Partition>, &'a str) {
        let unit = self.unit;
        (unit.pci, unit.partition.as_ref(), &unit.uuid)
    }
}

fn is_of(id: &ShareId, unit: &Unit) -> bool {
    id.uuid() == unit.uuid
        && match (id.number(), unit.replicas) {
            (None, None) => true,
            (Some(number), Some(replicas)) => number < replicas,
            (None, Some(_)) | (Some(_), None) => false,
        }
}

/// Chooses the best id repeatedly, without looking ahead.
fn one_by_one(
    mut rows: Vec<CandidateUnit<'_>>,
    count: usize,
    policy: AllocationPolicy,
) -> Vec<ShareId> {
    let mut devices: BTreeMap<PciAddress, DeviceLoad> = BTreeMap::new();
    let mut numa_nodes: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for row in &rows {
        let device = devices.entry(row.unit.pci).or_default();
        device.chosen += row.must;
        device.taken = device.taken.saturating_add(row.taken);
        *numa_nodes.entry(row.unit.numa_node).or_default() += row.must;
    }
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let open = rows.iter_mut().filter(|row| !row.free.is_empty());
        let best = open.min_by_key(|row| {
            let device = devices.get(&row.unit.pci).copied().unwrap_or_default();
            let near = numa_nodes.get(&row.unit.numa_node).copied();
            let least = |taken| match policy {
                AllocationPolicy::Spread => taken,
                AllocationPolicy::Pack => u64::MAX - taken,
            };
            let load = (least(row.taken), least(device.taken));
            (device.chosen, load, Reverse(near))
        });
        let Some(best) = best else {
            break;
        };
        chosen.extend(best.free.pop().cloned());
        best.taken = best.taken.saturating_add(1);
        let device = devices.entry(best.unit.pci).or_default();
        device.chosen += 1;
        device.taken = device.taken.saturating_add(1);
        *numa_nodes.entry(best.unit.numa_node).or_default() += 1;
    }
    chosen
}
