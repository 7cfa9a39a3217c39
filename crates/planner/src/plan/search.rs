//! Exhaustive search for the best arrangement of a target's instances.
//!
//! The placement-independent rules (`rules`) already hold, so the search only assigns non-overlapping placements. It
//! proceeds depth first, with equal instances in the order of their placements, and prunes a branch that cannot be
//! better than the best arrangement so far. A work budget (`work_budget`) bounds the search: a fabricated table may have too
//! many arrangements.

use std::cmp::Reverse;
use std::ops::Add;

use octavo_model::catalog::Placement;

use super::work_budget::{BudgetExceeded, WorkBudget};

/// Cost of an arrangement, in order of priority, relative to keeping nothing. Branches are cut by cost alone, so nothing
/// that is compared after it (room, order of placements) may come before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Cost {
    /// Destroyed compute instances in use; one for a GPU instance in use without any.
    pub(super) in_use: i32,
    /// Destroyed compute instances.
    pub(super) parts_destroyed: i32,
    /// Destroyed GPU instances.
    pub(super) destroyed: i32,
    /// Created compute instances.
    pub(super) parts_created: i32,
    /// Created GPU instances.
    pub(super) created: i32,
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            in_use: self.in_use.saturating_add(other.in_use),
            parts_destroyed: self.parts_destroyed.saturating_add(other.parts_destroyed),
            destroyed: self.destroyed.saturating_add(other.destroyed),
            parts_created: self.parts_created.saturating_add(other.parts_created),
            created: self.created.saturating_add(other.created),
        }
    }
}

/// Identical desired instances.
pub(super) struct InstanceKind<'a> {
    pub(super) profile_id: u32,
    pub(super) compute: &'a [u32],
    pub(super) count: usize,
    pub(super) slots: Vec<Slot>,
}

/// A possible placement of an instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) placement: Placement,
    pub(super) bits: u64,
    /// Cost of this placement relative to creating the instance elsewhere.
    pub(super) cost: Cost,
    /// Index of the existing instance that stays here, if any.
    pub(super) existing: Option<usize>,
}

/// A placed instance. The field order decides between equal arrangements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlacedInstance<'a> {
    pub(super) placement: Placement,
    pub(super) profile_id: u32,
    pub(super) compute: &'a [u32],
    pub(super) existing: Option<usize>,
}

/// The best arrangement.
#[derive(Debug, Clone)]
pub(super) struct Arrangement<'a> {
    pub(super) cost: Cost,
    /// Number of additional placements still free.
    pub(super) room: u32,
    /// Instances ordered by placement.
    pub(super) instances: Vec<PlacedInstance<'a>>,
}

/// Returns the best arrangement of `kinds`, if there is one; free ones of `extra_placements` count as room.
pub(super) fn best<'a>(
    kinds: &[InstanceKind<'a>],
    extra_placements: &[u64],
    work: &mut WorkBudget,
) -> Result<Option<Arrangement<'a>>, BudgetExceeded> {
    run(kinds, extra_placements, false, work)
}

/// Returns true if an arrangement of `kinds` exists.
pub(super) fn exists(
    kinds: &[InstanceKind<'_>],
    work: &mut WorkBudget,
) -> Result<bool, BudgetExceeded> {
    Ok(run(kinds, &[], true, work)?.is_some())
}

fn run<'a>(
    kinds: &[InstanceKind<'a>],
    extra_placements: &[u64],
    any: bool,
    work: &mut WorkBudget,
) -> Result<Option<Arrangement<'a>>, BudgetExceeded> {
    let mut order: Vec<&InstanceKind<'a>> = kinds.iter().filter(|kind| kind.count > 0).collect();
    work.spend(kinds.iter().map(|kind| kind.slots.len()).sum())?;
    order.sort_by_key(|kind| {
        let size = kind.slots.iter().map(|slot| slot.placement.size).max();
        (Reverse(size), kind.slots.len())
    });
    let mut bounds = vec![Cost::default()];
    for kind in order.iter().rev() {
        let rest = bounds.last().copied().unwrap_or_default();
        bounds.push(rest + cheapest(kind, kind.count));
    }
    bounds.reverse();
    let mut search = Search {
        kinds: &order,
        bounds: &bounds,
        extra_placements,
        first_only: any,
        chosen: Vec::new(),
        best: None,
        work,
    };
    search.descend(SearchPosition::default())?;
    Ok(search.best)
}

/// Returns a lower bound of the cost of `count` instances of a kind, independent of others.
fn cheapest(kind: &InstanceKind<'_>, count: usize) -> Cost {
    sum_of_smallest(kind.slots.iter().map(|slot| slot.cost), count)
}

