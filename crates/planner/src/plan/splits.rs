//! Compute instances within one GPU instance: valid splits, and parts that can stay.

use octavo_model::catalog::{GpuInstanceProfile, Placement};
use octavo_model::inventory::ComputeInstance;

use super::usage::PartsInUse;
use crate::split::{MAX_COMPUTE_INSTANCES, fits_beside, listed_slices};

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
    pin: &PartsInUse,
) -> Resplit {
    let subsets = 0_u32..1 << present.len().min(MAX_COMPUTE_INSTANCES);
    let ways =
        subsets.filter_map(|retained| resplit_keeping(present, wanted, whole, pin, retained));
    // The same order as `Cost` of the search.
    let best = ways.min_by_key(|way| {
        let retained: Vec<u32> = way.retained.iter().map(|(id, _)| *id).collect();
        (way.in_use.len(), way.destroyed.len(), retained)
    });
    best.unwrap_or_else(|| Resplit {
        retained: Vec::new(),
        destroyed: present.iter().map(|compute| compute.id).collect(),
        in_use: present.iter().map(|compute| compute.id).filter(|id| pin.contains(*id)).collect(),
        created: wanted.to_vec(),
    })
}

/// Returns the change that keeps the compute instances whose bit is set in `retained`, if there is room for the missing
/// ones.
fn resplit_keeping(
    present: &[ExistingCompute],
    wanted: &[u32],
    whole: u32,
    pin: &PartsInUse,
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
        in_use: go.iter().copied().filter(|id| pin.contains(*id)).collect(),
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
