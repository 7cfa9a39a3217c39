//! Which of what is free a container should have. It is kubelet's to choose; this is our advice, and it can always be given.
//!
//! Where whole devices are asked for, how they are linked decides (`linked`). Where it is replicas or partitions, these rules do,
//! the first that tells two apart:
//!
//! 1. A container that asks for several gets them on different devices, as evenly as they are free: two turns of one device are
//!    one device's worth of work.
//! 2. `Spread` takes of the unit, and then of the device, of which least is taken; `Pack` of which most is.
//! 3. The NUMA node that most of what is chosen is on.
//! 4. The order of addresses, instances and numbers, so that the same question has the same answer.
//!
//! Only what is in the question is looked at: a device that was lost and is not offered any more changes nothing for the others.

mod linked;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::offer::{Offer, Partition, Unit};
use super::resource::ShareId;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;

/// What kubelet asks advice for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// What it may choose among.
    pub available: Vec<ShareId>,
    /// What has to be among what is chosen; a part of `available`.
    pub must_include: Vec<ShareId>,
    /// How many.
    pub size: usize,
}

/// How replicas are laid over units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Each goes to the unit that has most left.
    #[default]
    Spread,
    /// Each goes to the unit that has least left.
    Pack,
}

/// The advice: `size` of what is available or as many as there are, each once, with all that has to be among it, even where that
/// is more, and first. What nobody offers is taken last.
pub fn prefer(
    question: &Question,
    policy: Policy,
    offer: &Offer,
    inventory: &Inventory,
) -> Vec<ShareId> {
    let must: BTreeSet<&ShareId> = question.must_include.iter().collect();
    let available: BTreeSet<&ShareId> = question.available.iter().collect();
    let free: BTreeSet<&ShareId> = available.difference(&must).copied().collect();
    let table = Table::new(offer, &free, &must);
    let mut chosen: Vec<ShareId> = must.into_iter().cloned().collect();
    let missing = question.size.saturating_sub(chosen.len());
    let advice = linked::choose(&table.rows, missing, inventory)
        .unwrap_or_else(|| one_by_one(table.rows, missing, policy));
    chosen.extend(advice);
    let missing = question.size.saturating_sub(chosen.len());
    chosen.extend(table.strangers.into_iter().take(missing).cloned());
    chosen
}

/// What there is to choose among.
struct Table<'a> {
    /// One for each unit of the offer, in the order of their places.
    rows: Vec<Row<'a>>,
    /// What is free and is not of the offer.
    strangers: Vec<&'a ShareId>,
}

/// A unit.
#[derive(Debug)]
struct Row<'a> {
    unit: &'a Unit,
    /// What is free of it; the first is taken last.
    free: Vec<&'a ShareId>,
    /// How many of it have to be chosen.
    must: usize,
    /// How many of it are not free, with those that were chosen.
    taken: u64,
}

/// What a device has to bear.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    chosen: usize,
    taken: u64,
}

impl<'a> Table<'a> {
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
            rows.push(Row {
                unit,
                must: must.iter().filter(|id| is_of(id, unit)).count(),
                taken: count.saturating_sub(free.len() as u64),
                free,
            });
        }
        rows.sort_by(|a, b| a.place().cmp(&b.place()));
        let strangers = by_uuid.into_values().flatten().collect();
        Self { rows, strangers }
    }
}

impl<'a> Row<'a> {
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

/// Chooses one after another, each as if it were the last.
fn one_by_one(mut rows: Vec<Row<'_>>, count: usize, policy: Policy) -> Vec<ShareId> {
    let mut devices: BTreeMap<PciAddress, Load> = BTreeMap::new();
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
                Policy::Spread => taken,
                Policy::Pack => u64::MAX - taken,
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
