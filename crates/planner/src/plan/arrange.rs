//! Prepares the search for the best arrangement of a device's instances, from its current and desired state.

use std::collections::BTreeMap;

use octavo_model::catalog::{GpuInstanceProfile, Placement};
use octavo_model::inventory::{ComputeInstance, GpuInstance};

use super::profile_table::{PlaceableProfile, PlacementMask, ProfileTable};
use super::rules;
use super::search::{self, Arrangement, Cost, InstanceKind, Slot};
use super::usage::PartsInUse;
use super::work_budget::{BudgetExceeded, WorkBudget};
use crate::layout::InstanceTarget;
use crate::split::{self, MAX_COMPUTE_INSTANCES, fits_beside, listed_slices};

/// An existing GPU instance and its parts in use.
pub(super) struct ExistingInstance<'a> {
    pub(super) instance: &'a GpuInstance,
    pub(super) parts_in_use: PartsInUse,
    /// Its compute instances; `None` if the driver does not report their slices.
    pub(super) computes: Option<Vec<ExistingCompute>>,
}

/// Input of the search for an arrangement.
pub(super) struct ArrangementQuery<'a, 'q> {
    pub(super) table: &'a ProfileTable<'a>,
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
        let profile = self.table.find(existing.instance.profile_id);
        let whole = profile.map_or(0, |(_, profile)| profile.gpu_slices());
        let present = existing.computes.as_deref().unwrap_or_default();
        resplit(present, compute, whole, &existing.parts_in_use)
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
            if let Some((_, profile)) = self.table.find(instance.profile_id) {
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
    fn slots_cost(&self, profile: &PlaceableProfile<'_>) -> usize {
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
    fn slots(&self, profile: &PlaceableProfile<'_>, wanted: &InstanceTarget) -> Vec<Slot> {
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
        let profiles = self.table.profiles.len();
        work.spend(profiles.saturating_mul(profiles.saturating_add(self.instances.len())))?;
        let profiles = self.table.profiles.iter().enumerate();
        let counts = self.table.profiles.iter().map(|profile| {
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
            rules::check_counts(self.table, &more).is_ok()
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
    let in_use = parts.iter().filter(|one| existing.parts_in_use.contains(one.id)).count();
    let in_use = in_use.max(usize::from(existing.parts_in_use.has_any()));
    Cost {
        in_use: fewer(resplit.in_use.len(), in_use),
        parts_destroyed: fewer(resplit.destroyed.len(), parts.len()),
        destroyed: -1,
        parts_created: fewer(resplit.created.len(), wanted.len()),
        created: -1,
    }
}

/// An existing compute instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExistingCompute {
    pub(super) id: u32,
    pub(super) slices: u32,
    pub(super) placement: Option<Placement>,
}

/// Change of a GPU instance's split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resplit {
    /// Compute instances that stay, by id, with their slices.
    pub(super) retained: Vec<(u32, u32)>,
    /// Compute instances to destroy, by id.
    pub(super) destroyed: Vec<u32>,
    /// Compute instances to destroy that are in use.
    pub(super) in_use: Vec<u32>,
    /// Slices of each new compute instance, largest first.
    pub(super) created: Vec<u32>,
}

/// Returns a compute instance with its slices; `None` if they are unknown.
pub(super) fn existing_compute(
    compute: &ComputeInstance,
    profile: Option<&GpuInstanceProfile>,
) -> Option<ExistingCompute> {
    let reported = compute.resources.map(|resources| resources.compute_slices);
    let reported = reported.filter(|slices| *slices > 0);
    let slices = reported.or_else(|| listed_slices(profile, compute))?;
    Some(ExistingCompute { id: compute.id, slices, placement: compute.placement })
}

/// Returns the best change from the present split to `wanted`: it destroys the fewest instances in use, then the fewest
/// overall, and keeps those with the lowest ids. If the driver lists a split that these rules cannot arrange, all
/// compute instances are recreated.
pub(super) fn resplit(
    present: &[ExistingCompute],
    wanted: &[u32],
    whole: u32,
    parts_in_use: &PartsInUse,
) -> Resplit {
    let subsets = 0_u32..1 << present.len().min(MAX_COMPUTE_INSTANCES);
    let ways = subsets
        .filter_map(|retained| resplit_keeping(present, wanted, whole, parts_in_use, retained));
    // The same order as `Cost` of the search.
    let best = ways.min_by_key(|way| {
        let retained: Vec<u32> = way.retained.iter().map(|(id, _)| *id).collect();
        (way.in_use.len(), way.destroyed.len(), retained)
    });
    best.unwrap_or_else(|| Resplit {
        retained: Vec::new(),
        destroyed: present.iter().map(|compute| compute.id).collect(),
        in_use: present
            .iter()
            .map(|compute| compute.id)
            .filter(|id| parts_in_use.contains(*id))
            .collect(),
        created: wanted.to_vec(),
    })
}

/// Returns the change that keeps the compute instances whose bit is set in `retained`, if there is room for the missing
/// ones.
fn resplit_keeping(
    present: &[ExistingCompute],
    wanted: &[u32],
    whole: u32,
    parts_in_use: &PartsInUse,
    retained: u32,
) -> Option<Resplit> {
    let mut missing = wanted.to_vec();
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for (bit, compute) in present.iter().enumerate() {
        if retained & (1 << bit) == 0 {
            go.push(compute.id);
            continue;
        }
        let at = missing.iter().position(|slices| *slices == compute.slices)?;
        missing.remove(at);
        stay.push(*compute);
    }
    missing.sort_unstable_by(|a, b| b.cmp(a));
    let has_room = missing.is_empty() || has_room_for(&stay, &missing, whole);
    has_room.then(|| Resplit {
        retained: stay.iter().map(|compute| (compute.id, compute.slices)).collect(),
        in_use: go.iter().copied().filter(|id| parts_in_use.contains(*id)).collect(),
        destroyed: go,
        created: missing,
    })
}

/// Returns true if compute instances of `missing` slices, largest first, fit next to those that stay.
///
/// If the driver does not report placements, only the sum of slices can be checked, which fits whenever the whole split
/// does.
fn has_room_for(stay: &[ExistingCompute], missing: &[u32], whole: u32) -> bool {
    let taken: Option<Vec<Placement>> = stay.iter().map(|compute| compute.placement).collect();
    taken.is_none_or(|taken| fits_beside(&taken, missing, whole))
}
