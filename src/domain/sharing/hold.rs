//! What is listed to kubelet: what shall be given out, reconciled with what pods have.
//!
//! An id that a pod has stays listed for as long as it has it, also where nothing else of its unit is given out any more: kubelet
//! takes a pod back after a restart only if it knows the pod's ids. A unit is never given out whole and in replicas at once, and never more often than is asked.

use std::collections::{BTreeMap, BTreeSet};

use super::health::Health;
use super::offer::{self, Offer, Offers, Unit};
use super::resource::{ResourceName, ShareId};
use super::status::Kept;
use crate::domain::holder::PodDevice;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;

/// All that is listed to kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// By name.
    pub resources: BTreeMap<ResourceName, Listed>,
    /// What is listed otherwise than it shall be, for as long as pods have it.
    pub kept: Vec<Kept>,
    /// Devices of which nothing new is allocated.
    pub withheld: BTreeSet<PciAddress>,
}

/// What is listed under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The units that the ids are of, and whether a container may have several.
    pub offer: Offer,
    /// Ordered by unit, then by number.
    pub items: Vec<Item>,
}

/// An id that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The id.
    pub id: ShareId,
    /// Whether it is fit to be given out.
    pub health: Health,
    /// Whether it is idle and not allocated, since its device waits for its layout.
    pub is_withheld: bool,
}

impl Item {
    /// Whether kubelet may allocate it. What a pod has stays so: kubelet refuses to restart a pod whose device is unhealthy.
    pub fn is_fit(&self) -> bool {
        self.health.is_healthy() && !self.is_withheld
    }
}

/// What pods have.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// Ids with the pods that have them.
    pub given: &'a [PodDevice],
    /// Whether that is all; where it is not, whatever was listed before counts as given.
    pub is_all: bool,
    /// The devices: what is there may be held and not be asked for.
    pub inventory: &'a Inventory,
    /// Devices of which nothing new is allocated.
    pub withheld: &'a BTreeSet<PciAddress>,
}

/// An id under a name.
type Place = (ResourceName, ShareId);

/// What is to be listed where `asked` shall be given out, pods have `held`, and `before` was listed so far. Of a unit that was not
/// listed before, nothing is as long as it is not known who has it.
pub fn hold(
    asked: &Offers,
    held: Held<'_>,
    before: &Listing,
    health: impl Fn(&Unit) -> Health,
) -> Listing {
    let mut holders: BTreeMap<Place, Option<&PodDevice>> = BTreeMap::new();
    if !held.is_all {
        let places = before.places();
        holders.extend(places.map(|(name, id)| ((name.clone(), id.clone()), None)));
    }
    for one in held.given {
        let name = one.resource.parse::<ResourceName>();
        let id = one.device_id.parse::<ShareId>();
        if let (Ok(name), Ok(id)) = (name, id) {
            holders.insert((name, id), Some(one));
        }
    }
    let mut draft = Draft {
        withheld: held.withheld,
        before,
        listing: Listing::default(),
    };
    for offer in &asked.resources {
        draft.open(&offer.name, offer.fail_requests_greater_than_one);
        for unit in &offer.units {
            let all = holders.iter().map(|(place, by)| (place, *by));
            let holders: Vec<_> = all.filter(|((_, id), _)| id.uuid() == unit.uuid).collect();
            if holders.is_empty() && !held.is_all {
                continue;
            }
            draft.unit((offer, unit), &holders, &health(unit));
        }
    }
    for ((name, id), by) in &holders {
        if asked.unit(id.uuid()).is_none()
            && let Some(unit) = left(id.uuid(), by.is_some(), (before, held.inventory))
        {
            draft.keep((name, id), *by, &unit, &health(&unit));
        }
    }
    draft.finish()
}

/// A unit of which nothing is asked. One that a pod has is known from before also where the driver does not tell of it now; one of
/// which only nobody knows who has it has to be there.
fn left(uuid: &str, is_held: bool, known: (&Listing, &Inventory)) -> Option<Unit> {
    let (before, inventory) = known;
    let mut listed = before.resources.values();
    let listed = listed.find_map(|listed| listed.unit_of(uuid));
    let there = offer::find(inventory, uuid);
    let is_kept = is_held || there.is_some();
    listed.filter(|_| is_kept).cloned().or(there)
}

