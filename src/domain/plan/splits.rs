//! Compute instances within one GPU instance: how it can be split, and what of its present split can stay.

use std::collections::BTreeMap;

use super::pins::Pin;
use crate::domain::catalog::{GpuInstanceProfile, Placement};
use crate::domain::inventory::ComputeInstance;

/// More compute instances in one GPU instance no device has; each doubles the work.
pub(super) const MOST: usize = 8;

/// A compute instance that is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present {
    pub(super) id: u32,
    pub(super) slices: u32,
    pub(super) placement: Option<Placement>,
}

/// How a GPU instance that stays gets the split that it shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resplit {
    /// Compute instances that stay, by id, with their slices.
    pub(super) kept: Vec<(u32, u32)>,
    /// Compute instances that go, by id.
    pub(super) destroyed: Vec<u32>,
    /// Those of them that are in use.
    pub(super) in_use: Vec<u32>,
    /// Compute slices of each that is new, the largest first.
    pub(super) created: Vec<u32>,
}

/// Whether an empty GPU instance of `profile` can be split so.
pub(super) fn possible(profile: &GpuInstanceProfile, compute: &[u32]) -> bool {
    let whole = profile.resources.gpu_slices;
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let mut sum = 0_u32;
    for slices in compute {
        sum = sum.saturating_add(*slices);
        let count = counts.entry(*slices).or_default();
        *count = count.saturating_add(1);
    }
    let fits = |(slices, count): (&u32, &u32)| {
        // A whole one is always there, also where the driver does not list it.
        if *slices == whole && *count == 1 {
            return true;
        }
        let mut of_size = profile.compute_profiles.iter();
        *slices > 0 && of_size.any(|other| other.slices == *slices && other.max_count >= *count)
    };
    compute.len() <= MOST && sum <= whole && counts.iter().all(fits)
}

/// Whether the driver says how a GPU instance of `profile` can be split at all.
pub(super) fn told(profile: &GpuInstanceProfile, compute: &[u32]) -> bool {
    let whole = [profile.resources.gpu_slices];
    compute.is_empty() || compute == whole || !profile.compute_profiles.is_empty()
}

/// A compute instance with its slices; `None` where nobody tells them.
pub(super) fn present(
    compute: &ComputeInstance,
    profile: Option<&GpuInstanceProfile>,
) -> Option<Present> {
    let told = compute.resources.map(|resources| resources.compute_slices);
    let listed = || {
        let profiles = &profile?.compute_profiles;
        let of = profiles
            .iter()
            .find(|other| other.id == compute.profile_id)?;
        Some(of.slices)
    };
    let slices = told.filter(|slices| *slices > 0).or_else(listed)?;
    Some(Present {
        id: compute.id,
        slices,
        placement: compute.placement,
    })
}

/// The best way from what is there to the split that is `wanted`: it destroys the fewest in use, then the fewest, and keeps
/// those with the lowest ids. There always is one, as nothing has to stay that is not in use.
pub(super) fn resplit(present: &[Present], wanted: &[u32], whole: u32, pin: &Pin) -> Resplit {
    let subsets = 0_u32..1 << present.len().min(MOST);
    let ways = subsets.filter_map(|kept| way(present, wanted, whole, pin, kept));
    let best = ways.min_by_key(|way| {
        let kept: Vec<u32> = way.kept.iter().map(|(id, _)| *id).collect();
        (way.in_use.len(), way.destroyed.len(), kept)
    });
    best.unwrap_or_else(|| Resplit {
        kept: Vec::new(),
        destroyed: present.iter().map(|compute| compute.id).collect(),
        in_use: Vec::new(),
        created: wanted.to_vec(),
    })
}

/// Keeping the compute instances whose bit is set in `kept`, if what is missing then has room.
fn way(present: &[Present], wanted: &[u32], whole: u32, pin: &Pin, kept: u32) -> Option<Resplit> {
    let mut missing = wanted.to_vec();
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for (bit, compute) in present.iter().enumerate() {
        if kept & (1 << bit) == 0 {
            go.push(compute.id);
            continue;
        }
        let at = missing
            .iter()
            .position(|slices| *slices == compute.slices)?;
        missing.remove(at);
        stay.push(*compute);
    }
    missing.sort_unstable_by(|a, b| b.cmp(a));
    let has_room = missing.is_empty() || room_for(&stay, &missing, whole);
    has_room.then(|| Resplit {
        kept: stay
            .iter()
            .map(|compute| (compute.id, compute.slices))
            .collect(),
        in_use: go.iter().copied().filter(|id| pin.holds(*id)).collect(),
        destroyed: go,
        created: missing,
    })
}

/// Whether compute instances of `missing` slices, the largest first, have room beside those that stay.
///
/// A compute instance of two slices begins at an even one and larger ones at multiples of four, which is what the counts of
/// every listing follow from. Where the driver does not tell where one lies there is nothing to go by but the sum, which
/// fits whenever the whole split does.
fn room_for(stay: &[Present], missing: &[u32], whole: u32) -> bool {
    let mut taken: Vec<Placement> = Vec::new();
    for compute in stay {
        match compute.placement {
            Some(placement) => taken.push(placement),
            None => return true,
        }
    }
    place_all(&mut taken, missing, whole)
}

fn place_all(taken: &mut Vec<Placement>, missing: &[u32], whole: u32) -> bool {
    let Some((size, rest)) = missing.split_first() else {
        return true;
    };
    let step = size.next_power_of_two().max(1);
    let mut start = 0;
    while start < whole.min(64) {
        let place = Placement { start, size: *size };
        let free = place.end() <= whole
            && !taken
                .iter()
                .any(|other| other.start < place.end() && start < other.end());
        if free {
            taken.push(place);
            if place_all(taken, rest, whole) {
                return true;
            }
            taken.pop();
        }
        start = start.saturating_add(step);
    }
    false
}
