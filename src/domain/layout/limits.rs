//! How many instances of one profile an empty device can have.

use crate::domain::catalog::{GpuInstanceProfile, ProfileCatalog};

/// No device has more slices, so none has more instances: what a driver claims beyond that is its mistake.
const MOST: u32 = 24;

/// How many instances of `profile` alone fit on an empty device with this catalogue; never more than a few dozen.
///
/// The driver's own count is used only where it tells no placements, because A30's is wrong while MIG mode is off (NVIDIA
/// mig-parted replaces it by a table of its own for that). Taking places from left to right, the one that ends first
/// first, is exact for one profile: whatever set of places does not overlap, its first can be exchanged for the one that
/// ends first, and so on. With two profiles that is no longer true, and the planner's to say.
pub(super) fn most(catalog: &ProfileCatalog, profile: &GpuInstanceProfile) -> u32 {
    let by_places = if profile.placements.is_empty() {
        profile.max_count
    } else {
        places(profile)
    };
    let each = profile.resources.gpu_slices.max(1);
    let by_slices = gpu_slices(catalog).checked_div(each).unwrap_or(0);
    let by_engines = if profile.name.takes_media_extensions() {
        1
    } else {
        MOST
    };
    by_places.min(by_slices).min(by_engines).min(MOST)
}

/// GPU slices of the device: those of its largest profile.
pub(super) fn gpu_slices(catalog: &ProfileCatalog) -> u32 {
    let all = catalog.profiles().iter();
    all.map(|profile| profile.resources.gpu_slices)
        .max()
        .unwrap_or(0)
}

fn places(profile: &GpuInstanceProfile) -> u32 {
    let mut places: Vec<_> = profile.placements.iter().filter(|at| at.size > 0).collect();
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
