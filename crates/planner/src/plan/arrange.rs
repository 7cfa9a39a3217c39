//! Prepares the search for the best arrangement of a device's instances, from its current and desired state.

use std::collections::BTreeMap;

use octavo_model::catalog::Placement;
use octavo_model::inventory::GpuInstance;

use super::board::{Board, BoardProfile, PlacementMask};
use super::rules;
use super::search::{self, Arrangement, Cost, InstanceKind, Slot};
use super::splits::{self, ExistingCompute, Resplit};
use super::usage::PartsInUse;
use super::work_budget::{BudgetExceeded, WorkBudget};
use crate::layout::InstanceTarget;
use crate::split;

/// An existing GPU instance and its parts in use.
pub(super) struct ExistingInstance<'a> {
    pub(super) instance: &'a GpuInstance,
    pub(super) pin: PartsInUse,
    /// Its compute instances; `None` if the driver does not report their slices.
    pub(super) computes: Option<Vec<ExistingCompute>>,
}

/// Input of the search for an arrangement.
pub(super) struct ArrangementQuery<'a, 'q> {
    pub(super) board: &'a Board<'a>,
    pub(super) existing: &'a [ExistingInstance<'a>],
    pub(super) instances: &'q [InstanceTarget],
    /// Returns true for a profile and placement that the device refused.
    pub(super) refused: &'a dyn Fn(u32, Placement) -> bool,
}

impl<'q> ArrangementQuery<'_, 'q> {
    /// Returns the best arrangement; `None` if there is none, even if all existing instances were destroyed.
    pub(super) fn best(
        &self,
        work: &mut WorkBudget,
    ) -> Result<Option<Arrangement<'q>>, BudgetExceeded> {
        let kinds = self.kinds(work)?;
        let room = self.room(work)?;
        search::best(&kinds, &room, work)
    }

    /// Returns true if an arrangement exists.
    pub(super) fn fits(&self, work: &mut WorkBudget) -> Result<bool, BudgetExceeded> {
        let kinds = self.kinds(work)?;
        search::exists(&kinds, work)
    }

    /// Returns how an existing GPU instance can be re-split.
    pub(super) fn resplit(&self, existing: &ExistingInstance<'_>, compute: &[u32]) -> Resplit {
        let profile = self.board.find(existing.instance.profile_id);
        let whole = profile.map_or(0, |(_, profile)| profile.gpu_slices());
        let present = existing.computes.as_deref().unwrap_or_default();
        splits::resplit(present, compute, whole, &existing.pin)
    }

    fn kinds(&self, work: &mut WorkBudget) -> Result<Vec<InstanceKind<'q>>, BudgetExceeded> {
        work.spend(self.instances.len().saturating_mul(8))?;
        let mut counts: BTreeMap<&'q InstanceTarget, usize> = BTreeMap::new();
        for instance in self.instances {
            let count = counts.entry(instance).or_default();
            *count = count.saturating_add(1);
        }
        let mut kinds = Vec::new();
        for (instance, count) in counts {
            if let Some((_, profile)) = self.board.find(instance.profile_id) {
                work.spend(self.slots_cost(profile))?;
                kinds.push(InstanceKind {
                    profile_id: instance.profile_id,
                    compute: &instance.compute,
                    count,
                    slots: self.slots(profile, instance),
                });
            }
        }
        Ok(kinds)
    }

    /// Returns the work that [`Self::slots`] needs. Each existing instance has as many ways to be re-split as it has
    /// subsets of compute instances; these are enumerated once more for the steps.
    fn slots_cost(&self, profile: &BoardProfile<'_>) -> usize {
        let id = profile.source.id;
        let same = self.existing.iter();
        let same = same.filter(|existing| existing.instance.profile_id == id);
        let ways = same.map(|existing| {
            let parts = existing.computes.as_ref().map_or(0, Vec::len);
            8_usize << parts.min(split::MAX_COMPUTE_INSTANCES)
        });
        let slots = profile.places.len().saturating_mul(8);
        ways.fold(slots, usize::saturating_add)
    }

    /// Returns the existing instances of the profile, and the placements where one could be created: all of them, or
    /// only the desired placement.
    fn slots(&self, profile: &BoardProfile<'_>, wanted: &InstanceTarget) -> Vec<Slot> {
        let id = profile.source.id;
        let mut slots: BTreeMap<Placement, Slot> = profile
            .places
            .iter()
            .filter(|place| !(self.refused)(id, place.placement))
            .map(|place| (place.placement, Slot::free(*place)))
            .collect();
        for (at, existing) in self.existing.iter().enumerate() {
            let instance = existing.instance;
            let place =
                PlacementMask::new(instance.placement).filter(|_| instance.profile_id == id);
            if let Some(place) = place {
                let resplit = self.resplit(existing, &wanted.compute);
                let slot = Slot {
                    cost: cost_of_keeping(existing, &wanted.compute, &resplit),
                    existing: Some(at),
                    ..Slot::free(place)
                };
                slots.insert(place.placement, slot);
            }
        }
        let mut slots: Vec<Slot> = slots.into_values().collect();
        slots.retain(|slot| wanted.placement.is_none_or(|place| place == slot.placement));
        slots
    }

    /// Returns the placements for one additional instance that the placement-independent rules still allow.
    fn room(&self, work: &mut WorkBudget) -> Result<Vec<u64>, BudgetExceeded> {
        let profiles = self.board.profiles.len();
        work.spend(profiles.saturating_mul(profiles.saturating_add(self.instances.len())))?;
        let profiles = self.board.profiles.iter().enumerate();
        let counts = self.board.profiles.iter().map(|profile| {
            let wanted = self.instances.iter();
            let same = wanted.filter(|instance| instance.profile_id == profile.source.id);
            u32::try_from(same.count()).unwrap_or(u32::MAX)
        });
        let counts: Vec<u32> = counts.collect();
        let allowed = profiles.filter(|(at, _)| {
            let mut more = counts.clone();
            if let Some(count) = more.get_mut(*at) {
                *count = count.saturating_add(1);
            }
            rules::check_counts(self.board, &more).is_ok()
        });
        let places = allowed.flat_map(|(_, profile)| {
            let id = profile.source.id;
            let given = move |place: &&PlacementMask| !(self.refused)(id, place.placement);
            profile.places.iter().filter(given).map(|place| place.bits)
        });
        Ok(places.collect())
    }
}

impl Slot {
    fn free(place: PlacementMask) -> Self {
        Self { placement: place.placement, bits: place.bits, cost: Cost::default(), existing: None }
    }
}

/// Returns the cost of keeping an instance, relative to destroying it and creating another one elsewhere.
fn cost_of_keeping(existing: &ExistingInstance<'_>, wanted: &[u32], resplit: &Resplit) -> Cost {
    let count = |items: usize| i32::try_from(items).unwrap_or(i32::MAX);
    let fewer = |now: usize, otherwise: usize| count(now).saturating_sub(count(otherwise));
    let parts = &existing.instance.compute_instances;
    let in_use = parts.iter().filter(|one| existing.pin.contains(one.id)).count();
    let in_use = in_use.max(usize::from(existing.pin.has_any()));
    Cost {
        in_use: fewer(resplit.in_use.len(), in_use),
        parts_destroyed: fewer(resplit.destroyed.len(), parts.len()),
        destroyed: -1,
        parts_created: fewer(resplit.created.len(), wanted.len()),
        created: -1,
    }
}
