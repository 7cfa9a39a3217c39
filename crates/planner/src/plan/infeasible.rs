//! Reasons why a device can never support a target, and alternatives.

use crate::layout::InstanceTarget;

/// Reason why a device can never support a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Infeasible {
    /// The violated hardware rule.
    pub rule: HardwareRule,
    /// Sets of GPU instances that fit, closest first; at most three. Each is ordered as in
    /// [`crate::layout::MigTarget::Enabled`].
    pub alternatives: Vec<Vec<InstanceTarget>>,
}

/// A hardware rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HardwareRule {
    /// The device cannot be partitioned.
    NotMigCapable,
    /// The device does not offer the profile.
    NoSuchProfile {
        /// The driver's profile id in the target.
        profile_id: u32,
    },
    /// Too many instances of one profile.
    TooMany {
        /// The profile.
        profile_id: u32,
        /// Requested count.
        requested: u32,
        /// Maximum count.
        most: u32,
    },
    /// All instances together exceed the GPU slices of the device.
    GpuSlices {
        /// Requested slices.
        requested: u32,
        /// Available slices.
        most: u32,
    },
    /// All instances together exceed the memory slices of the device.
    MemorySlices {
        /// Requested slices.
        requested: u32,
        /// Available slices.
        most: u32,
    },
    /// Two profiles require the same media engines, of which there is one set: `+me` and `+me.all`.
    Exclusive {
        /// One profile.
        profile_id: u32,
        /// The other profile; the same if only one instance is possible.
        other: u32,
    },
    /// The slices suffice, but the possible placements of the profiles always overlap.
    NoArrangement,
    /// A GPU instance cannot be split this way.
    ComputeSplit {
        /// The profile.
        profile_id: u32,
        /// The requested split.
        compute: Vec<u32>,
    },
}
