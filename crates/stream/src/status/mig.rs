//! Encoding and decoding of the MIG state of a device, and of the parts `profiles/<hash>`.

use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::inventory::{Completeness, ComputeInstance, GpuInstance, Mig, MigMode, MigState};
use octavo_model::quantity::Mebibytes;

use super::MAX_LIST_ITEMS;
use super::field::{
    FieldError, FieldResult, StatusProblem, check_length, each, parse_field, parse_optional_field,
    required,
};
use crate::proto::v1;
use crate::proto::v1::mig::Capability;

/// Encodes a MIG state. `profiles` is the key of the part with the profile catalog.
pub(super) fn write(mig: &Mig, profiles: String) -> v1::Mig {
    let only =
        |capability: Capability| v1::Mig { capability: capability.into(), ..v1::Mig::default() };
    match mig {
        Mig::Unknown => only(Capability::Unknown),
        Mig::NotCapable => only(Capability::NotCapable),
        Mig::Capable(state) => v1::Mig {
            capability: Capability::Capable.into(),
            enabled: state.current == MigMode::Enabled,
            pending_enabled: state.pending == MigMode::Enabled,
            profiles,
            gpu_instances: state.gpu_instances.iter().map(write_gpu_instance).collect(),
            partial: state.geometry == Completeness::Partial,
        },
    }
}

fn write_gpu_instance(instance: &GpuInstance) -> v1::GpuInstance {
    let computes = instance.compute_instances.iter();
    v1::GpuInstance {
        id: instance.id,
        profile_id: instance.profile_id,
        placement: Some(write_placement(instance.placement)),
        compute_instances: computes.map(write_compute_instance).collect(),
    }
}

fn write_compute_instance(instance: &ComputeInstance) -> v1::ComputeInstance {
    v1::ComputeInstance {
        id: instance.id,
        profile_id: instance.profile_id,
        placement: instance.placement.map(write_placement),
        uuid: instance.uuid.as_ref().map(ToString::to_string),
        memory_mib: instance.memory.map(Mebibytes::get),
        resources: instance.resources.map(write_resources),
    }
}

fn write_placement(placement: Placement) -> v1::Placement {
    v1::Placement { start: placement.start, size: placement.size }
}

fn write_resources(resources: InstanceResources) -> v1::Resources {
    v1::Resources {
        gpu_slices: resources.gpu_slices,
        compute_slices: resources.compute_slices,
        multiprocessors: resources.multiprocessors,
        copy_engines: resources.copy_engines,
        decoders: resources.decoders,
        encoders: resources.encoders,
        jpeg_engines: resources.jpeg_engines,
        ofa_engines: resources.ofa_engines,
    }
}

pub(super) fn write_profiles(catalog: &ProfileCatalog) -> v1::Profiles {
    v1::Profiles { profiles: catalog.profiles().iter().map(write_profile).collect() }
}

fn write_profile(profile: &GpuInstanceProfile) -> v1::GpuInstanceProfile {
    let computes = profile.compute_profiles.iter();
    v1::GpuInstanceProfile {
        id: profile.id,
        index: profile.index,
        name: profile.name.to_string(),
        max_count: profile.max_count,
        memory_mib: profile.memory.get(),
        resources: Some(write_resources(profile.resources)),
        placements: profile.placements.iter().copied().map(write_placement).collect(),
        compute_profiles: computes
            .map(|profile| v1::ComputeInstanceProfile {
                id: profile.id,
                index: profile.index,
                slices: profile.slices,
                max_count: profile.max_count,
                multiprocessors: profile.multiprocessors,
            })
            .collect(),
    }
}

/// Decodes a MIG state, treating an unknown capability as not reported. `catalog` returns the profile catalog of the
/// part with the given key.
pub(super) fn read(
    mig: v1::Mig,
    catalog: impl FnOnce(&str) -> Option<ProfileCatalog>,
) -> FieldResult<Mig> {
    match mig.capability() {
        Capability::Unspecified | Capability::Unknown => return Ok(Mig::Unknown),
        Capability::NotCapable => return Ok(Mig::NotCapable),
        Capability::Capable => {}
    }
    let mode = |enabled| {
        if enabled { MigMode::Enabled } else { MigMode::Disabled }
    };
    let catalog = if mig.profiles.is_empty() {
        ProfileCatalog::default()
    } else {
        let key = check_length("profiles", mig.profiles.as_str())?;
        catalog(key)
            .ok_or_else(|| FieldError::new("profiles", StatusProblem::NoSuchPart(key.to_owned())))?
    };
    Ok(Mig::Capable(MigState {
        current: mode(mig.enabled),
        pending: mode(mig.pending_enabled),
        catalog,
        gpu_instances: each("gpu_instances", MAX_LIST_ITEMS, mig.gpu_instances, gpu_instance)?,
        geometry: if mig.partial { Completeness::Partial } else { Completeness::Complete },
    }))
}

fn gpu_instance(instance: v1::GpuInstance) -> FieldResult<GpuInstance> {
    let computes = instance.compute_instances;
    Ok(GpuInstance {
        id: instance.id,
        profile_id: instance.profile_id,
        placement: placement(required("placement", instance.placement)?),
        compute_instances: each("compute_instances", MAX_LIST_ITEMS, computes, |one| {
            compute_instance(&one)
        })?,
    })
}

fn compute_instance(instance: &v1::ComputeInstance) -> FieldResult<ComputeInstance> {
    Ok(ComputeInstance {
        id: instance.id,
        profile_id: instance.profile_id,
        placement: instance.placement.map(placement),
        uuid: parse_optional_field("uuid", instance.uuid.as_deref())?,
        memory: instance.memory_mib.map(Mebibytes::new),
        resources: instance.resources.map(resources),
    })
}

fn placement(placement: v1::Placement) -> Placement {
    Placement { start: placement.start, size: placement.size }
}

fn resources(resources: v1::Resources) -> InstanceResources {
    InstanceResources {
        gpu_slices: resources.gpu_slices,
        compute_slices: resources.compute_slices,
        multiprocessors: resources.multiprocessors,
        copy_engines: resources.copy_engines,
        decoders: resources.decoders,
        encoders: resources.encoders,
        jpeg_engines: resources.jpeg_engines,
        ofa_engines: resources.ofa_engines,
    }
}

pub(super) fn read_profiles(profiles: v1::Profiles) -> FieldResult<ProfileCatalog> {
    each("profiles", MAX_LIST_ITEMS, profiles.profiles, profile).map(ProfileCatalog::new)
}

fn profile(profile: v1::GpuInstanceProfile) -> FieldResult<GpuInstanceProfile> {
    let computes = profile.compute_profiles;
    Ok(GpuInstanceProfile {
        id: profile.id,
        index: profile.index,
        name: parse_field("name", &profile.name)?,
        max_count: profile.max_count,
        memory: Mebibytes::new(profile.memory_mib),
        resources: resources(required("resources", profile.resources)?),
        placements: each("placements", MAX_LIST_ITEMS, profile.placements, |one| {
            Ok(placement(one))
        })?,
        compute_profiles: each("compute_profiles", MAX_LIST_ITEMS, computes, |profile| {
            Ok(ComputeInstanceProfile {
                id: profile.id,
                index: profile.index,
                slices: profile.slices,
                max_count: profile.max_count,
                multiprocessors: profile.multiprocessors,
            })
        })?,
    })
}
