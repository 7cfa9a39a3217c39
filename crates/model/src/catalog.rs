//! Catalog of the MIG profiles and placements of one device, as read from that device.
//!
//! There is deliberately no built-in table: the same profile id means different hardware on different boards (14 is a
//! 2g on A100 and a 1g on A30), SM counts depend on the board's floorsweeping, and the memory of a profile varies
//! between drivers.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::profile::ProfileName;
use crate::quantity::Mebibytes;

/// All GPU-instance profiles of a device, in the order of NVML's profile index. Cheap to clone, because the devices
/// of a node usually share one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "Vec<GpuInstanceProfile>")]
pub struct ProfileCatalog {
    profiles: Arc<[GpuInstanceProfile]>,
}

/// A GPU-instance profile. Source of all figures: `nvmlGpuInstanceProfileInfo_t` of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Profile)]
pub struct GpuInstanceProfile {
    /// The driver's id: the number printed by `nvidia-smi mig -lgip` and required to create an instance.
    pub id: u32,
    /// The `NVML_GPU_INSTANCE_PROFILE_*` number with which it was queried; only this number identifies the attributes
    /// (`+me`, `+gfx`).
    pub index: u32,
    /// The name computed by NVIDIA's Kubernetes tools, as in labels and resource names.
    #[schema(value_type = String)]
    pub name: ProfileName,
    /// Maximum number of instances on an empty device.
    pub max_count: u32,
    /// Memory of one instance.
    #[serde(rename = "memoryMiB")]
    #[schema(value_type = u64)]
    pub memory: Mebibytes,
    /// All other resources of one instance.
    pub resources: InstanceResources,
    /// Possible placements in memory slices; empty if the driver does not report them.
    #[serde(default)]
    pub placements: Vec<Placement>,
    /// Compute-instance profiles available in a GPU instance of this profile.
    #[serde(default)]
    pub compute_profiles: Vec<ComputeInstanceProfile>,
}

/// A compute-instance profile of a GPU-instance profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = ComputeProfile)]
pub struct ComputeInstanceProfile {
    /// The driver's id.
    pub id: u32,
    /// The `NVML_COMPUTE_INSTANCE_PROFILE_*` number with which it was queried.
    pub index: u32,
    /// Compute slices of one instance.
    pub slices: u32,
    /// Maximum number of instances in one GPU instance.
    pub max_count: u32,
    /// Streaming multiprocessors of one instance.
    pub multiprocessors: u32,
}

/// Slices, multiprocessors and engines of a GPU instance or a MIG device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Resources)]
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

/// A contiguous range of memory slices (of a GPU instance) or of compute slices (of a compute instance).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
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

impl From<Vec<GpuInstanceProfile>> for ProfileCatalog {
    fn from(profiles: Vec<GpuInstanceProfile>) -> Self {
        Self::new(profiles)
    }
}

impl Serialize for ProfileCatalog {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.profiles().serialize(serializer)
    }
}

impl ProfileCatalog {
    /// Creates a catalog of `profiles`.
    pub fn new(mut profiles: Vec<GpuInstanceProfile>) -> Self {
        profiles.sort_by_key(|profile| profile.index);
        Self { profiles: profiles.into() }
    }

    /// The profiles, in the order of NVML's profile index.
    pub fn profiles(&self) -> &[GpuInstanceProfile] {
        &self.profiles
    }

    /// The profile with the driver's `id`.
    pub fn by_id(&self, id: u32) -> Option<&GpuInstanceProfile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// Sets the compute-instance profiles of the profile with the driver's `id`, if there is one. Other devices that share the
    /// catalog are not affected.
    pub fn set_compute_profiles(&mut self, id: u32, compute: Vec<ComputeInstanceProfile>) {
        let mut profiles = Arc::make_mut(&mut self.profiles).iter_mut();
        if let Some(profile) = profiles.find(|profile| profile.id == id) {
            profile.compute_profiles = compute;
        }
    }

    /// Number of memory slices of the device: 8 on A100 and its successors, 4 on A30, 12 on RTX PRO 6000; 0 if no
    /// placement is known.
    pub fn memory_slices(&self) -> u32 {
        let placements = self.profiles.iter().flat_map(|profile| &profile.placements);
        placements.map(|placement| placement.end()).max().unwrap_or(0)
    }
}
