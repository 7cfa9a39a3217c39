//! Driver calls that change a device, and their results, in terms of the domain.

use std::fmt;

use crate::catalog::Placement;
use crate::inventory::MigMode;

/// A driver call that changes a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverCall {
    /// Destroy a compute instance.
    DestroyComputeInstance {
        /// The GPU instance, by the driver's id.
        gpu_instance: u32,
        /// The compute instance, by the driver's id within it.
        compute_instance: u32,
    },
    /// Destroy a GPU instance that has no compute instance left.
    DestroyGpuInstance {
        /// The driver's id.
        gpu_instance: u32,
    },
    /// Create a GPU instance at a placement.
    CreateGpuInstance {
        /// The driver's id of its profile.
        profile_id: u32,
        /// The requested placement.
        placement: Placement,
    },
    /// Create a compute instance.
    CreateComputeInstance {
        /// The GPU instance, by the driver's id.
        gpu_instance: u32,
        /// Number of its compute slices.
        slices: u32,
    },
    /// Set the MIG mode.
    SetMigMode {
        /// The mode.
        to: MigMode,
    },
}

/// Result of a successful call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallResult {
    /// The requested change.
    Completed,
    /// A GPU instance was created.
    Created {
        /// The driver's id.
        id: u32,
        /// The placement reported by the driver.
        placement: Placement,
    },
    /// The mode was accepted but is not active yet; contains the driver's reason.
    Pending(String),
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// Human-readable call and response.
    pub what: String,
}

/// Kind of failure, which determines the reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The instance or device is in use.
    InUse,
    /// There is no room, or the hardware refuses the placement.
    InsufficientResources,
    /// The instance does not exist.
    NotFound,
    /// A temporary failure: retry.
    Temporary,
    /// The device is out of service.
    DeviceLost,
    /// The library has lost the connection to its driver.
    DriverLost,
    /// Rejected: missing permission, not supported, or invalid.
    Rejected,
}

impl DriverCall {
    /// Returns whether it destroys an instance.
    pub fn destroys(self) -> bool {
        matches!(self, Self::DestroyComputeInstance { .. } | Self::DestroyGpuInstance { .. })
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.what)
    }
}
