//! MIG state of a device: support, modes, available profiles and existing instances.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::Device;
use super::json::{is_default, with_place};
use crate::catalog::{GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog};
use crate::id::MigUuid;
use crate::profile::{InstanceShape, ProfileName};
use crate::quantity::Mebibytes;

/// MIG state of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase", from = "MigDocument")]
pub enum Mig {
    /// Unknown: no driver was queried, or the query failed. The error is among the device's problems.
    Unknown,
    /// The device does not support MIG.
    NotCapable,
    /// The device supports MIG.
    #[serde(untagged)]
    Capable(MigState),
}

/// Modes, profiles and instances of a MIG-capable device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigState {
    /// Current mode. In JSON it selects which keys the object has.
    #[serde(rename = "mode", skip_deserializing)]
    pub current: MigMode,
    /// Mode after the next reset.
    #[serde(rename = "pendingMode")]
    pub pending: MigMode,
    /// Existing GPU instances, ordered by id.
    #[serde(default)]
    pub gpu_instances: Vec<GpuInstance>,
    /// Completeness of the list of instances.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schema(value_type = Option<Completeness>)]
    pub geometry: Completeness,
    /// Available profiles.
    #[serde(rename = "profiles", default)]
    #[schema(value_type = Vec<GpuInstanceProfile>)]
    pub catalog: ProfileCatalog,
}

/// Completeness of read data.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "camelCase")]
#[schema(as = Geometry)]
pub enum Completeness {
    /// All data was read. JSON omits it.
    #[default]
    #[serde(skip)]
    Complete,
    /// Some data is missing, so the data must not be counted. The error is among the device's problems.
    Partial,
}

/// MIG mode of a device.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum MigMode {
    /// The GPU is not partitioned.
    #[default]
    Disabled,
    /// The GPU can have instances.
    Enabled,
}

/// MIG GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuInstance {
    /// The driver's id, which is reused after the instance is destroyed.
    pub id: u32,
    /// Id of its profile.
    pub profile_id: u32,
    /// Placement in memory slices.
    pub placement: Placement,
    /// Its compute instances, ordered by id; without one it is unusable.
    #[serde(default)]
    pub compute_instances: Vec<ComputeInstance>,
}

/// MIG compute instance: the MIG device or partition that a container is allocated.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ComputeInstance {
    /// The driver's id within the GPU instance.
    pub id: u32,
    /// Id of its profile.
    pub profile_id: u32,
    /// UUID of the MIG device.
    #[schema(value_type = Option<String>)]
    pub uuid: Option<MigUuid>,
    /// Placement in compute slices; absent for drivers older than R450's second version of the call.
    pub placement: Option<Placement>,
    /// Memory of the MIG device.
    #[serde(rename = "memoryMiB")]
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Mebibytes>,
    /// Other resources of the MIG device.
    pub resources: Option<InstanceResources>,
}

/// JSON shape of [`Mig`], with a variant for each current mode.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "mode", rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Mig)]
pub(super) enum MigDocument {
    Unknown {},
    NotCapable {},
    #[serde(deserialize_with = "with_place")]
    Disabled(MigState),
    #[serde(deserialize_with = "with_place")]
    Enabled(MigState),
}

impl From<MigDocument> for Mig {
    fn from(document: MigDocument) -> Self {
        let (current, state) = match document {
            MigDocument::Unknown {} => return Self::Unknown,
            MigDocument::NotCapable {} => return Self::NotCapable,
            MigDocument::Disabled(state) => (MigMode::Disabled, state),
            MigDocument::Enabled(state) => (MigMode::Enabled, state),
        };
        Self::Capable(MigState { current, ..state })
    }
}

impl Mig {
    /// State of a MIG-capable device.
    pub fn state(&self) -> Option<&MigState> {
        match self {
            Self::Unknown | Self::NotCapable => None,
            Self::Capable(state) => Some(state),
        }
    }

    /// Its compute instances, each with its GPU instance.
    pub fn compute_instances(&self) -> impl Iterator<Item = (&GpuInstance, &ComputeInstance)> {
        let instances = self.state().into_iter().flat_map(|state| &state.gpu_instances);
        instances.flat_map(|instance| {
            instance.compute_instances.iter().map(move |compute| (instance, compute))
        })
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
        self.state().is_some_and(|state| state.current == MigMode::Enabled)
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
        let reported = compute.resources.map(|has| has.compute_slices);
        let slices = in_catalog.or(reported)?;
        let shape = InstanceShape {
            profile_index: profile.index,
            compute_slices: u8::try_from(slices).ok(),
            memory: compute.memory.unwrap_or(profile.memory),
        };
        let computed = self.memory.and_then(|total| ProfileName::computed(&shape, total));
        let whole = slices == u32::from(profile.name.gpu_slices());
        computed.or_else(|| whole.then(|| profile.name.clone()))
    }
}
