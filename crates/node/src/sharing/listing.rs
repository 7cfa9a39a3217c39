//! The ids listed to kubelet: the desired offers, reconciled with the ids that pods hold.
//!
//! An id held by a pod stays listed for as long as the pod holds it, even if its unit is no longer offered: after a
//! restart, kubelet readmits a pod only if it knows the pod's ids. A unit is never offered both whole and in
//! replicas, and never in more replicas than desired.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::holder::DeviceAllocation;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::sharing_status::{Health, RetainedId};

use super::offer::{self, Offer, Offers, Unit};

/// All ids listed to kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// Listed ids by resource name.
    pub resources: BTreeMap<ResourceName, ListedResource>,
    /// Ids that differ from the desired offers and stay listed because pods hold them.
    pub retained: Vec<RetainedId>,
    /// Devices without new allocations.
    pub withheld: BTreeSet<PciAddress>,
}

/// The ids listed under one resource name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedResource {
    /// The units of the ids, and whether a container may request several.
    pub offer: Offer,
    /// Ordered by unit, then by replica number.
    pub items: Vec<ListedId>,
}

/// A listed id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedId {
    /// The id.
    pub id: ShareId,
    /// Health of its unit.
    pub health: Health,
    /// True if it is idle and withheld because its device waits for its layout.
    pub is_withheld: bool,
}

impl ListedId {
    /// Returns whether kubelet may allocate it. An id held by a pod is never withheld: kubelet refuses to restart a
    /// pod whose device is unhealthy.
    pub fn is_allocatable(&self) -> bool {
        self.health.is_healthy() && !self.is_withheld
    }
}

/// Ids held by pods.
#[derive(Debug, Clone, Copy)]
pub struct HeldIds<'a> {
    /// The ids with the pods that hold them.
    pub allocations: &'a [DeviceAllocation],
    /// True if the list is complete; otherwise every id listed before counts as held.
    pub is_complete: bool,
    /// The inventory: pods may hold units that are not offered.
    pub inventory: &'a Inventory,
    /// Devices without new allocations.
    pub withheld: &'a BTreeSet<PciAddress>,
}

/// An id and its resource name.
type ListedKey = (ResourceName, ShareId);

/// Returns the ids to list for the desired `offers`, the ids `held` by pods, and the previous listing `before`.
/// A unit that was not listed before is not listed while its holders are unknown.
pub fn reconcile_listing(
    offers: &Offers,
    held: HeldIds<'_>,
    before: &Listing,
    health: impl Fn(&Unit) -> Health,
) -> Listing {
    let mut holders: BTreeMap<ListedKey, Option<&DeviceAllocation>> = BTreeMap::new();
    if !held.is_complete {
        let places = before.places();
        holders.extend(places.map(|(name, id)| ((name.clone(), id.clone()), None)));
    }
    for one in held.allocations {
        let name = one.resource.parse::<ResourceName>();
        let id = one.device_id.parse::<ShareId>();
        if let (Ok(name), Ok(id)) = (name, id) {
            holders.insert((name, id), Some(one));
        }
    }
    let mut draft = ListingBuilder { withheld: held.withheld, before, listing: Listing::default() };
    for offer in &offers.resources {
        draft.open(&offer.name, offer.fail_requests_greater_than_one);
        for unit in &offer.units {
            let all = holders.iter().map(|(place, by)| (place, *by));
            let holders: Vec<_> = all.filter(|((_, id), _)| id.uuid() == unit.uuid).collect();
            if holders.is_empty() && !held.is_complete {
                continue;
            }
            draft.unit((offer, unit), &holders, &health(unit));
        }
    }
    for ((name, id), by) in &holders {
        if offers.unit(id.uuid()).is_none()
            && let Some(unit) = unoffered_unit(id.uuid(), by.is_some(), (before, held.inventory))
        {
            draft.retain((name, id), *by, &unit, &health(&unit));
        }
    }
    draft.finish()
}

/// A held unit that is not offered. If a pod is known to hold it, the previous listing suffices even if the driver
/// does not report the unit now. If its holders are unknown, it must be in the inventory.
fn unoffered_unit(uuid: &str, is_held: bool, known: (&Listing, &Inventory)) -> Option<Unit> {
    let (before, inventory) = known;
    let mut listed = before.resources.values();
    let listed = listed.find_map(|listed| listed.unit_of(uuid));
    let there = offer::find(inventory, uuid);
    let is_retained = is_held || there.is_some();
    listed.filter(|_| is_retained).cloned().or(there)
}

struct ListingBuilder<'a> {
    /// Devices without new allocations.
    withheld: &'a BTreeSet<PciAddress>,
    /// The previous listing.
    before: &'a Listing,
    listing: Listing,
}

