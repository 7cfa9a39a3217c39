//! Partitions of a board: GPU instance profiles, their placements, and their compute instances.
//!
//! Profiles are constant facts of a board. A profile has two numbers: the *enum index* for enumeration, and the *id*
//! for creation. The same id means different profiles on different boards.

use serde::{Deserialize, Serialize};

/// Number of `NVML_GPU_INSTANCE_PROFILE_*` values (`nvml.h` of NVML 13: up to `3_SLICE_GFX` = 0x11).
pub const GI_PROFILE_COUNT: u32 = 0x12;

/// Number of `NVML_COMPUTE_INSTANCE_PROFILE_*` values (up to `7_SLICE_NVL` = 0x8).
pub const CI_PROFILE_COUNT: u32 = 0x9;

/// A range of slices: memory slices for a GPU instance, compute slices for a compute instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placement {
    /// First slice.
    pub start: u32,
    /// Number of slices.
    pub size: u32,
}

/// Origin of a row: a real listing, or the rules of the board's family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Read from a listing; the sources are in `data/mig-profiles.json`.
    Sourced,
    /// At least one field was computed; plausible, not known.
    Derived,
}

/// Number of engines that an instance has or shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Engines {
    /// Copy engines.
    pub copy: u32,
    /// Video decoders.
    pub decoder: u32,
    /// Video encoders.
    pub encoder: u32,
    /// JPEG decoders.
    pub jpeg: u32,
    /// Optical flow accelerators.
    pub ofa: u32,
}

/// A GPU instance profile of a board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GiProfile {
    /// Id for creation, as printed by `nvidia-smi mig -lgip`.
    pub id: u32,
    /// `NVML_GPU_INSTANCE_PROFILE_*`: index for enumeration.
    pub index: u32,
    /// `3g.40gb`, `1g.10gb+me`.
    pub name: String,
    /// GPU (compute) slices.
    pub slices: u32,
    /// Maximum count on an empty board.
    pub max_count: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Engines.
    pub engines: Engines,
    /// Possible placements, ascending.
    pub placements: Vec<Placement>,
    /// Compute profiles.
    pub compute: Vec<CiProfile>,
    /// Source of the row.
    pub provenance: Provenance,
}

/// A compute instance profile of a GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CiProfile {
    /// Both the id and the `NVML_COMPUTE_INSTANCE_PROFILE_*` index: they are equal on every known board.
    pub id: u32,
    /// `1c.3g.40gb`; without the `c` part if it takes the whole GPU instance.
    pub name: String,
    /// Compute slices.
    pub slices: u32,
    /// Maximum count in an empty GPU instance.
    pub max_count: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Source of the row.
    pub provenance: Provenance,
}

impl Placement {
    /// One past the last slice.
    pub const fn end(self) -> u32 {
        self.start.saturating_add(self.size)
    }

    /// Whether the two share a slice.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

impl GiProfile {
    /// Whether it takes the media extensions, of which a board has one set (`+me`).
    pub fn has_media_extensions(&self) -> bool {
        matches!(self.index, 7 | 8)
    }

    /// Whether it takes all media engines (`+me.all`), leaving none for others.
    pub fn takes_all_media(&self) -> bool {
        matches!(self.index, 0xF | 0x10)
    }

    /// True if it has no media engine at all (`-me`) and so is compatible with `+me.all`.
    pub fn has_no_media(&self) -> bool {
        matches!(self.index, 0xD | 0xE)
    }

    /// The compute profile with that id.
    pub fn compute_profile(&self, id: u32) -> Option<&CiProfile> {
        self.compute.iter().find(|profile| profile.id == id)
    }

    /// The compute profile of the whole GPU instance: the one with the same number of multiprocessors.
    pub fn full_compute_profile(&self) -> Option<&CiProfile> {
        self.compute.iter().find(|profile| profile.multiprocessors == self.multiprocessors)
    }
}

impl CiProfile {
    /// Placements in a GPU instance of `slices` slices: 2-slice ones at even starts, 3 and 4 at multiples of 4.
    ///
    /// These starts give exactly the counts of listings (7 slices hold three 2c, two 3c, one 4c).
    pub fn placements(&self, slices: u32) -> Vec<Placement> {
        let step = self.slices.next_power_of_two();
        (0..slices)
            .step_by(usize::try_from(step).unwrap_or(1))
            .map(|start| Placement { start, size: self.slices })
            .filter(|placement| placement.end() <= slices)
            .collect()
    }
}
