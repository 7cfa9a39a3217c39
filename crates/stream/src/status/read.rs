//! Conversion of Protobuf messages to domain values. Errors contain the location of the invalid value.

use octavo_fleet::fleet::{MAX_TEXT_BYTES, MAX_WORD_BYTES};
use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Architecture, Completeness, ComputeInstance, Condition, Device, Driver, Fabric, GpuInstance,
    Health, Identity, LinkRemote, Machine, Mig, MigMode, MigState, NvLink, NvmlState, PciIds,
    Process, ProcessKind, ReadProblem, RecoveryAction, RemappedRows, VgpuHost,
};
use octavo_model::label::{LabelKey, LabelValue};
use octavo_model::quantity::{ComputeCapability, CudaVersion, DriverVersion, Mebibytes};
use octavo_node::label_set::LabelSet;

use super::error::{FieldError, StatusProblem};
use super::field::{
    FieldResult, at_most, bounded, check_length, each, parse_field, parse_optional_field, required,
    truncate_optional, truncate_to, two_numbers, unknown_enum_value,
};
use super::{MAX_LIST_ITEMS, MAX_PROCESSES, amd};
use crate::proto::v1;

/// Largest 24-bit number.
const MAX_PCI_CLASS: u32 = 0x00ff_ffff;

pub(super) fn node(node: v1::Node) -> FieldResult<(Machine, NvmlState)> {
    let vgpu = match (node.vgpu_host_driver_version, node.vgpu_host_driver_branch) {
        (None, None) => None,
        (version, branch) => Some(VgpuHost {
            driver_version: truncate_to(
                MAX_WORD_BYTES,
                required("vgpu_host_driver_version", version)?,
            ),
            driver_branch: truncate_to(
                MAX_WORD_BYTES,
                required("vgpu_host_driver_branch", branch)?,
            ),
        }),
    };
    let machine = Machine {
        product_name: truncate_optional(MAX_WORD_BYTES, node.product_name),
        vgpu,
        bus_error: truncate_optional(MAX_TEXT_BYTES, node.bus_error),
    };
    let state = nvml(required("nvml", node.nvml)?).map_err(|error| error.within("nvml"))?;
    Ok((machine, state))
}

fn nvml(nvml: v1::Nvml) -> FieldResult<NvmlState> {
    use v1::nvml::State;
    let driver = driver(&nvml)?;
    Ok(match State::try_from(nvml.state) {
        Ok(State::Absent) => NvmlState::Absent {
            reason: truncate_to(MAX_TEXT_BYTES, nvml.reason),
        },
        Ok(State::Loading) => NvmlState::Loading,
        Ok(State::Ready) => NvmlState::Ready(required("driver_version", driver)?),
        Ok(State::Lost) => NvmlState::Lost {
            reason: truncate_to(MAX_TEXT_BYTES, nvml.reason),
        },
        Ok(State::Stalled) => NvmlState::Stalled {
            call: truncate_to(MAX_WORD_BYTES, nvml.call),
            driver,
        },
        Ok(State::Unspecified) | Err(_) => return unknown_enum_value("state", nvml.state),
    })
}

fn driver(nvml: &v1::Nvml) -> FieldResult<Option<Driver>> {
    let version = nvml.driver_version.as_deref();
    let Some(version) = parse_optional_field::<DriverVersion>("driver_version", version)? else {
        return Ok(None);
    };
    let cuda = nvml.cuda_version.as_deref();
    let cuda = cuda.map(|text| two_numbers("cuda_version", text, "a CUDA version like 12.8"));
    Ok(Some(Driver {
        version,
        cuda: cuda
            .transpose()?
            .map(|(major, minor)| CudaVersion { major, minor }),
    }))
}

pub(super) fn labels(labels: v1::Labels) -> FieldResult<LabelSet> {
    let labels = labels.labels.into_iter().map(|(key, value)| {
        let key: LabelKey = parse_field("labels", &key)?;
        let value: LabelValue = parse_field("labels", &value)?;
        Ok((key, value))
    });
    labels.collect()
}

