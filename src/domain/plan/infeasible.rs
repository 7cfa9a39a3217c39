//! Why a device can never have what is asked for, and what it could have instead.

use crate::domain::layout::InstanceTarget;

/// Why a device can never have what is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Infeasible {
    /// The rule of the hardware that forbids it.
    pub rule: HardwareRule,
    /// What would fit instead, the nearest first; at most three.
    pub nearest: Vec<Offer>,
}

/// A rule of the hardware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HardwareRule {
    /// The device cannot be partitioned.
    NotMigCapable,
    /// The device does not offer the profile.
    NoSuchProfile {
        /// The driver's id that the target names.
        profile_id: u32,
    },
    /// More instances of one profile than the device can have.
    TooMany {
        /// The profile.
        profile_id: u32,
        /// How many are asked for.
        asked: u32,
        /// How many there can be.
        most: u32,
    },
    /// All instances together have more GPU slices than the device.
    GpuSlices {
        /// How many are asked for.
        asked: u32,
        /// How many there are.
        most: u32,
    },
    /// All instances together have more memory slices than the device.
    MemorySlices {
        /// How many are asked for.
        asked: u32,
        /// How many there are.
        most: u32,
    },
    /// Two profiles want the same engines, of which there is one set: `+me` and `+me.all`.
    Exclusive {
        /// One.
        profile_id: u32,
        /// The other; the same where there can be one only.
        other: u32,
    },
    /// There are enough slices, and no arrangement of the places that the profiles may have.
    NoArrangement,
    /// A GPU instance cannot be split so.
    ComputeSplit {
        /// The profile.
        profile_id: u32,
        /// The split that was asked for.
        compute: Vec<u32>,
    },
}

/// GPU instances that a device could have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// In the order of [`crate::domain::layout::MigTarget::Enabled`].
    pub instances: Vec<InstanceTarget>,
}
