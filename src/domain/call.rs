//! The calls that change a device, and what comes of them, in the domain's words.

use std::fmt;

use crate::domain::catalog::Placement;
use crate::domain::inventory::MigMode;

/// One call to the driver that changes a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
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
    },
    /// Create a GPU instance at a place.
    CreateGpuInstance {
        /// The driver's id of its profile.
        profile_id: u32,
        /// Where it shall lie.
        placement: Placement,
    },
    /// Create a compute instance.
    CreateComputeInstance {
        /// The GPU instance, by the driver's id.
        gpu_instance: u32,
        /// How many compute slices it shall have.
        slices: u32,
    },
    /// Set the MIG mode.
    SetMigMode {
        /// The mode.
        to: MigMode,
    },
}

/// What came of a call that the driver did not refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// What was asked for.
    AsAsked,
    /// A GPU instance was created.
    Created {
        /// The driver's id.
        id: u32,
        /// Where the driver says that it lies.
        placement: Placement,
    },
    /// The mode was taken in and is not in force: the reason, in the driver's words.
    Pending(String),
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it calls for.
    pub kind: FailureKind,
    /// The call and the answer, in words for a person.
    pub what: String,
}

/// What a failed call calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Somebody uses what was to be destroyed or changed.
    InUse,
    /// There is no room, or the hardware does not give this place.
    NoRoom,
    /// What was spoken of is not there.
    Gone,
    /// It may work the next time.
    Again,
    /// The device is out of service.
    DeviceLost,
    /// The library has lost its driver.
    DriverLost,
    /// Refused: for lack of a right, because the driver cannot, or by mistake.
    Refused,
}

impl Call {
    /// Whether it takes something away.
    pub fn destroys(self) -> bool {
        matches!(
            self,
            Self::DestroyComputeInstance { .. } | Self::DestroyGpuInstance { .. }
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.what)
    }
}