/// Decodes a device. `catalog` returns the profile catalog of the part with the given key.
pub(super) fn device(
    pci: PciAddress,
    device: v1::Device,
    catalog: impl FnOnce(&str) -> Option<ProfileCatalog>,
) -> FieldResult<Device> {
    let ids = pci_ids(required("pci_ids", device.pci_ids)?).map_err(|e| e.within("pci_ids"))?;
    let condition = condition(required("condition", device.condition)?);
    let capability = device.compute_capability.as_deref().map(|text| {
        two_numbers(
            "compute_capability",
            text,
            "a compute capability like \"9.0\"",
        )
    });
    let architecture = device.architecture.as_deref();
    let architecture = architecture.map(|text| check_length("architecture", text));
    Ok(Device {
        uuid: parse_optional_field("uuid", device.uuid.as_deref())?,
        identity: identity(
            device.r#type.as_deref(),
            device.sku.as_deref(),
            device.type_by_hand,
        )?,
        condition: condition.map_err(|error| error.within("condition"))?,
        product_name: truncate_optional(MAX_WORD_BYTES, device.product_name),
        index: device.index,
        minor: device.minor,
        architecture: architecture.transpose()?.map(Architecture::new),
        compute_capability: capability
            .transpose()?
            .map(|(major, minor)| ComputeCapability { major, minor }),
        memory: device.memory_mib.map(Mebibytes::new),
        numa_node: device.numa_node,
        mig: mig(device.mig.unwrap_or_default(), catalog).map_err(|error| error.within("mig"))?,
        processes: each("processes", MAX_PROCESSES, device.processes, process)?,
        links: each("links", MAX_LIST_ITEMS, device.links, |one| link(&one))?,
        fabric: device.fabric.map(|fabric| Fabric {
            cluster_uuid: truncate_to(MAX_WORD_BYTES, fabric.cluster_uuid),
            clique_id: fabric.clique_id,
        }),
        p2p_group: device.p2p_group,
        health: device.health.map(health).unwrap_or_default(),
        amd: device
            .amd
            .map(amd::read)
            .transpose()
            .map_err(|error| error.within("amd"))?,
        problems: problems(device.problems)?,
        ..Device::new(pci, ids)
    })
}

fn pci_ids(ids: v1::PciIds) -> FieldResult<PciIds> {
    let id = |field: &str, number: u32| {
        u16::try_from(number).map_err(|_| {
            let largest = u16::MAX.into();
            FieldError::new(field, StatusProblem::TooLarge { number, largest })
        })
    };
    Ok(PciIds {
        vendor: id("vendor", ids.vendor)?,
        device: id("device", ids.device)?,
        subsystem_vendor: id("subsystem_vendor", ids.subsystem_vendor)?,
        subsystem_device: id("subsystem_device", ids.subsystem_device)?,
        class: ids
            .class
            .map(|class| at_most("class", class, MAX_PCI_CLASS))
            .transpose()?,
    })
}

fn identity(type_name: Option<&str>, sku: Option<&str>, by_hand: bool) -> FieldResult<Identity> {
    match (type_name, sku) {
        (Some(type_name), sku) => {
            let type_name = parse_field("type", type_name)?;
            let sku = parse_optional_field("sku", sku)?;
            Ok(if by_hand {
                Identity::Manual { type_name, sku }
            } else {
                Identity::Known { type_name, sku }
            })
        }
        // A manually set type has been removed.
        (None, None) => Ok(Identity::Unknown),
        (None, Some(_)) => Err(FieldError::new("sku", StatusProblem::SkuWithoutType)),
    }
}

fn condition(condition: v1::Condition) -> FieldResult<Condition> {
    use v1::condition::State;
    Ok(match State::try_from(condition.state) {
        Ok(State::Working) => Condition::Working,
        Ok(State::Failing) => Condition::Failing {
            reason: truncate_to(MAX_TEXT_BYTES, condition.reason),
        },
        Ok(State::PciOnly) => Condition::PciOnly {
            kernel_driver: truncate_optional(MAX_WORD_BYTES, condition.kernel_driver),
        },
        Ok(State::Unspecified) | Err(_) => return unknown_enum_value("state", condition.state),
    })
}

