//! A device as input of the search: its profiles and placements with memory slices as bits, without impossible ones.
//!
//! Catalogs also arrive over the network from any client that reports as a node. Invalid placements (without a slice,
//! or beyond the last bit) are therefore dropped, duplicates are removed, and a table larger than that of any device is
//! not searched.

use std::collections::BTreeSet;

use octavo_model::catalog::{GpuInstanceProfile, Placement};
use octavo_model::inventory::{MigMode, MigState};

use crate::layout::limits::max_disjoint;

/// Maximum number of profiles; no device has more, as NVML defines 18.
const MAX_PROFILES: usize = 64;

/// Maximum number of placements of all profiles; the largest known table has 33.
const MAX_PLACEMENTS: usize = 512;

/// The profiles and slices of a device.
#[derive(Debug)]
pub(super) struct ProfileTable<'a> {
    pub(super) profiles: Vec<PlaceableProfile<'a>>,
    /// GPU slices of the whole device: those of its largest profile.
    pub(super) gpu_slices: u32,
    /// Memory slices of the whole device.
    pub(super) memory_slices: u32,
}

/// A profile with its placements.
#[derive(Debug)]
pub(super) struct PlaceableProfile<'a> {
    pub(super) source: &'a GpuInstanceProfile,
    /// Maximum instances on an empty device: the driver's count where it is reliable, limited by non-overlapping
    /// placements.
    pub(super) max_instances: u32,
    pub(super) media: MediaEngines,
    /// Unique placements, ordered.
    pub(super) places: Vec<PlacementMask>,
}

/// A possible placement of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlacementMask {
    pub(super) placement: Placement,
    pub(super) bits: u64,
}

/// A profile's share of the media engines, of which a device has one set. Source: `nvml.h`,
/// `NVML_GPU_INSTANCE_PROFILE_*`: only the index identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediaEngines {
    /// The default share, if any.
    Usual,
    /// `+me`: the media extensions, available to one instance.
    Extensions,
    /// `+me.all`: all engines, which leaves none to others.
    All,
    /// `-me`: none.
    None,
}

/// The table exceeds the limits of the search.
pub(super) struct TableTooLarge;

impl<'a> ProfileTable<'a> {
    pub(super) fn from_state(state: &'a MigState) -> Result<Self, TableTooLarge> {
        let listed = state.catalog.profiles();
        let places: usize = listed.iter().map(|profile| profile.placements.len()).sum();
        if listed.len() > MAX_PROFILES || places > MAX_PLACEMENTS {
            return Err(TableTooLarge);
        }
        let mut seen = BTreeSet::new();
        let profiles: Vec<PlaceableProfile<'_>> = listed
            .iter()
            .filter(|profile| seen.insert(profile.id))
            .map(|profile| PlaceableProfile::new(profile, state.current))
            .collect();
        let gpu_slices = profiles.iter().map(PlaceableProfile::gpu_slices).max().unwrap_or(0);
        let every_bit = profiles
            .iter()
            .flat_map(|profile| &profile.places)
            .fold(0, |all, place| all | place.bits);
        Ok(Self {
            profiles,
            gpu_slices,
            memory_slices: u64::BITS.saturating_sub(every_bit.leading_zeros()),
        })
    }

    /// Returns the index of the profile with the driver's `id`, and the profile.
    pub(super) fn find(&self, id: u32) -> Option<(usize, &PlaceableProfile<'a>)> {
        self.profiles.iter().enumerate().find(|(_, profile)| profile.source.id == id)
    }
}

impl<'a> PlaceableProfile<'a> {
    fn new(source: &'a GpuInstanceProfile, mode: MigMode) -> Self {
        let places: BTreeSet<PlacementMask> = source
            .placements
            .iter()
            .filter_map(|placement| PlacementMask::new(*placement))
            .collect();
        let max_disjoint = max_disjoint(places.iter().map(|place| place.placement));
        Self {
            source,
            // An A30 reports wrong counts while MIG mode is off. On every known board the count follows from
            // placements, slices and media engines, so ignoring the reported count loses nothing.
            max_instances: match mode {
                MigMode::Enabled => source.max_count.min(max_disjoint),
                MigMode::Disabled => max_disjoint,
            },
            media: MediaEngines::from_index(source.index),
            places: places.into_iter().collect(),
        }
    }

    pub(super) fn gpu_slices(&self) -> u32 {
        self.source.resources.gpu_slices
    }

    /// Returns the fewest memory slices that an instance occupies.
    pub(super) fn min_memory_slices(&self) -> u32 {
        let sizes = self.places.iter().map(|place| place.placement.size);
        sizes.min().unwrap_or(0)
    }
}

impl PlacementMask {
    /// Converts a placement; `None` without a slice or beyond the 64th, which no device has.
    pub(super) fn new(placement: Placement) -> Option<Self> {
        let end = placement.start.checked_add(placement.size)?;
        if placement.size == 0 || end > u64::BITS {
            return None;
        }
        let ones = u64::MAX >> (u64::BITS - placement.size);
        Some(Self { placement, bits: ones << placement.start })
    }
}

impl MediaEngines {
    fn from_index(index: u32) -> Self {
        match index {
            7 | 8 => Self::Extensions,
            13 | 14 => Self::None,
            15 | 16 => Self::All,
            _ => Self::Usual,
        }
    }

    /// Returns true if one device cannot have both.
    pub(super) fn excludes(self, other: Self) -> bool {
        (self == Self::Extensions && other == Self::Extensions)
            || (self == Self::All && other != Self::None)
            || (other == Self::All && self != Self::None)
    }
}
