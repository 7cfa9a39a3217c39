//! What one MIG-capable device offers: its profiles and where each may lie, as read from that very device.
//!
//! Never a table of ours: the same profile id means other hardware on another board (14 is a 2g on A100 and a 1g on A30),
//! SM counts follow the board's floorsweeping, and the memory of a profile drifts between drivers.

use std::sync::Arc;

use crate::domain::profile::ProfileName;
use crate::domain::quantity::Mebibytes;

/// Every GPU-instance profile of a device, in the order of NVML's profile index. Cheap to clone: the devices of a node
/// mostly offer the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileCatalog {
    profiles: Arc<[GpuInstanceProfile]>,
}

/// One GPU-instance profile. Source of every figure: `nvmlGpuInstanceProfileInfo_t` of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInstanceProfile {
    /// The driver's id, the number that `nvidia-smi mig -lgip` prints and that creating takes.
    pub id: u32,
    /// The `NVML_GPU_INSTANCE_PROFILE_*` number it was asked for by; it alone tells the attributes (`+me`, `+gfx`).
    pub index: u32,
    /// The name NVIDIA's Kubernetes tools compute for it, which is the one in labels and resource names.
    pub name: ProfileName,
    /// How many fit on an empty device.
    pub max_count: u32,
    /// Memory of one instance.
    pub memory: Mebibytes,
    /// What one instance has of everything else.
    pub resources: InstanceResources,
    /// Where an instance may lie, in memory slices; empty when the driver would not say.
    pub placements: Vec<Placement>,
    /// What a GPU instance of this profile can be split into.
    pub compute_profiles: Vec<ComputeInstanceProfile>,
}

/// One compute-instance profile of a GPU-instance profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeInstanceProfile {
    /// The driver's id.
    pub id: u32,
    /// The `NVML_COMPUTE_INSTANCE_PROFILE_*` number it was asked for by.
    pub index: u32,
    /// Compute slices of one instance.
    pub slices: u32,
    /// How many fit into one GPU instance.
    pub max_count: u32,
    /// Streaming multiprocessors of one instance.
    pub multiprocessors: u32,
}

/// Slices, multiprocessors and engines of a GPU instance or a MIG device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InstanceResources {
    /// GPU slices.
    pub gpu_slices: u32,
    /// Compute slices; equal to the GPU slices for a whole GPU instance.
    pub compute_slices: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg_engines: u32,
    /// Optical-flow accelerators.
    pub ofa_engines: u32,
}

/// A stretch of memory slices (of a GPU instance) or of compute slices (of a compute instance).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// First slice.
    pub start: u32,
    /// Number of slices.
    pub size: u32,
}

impl Placement {
    /// The slice after the last one.
    pub fn end(self) -> u32 {
        self.start.saturating_add(self.size)
    }
}

impl ProfileCatalog {
    /// A catalogue of `profiles`.
    pub fn new(mut profiles: Vec<GpuInstanceProfile>) -> Self {
        profiles.sort_by_key(|profile| profile.index);
        Self {
            profiles: profiles.into(),
        }
    }

    /// The profiles, in the order of NVML's profile index.
    pub fn profiles(&self) -> &[GpuInstanceProfile] {
        &self.profiles
    }

    /// The profile with the driver's `id`.
    pub fn by_id(&self, id: u32) -> Option<&GpuInstanceProfile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// How many memory slices the device has: 8 on A100 and its successors, 4 on A30, 12 on RTX PRO 6000; 0 when no
    /// placement is known.
    pub fn memory_slices(&self) -> u32 {
        let placements = self.profiles.iter().flat_map(|profile| &profile.placements);
        placements
            .map(|placement| placement.end())
            .max()
            .unwrap_or(0)
    }
}
