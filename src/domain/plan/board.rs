//! A device as the search sees it: what its own table offers, with slices as bits, and nothing that cannot be.
//!
//! A catalogue also comes over the wire, from whoever says that he is a node. So places that are none (no slice, or past the
//! end of the bits) are left out, everything is there once, and a table larger than any device has is not searched at all.

use std::collections::BTreeSet;

use crate::domain::catalog::{GpuInstanceProfile, Placement};
use crate::domain::inventory::{MigMode, MigState};

/// More profiles than this no device has: NVML has numbers for 18.
const MOST_PROFILES: usize = 64;

/// More places than this, all profiles together, no device has: the largest known table has 33.
const MOST_PLACES: usize = 512;

/// What a device offers.
pub(super) struct Board<'a> {
    pub(super) profiles: Vec<BoardProfile<'a>>,
    /// GPU slices of the whole device: those of its largest profile.
    pub(super) gpu_slices: u32,
    /// Memory slices of the whole device.
    pub(super) memory_slices: u32,
}

/// A profile of a board.
pub(super) struct BoardProfile<'a> {
    pub(super) source: &'a GpuInstanceProfile,
    /// How many an empty device has room for: by the driver's word where that can be trusted, and by places that do not
    /// overlap.
    pub(super) most: u32,
    pub(super) media: Media,
    /// In their own order, each once.
    pub(super) places: Vec<Place>,
}

/// Where an instance may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) placement: Placement,
    pub(super) bits: u64,
}

/// What a profile has of the media engines, of which a device has one set. Source: `nvml.h`,
/// `NVML_GPU_INSTANCE_PROFILE_*`: the index alone tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    /// Its share, if any.
    Usual,
    /// `+me`: the extensions, which one instance can have.
    Extensions,
    /// `+me.all`: all of them, so that others can have none.
    All,
    /// `-me`: none.
    None,
}

/// Why a table cannot be searched.
pub(super) struct TooLarge;

impl<'a> Board<'a> {
    pub(super) fn of(state: &'a MigState) -> Result<Self, TooLarge> {
        let listed = state.catalog.profiles();
        let places: usize = listed.iter().map(|profile| profile.placements.len()).sum();
        if listed.len() > MOST_PROFILES || places > MOST_PLACES {
            return Err(TooLarge);
        }
        let mut seen = BTreeSet::new();
        let profiles: Vec<BoardProfile<'_>> = listed
            .iter()
            .filter(|profile| seen.insert(profile.id))
            .map(|profile| BoardProfile::of(profile, state.current))
            .collect();
        let gpu_slices = profiles
            .iter()
            .map(BoardProfile::gpu_slices)
            .max()
            .unwrap_or(0);
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

    /// Which of the profiles has the driver's `id`.
    pub(super) fn find(&self, id: u32) -> Option<(usize, &BoardProfile<'a>)> {
        self.profiles
            .iter()
            .enumerate()
            .find(|(_, profile)| profile.source.id == id)
    }
}

impl<'a> BoardProfile<'a> {
    fn of(source: &'a GpuInstanceProfile, mode: MigMode) -> Self {
        let places: BTreeSet<Place> = source
            .placements
            .iter()
            .filter_map(|placement| Place::of(*placement))
            .collect();
        Self {
            source,
            // An A30 reports wrong counts while MIG mode is off. On every board known the count follows from the places, the
            // slices and the media engines, so that nothing is lost by not believing it then.
            most: match mode {
                MigMode::Enabled => source.max_count.min(apart(&places)),
                MigMode::Disabled => apart(&places),
            },
            media: Media::of_index(source.index),
            places: places.into_iter().collect(),
        }
    }

    pub(super) fn gpu_slices(&self) -> u32 {
        self.source.resources.gpu_slices
    }

    /// The fewest memory slices that an instance takes.
    pub(super) fn smallest(&self) -> u32 {
        let sizes = self.places.iter().map(|place| place.placement.size);
        sizes.min().unwrap_or(0)
    }
}

/// How many of `places` do not overlap: taking the one that ends first, then the first that does not overlap it, and so on.
fn apart(places: &BTreeSet<Place>) -> u32 {
    let mut by_end: Vec<&Place> = places.iter().collect();
    by_end.sort_by_key(|place| place.placement.end());
    let (mut taken, mut count) = (0_u64, 0_u32);
    for place in by_end {
        if taken & place.bits == 0 {
            taken |= place.bits;
            count = count.saturating_add(1);
        }
    }
    count
}

impl Place {
    /// `None` for a place without a slice, and for one past the 64th, which no device has.
    pub(super) fn of(placement: Placement) -> Option<Self> {
        let end = placement.start.checked_add(placement.size)?;
        if placement.size == 0 || end > u64::BITS {
            return None;
        }
        let ones = u64::MAX >> (u64::BITS - placement.size);
        Some(Self {
            placement,
            bits: ones << placement.start,
        })
    }
}

impl Media {
    fn of_index(index: u32) -> Self {
        match index {
            7 | 8 => Self::Extensions,
            13 | 14 => Self::None,
            15 | 16 => Self::All,
            _ => Self::Usual,
        }
    }

    /// Whether one device cannot have both.
    pub(super) fn excludes(self, other: Self) -> bool {
        (self == Self::Extensions && other == Self::Extensions)
            || (self == Self::All && other != Self::None)
            || (other == Self::All && self != Self::None)
    }
}
