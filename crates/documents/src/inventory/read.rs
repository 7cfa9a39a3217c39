//! Conversion of a document to an inventory. Errors contain the path of the invalid value.

use std::collections::BTreeSet;
use std::str::FromStr;

use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::inventory::{
    Architecture, Completeness, ComputeInstance, Condition, Device, Driver, Fabric, GpuInstance,
    Health, Identity, Inventory, LinkRemote, Machine, Mig, MigMode, MigState, NvLink, NvmlState,
    PciIds, Process, ProcessKind, ReadProblem, RecoveryAction, RemappedRows, Vendor, VgpuHost,
};
use octavo_model::quantity::{ComputeCapability, CudaVersion, DriverVersion, Mebibytes};

use super::amd::amd;
use super::error::{FieldError, FieldProblem};
use super::neuron::neuron;
use super::{
    ComputeInstanceJson, ComputeProfileJson, ConditionJson, DeviceJson, Document, GeometryJson,
    GpuInstanceJson, HealthJson, LinkJson, MachineJson, MigJson, MigModeJson, MigStateJson,
    NvmlJson, PciIdsJson, PlacementJson, ProblemJson, ProcessJson, ProcessKindJson, ProfileJson,
    RemoteJson, ResourcesJson, TypeSourceJson,
};

impl TryFrom<Document> for Inventory {
    type Error = FieldError;

    /// Accepts devices in any order. Two devices with the same address are an error.
    fn try_from(document: Document) -> Result<Self, FieldError> {
        let mut devices = convert_each("devices", document.devices, device)?;
        let mut seen = BTreeSet::new();
        for (number, device) in devices.iter().enumerate() {
            if !seen.insert(device.pci) {
                let place = format!("devices[{number}].pci");
                return Err(FieldError::new(&place, FieldProblem::DuplicateAddress));
            }
        }
        devices.sort_by_key(|device| device.pci);
        let neuron = document.neuron.map(neuron).transpose();
        Ok(Self {
            neuron: neuron.map_err(|error| error.within("neuron"))?,
            machine: machine(document.machine),
            nvml: nvml(document.nvml).map_err(|error| error.within("nvml"))?,
            devices,
        })
    }
}

/// Converts the items of a list. An error contains the index of the item.
fn convert_each<J, T>(
    field: &str,
    items: Vec<J>,
    convert: fn(J) -> Result<T, FieldError>,
) -> Result<Vec<T>, FieldError> {
    let numbered = items.into_iter().enumerate();
    numbered
        .map(|(number, item)| {
            convert(item).map_err(|error| error.within(&format!("{field}[{number}]")))
        })
        .collect()
}

fn parse_field<T>(field: &str, text: &str) -> Result<T, FieldError>
where
    T: FromStr<Err: Into<FieldProblem>>,
{
    text.parse().map_err(|error| FieldError::new(field, error))
}

fn parse_optional_field<T>(field: &str, text: Option<String>) -> Result<Option<T>, FieldError>
where
    T: FromStr<Err: Into<FieldProblem>>,
{
    text.map(|text| parse_field(field, &text)).transpose()
}

/// Creates the error for a text without a domain parser of its own.
fn unexpected_text(field: &str, text: &str, expected: &'static str) -> FieldError {
    let text = text.to_owned();
    FieldError::new(field, FieldProblem::UnexpectedText { text, expected })
}

fn machine(json: MachineJson) -> Machine {
    Machine {
        product_name: json.product_name,
        vgpu: json.vgpu.map(|host| VgpuHost {
            driver_version: host.driver_version,
            driver_branch: host.driver_branch,
        }),
        bus_error: json.bus_error,
    }
}

fn nvml(json: NvmlJson) -> Result<NvmlState, FieldError> {
    Ok(match json {
        NvmlJson::Absent { reason } => NvmlState::Absent { reason },
        NvmlJson::Loading {} => NvmlState::Loading,
        NvmlJson::Ready {
            driver_version,
            cuda_version,
        } => NvmlState::Ready(driver(&driver_version, cuda_version.as_deref())?),
        NvmlJson::Lost { reason } => NvmlState::Lost { reason },
        NvmlJson::Stalled {
            call,
            driver_version,
            cuda_version,
        } => NvmlState::Stalled {
            call,
            driver: driver_version
                .map(|version| driver(&version, cuda_version.as_deref()))
                .transpose()?,
        },
    })
}

fn driver(version: &str, cuda: Option<&str>) -> Result<Driver, FieldError> {
    Ok(Driver {
        version: parse_field::<DriverVersion>("driverVersion", version)?,
        cuda: cuda
            .map(|text| two_numbers("cudaVersion", text, "a CUDA version like 12.8"))
            .transpose()?
            .map(|(major, minor)| CudaVersion { major, minor }),
    })
}