struct Draft<'a> {
    /// Devices of which nothing new is allocated.
    withheld: &'a BTreeSet<PciAddress>,
    /// What was listed so far.
    before: &'a Listing,
    listing: Listing,
}

impl Draft<'_> {
    fn open(&mut self, name: &ResourceName, fail: bool) -> &mut Listed {
        let listed = self.listing.resources.entry(name.clone());
        let listed = listed.or_insert_with(|| Listed {
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
        holders: &[(&Place, Option<&PodDevice>)],
        health: &Health,
    ) {
        let asked = unit.ids();
        for ((name, id), by) in holders {
            let is_withheld = by.is_none() && self.was_withheld(name, unit, id);
            self.put(name, unit, id, (health, is_withheld));
            let is_as_asked = *name == offer.name && asked.contains(id);
            if let (false, Some(by)) = (is_as_asked, by) {
                self.listing.kept.push(Kept {
                    id: id.clone(),
                    by: (*by).clone(),
                });
            }
        }
        let mut numbers = holders.iter().map(|((_, id), _)| id.number());
        let is_otherwise = numbers.any(|number| number.is_some() != unit.replicas.is_some());
        if is_otherwise {
            return;
        }
        let taken: BTreeSet<&ShareId> = holders.iter().map(|((_, id), _)| id).collect();
        let room = asked.len().saturating_sub(holders.len());
        let free = asked.iter().filter(|id| !taken.contains(id));
        let is_withheld = self.withheld.contains(&unit.pci);
        for id in free.take(room) {
            self.put(&offer.name, unit, id, (health, is_withheld));
        }
    }

    /// One id of a unit of which nothing is asked.
    fn keep(
        &mut self,
        (name, id): (&ResourceName, &ShareId),
        by: Option<&PodDevice>,
        unit: &Unit,
        health: &Health,
    ) {
        let is_withheld = by.is_none() && self.was_withheld(name, unit, id);
        self.put(name, unit, id, (health, is_withheld));
        let by = by.cloned();
        self.listing
            .kept
            .extend(by.map(|by| Kept { id: id.clone(), by }));
    }

    /// Whether an id that a pod may have was idle and withheld before that became unknown.
    fn was_withheld(&self, name: &ResourceName, unit: &Unit, id: &ShareId) -> bool {
        let listed = self.before.resources.get(name);
        let item = listed.and_then(|listed| listed.item(id));
        self.withheld.contains(&unit.pci) && item.is_some_and(|item| item.is_withheld)
    }

    fn put(
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
        listed.items.push(Item {
            id: id.clone(),
            health: health.clone(),
            is_withheld,
        });
    }

    fn finish(mut self) -> Listing {
        for listed in self.listing.resources.values_mut() {
            let units = &mut listed.offer.units;
            units.sort_by(|a, b| (a.pci, &a.partition).cmp(&(b.pci, &b.partition)));
            let order: BTreeMap<&str, usize> = units
                .iter()
                .enumerate()
                .map(|(index, unit)| (unit.uuid.as_str(), index))
                .collect();
            let key = |item: &Item| (order.get(item.id.uuid()).copied(), item.id.number());
            listed.items.sort_by_key(key);
        }
        self.listing.kept.sort();
        self.listing.withheld.clone_from(self.withheld);
        self.listing
    }
}

impl Listing {
    /// Every id with the name that it is listed under.
    pub fn places(&self) -> impl Iterator<Item = (&ResourceName, &ShareId)> {
        let all = self.resources.iter();
        all.flat_map(|(name, listed)| listed.items.iter().map(move |item| (name, &item.id)))
    }
}

impl Listed {
    /// The item with this id.
    pub fn item(&self, id: &ShareId) -> Option<&Item> {
        self.items.iter().find(|item| item.id == *id)
    }

    /// The unit that the id is of.
    pub fn unit(&self, id: &ShareId) -> Option<&Unit> {
        self.unit_of(id.uuid())
    }

    fn unit_of(&self, uuid: &str) -> Option<&Unit> {
        let mut units = self.offer.units.iter();
        units.find(|unit| unit.uuid == uuid)
    }

    /// The ids that are fit to be given out.
    pub fn fit(&self) -> impl Iterator<Item = &ShareId> {
        let fit = self.items.iter().filter(|item| item.is_fit());
        fit.map(|item| &item.id)
    }
}

#[cfg(test)]
mod tests;
