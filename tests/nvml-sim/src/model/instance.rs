//! GPU instances, compute instances and MIG devices.

use serde::{Deserialize, Serialize};

use super::profile::Placement;

/// A part of a GPU with memory and engines of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInstance {
    /// What NVML calls it by; used again after it is destroyed.
    pub id: u32,
    /// What a handle holds; never used again on this GPU.
    pub serial: u64,
    /// Profile it was made from.
    pub profile_id: u32,
    /// Memory slices it takes.
    pub placement: Placement,
    /// Compute instances in it, by id.
    pub compute: Vec<ComputeInstance>,
}

/// A share of the compute slices of a GPU instance; what a program runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeInstance {
    /// Unique within its GPU instance.
    pub id: u32,
    /// What a handle holds; never used again on this GPU.
    pub serial: u64,
    /// Profile it was made from.
    pub profile_id: u32,
    /// Compute slices it takes.
    pub placement: Placement,
    /// UUID of the MIG device: `MIG-<uuid>`, before R470 `MIG-GPU-<uuid>/<gi>/<ci>`.
    pub uuid: String,
}

/// A MIG device is a compute instance, seen with its GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigDevice<'a> {
    /// The GPU instance.
    pub gi: &'a GpuInstance,
    /// The compute instance.
    pub ci: &'a ComputeInstance,
}

/// A MIG device that is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    /// GPU instance id it had.
    pub gi: u32,
    /// Compute instance id it had.
    pub ci: u32,
    /// Serial of its compute instance, so that a handle to it can be made.
    pub ci_serial: u64,
    /// UUID it had.
    pub uuid: String,
}