fn two_numbers(field: &str, text: &str, expected: &'static str) -> Result<(u32, u32), FieldError> {
    let number = |part: &str| {
        let digits = part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<u32>().ok()).flatten()
    };
    text.split_once('.')
        .and_then(|(major, minor)| Some((number(major)?, number(minor)?)))
        .ok_or_else(|| unexpected_text(field, text, expected))
}

fn device(json: DeviceJson) -> Result<Device, FieldError> {
    let identity = identity(json.type_name, json.sku, json.type_source)?;
    let amd = json.amd.map(amd).transpose();
    Ok(Device {
        amd: amd.map_err(|error| error.within("amd"))?,
        pci: parse_field("pci", &json.pci)?,
        uuid: parse_optional_field("uuid", json.uuid)?,
        vendor: vendor(&json.vendor)?,
        identity,
        pci_ids: pci_ids(&json.pci_ids).map_err(|error| error.within("pciIds"))?,
        condition: condition(json.condition),
        product_name: json.product_name,
        index: json.index,
        minor: json.minor,
        architecture: json.architecture.as_deref().map(Architecture::new),
        compute_capability: json
            .compute_capability
            .map(|text| {
                two_numbers(
                    "computeCapability",
                    &text,
                    "a compute capability like \"9.0\"",
                )
            })
            .transpose()?
            .map(|(major, minor)| ComputeCapability { major, minor }),
        memory: json.memory_mib.map(Mebibytes::new),
        numa_node: json.numa_node,
        mig: mig(json.mig).map_err(|error| error.within("mig"))?,
        processes: json.processes.into_iter().map(process).collect(),
        links: convert_each("links", json.links, link)?,
        fabric: json.fabric.map(|fabric| Fabric {
            cluster_uuid: fabric.cluster_uuid,
            clique_id: fabric.clique_id,
        }),
        p2p_group: json.p2p_group,
        health: health(json.health).map_err(|error| error.within("health"))?,
        problems: json.problems.into_iter().map(Into::into).collect(),
    })
}

impl From<ProblemJson> for ReadProblem {
    fn from(json: ProblemJson) -> Self {
        Self {
            source: json.what,
            error: json.error,
        }
    }
}

fn identity(
    type_name: Option<String>,
    sku: Option<String>,
    source: Option<TypeSourceJson>,
) -> Result<Identity, FieldError> {
    match (type_name, sku) {
        (Some(type_name), sku) => {
            let type_name = parse_field("type", &type_name)?;
            let sku = parse_optional_field("sku", sku)?;
            Ok(match source {
                None => Identity::Known { type_name, sku },
                Some(TypeSourceJson::Manual) => Identity::Manual { type_name, sku },
            })
        }
        (None, None) => match source {
            None => Ok(Identity::Unknown),
            Some(_) => Err(FieldError::new(
                "typeSource",
                FieldProblem::SourceWithoutType,
            )),
        },
        (None, Some(_)) => Err(FieldError::new("sku", FieldProblem::SkuWithoutType)),
    }
}

fn vendor(text: &str) -> Result<Vendor, FieldError> {
    let expected = "nvidia, amd, aws, intel, habana or pci-<vendor id>";
    text.parse()
        .map_err(|_| unexpected_text("vendor", text, expected))
}

