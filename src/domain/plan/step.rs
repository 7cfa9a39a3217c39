//! The steps of a plan. Each is one call to the driver, or one reset.

use super::mode::ResetScope;
use crate::domain::catalog::Placement;
use crate::domain::inventory::MigMode;

/// One thing to do to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Destroy a compute instance.
    DestroyComputeInstance {
        /// The GPU instance, by the driver's id.
        gpu_instance: u32,
        /// The compute instance, by the driver's id within it.
        compute_instance: u32,
    },
    /// Destroy a GPU instance, which has no compute instance any more.
    DestroyGpuInstance {
        /// The driver's id.
        gpu_instance: u32,
        /// What it is made from.
        profile_id: u32,
        /// Where it lies.
        placement: Placement,
    },
    /// Set the MIG mode.
    SetMigMode {
        /// The mode.
        to: MigMode,
    },
    /// Reset the device, so that the mode that was set comes into force.
    Reset {
        /// What the reset concerns.
        scope: ResetScope,
    },
    /// Create a GPU instance at a place.
    CreateGpuInstance {
        /// Which of [`super::Change::after`] it is.
        instance: usize,
        /// What it is made from.
        profile_id: u32,
        /// Where it shall lie.
        placement: Placement,
    },
    /// Create a compute instance.
    CreateComputeInstance {
        /// In which GPU instance.
        gpu_instance: InstanceRef,
        /// How many compute slices it shall have.
        slices: u32,
    },
}

impl Step {
    /// Whether it is taken only while nobody uses what it changes: the users are looked up right before it.
    pub fn needs_idle(&self) -> bool {
        match self {
            Self::DestroyComputeInstance { .. }
            | Self::DestroyGpuInstance { .. }
            | Self::SetMigMode { .. } => true,
            Self::Reset { .. }
            | Self::CreateGpuInstance { .. }
            | Self::CreateComputeInstance { .. } => false,
        }
    }
}

/// A GPU instance that a step speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceRef {
    /// It is there: the driver's id.
    Existing(u32),
    /// An earlier step creates it: which of [`super::Change::after`] it is.
    Planned(usize),
}
