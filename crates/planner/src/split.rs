//! Possible splits of a GPU instance into compute instances, as reported by the driver, or by rule if it reports
//! nothing.
//!
//! NVML reports the compute profiles only of an existing GPU instance. On an empty board a rule is used instead,
//! which is the same for parsing and planning layouts.

use std::collections::BTreeMap;

use octavo_model::catalog::{GpuInstanceProfile, Placement};
use octavo_model::inventory::ComputeInstance;

/// Maximum number of compute instances in one GPU instance; no device has more. Each doubles the work.
pub(crate) const MAX_COMPUTE_INSTANCES: usize = 8;

/// Maximum size of a GPU instance, in GPU slices.
const MAX_GPU_SLICES: u32 = 8;

/// Maximum number of slices of a profile: bounds the work if a driver reports billions.
const MAX_PROFILE_SLICES: u32 = 24;

/// The compute slices of an existing compute instance according to `profile`, that of its GPU instance.
pub(crate) fn listed_slices(
    profile: Option<&GpuInstanceProfile>,
    compute: &ComputeInstance,
) -> Option<u32> {
    let mut listed = profile?.compute_profiles.iter();
    listed.find(|listed| listed.id == compute.profile_id).map(|listed| listed.slices)
}

/// The sizes, in compute slices, that a compute instance may have in a GPU instance of this profile.
pub(crate) fn compute_sizes(profile: &GpuInstanceProfile) -> Vec<u32> {
    let whole = profile.resources.gpu_slices;
    let all = 1..=whole.min(MAX_PROFILE_SLICES);
    all.filter(|size| max_instances(profile, *size) > 0).collect()
}

/// Maximum number of compute instances of `slices` slices in one GPU instance of this profile; zero if there cannot
/// be any.
///
/// If the driver does not report them: all slices, or at most half, rounded up. Source: NVIDIA go-nvlib,
/// `pkg/nvlib/device/mig_profile.go`.
pub(crate) fn max_instances(profile: &GpuInstanceProfile, slices: u32) -> u32 {
    let whole = profile.resources.gpu_slices;
    if slices == 0 || slices > whole {
        return 0;
    }
    if slices == whole {
        // An unsplit one always exists, even if the driver does not list it.
        return 1;
    }
    let listed = &profile.compute_profiles;
    if listed.is_empty() {
        let half = slices.saturating_mul(2) <= whole.saturating_add(1);
        let more = whole.saturating_sub(slices).checked_div(alignment(slices));
        return if half { more.unwrap_or(0).saturating_add(1) } else { 0 };
    }
    let mut listed = listed.iter();
    let offered = listed.find(|other| other.slices == slices);
    let fit = whole.checked_div(slices).unwrap_or(0);
    offered.map_or(0, |other| other.max_count.min(fit))
}

/// Returns whether an empty GPU instance of this profile can be split into these compute instances.
pub(crate) fn is_possible(profile: &GpuInstanceProfile, compute: &[u32]) -> bool {
    if compute.len() > MAX_COMPUTE_INSTANCES {
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
        && counts.iter().all(|(slices, count)| *count <= max_instances(profile, *slices))
        && (!profile.compute_profiles.is_empty() || fits_beside(&[], compute, whole))
}

/// Returns whether compute instances of these `compute_sizes` fit beside those at `taken` in a GPU instance of `whole`
/// slices.
///
/// A compute instance of two slices starts at an even slice and a larger one at a multiple of four; the counts of
/// every known listing follow from this. For a GPU instance larger than any known one the rule is not known, and only
/// the sum is checked.
pub(crate) fn fits_beside(taken: &[Placement], sizes: &[u32], whole: u32) -> bool {
    let there = taken.iter().map(|place| place.size);
    let sum: u64 = there.chain(sizes.iter().copied()).map(u64::from).sum();
    if sum > u64::from(whole) {
        return false;
    }
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    whole > MAX_GPU_SLICES || place_all(&mut taken.to_vec(), &sizes, whole)
}

fn place_all(taken: &mut Vec<Placement>, sizes: &[u32], whole: u32) -> bool {
    let Some((size, rest)) = sizes.split_first() else {
        return true;
    };
    let mut start = 0_u32;
    while start < whole {
        let place = Placement { start, size: *size };
        let free = place.end() <= whole
            && !taken.iter().any(|other| other.start < place.end() && start < other.end());
        if free {
            taken.push(place);
            if place_all(taken, rest, whole) {
                return true;
            }
            taken.pop();
        }
        start = start.saturating_add(alignment(*size));
    }
    false
}

/// Alignment of compute instances of this size.
fn alignment(slices: u32) -> u32 {
    slices.checked_next_power_of_two().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use octavo_model::catalog::{ComputeInstanceProfile, InstanceResources};
    use octavo_model::quantity::Mebibytes;

    use super::*;

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
            resources: InstanceResources { gpu_slices: slices, ..InstanceResources::default() },
            placements: Vec::new(),
            compute_profiles: listed.collect(),
        }
    }

    /// Source: `nvidia-smi mig -lcip` of an A100, 7g.40gb.
    const SEVEN: [(u32, u32); 5] = [(1, 7), (2, 3), (3, 2), (4, 1), (7, 1)];

    #[test]
    fn split_rule_matches_driver_list() {
        let (ruled, listed) = (profile(7, &[]), profile(7, &SEVEN));
        assert_eq!(compute_sizes(&ruled), [1, 2, 3, 4, 7]);
        assert_eq!(compute_sizes(&ruled), compute_sizes(&listed));
        for slices in 0..10 {
            assert_eq!(max_instances(&ruled, slices), max_instances(&listed, slices), "{slices}");
        }
        assert_eq!(compute_sizes(&profile(3, &[])), [1, 2, 3]);
        assert_eq!(compute_sizes(&profile(4, &[])), [1, 2, 4]);
    }

    #[test]
    fn split_must_fit_side_by_side() {
        for fits in [&[1, 1, 1][..], &[2, 1], &[3], &[2], &[]] {
            assert!(is_possible(&profile(3, &[]), fits), "{fits:?}");
        }
        for not in [&[2, 2][..], &[3, 1], &[0], &[1, 1, 1, 1], &[4]] {
            assert!(!is_possible(&profile(3, &[]), not), "{not:?}");
        }
        // The 3c is placed at the end, so that the others get the first four slices.
        assert!(is_possible(&profile(7, &[]), &[3, 2, 2]));
        assert!(is_possible(&profile(7, &[]), &[4, 3]));
        assert!(!is_possible(&profile(7, &[]), &[3, 3, 2]));
    }

    #[test]
    fn driver_profiles_take_precedence() {
        let listed = profile(4, &[(1, 4), (4, 1)]);
        assert!(is_possible(&listed, &[1, 1, 1, 1]) && !is_possible(&listed, &[2, 2]));
        // The unsplit one exists although it is not listed.
        assert!(is_possible(&profile(4, &[(1, 4)]), &[4]));
    }

    #[test]
    fn absurd_slice_count_is_bounded() {
        let absurd = profile(7, &[]);
        let absurd = GpuInstanceProfile {
            resources: InstanceResources { gpu_slices: u32::MAX, ..InstanceResources::default() },
            ..absurd
        };
        assert_eq!(compute_sizes(&absurd).len(), 24);
        assert!(is_possible(&absurd, &[u32::MAX]) && !is_possible(&absurd, &[u32::MAX, 1]));
    }
}