fn hex(text: &str, digits: usize) -> Option<u32> {
    let plain = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

fn pci_ids(json: &PciIdsJson) -> Result<PciIds, FieldError> {
    let id = |field, text: &str| {
        let number = hex(text, 4).and_then(|id| u16::try_from(id).ok());
        number.ok_or_else(|| unexpected_text(field, text, "four hexadecimal digits"))
    };
    let class = |text: &str| {
        hex(text, 6).ok_or_else(|| unexpected_text("class", text, "six hexadecimal digits"))
    };
    Ok(PciIds {
        vendor: id("vendor", &json.vendor)?,
        device: id("device", &json.device)?,
        subsystem_vendor: id("subsystemVendor", &json.subsystem_vendor)?,
        subsystem_device: id("subsystemDevice", &json.subsystem_device)?,
        class: json.class.as_deref().map(class).transpose()?,
    })
}

fn condition(json: ConditionJson) -> Condition {
    match json {
        ConditionJson::Working {} => Condition::Working,
        ConditionJson::Failing { reason } => Condition::Failing { reason },
        ConditionJson::PciOnly { kernel_driver } => Condition::PciOnly { kernel_driver },
    }
}

fn mig(json: MigJson) -> Result<Mig, FieldError> {
    let (current, state) = match json {
        MigJson::Unknown {} => return Ok(Mig::Unknown),
        MigJson::NotCapable {} => return Ok(Mig::NotCapable),
        MigJson::Disabled(state) => (MigMode::Disabled, state),
        MigJson::Enabled(state) => (MigMode::Enabled, state),
    };
    let MigStateJson {
        pending_mode,
        gpu_instances,
        geometry,
        profiles,
    } = state;
    Ok(Mig::Capable(MigState {
        current,
        pending: match pending_mode {
            MigModeJson::Disabled => MigMode::Disabled,
            MigModeJson::Enabled => MigMode::Enabled,
        },
        catalog: ProfileCatalog::new(convert_each("profiles", profiles, profile)?),
        gpu_instances: convert_each("gpuInstances", gpu_instances, gpu_instance)?,
        geometry: match geometry {
            None => Completeness::Complete,
            Some(GeometryJson::Partial) => Completeness::Partial,
        },
    }))
}

fn profile(json: ProfileJson) -> Result<GpuInstanceProfile, FieldError> {
    let compute = |json: ComputeProfileJson| ComputeInstanceProfile {
        id: json.id,
        index: json.index,
        slices: json.slices,
        max_count: json.max_count,
        multiprocessors: json.multiprocessors,
    };
    Ok(GpuInstanceProfile {
        id: json.id,
        index: json.index,
        name: parse_field("name", &json.name)?,
        max_count: json.max_count,
        memory: Mebibytes::new(json.memory_mib),
        resources: resources(json.resources),
        placements: json.placements.into_iter().map(placement).collect(),
        compute_profiles: json.compute_profiles.into_iter().map(compute).collect(),
    })
}

fn resources(json: ResourcesJson) -> InstanceResources {
    InstanceResources {
        gpu_slices: json.gpu_slices,
        compute_slices: json.compute_slices,
        multiprocessors: json.multiprocessors,
        copy_engines: json.copy_engines,
        decoders: json.decoders,
        encoders: json.encoders,
        jpeg_engines: json.jpeg_engines,
        ofa_engines: json.ofa_engines,
    }
}

fn placement(json: PlacementJson) -> Placement {
    Placement {
        start: json.start,
        size: json.size,
    }
}

fn gpu_instance(json: GpuInstanceJson) -> Result<GpuInstance, FieldError> {
    Ok(GpuInstance {
        id: json.id,
        profile_id: json.profile_id,
        placement: placement(json.placement),
        compute_instances: convert_each(
            "computeInstances",
            json.compute_instances,
            compute_instance,
        )?,
    })
}

fn compute_instance(json: ComputeInstanceJson) -> Result<ComputeInstance, FieldError> {
    Ok(ComputeInstance {
        id: json.id,
        profile_id: json.profile_id,
        placement: json.placement.map(placement),
        uuid: parse_optional_field("uuid", json.uuid)?,
        memory: json.memory_mib.map(Mebibytes::new),
        resources: json.resources.map(resources),
    })
}

fn process(json: ProcessJson) -> Process {
    Process {
        pid: json.pid,
        kind: match json.kind {
            ProcessKindJson::Compute => ProcessKind::Compute,
            ProcessKindJson::Graphics => ProcessKind::Graphics,
        },
        gpu_instance: json.gpu_instance,
        compute_instance: json.compute_instance,
        memory: json.memory_mib.map(Mebibytes::new),
    }
}

fn link(json: LinkJson) -> Result<NvLink, FieldError> {
    let pci = parse_optional_field("remotePci", json.remote_pci)?;
    let remote = match (json.remote, pci) {
        (RemoteJson::Device, Some(pci)) => LinkRemote::Device(pci),
        (RemoteJson::Switch, Some(pci)) => LinkRemote::Switch(pci),
        (RemoteJson::HiddenSwitch, None) => LinkRemote::HiddenSwitch,
        (RemoteJson::Unknown, None) => LinkRemote::Unknown,
        (RemoteJson::Device | RemoteJson::Switch, None) => {
            return Err(FieldError::new("remotePci", FieldProblem::RemoteMissing));
        }
        (RemoteJson::HiddenSwitch | RemoteJson::Unknown, Some(_)) => {
            return Err(FieldError::new("remotePci", FieldProblem::UnexpectedRemote));
        }
    };
    let link = json.link;
    Ok(NvLink { link, remote })
}

fn health(json: HealthJson) -> Result<Health, FieldError> {
    Ok(Health {
        ecc_enabled: json.ecc_enabled,
        uncorrected_errors: json.uncorrected_errors,
        remapped_rows: json.remapped_rows.map(|rows| RemappedRows {
            correctable: rows.correctable,
            uncorrectable: rows.uncorrectable,
            pending: rows.pending,
            failed: rows.failed,
        }),
        recovery_action: json
            .recovery_action
            .map(|text| recovery_action(&text))
            .transpose()?,
    })
}

fn recovery_action(text: &str) -> Result<RecoveryAction, FieldError> {
    const EXPECTED: &str = "none, resetGpu, rebootNode, drainP2p, drainAndReset or a number";
    Ok(match text {
        "none" => RecoveryAction::None,
        "resetGpu" => RecoveryAction::ResetGpu,
        "rebootNode" => RecoveryAction::RebootNode,
        "drainP2p" => RecoveryAction::DrainP2p,
        "drainAndReset" => RecoveryAction::DrainAndReset,
        number => number
            .parse()
            .map(RecoveryAction::Other)
            .map_err(|_| unexpected_text("recoveryAction", number, EXPECTED))?,
    })
}