fn sum_of_smallest(costs: impl Iterator<Item = Cost>, count: usize) -> Cost {
    let mut costs: Vec<Cost> = costs.collect();
    costs.sort_unstable();
    costs.into_iter().take(count).fold(Cost::default(), |sum, cost| sum + cost)
}

struct Search<'s, 'a> {
    kinds: &'s [&'s InstanceKind<'a>],
    /// Lower bounds of the cost from each kind to the end.
    bounds: &'s [Cost],
    extra_placements: &'s [u64],
    /// Stops at the first arrangement.
    first_only: bool,
    chosen: Vec<(&'s InstanceKind<'a>, Slot)>,
    best: Option<Arrangement<'a>>,
    work: &'s mut WorkBudget,
}

/// Position of the search.
#[derive(Clone, Copy, Default)]
struct SearchPosition {
    kind: usize,
    /// Number of instances of the kind already placed.
    placed: usize,
    /// First slot available to the next instance.
    slot: usize,
    taken: u64,
    cost: Cost,
}

impl<'a> Search<'_, 'a> {
    fn descend(&mut self, at: SearchPosition) -> Result<(), BudgetExceeded> {
        self.work.spend(1)?;
        let Some(kind) = self.kinds.get(at.kind).copied() else {
            return self.record_arrangement(at);
        };
        if at.placed == kind.count {
            return self.descend(SearchPosition {
                kind: at.kind.saturating_add(1),
                placed: 0,
                slot: 0,
                ..at
            });
        }
        // Once for the bound, once for the placements themselves.
        let slots = kind.slots.len().saturating_sub(at.slot);
        self.work.spend(slots.saturating_mul(2))?;
        if self.cannot_improve(kind, at) {
            return Ok(());
        }
        for (slot, place) in kind.slots.iter().enumerate().skip(at.slot) {
            if at.taken & place.bits != 0 {
                continue;
            }
            self.chosen.push((kind, *place));
            let next = SearchPosition {
                kind: at.kind,
                placed: at.placed.saturating_add(1),
                slot: slot.saturating_add(1),
                taken: at.taken | place.bits,
                cost: at.cost + place.cost,
            };
            self.descend(next)?;
            self.chosen.pop();
        }
        Ok(())
    }

    /// Returns true if no continuation can be as cheap as the best arrangement so far.
    fn cannot_improve(&self, kind: &InstanceKind<'_>, at: SearchPosition) -> bool {
        let Some(best) = &self.best else {
            return false;
        };
        if self.first_only {
            return true;
        }
        let rest = self.bounds.get(at.kind.saturating_add(1));
        let left = kind.count.saturating_sub(at.placed);
        let bound = at.cost + rest.copied().unwrap_or_default() + cheapest_left(kind, at, left);
        bound > best.cost
    }

    fn record_arrangement(&mut self, at: SearchPosition) -> Result<(), BudgetExceeded> {
        if self.best.as_ref().is_some_and(|best| at.cost > best.cost) {
            return Ok(());
        }
        let sorted = self.chosen.len().saturating_mul(8);
        self.work.spend(self.extra_placements.len().saturating_add(sorted))?;
        let free = self.extra_placements.iter().filter(|place| **place & at.taken == 0);
        let room = u32::try_from(free.count()).unwrap_or(u32::MAX);
        if let Some(best) = &self.best
            && (best.cost, Reverse(best.room)) < (at.cost, Reverse(room))
        {
            return Ok(());
        }
        let mut instances: Vec<PlacedInstance<'a>> =
            self.chosen.iter().map(placed_instance).collect();
        instances.sort_unstable();
        let found = Arrangement { cost: at.cost, room, instances };
        if self.best.as_ref().is_none_or(|best| found.comes_before(best)) {
            self.best = Some(found);
        }
        Ok(())
    }
}

impl Arrangement<'_> {
    fn comes_before(&self, other: &Self) -> bool {
        let key = |found: &Self| (found.cost, Reverse(found.room));
        (key(self), &self.instances) < (key(other), &other.instances)
    }
}

/// Returns a lower bound of the cost of the next `left` instances of a kind, from the remaining slots.
fn cheapest_left(kind: &InstanceKind<'_>, at: SearchPosition, left: usize) -> Cost {
    let slots = kind.slots.iter().skip(at.slot);
    let saving = slots.filter(|slot| slot.cost < Cost::default() && slot.bits & at.taken == 0);
    sum_of_smallest(saving.map(|slot| slot.cost), left)
}

fn placed_instance<'a>((kind, slot): &(&InstanceKind<'a>, Slot)) -> PlacedInstance<'a> {
    PlacedInstance {
        placement: slot.placement,
        profile_id: kind.profile_id,
        compute: kind.compute,
        existing: slot.existing,
    }
}
