//! From what a device has and shall have to the best arrangement: what the search is asked, and what its answer means.

use std::collections::BTreeMap;

use super::board::{Board, BoardProfile, Place};
use super::pins::Pin;
use super::rules;
use super::search::{self, Cost, Found, Kind, Slot, TooMuch};
use super::splits::{self, Present, Resplit};
use crate::domain::catalog::Placement;
use crate::domain::inventory::GpuInstance;
use crate::domain::layout::InstanceTarget;

/// A GPU instance that is there, with what of it is in use.
pub(super) struct Standing<'a> {
    pub(super) instance: &'a GpuInstance,
    pub(super) pin: Pin,
    /// Its compute instances; `None` where their slices are not told.
    pub(super) computes: Option<Vec<Present>>,
}

/// What an arrangement is looked for with.
pub(super) struct Wish<'a> {
    pub(super) board: &'a Board<'a>,
    pub(super) standing: &'a [Standing<'a>],
    pub(super) instances: &'a [InstanceTarget],
    /// Places that the device did not give, by profile.
    pub(super) refused: &'a dyn Fn(u32, Placement) -> bool,
}

impl<'a> Wish<'a> {
    /// The best arrangement; `None` where there is none at all, even if everything that is there had to go.
    pub(super) fn best(&self) -> Result<Option<Found<'a>>, TooMuch> {
        let kinds = self.kinds();
        search::best(&kinds, &self.room())
    }

    /// Whether there is any arrangement; yes where there is no time to say no.
    pub(super) fn fits(&self) -> bool {
        search::exists(&self.kinds())
    }

    /// How a GPU instance that stays is split anew.
    pub(super) fn resplit(&self, standing: &Standing<'_>, compute: &[u32]) -> Resplit {
        let profile = self.board.find(standing.instance.profile_id);
        let whole = profile.map_or(0, |(_, profile)| profile.gpu_slices());
        let present = standing.computes.as_deref().unwrap_or_default();
        splits::resplit(present, compute, whole, &standing.pin)
    }

    fn kinds(&self) -> Vec<Kind<'a>> {
        let mut counts: BTreeMap<&'a InstanceTarget, usize> = BTreeMap::new();
        for instance in self.instances {
            let count = counts.entry(instance).or_default();
            *count = count.saturating_add(1);
        }
        let kinds = counts.into_iter().filter_map(|(instance, count)| {
            let (_, profile) = self.board.find(instance.profile_id)?;
            Some(Kind {
                profile_id: instance.profile_id,
                compute: &instance.compute,
                count,
                slots: self.slots(profile, &instance.compute),
            })
        });
        kinds.collect()
    }

    /// The instances of the profile that are there, and the places where one could be created.
    fn slots(&self, profile: &BoardProfile<'_>, compute: &[u32]) -> Vec<Slot> {
        let id = profile.source.id;
        let mut slots: BTreeMap<Placement, Slot> = profile
            .places
            .iter()
            .filter(|place| !(self.refused)(id, place.placement))
            .map(|place| (place.placement, Slot::free(*place)))
            .collect();
        for (at, standing) in self.standing.iter().enumerate() {
            let instance = standing.instance;
            let place = Place::of(instance.placement).filter(|_| instance.profile_id == id);
            if let Some(place) = place {
                let resplit = self.resplit(standing, compute);
                let slot = Slot {
                    cost: saved(&standing.pin, &resplit),
                    kept: Some(at),
                    ..Slot::free(place)
                };
                slots.insert(place.placement, slot);
            }
        }
        slots.into_values().collect()
    }

    /// Places for one more instance that the rules without places still allow beside all that is asked for.
    fn room(&self) -> Vec<u64> {
        let profiles = self.board.profiles.iter().enumerate();
        let counts: Vec<u32> = self
            .board
            .profiles
            .iter()
            .map(|profile| {
                let wanted = self.instances.iter();
                let same = wanted.filter(|instance| instance.profile_id == profile.source.id);
                u32::try_from(same.count()).unwrap_or(u32::MAX)
            })
            .collect();
        let allowed = profiles.filter(|(at, _)| {
            let mut more = counts.clone();
            if let Some(count) = more.get_mut(*at) {
                *count = count.saturating_add(1);
            }
            rules::together(self.board, &more).is_ok()
        });
        let places = allowed.flat_map(|(_, profile)| {
            let id = profile.source.id;
            let given = move |place: &&Place| !(self.refused)(id, place.placement);
            profile.places.iter().filter(given).map(|place| place.bits)
        });
        places.collect()
    }
}

impl Slot {
    fn free(place: Place) -> Self {
        Self {
            placement: place.placement,
            bits: place.bits,
            cost: Cost::default(),
            kept: None,
        }
    }
}

/// What it saves to keep an instance rather than to destroy it and to create another elsewhere.
fn saved(pin: &Pin, resplit: &Resplit) -> Cost {
    let count = |items: usize| i32::try_from(items).unwrap_or(i32::MAX);
    let minus_one = |items: usize| count(items).saturating_sub(1);
    Cost {
        in_use: count(resplit.in_use.len()).saturating_sub(i32::from(pin.is_set())),
        destroyed: minus_one(resplit.destroyed.len()),
        created: minus_one(resplit.created.len()),
    }
}
