//! Partitioning of one device: what it offers, what it has, whether it may.

use super::Device;
use crate::domain::catalog::{InstanceResources, Placement, ProfileCatalog};
use crate::domain::id::MigUuid;
use crate::domain::profile::{InstanceShape, ProfileName};
use crate::domain::quantity::Mebibytes;

/// Partitioning of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mig {
    /// Nobody told: no driver was asked, or it would not say. The reason is among the device's problems.
    Unknown,
    /// The device cannot be partitioned.
    NotCapable,
    /// It can.
    Capable(MigState),
}

/// Mode, offer and geometry of a MIG-capable device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigState {
    /// The mode in force.
    pub current: MigMode,
    /// The mode after the next reset.
    pub pending: MigMode,
    /// What the device offers.
    pub catalog: ProfileCatalog,
    /// What it has now, ordered by GPU-instance id.
    pub gpu_instances: Vec<GpuInstance>,
    /// Whether that is all it has.
    pub geometry: Completeness,
}

/// Whether everything could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Completeness {
    /// It could.
    #[default]
    Complete,
    /// Something is missing, and nothing may be counted. The reason is among the device's problems.
    Partial,
}

/// MIG mode of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigMode {
    /// One whole GPU.
    Disabled,
    /// Partitionable.
    Enabled,
}

/// A GPU instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInstance {
    /// The driver's id; reused after the instance is destroyed.
    pub id: u32,
    /// The profile it was made from.
    pub profile_id: u32,
    /// Where it lies, in memory slices.
    pub placement: Placement,
    /// Its compute instances, ordered by id; without one it cannot be used.
    pub compute_instances: Vec<ComputeInstance>,
}

/// A compute instance, which is what a container is given: a MIG device, a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeInstance {
    /// The driver's id within the GPU instance.
    pub id: u32,
    /// The profile it was made from.
    pub profile_id: u32,
    /// Where it lies, in compute slices; absent before driver R450's second form of the call.
    pub placement: Option<Placement>,
    /// The MIG device's UUID.
    pub uuid: Option<MigUuid>,
    /// Memory of the MIG device.
    pub memory: Option<Mebibytes>,
    /// What the MIG device has of everything else.
    pub resources: Option<InstanceResources>,
}

impl Mig {
    /// The state of a MIG-capable device.
    pub fn state(&self) -> Option<&MigState> {
        match self {
            Self::Unknown | Self::NotCapable => None,
            Self::Capable(state) => Some(state),
        }
    }

    /// Whether it is certain which partitions there are, if any.
    pub fn is_told(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::NotCapable => true,
            Self::Capable(state) => state.geometry == Completeness::Complete,
        }
    }

    /// Whether any of these can be partitioned: certain where one can, or where none can; `None` otherwise.
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

    /// Whether MIG mode is known to be in force.
    pub fn is_enabled(&self) -> bool {
        self.state()
            .is_some_and(|state| state.current == MigMode::Enabled)
    }
}

impl MigState {
    /// What the profile of `instance` is called: `3g.40gb`, or `profile 19` where the device does not offer it.
    pub fn profile_name(&self, instance: &GpuInstance) -> String {
        self.catalog.by_id(instance.profile_id).map_or_else(
            || format!("profile {}", instance.profile_id),
            |profile| profile.name.to_string(),
        )
    }
}

impl Device {
    /// The name of a partition's profile as NVIDIA's tools compute it, from the memory that the MIG device shows; the device's own
    /// name for the profile where the memory is not known.
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