/// Treats an unknown capability as not reported.
fn mig(mig: v1::Mig, catalog: impl FnOnce(&str) -> Option<ProfileCatalog>) -> FieldResult<Mig> {
    use v1::mig::Capability;
    match Capability::try_from(mig.capability) {
        Ok(Capability::Unspecified | Capability::Unknown) | Err(_) => return Ok(Mig::Unknown),
        Ok(Capability::NotCapable) => return Ok(Mig::NotCapable),
        Ok(Capability::Capable) => {}
    }
    let mode = |enabled| {
        if enabled {
            MigMode::Enabled
        } else {
            MigMode::Disabled
        }
    };
    let catalog = if mig.profiles.is_empty() {
        ProfileCatalog::default()
    } else {
        let key = check_length("profiles", &mig.profiles)?;
        catalog(key)
            .ok_or_else(|| FieldError::new("profiles", StatusProblem::NoSuchPart(key.to_owned())))?
    };
    Ok(Mig::Capable(MigState {
        current: mode(mig.enabled),
        pending: mode(mig.pending_enabled),
        catalog,
        gpu_instances: each(
            "gpu_instances",
            MAX_LIST_ITEMS,
            mig.gpu_instances,
            gpu_instance,
        )?,
        geometry: if mig.partial {
            Completeness::Partial
        } else {
            Completeness::Complete
        },
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
    Placement {
        start: placement.start,
        size: placement.size,
    }
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

fn process(process: v1::Process) -> FieldResult<Process> {
    use v1::process::Kind;
    Ok(Process {
        pid: process.pid,
        kind: match Kind::try_from(process.kind) {
            Ok(Kind::Compute) => ProcessKind::Compute,
            Ok(Kind::Graphics) => ProcessKind::Graphics,
            Ok(Kind::Unspecified) | Err(_) => return unknown_enum_value("kind", process.kind),
        },
        gpu_instance: process.gpu_instance,
        compute_instance: process.compute_instance,
        memory: process.memory_mib.map(Mebibytes::new),
    })
}

/// Treats an unknown kind of remote as not reported.
fn link(link: &v1::NvLink) -> FieldResult<NvLink> {
    use v1::nv_link::Remote;
    let pci = || {
        parse_field(
            "remote_pci",
            required("remote_pci", link.remote_pci.as_deref())?,
        )
    };
    let remote = match Remote::try_from(link.remote) {
        Ok(Remote::Device) => LinkRemote::Device(pci()?),
        Ok(Remote::Switch) => LinkRemote::Switch(pci()?),
        Ok(Remote::HiddenSwitch) => LinkRemote::HiddenSwitch,
        Ok(Remote::Unspecified | Remote::Unknown) | Err(_) => LinkRemote::Unknown,
    };
    let link = link.link;
    Ok(NvLink { link, remote })
}

fn health(health: v1::Health) -> Health {
    Health {
        ecc_enabled: health.ecc_enabled,
        uncorrected_errors: health.uncorrected_errors,
        remapped_rows: health.remapped_rows.map(|rows| RemappedRows {
            correctable: rows.correctable,
            uncorrectable: rows.uncorrectable,
            pending: rows.pending,
            failed: rows.failed,
        }),
        recovery_action: health.recovery_action.map(|number| match number {
            0 => RecoveryAction::None,
            1 => RecoveryAction::ResetGpu,
            2 => RecoveryAction::RebootNode,
            3 => RecoveryAction::DrainP2p,
            4 => RecoveryAction::DrainAndReset,
            other => RecoveryAction::Other(other),
        }),
    }
}

pub(super) fn problems(problems: Vec<v1::Problem>) -> FieldResult<Vec<ReadProblem>> {
    let problems = bounded("problems", MAX_LIST_ITEMS, problems)?.into_iter();
    let read = |problem: v1::Problem| ReadProblem {
        source: truncate_to(MAX_TEXT_BYTES, problem.what),
        error: truncate_to(MAX_TEXT_BYTES, problem.error),
    };
    Ok(problems.map(read).collect())
}

pub(super) fn profiles(profiles: v1::Profiles) -> FieldResult<ProfileCatalog> {
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
        placements: bounded("placements", MAX_LIST_ITEMS, profile.placements)?
            .into_iter()
            .map(placement)
            .collect(),
        compute_profiles: bounded("compute_profiles", MAX_LIST_ITEMS, computes)?
            .into_iter()
            .map(compute_profile)
            .collect(),
    })
}

fn compute_profile(profile: v1::ComputeInstanceProfile) -> ComputeInstanceProfile {
    ComputeInstanceProfile {
        id: profile.id,
        index: profile.index,
        slices: profile.slices,
        max_count: profile.max_count,
        multiprocessors: profile.multiprocessors,
    }
}