impl ListingBuilder<'_> {
    fn open(&mut self, name: &ResourceName, fail: bool) -> &mut ListedResource {
        let listed = self.listing.resources.entry(name.clone());
        let listed = listed.or_insert_with(|| ListedResource {
            offer: Offer {
                name: name.clone(),
                fail_requests_greater_than_one: false,
                units: Vec::new(),
            },
            items: Vec::new(),
        });
        listed.offer.fail_requests_greater_than_one |= fail;
        listed
    }

    fn unit(
        &mut self,
        (offer, unit): (&Offer, &Unit),
        holders: &[(&ListedKey, Option<&DeviceAllocation>)],
        health: &Health,
    ) {
        let ids = unit.ids();
        for ((name, id), by) in holders {
            let is_withheld = by.is_none() && self.was_withheld(name, unit, id);
            self.add(name, unit, id, (health, is_withheld));
            let is_offered = *name == offer.name && ids.contains(id);
            if let (false, Some(by)) = (is_offered, by) {
                let retained = RetainedId::new(id.clone(), by);
                self.listing.retained.push(retained);
            }
        }
        let mut numbers = holders.iter().map(|((_, id), _)| id.number());
        let is_otherwise = numbers.any(|number| number.is_some() != unit.replicas.is_some());
        if is_otherwise {
            return;
        }
        let taken: BTreeSet<&ShareId> = holders.iter().map(|((_, id), _)| id).collect();
        let free_count = ids.len().saturating_sub(holders.len());
        let free = ids.iter().filter(|id| !taken.contains(id));
        let is_withheld = self.withheld.contains(&unit.pci);
        for id in free.take(free_count) {
            self.add(&offer.name, unit, id, (health, is_withheld));
        }
    }

    /// Adds one id of a unit that is not offered.
    fn retain(
        &mut self,
        (name, id): (&ResourceName, &ShareId),
        by: Option<&DeviceAllocation>,
        unit: &Unit,
        health: &Health,
    ) {
        let is_withheld = by.is_none() && self.was_withheld(name, unit, id);
        self.add(name, unit, id, (health, is_withheld));
        let retained = by.map(|by| RetainedId::new(id.clone(), by));
        self.listing.retained.extend(retained);
    }

    /// Returns whether an id that a pod may hold was idle and withheld before the holders became unknown.
    fn was_withheld(&self, name: &ResourceName, unit: &Unit, id: &ShareId) -> bool {
        let listed = self.before.resources.get(name);
        let item = listed.and_then(|listed| listed.item(id));
        self.withheld.contains(&unit.pci) && item.is_some_and(|item| item.is_withheld)
    }

    fn add(
        &mut self,
        name: &ResourceName,
        unit: &Unit,
        id: &ShareId,
        (health, is_withheld): (&Health, bool),
    ) {
        let listed = self.open(name, false);
        if listed.offer.units.iter().all(|one| one.uuid != unit.uuid) {
            listed.offer.units.push(unit.clone());
        }
        listed.items.push(ListedId { id: id.clone(), health: health.clone(), is_withheld });
    }

    fn finish(mut self) -> Listing {
        for listed in self.listing.resources.values_mut() {
            let units = &mut listed.offer.units;
            units.sort_by(|a, b| (a.pci, &a.partition).cmp(&(b.pci, &b.partition)));
            let order: BTreeMap<&str, usize> =
                units.iter().enumerate().map(|(index, unit)| (unit.uuid.as_str(), index)).collect();
            let key = |item: &ListedId| (order.get(item.id.uuid()).copied(), item.id.number());
            listed.items.sort_by_key(key);
        }
        self.listing.retained.sort();
        self.listing.withheld.clone_from(self.withheld);
        self.listing
    }
}

impl Listing {
    /// Every id with its resource name.
    pub fn places(&self) -> impl Iterator<Item = (&ResourceName, &ShareId)> {
        let all = self.resources.iter();
        all.flat_map(|(name, listed)| listed.items.iter().map(move |item| (name, &item.id)))
    }
}

impl ListedResource {
    /// The item with this id.
    pub fn item(&self, id: &ShareId) -> Option<&ListedId> {
        self.items.iter().find(|item| item.id == *id)
    }

    /// The unit of the id.
    pub fn unit(&self, id: &ShareId) -> Option<&Unit> {
        self.unit_of(id.uuid())
    }

    fn unit_of(&self, uuid: &str) -> Option<&Unit> {
        let mut units = self.offer.units.iter();
        units.find(|unit| unit.uuid == uuid)
    }

    /// The ids that kubelet may allocate.
    pub fn allocatable(&self) -> impl Iterator<Item = &ShareId> {
        let fit = self.items.iter().filter(|item| item.is_allocatable());
        fit.map(|item| &item.id)
    }
}

#[cfg(test)]
mod tests;
