//! The steps of a plan. Each is one driver call or one reset.

use octavo_model::catalog::Placement;
use octavo_model::inventory::MigMode;

use super::mode::ResetScope;

/// A step that changes a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Destroys a compute instance.
    DestroyComputeInstance {
        /// The driver's id of the GPU instance.
        gpu_instance: u32,
        /// The driver's id of the compute instance within it.
        compute_instance: u32,
    },
    /// Destroys a GPU instance, which must have no compute instances.
    DestroyGpuInstance {
        /// The driver's id.
        gpu_instance: u32,
        /// Its profile.
        profile_id: u32,
        /// Its placement.
        placement: Placement,
    },
    /// Sets the MIG mode.
    SetMigMode {
        /// The desired mode.
        to: MigMode,
    },
    /// Resets the device to activate a pending MIG mode.
    Reset {
        /// Devices affected by the reset.
        scope: ResetScope,
    },
    /// Creates a GPU instance at a placement.
    CreateGpuInstance {
        /// Index in [`super::DeviceChange::after`].
        instance: usize,
        /// The profile.
        profile_id: u32,
        /// The placement.
        placement: Placement,
    },
    /// Creates a compute instance.
    CreateComputeInstance {
        /// The GPU instance to create it in.
        gpu_instance: InstanceRef,
        /// Number of compute slices.
        slices: u32,
    },
}

impl Step {
    /// Returns true if the step requires that its object is not in use, which is checked immediately before it.
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

/// A GPU instance that a step refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceRef {
    /// An existing one, by the driver's id.
    Existing(u32),
    /// One created by an earlier step, by index in [`super::DeviceChange::after`].
    Planned(usize),
}
