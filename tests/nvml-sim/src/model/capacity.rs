//! Remaining capacity: the pure part of instance creation.
//!
//! Three rules apply: placements of GPU instances never share a memory slice, the slices together never exceed those of
//! the board, and exclusive profiles stay exclusive. NVML returns 23 for all of them.

use super::instance::GpuInstance;
use super::profile::{GiProfile, Placement};

/// The order in which the driver tries the placements of a profile if the client names none.
///
/// It starts in the half of the board with fewer placements of the profile (the upper one if equal), there in the
/// quarter with fewer placements, and continues upward. This matches listings: seven 1g instances get 6, 4, 5, 0, 1, 2,
/// 3, and the first 3g gets 4. The order does not depend on existing instances.
pub(crate) fn filling_order(placements: &[Placement], units: u32) -> Vec<Placement> {
    let places_in = |placement: &Placement, parts: u32| {
        let region = (units / parts).max(1);
        let of = |other: &Placement| other.start / region;
        placements.iter().filter(|other| of(other) == of(placement)).count()
    };
    let mut order = placements.to_vec();
    order.sort_by_key(|placement| {
        let half = placement.start / (units / 2).max(1);
        (places_in(placement, 2), std::cmp::Reverse(half), places_in(placement, 4), placement.start)
    });
    order
}

/// The id of a GPU instance by its placement: 0 the full board, 1-2 the halves, 3-6 the quarters, 7-14 the eighths,
/// each counted from the start of the board.
///
/// The rule is the resource manager's for boards of eight units. Boards of 4 and 12 units use the fraction of the board
/// that a placement takes, which is unique too: regions that could share an id overlap.
pub(crate) fn instance_id(placement: Placement, units: u32) -> u32 {
    let size = placement.size.max(1);
    let parts = (units / size).max(1);
    (parts - 1).saturating_add(placement.start / size)
}

/// True if a profile fits at a placement beside the existing instances.
pub(crate) fn fits(
    instances: &[GpuInstance],
    profiles: &[GiProfile],
    profile: &GiProfile,
    placement: Placement,
) -> bool {
    let free = !instances.iter().any(|gi| gi.placement.overlaps(placement));
    free && remaining_by_rules(instances, profiles, profile) > 0
}

/// Number of further instances of the profile that fit.
pub(crate) fn remaining(
    instances: &[GpuInstance],
    profiles: &[GiProfile],
    profile: &GiProfile,
) -> u32 {
    let mut taken: Vec<Placement> = instances.iter().map(|gi| gi.placement).collect();
    let mut free = 0_u32;
    for placement in &profile.placements {
        if !taken.iter().any(|other| other.overlaps(*placement)) {
            taken.push(*placement);
            free = free.saturating_add(1);
        }
    }
    free.min(remaining_by_rules(instances, profiles, profile))
}

/// The limit without the placements.
fn remaining_by_rules(
    instances: &[GpuInstance],
    profiles: &[GiProfile],
    profile: &GiProfile,
) -> u32 {
    let of = |gi: &GpuInstance| profiles.iter().find(|other| other.id == gi.profile_id);
    let present: Vec<&GiProfile> = instances.iter().filter_map(of).collect();
    if excluded(&present, profile) {
        return 0;
    }
    let same = count(present.iter().filter(|other| other.id == profile.id));
    let total = profiles.iter().map(|other| other.slices).max().unwrap_or(0);
    let used: u32 = present.iter().map(|other| other.slices).sum();
    let by_slices = total.saturating_sub(used) / profile.slices.max(1);
    profile.max_count.saturating_sub(same).min(by_slices)
}

/// True if the profile needs media engines that another instance has exclusively, or the other way round.
fn excluded(present: &[&GiProfile], profile: &GiProfile) -> bool {
    present.iter().any(|other| {
        (other.has_media_extensions() && profile.has_media_extensions())
            || (other.takes_all_media() && !profile.has_no_media())
            || (profile.takes_all_media() && !other.has_no_media())
    })
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(starts: &[u32], size: u32) -> Vec<Placement> {
        starts.iter().map(|&start| Placement { start, size }).collect()
    }

    #[track_caller]
    fn fills(starts: &[u32], size: u32, units: u32, order: &[u32], ids: &[u32]) {
        let filled = filling_order(&places(starts, size), units);
        let starts: Vec<u32> = filled.iter().map(|placement| placement.start).collect();
        let numbers: Vec<u32> =
            filled.iter().map(|placement| instance_id(*placement, units)).collect();
        assert_eq!((starts.as_slice(), numbers.as_slice()), (order, ids));
    }

    #[test]
    fn h100_fills_from_the_top_with_captured_ids() {
        fills(&[0, 1, 2, 3, 4, 5, 6], 1, 8, &[6, 4, 5, 0, 1, 2, 3], &[13, 11, 12, 7, 8, 9, 10]);
        fills(&[0, 2, 4], 2, 8, &[4, 0, 2], &[5, 3, 4]);
        fills(&[0, 4], 4, 8, &[4, 0], &[2, 1]);
        fills(&[0], 8, 8, &[0], &[0]);
    }

    #[test]
    fn boards_of_four_and_twelve_units_number_by_fraction_of_board() {
        fills(&[0, 1, 2, 3], 1, 4, &[2, 3, 0, 1], &[5, 6, 3, 4]);
        fills(&[0, 2], 2, 4, &[2, 0], &[2, 1]);
        fills(&[0, 3, 6, 9], 3, 12, &[6, 9, 0, 3], &[5, 6, 3, 4]);
        fills(&[0, 6], 6, 12, &[6, 0], &[2, 1]);
    }
}
