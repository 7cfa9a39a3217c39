//! MIG state of a device: support, modes, available profiles and existing instances.

use super::Device;
use crate::catalog::{InstanceResources, Placement, ProfileCatalog};
use crate::id::MigUuid;
use crate::profile::{InstanceShape, ProfileName};
use crate::quantity::Mebibytes;

/// MIG state of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mig {
    /// Unknown: no driver was queried, or the query failed. The error is among the device's problems.
    Unknown,
    /// The device does not support MIG.
    NotCapable,
    /// The device supports MIG.
    Capable(MigState),
}

/// Modes, profiles and instances of a MIG-capable device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigState {
    /// Current mode.
    pub current: MigMode,
    /// Mode after the next reset.
    pub pending: MigMode,
    /// Available profiles.
    pub catalog: ProfileCatalog,
    /// Existing GPU instances, ordered by id.
    pub gpu_instances: Vec<GpuInstance>,
    /// Completeness of the list of instances.
    pub geometry: Completeness,
}

/// Completeness of read data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Completeness {
    /// All data was read.
    #[default]
    Complete,
    /// Some data is missing, so the data must not be counted. The error is among the device's problems.
    Partial,
}

/// MIG mode of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigMode {
    /// The GPU is not partitioned.
    Disabled,
    /// The GPU can have instances.
    Enabled,
}

/// MIG GPU instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInstance {
    /// The driver's id, which is reused after the instance is destroyed.
    pub id: u32,
    /// Id of its profile.
    pub profile_id: u32,
    /// Placement in memory slices.
    pub placement: Placement,
    /// Its compute instances, ordered by id; without one it is unusable.
    pub compute_instances: Vec<ComputeInstance>,
}

/// MIG compute instance: the MIG device or partition that a container is allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeInstance {
    /// The driver's id within the GPU instance.
    pub id: u32,
    /// Id of its profile.
    pub profile_id: u32,
    /// Placement in compute slices; absent for drivers older than R450's second version of the call.
    pub placement: Option<Placement>,
    /// UUID of the MIG device.
    pub uuid: Option<MigUuid>,
    /// Memory of the MIG device.
    pub memory: Option<Mebibytes>,
    /// Other resources of the MIG device.
    pub resources: Option<InstanceResources>,
}

impl Mig {
    /// State of a MIG-capable device.
    pub fn state(&self) -> Option<&MigState> {
        match self {
            Self::Unknown | Self::NotCapable => None,
            Self::Capable(state) => Some(state),
        }
    }

    /// Returns `true` if the existing partitions are fully known.
    pub fn is_fully_known(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::NotCapable => true,
            Self::Capable(state) => state.geometry == Completeness::Complete,
        }
    }

    /// Returns `true` if any of these devices supports MIG, `false` if none does, and `None` otherwise.
    pub fn any_capable<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<bool> {
        let mut answer = Some(false);
        for mig in all {
            match mig {
                Self::Capable(_) => return Some(true),
                Self::Unknown => answer = None,
                Self::NotCapable => {}
            }
        }
        answer
    }

    /// Returns `true` if MIG mode is known to be enabled.
    pub fn is_enabled(&self) -> bool {
        self.state()
            .is_some_and(|state| state.current == MigMode::Enabled)
    }
}

impl MigState {
    /// Name of an instance's profile: `3g.40gb`, or `profile 19` if the device does not list it.
    pub fn profile_name(&self, instance: &GpuInstance) -> String {
        self.catalog.by_id(instance.profile_id).map_or_else(
            || format!("profile {}", instance.profile_id),
            |profile| profile.name.to_string(),
        )
    }
}

impl Device {
    /// Name of a partition's profile as NVIDIA's tools compute it, from the memory of the MIG device; if that is
    /// unknown, the device's own name of the profile.
    pub fn profile_of(
        &self,
        instance: &GpuInstance,
        compute: &ComputeInstance,
    ) -> Option<ProfileName> {
        let profile = self.mig.state()?.catalog.by_id(instance.profile_id)?;
        let in_catalog = profile
            .compute_profiles
            .iter()
            .find(|found| found.id == compute.profile_id)
            .map(|found| found.slices);
        let told = compute.resources.map(|has| has.compute_slices);
        let slices = in_catalog.or(told)?;
        let shape = InstanceShape {
            profile_index: profile.index,
            compute_slices: u8::try_from(slices).ok(),
            memory: compute.memory.unwrap_or(profile.memory),
        };
        let computed = self
            .memory
            .and_then(|total| ProfileName::computed(&shape, total));
        let whole = slices == u32::from(profile.name.gpu_slices());
        computed.or_else(|| whole.then(|| profile.name.clone()))
    }
}
