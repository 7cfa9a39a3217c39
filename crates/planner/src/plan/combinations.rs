//! Combinations of instances that a device supports, for decisions that compare devices.

use octavo_model::catalog::{GpuInstanceProfile, Placement};
use octavo_model::inventory::MigState;

use super::profile_table::ProfileTable;
use super::rules;

/// The profiles of a device with their placements, and the rules for their combination.
#[derive(Debug)]
pub struct Combinations<'a> {
    table: ProfileTable<'a>,
}

/// A placement and its memory slices as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementBits {
    /// The placement.
    pub placement: Placement,
    /// A bit for each memory slice.
    pub bits: u64,
}

impl<'a> Combinations<'a> {
    /// Returns the combinations of a device; `None` if its table of profiles is larger than that of any device.
    pub fn from_state(state: &'a MigState) -> Option<Self> {
        ProfileTable::from_state(state).ok().map(|table| Self { table })
    }

    /// The profiles with their valid placements, in the order of NVML's profile index.
    pub fn profiles(&self) -> impl Iterator<Item = (&'a GpuInstanceProfile, Vec<PlacementBits>)> {
        self.table.profiles.iter().map(|profile| {
            let places = profile.places.iter();
            let places =
                places.map(|place| PlacementBits { placement: place.placement, bits: place.bits });
            (profile.source, places.collect())
        })
    }

    /// Returns whether a device can have this many instances of each profile, in the order of [`Self::profiles`], if their placements
    /// do not overlap.
    pub fn allows(&self, counts: &[u32]) -> bool {
        rules::check_counts(&self.table, counts).is_ok()
    }
}
