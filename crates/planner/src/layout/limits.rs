//! Maximum number of instances of one profile on an empty device.

use octavo_model::catalog::{GpuInstanceProfile, Placement, ProfileCatalog};

/// Upper bound: no device has more slices, so a larger count reported by a driver is wrong.
const MAX_INSTANCES: u32 = 24;

/// Returns how many instances of `profile` alone fit on an empty device with this catalog, at most [`MAX_INSTANCES`].
///
/// The driver's own count is used only if it reports no placements, because it is wrong for A30 while MIG mode is off
/// (mig-parted replaces it with its own table for that reason). Choosing placements greedily by their end is exact for
/// one profile: in any set of non-overlapping placements, the first can be exchanged for the one that ends first, and
/// so on. This does not hold for several profiles; the planner decides those.
pub(super) fn max_instances(catalog: &ProfileCatalog, profile: &GpuInstanceProfile) -> u32 {
    let by_places = if profile.placements.is_empty() {
        profile.max_count
    } else {
        max_disjoint(profile.placements.iter().copied())
    };
    let each = profile.resources.gpu_slices.max(1);
    let by_slices = gpu_slices(catalog).checked_div(each).unwrap_or(0);
    let by_engines = if profile.name.has_media_extensions() { 1 } else { MAX_INSTANCES };
    by_places.min(by_slices).min(by_engines).min(MAX_INSTANCES)
}

/// Returns the GPU slices of the device: those of its largest profile.
pub(super) fn gpu_slices(catalog: &ProfileCatalog) -> u32 {
    let all = catalog.profiles().iter();
    all.map(|profile| profile.resources.gpu_slices).max().unwrap_or(0)
}

/// Returns the maximum number of these placements that do not overlap, by repeatedly choosing the one that ends first.
pub(crate) fn max_disjoint(placements: impl Iterator<Item = Placement>) -> u32 {
    let mut places: Vec<Placement> = placements.filter(|place| place.size > 0).collect();
    places.sort_by_key(|place| place.end());
    let mut free_from = 0;
    let mut count: u32 = 0;
    for place in places {
        if place.start >= free_from {
            free_from = place.end();
            count = count.saturating_add(1);
        }
    }
    count
}
