//! Order of the devices of a GPU: policy, because the scheduler allocates the first device that fits.

use std::cmp::Reverse;

use octavo_model::catalog::{GpuInstanceProfile, Placement, ProfileCatalog};

use crate::counters::Counters;

/// Returns every profile and placement in the order in which they are published.
///
/// Profiles are ordered by size, so that a claim which several profiles satisfy gets the smallest, and plain ones come
/// before those with attributes. The placements of a profile are ordered so that a prefix of them leaves the most
/// placements to larger profiles, the largest first.
pub(crate) fn ordered<'a>(
    catalog: &'a ProfileCatalog,
    counters: &Counters<'_>,
) -> Vec<(&'a GpuInstanceProfile, Placement)> {
    let mut profiles: Vec<&GpuInstanceProfile> = catalog.profiles().iter().collect();
    profiles.sort_by_key(|profile| {
        let size = (profile.memory, profile.resources.gpu_slices);
        (size, !profile.name.is_plain(), &profile.name, profile.id)
    });
    let by_size = profiles.iter().map(|profile| {
        let places = profile.placements.iter();
        places.map(|place| counters.used_by(profile.id, *place)).collect::<Vec<_>>()
    });
    let by_size: Vec<Vec<Vec<u64>>> = by_size.rev().collect();
    let mut all = Vec::new();
    for profile in profiles {
        let mut left: Vec<Placement> = profile.placements.clone();
        left.sort_unstable();
        left.dedup();
        let mut used = counters.none();
        while let Some(best) = best_placement(profile, &left, &used, (counters, &by_size)) {
            left.retain(|place| *place != best);
            let more = counters.used_by(profile.id, best);
            used.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            all.push((profile, best));
        }
    }
    all
}

/// Returns the placement that leaves the most placements to the largest profile, then to the next, and so on.
fn best_placement(
    profile: &GpuInstanceProfile,
    left: &[Placement],
    used: &[u64],
    (counters, by_size): (&Counters<'_>, &[Vec<Vec<u64>>]),
) -> Option<Placement> {
    left.iter().copied().min_by_key(|place| {
        let with = counters.used_by(profile.id, *place);
        let possible = |uses: &Vec<Vec<u64>>| {
            uses.iter().filter(|more| counters.fit(&[used, &with, more])).count()
        };
        (
            by_size.iter().map(|uses| Reverse(possible(uses))).collect::<Vec<_>>(),
            Reverse(place.start),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::board;

    fn order(sku: &str) -> Vec<String> {
        let catalog = board(sku);
        let counters = Counters::new(&catalog).unwrap();
        let mut names: Vec<String> = Vec::new();
        for (profile, place) in ordered(&catalog, &counters) {
            let name = profile.name.to_string();
            match names.last_mut().filter(|last| last.starts_with(&format!("{name} "))) {
                Some(last) => {
                    last.push(' ');
                    last.push_str(&place.start.to_string());
                }
                None => names.push(format!("{name} {}", place.start)),
            }
        }
        names
    }

    #[test]
    fn small_profiles_are_first_and_leave_room_for_large_ones() {
        assert_eq!(
            order("A100_80GB"),
            [
                "1g.10gb 6 5 4 3 2 1 0",
                "1g.10gb+me 6 5 4 3 2 1 0",
                "1g.20gb 6 4 2 0",
                "2g.20gb 4 2 0",
                "3g.40gb 4 0",
                "4g.40gb 0",
                "7g.80gb 0",
            ]
        );
    }

    #[test]
    fn every_placement_is_listed_once() {
        for (sku, count) in
            [("A30_24GB", 13), ("H100_80GB_SXM", 25), ("RTX_PRO_6000_BLACKWELL_96GB", 30)]
        {
            let catalog = board(sku);
            let counters = Counters::new(&catalog).unwrap();
            let mut all: Vec<(u32, Placement)> = ordered(&catalog, &counters)
                .into_iter()
                .map(|(profile, place)| (profile.id, place))
                .collect();
            assert_eq!(all.len(), count, "{sku}");
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count, "{sku}");
        }
    }
}
