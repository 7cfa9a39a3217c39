//! How a GPU instance can be split into compute instances: by the driver's word, and by rule where it says nothing.
//!
//! NVML tells what a GPU instance can be split into only of one that exists. So on an empty board a rule has to do, and it
//! is the same for whoever reads a layout and for whoever plans it.

use std::collections::BTreeMap;

use super::catalog::{GpuInstanceProfile, Placement};

/// More compute instances in one GPU instance no device has; each doubles the work.
pub(in crate::domain) const MOST: usize = 8;

/// No GPU instance is larger, in GPU slices.
const LARGEST: u32 = 8;

/// A profile has few slices; a driver that claims billions must not keep us here.
const MOST_SLICES: u32 = 24;

/// The sizes, in compute slices, that a compute instance may have in a GPU instance of this profile.
pub(in crate::domain) fn sizes(profile: &GpuInstanceProfile) -> Vec<u32> {
    let whole = profile.resources.gpu_slices;
    let all = 1..=whole.min(MOST_SLICES);
    all.filter(|size| most(profile, *size) > 0).collect()
}

/// How many compute instances of `slices` one GPU instance of this profile has room for; zero where it cannot have any.
///
/// Where the driver does not tell: all of it, or at most half, rounded up. Source: NVIDIA go-nvlib,
/// `pkg/nvlib/device/mig_profile.go`.
pub(in crate::domain) fn most(profile: &GpuInstanceProfile, slices: u32) -> u32 {
    let whole = profile.resources.gpu_slices;
    if slices == 0 || slices > whole {
        return 0;
    }
    if slices == whole {
        // A whole one is always there, also where the driver does not list it.
        return 1;
    }
    let listed = &profile.compute_profiles;
    if listed.is_empty() {
        let half = slices.saturating_mul(2) <= whole.saturating_add(1);
        let more = whole.saturating_sub(slices).checked_div(step(slices));
        return if half {
            more.unwrap_or(0).saturating_add(1)
        } else {
            0
        };
    }
    let mut listed = listed.iter();
    let told = listed.find(|other| other.slices == slices);
    let fit = whole.checked_div(slices).unwrap_or(0);
    told.map_or(0, |other| other.max_count.min(fit))
}

/// Whether an empty GPU instance of this profile can be split so.
pub(in crate::domain) fn possible(profile: &GpuInstanceProfile, compute: &[u32]) -> bool {
    if compute.len() > MOST {
        return false;
    }
    let whole = profile.resources.gpu_slices;
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for slices in compute {
        let count = counts.entry(*slices).or_default();
        *count = count.saturating_add(1);
    }
    let sum: u64 = compute.iter().copied().map(u64::from).sum();
    sum <= u64::from(whole)
        && counts
            .iter()
            .all(|(slices, count)| *count <= most(profile, *slices))
        && (!profile.compute_profiles.is_empty() || beside(&[], compute, whole))
}

/// Whether compute instances of these `sizes` have room beside those at `taken` in a GPU instance of `whole` slices.
///
/// A compute instance of two slices begins at an even one and larger ones at multiples of four, which is what the counts of
/// every listing follow from. Of a GPU instance larger than any device has we know no such rule: there the sum decides.
pub(in crate::domain) fn beside(taken: &[Placement], sizes: &[u32], whole: u32) -> bool {
    let there = taken.iter().map(|place| place.size);
    let sum: u64 = there.chain(sizes.iter().copied()).map(u64::from).sum();
    if sum > u64::from(whole) {
        return false;
    }
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    whole > LARGEST || place_all(&mut taken.to_vec(), &sizes, whole)
}

fn place_all(taken: &mut Vec<Placement>, sizes: &[u32], whole: u32) -> bool {
    let Some((size, rest)) = sizes.split_first() else {
        return true;
    };
    let mut start = 0_u32;
    while start < whole {
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
        start = start.saturating_add(step(*size));
    }
    false
}

/// Where compute instances of a size may begin: at multiples of this.
fn step(slices: u32) -> u32 {
    slices.checked_next_power_of_two().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::catalog::{ComputeInstanceProfile, InstanceResources};
    use crate::domain::quantity::Mebibytes;

    fn profile(slices: u32, listed: &[(u32, u32)]) -> GpuInstanceProfile {
        let listed = listed.iter().map(|(slices, most)| ComputeInstanceProfile {
            id: *slices,
            index: *slices,
            slices: *slices,
            max_count: *most,
            multiprocessors: 14,
        });
        GpuInstanceProfile {
            id: 9,
            index: 2,
            name: format!("{slices}g.20gb").parse().unwrap(),
            max_count: 2,
            memory: Mebibytes::new(1),
            resources: InstanceResources {
                gpu_slices: slices,
                ..InstanceResources::default()
            },
            placements: Vec::new(),
            compute_profiles: listed.collect(),
        }
    }

    /// Source: `nvidia-smi mig -lcip` of an A100, 7g.40gb.
    const SEVEN: [(u32, u32); 5] = [(1, 7), (2, 3), (3, 2), (4, 1), (7, 1)];

    #[test]
    fn what_no_driver_lists_goes_by_the_rule_and_says_what_the_list_would_say() {
        let (ruled, listed) = (profile(7, &[]), profile(7, &SEVEN));
        assert_eq!(sizes(&ruled), [1, 2, 3, 4, 7]);
        assert_eq!(sizes(&ruled), sizes(&listed));
        for slices in 0..10 {
            assert_eq!(most(&ruled, slices), most(&listed, slices), "{slices}");
        }
        assert_eq!(sizes(&profile(3, &[])), [1, 2, 3]);
        assert_eq!(sizes(&profile(4, &[])), [1, 2, 4]);
    }

    #[test]
    fn a_split_has_room_side_by_side() {
        for fits in [&[1, 1, 1][..], &[2, 1], &[3], &[2], &[]] {
            assert!(possible(&profile(3, &[]), fits), "{fits:?}");
        }
        for not in [&[2, 2][..], &[3, 1], &[0], &[1, 1, 1, 1], &[4]] {
            assert!(!possible(&profile(3, &[]), not), "{not:?}");
        }
        // The 3c goes to the end, so that the others have the first four slices.
        assert!(possible(&profile(7, &[]), &[3, 2, 2]));
        assert!(possible(&profile(7, &[]), &[4, 3]));
        assert!(!possible(&profile(7, &[]), &[3, 3, 2]));
    }

    #[test]
    fn a_list_of_the_driver_is_believed() {
        let listed = profile(4, &[(1, 4), (4, 1)]);
        assert!(possible(&listed, &[1, 1, 1, 1]) && !possible(&listed, &[2, 2]));
        // The whole is there although nobody lists it.
        assert!(possible(&profile(4, &[(1, 4)]), &[4]));
    }

    #[test]
    fn a_profile_of_billions_of_slices_keeps_nobody() {
        let absurd = profile(7, &[]);
        let absurd = GpuInstanceProfile {
            resources: InstanceResources {
                gpu_slices: u32::MAX,
                ..InstanceResources::default()
            },
            ..absurd
        };
        assert_eq!(sizes(&absurd).len(), 24);
        assert!(possible(&absurd, &[u32::MAX]) && !possible(&absurd, &[u32::MAX, 1]));
    }
}
