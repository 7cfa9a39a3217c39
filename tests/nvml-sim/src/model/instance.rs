//! GPU instances, compute instances and MIG devices.

use serde::{Deserialize, Serialize};

use super::profile::Placement;

/// A part of a GPU with its own memory and engines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInstance {
    /// NVML's id; reused after destruction.
    pub id: u32,
    /// Serial number in handles; never reused on this GPU.
    pub serial: u64,
    /// Profile of the instance.
    pub profile_id: u32,
    /// Memory slices of the instance.
    pub placement: Placement,
    /// Compute instances in it, by id.
    pub compute: Vec<ComputeInstance>,
}

/// A share of the compute slices of a GPU instance, on which programs run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeInstance {
    /// Unique within its GPU instance.
    pub id: u32,
    /// Serial number in handles; never reused on this GPU.
    pub serial: u64,
    /// Profile of the instance.
    pub profile_id: u32,
    /// Compute slices of the instance.
    pub placement: Placement,
    /// UUID of the MIG device: `MIG-<uuid>`, before R470 `MIG-GPU-<uuid>/<gi>/<ci>`.
    pub uuid: String,
}

/// A MIG device: a compute instance with its GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigDevice<'a> {
    /// The GPU instance.
    pub gi: &'a GpuInstance,
    /// The compute instance.
    pub ci: &'a ComputeInstance,
}

/// A destroyed MIG device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyedMigDevice {
    /// Its former GPU instance id.
    pub gi: u32,
    /// Its former compute instance id.
    pub ci: u32,
    /// Serial of its compute instance, for stale handles.
    pub ci_serial: u64,
    /// Its former UUID.
    pub uuid: String,
}
