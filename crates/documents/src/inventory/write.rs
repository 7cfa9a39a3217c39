//! Infallible conversion of an inventory to a document.

use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement,
};
use octavo_model::inventory::{
    Architecture, Completeness, ComputeInstance, Condition, Device, Fabric, GpuInstance, Health,
    Inventory, LinkRemote, Machine, Mig, MigMode, MigState, NvLink, NvmlState, PciIds, Process,
    ProcessKind, ReadProblem, RecoveryAction, RemappedRows,
};
use octavo_model::quantity::Mebibytes;

use super::amd::AmdJson;
use super::neuron::NeuronJson;
use super::{
    ApiVersion, ComputeInstanceJson, ComputeProfileJson, ConditionJson, DeviceJson, Document,
    FabricJson, GeometryJson, GpuInstanceJson, HealthJson, Kind, LinkJson, MachineJson, MigJson,
    MigModeJson, MigStateJson, NvmlJson, PciIdsJson, PlacementJson, ProblemJson, ProcessJson,
    ProcessKindJson, ProfileJson, RemappedRowsJson, RemoteJson, ResourcesJson, TypeSourceJson,
    VgpuHostJson,
};

impl From<&Inventory> for Document {
    fn from(inventory: &Inventory) -> Self {
        Self {
            api_version: ApiVersion::V1,
            kind: Kind::Inventory,
            machine: (&inventory.machine).into(),
            nvml: (&inventory.nvml).into(),
            neuron: inventory.neuron.as_ref().map(NeuronJson::from),
            devices: all(&inventory.devices),
        }
    }
}

/// Converts every item to its wire type.
fn all<'a, T, J: From<&'a T>>(items: &'a [T]) -> Vec<J> {
    items.iter().map(J::from).collect()
}

impl From<&Machine> for MachineJson {
    fn from(machine: &Machine) -> Self {
        Self {
            product_name: machine.product_name.clone(),
            vgpu: machine.vgpu.as_ref().map(|host| VgpuHostJson {
                driver_version: host.driver_version.clone(),
                driver_branch: host.driver_branch.clone(),
            }),
            bus_error: machine.bus_error.clone(),
        }
    }
}

impl From<&NvmlState> for NvmlJson {
    fn from(state: &NvmlState) -> Self {
        match state {
            NvmlState::Absent { reason } => Self::Absent {
                reason: reason.clone(),
            },
            NvmlState::Loading => Self::Loading {},
            NvmlState::Ready(driver) => Self::Ready {
                driver_version: driver.version.to_string(),
                cuda_version: driver.cuda.map(|version| version.to_string()),
            },
            NvmlState::Lost { reason } => Self::Lost {
                reason: reason.clone(),
            },
            NvmlState::Stalled { call, driver } => Self::Stalled {
                call: call.clone(),
                driver_version: driver.as_ref().map(|driver| driver.version.to_string()),
                cuda_version: driver
                    .as_ref()
                    .and_then(|driver| driver.cuda)
                    .map(|version| version.to_string()),
            },
        }
    }
}

impl From<&Device> for DeviceJson {
    fn from(device: &Device) -> Self {
        let identity = &device.identity;
        Self {
            index: device.index,
            minor: device.minor,
            pci: device.pci.to_string(),
            uuid: device.uuid.as_ref().map(ToString::to_string),
            vendor: device.vendor.to_string(),
            type_name: identity.type_name().map(ToString::to_string),
            sku: identity.sku().map(ToString::to_string),
            type_source: identity.is_manual().then_some(TypeSourceJson::Manual),
            product_name: device.product_name.clone(),
            architecture: device
                .architecture
                .as_ref()
                .map(Architecture::as_str)
                .map(str::to_owned),
            compute_capability: device
                .compute_capability
                .map(|capability| capability.to_string()),
            memory_mib: device.memory.map(Mebibytes::get),
            numa_node: device.numa_node,
            condition: (&device.condition).into(),
            pci_ids: device.pci_ids.into(),
            mig: (&device.mig).into(),
            processes: all(&device.processes),
            links: all(&device.links),
            fabric: device.fabric.as_ref().map(FabricJson::from),
            p2p_group: device.p2p_group,
            health: device.health.into(),
            amd: device.amd.as_ref().map(AmdJson::from),
            problems: all(&device.problems),
        }
    }
}

impl From<&Condition> for ConditionJson {
    fn from(condition: &Condition) -> Self {
        match condition {
            Condition::Working => Self::Working {},
            Condition::Failing { reason } => Self::Failing {
                reason: reason.clone(),
            },
            Condition::PciOnly { kernel_driver } => Self::PciOnly {
                kernel_driver: kernel_driver.clone(),
            },
        }
    }
}

impl From<PciIds> for PciIdsJson {
    fn from(ids: PciIds) -> Self {
        let hex = |id: u16| format!("{id:04x}");
        Self {
            vendor: hex(ids.vendor),
            device: hex(ids.device),
            subsystem_vendor: hex(ids.subsystem_vendor),
            subsystem_device: hex(ids.subsystem_device),
            class: ids.class.map(|class| format!("{class:06x}")),
        }
    }
}

impl From<&Mig> for MigJson {
    fn from(mig: &Mig) -> Self {
        match mig {
            Mig::Unknown => Self::Unknown {},
            Mig::NotCapable => Self::NotCapable {},
            Mig::Capable(state) => match state.current {
                MigMode::Disabled => Self::Disabled(state.into()),
                MigMode::Enabled => Self::Enabled(state.into()),
            },
        }
    }
}

impl From<&MigState> for MigStateJson {
    fn from(state: &MigState) -> Self {
        Self {
            pending_mode: match state.pending {
                MigMode::Disabled => MigModeJson::Disabled,
                MigMode::Enabled => MigModeJson::Enabled,
            },
            gpu_instances: all(&state.gpu_instances),
            geometry: match state.geometry {
                Completeness::Complete => None,
                Completeness::Partial => Some(GeometryJson::Partial),
            },
            profiles: all(state.catalog.profiles()),
        }
    }
}

impl From<&GpuInstanceProfile> for ProfileJson {
    fn from(profile: &GpuInstanceProfile) -> Self {
        Self {
            id: profile.id,
            index: profile.index,
            name: profile.name.to_string(),
            max_count: profile.max_count,
            memory_mib: profile.memory.get(),
            resources: profile.resources.into(),
            placements: profile
                .placements
                .iter()
                .copied()
                .map(PlacementJson::from)
                .collect(),
            compute_profiles: all(&profile.compute_profiles),
        }
    }
}

impl From<&ComputeInstanceProfile> for ComputeProfileJson {
    fn from(profile: &ComputeInstanceProfile) -> Self {
        Self {
            id: profile.id,
            index: profile.index,
            slices: profile.slices,
            max_count: profile.max_count,
            multiprocessors: profile.multiprocessors,
        }
    }
}

impl From<InstanceResources> for ResourcesJson {
    fn from(resources: InstanceResources) -> Self {
        Self {
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
}

impl From<Placement> for PlacementJson {
    fn from(placement: Placement) -> Self {
        Self {
            start: placement.start,
            size: placement.size,
        }
    }
}

impl From<&GpuInstance> for GpuInstanceJson {
    fn from(instance: &GpuInstance) -> Self {
        Self {
            id: instance.id,
            profile_id: instance.profile_id,
            placement: instance.placement.into(),
            compute_instances: all(&instance.compute_instances),
        }
    }
}

impl From<&ComputeInstance> for ComputeInstanceJson {
    fn from(instance: &ComputeInstance) -> Self {
        Self {
            id: instance.id,
            profile_id: instance.profile_id,
            uuid: instance.uuid.as_ref().map(ToString::to_string),
            placement: instance.placement.map(PlacementJson::from),
            memory_mib: instance.memory.map(Mebibytes::get),
            resources: instance.resources.map(ResourcesJson::from),
        }
    }
}

impl From<&Process> for ProcessJson {
    fn from(process: &Process) -> Self {
        Self {
            pid: process.pid,
            kind: match process.kind {
                ProcessKind::Compute => ProcessKindJson::Compute,
                ProcessKind::Graphics => ProcessKindJson::Graphics,
            },
            gpu_instance: process.gpu_instance,
            compute_instance: process.compute_instance,
            memory_mib: process.memory.map(Mebibytes::get),
        }
    }
}

impl From<&NvLink> for LinkJson {
    fn from(link: &NvLink) -> Self {
        let (remote, remote_pci) = match link.remote {
            LinkRemote::Device(pci) => (RemoteJson::Device, Some(pci)),
            LinkRemote::Switch(pci) => (RemoteJson::Switch, Some(pci)),
            LinkRemote::HiddenSwitch => (RemoteJson::HiddenSwitch, None),
            LinkRemote::Unknown => (RemoteJson::Unknown, None),
        };
        Self {
            link: link.link,
            remote,
            remote_pci: remote_pci.map(|pci| pci.to_string()),
        }
    }
}

impl From<&Fabric> for FabricJson {
    fn from(fabric: &Fabric) -> Self {
        Self {
            cluster_uuid: fabric.cluster_uuid.clone(),
            clique_id: fabric.clique_id,
        }
    }
}

impl From<Health> for HealthJson {
    fn from(health: Health) -> Self {
        Self {
            ecc_enabled: health.ecc_enabled,
            uncorrected_errors: health.uncorrected_errors,
            remapped_rows: health.remapped_rows.map(RemappedRowsJson::from),
            recovery_action: health.recovery_action.map(|action| match action {
                RecoveryAction::None => "none".to_owned(),
                RecoveryAction::ResetGpu => "resetGpu".to_owned(),
                RecoveryAction::RebootNode => "rebootNode".to_owned(),
                RecoveryAction::DrainP2p => "drainP2p".to_owned(),
                RecoveryAction::DrainAndReset => "drainAndReset".to_owned(),
                RecoveryAction::Other(number) => number.to_string(),
            }),
        }
    }
}

impl From<RemappedRows> for RemappedRowsJson {
    fn from(rows: RemappedRows) -> Self {
        Self {
            correctable: rows.correctable,
            uncorrectable: rows.uncorrectable,
            pending: rows.pending,
            failed: rows.failed,
        }
    }
}

impl From<&ReadProblem> for ProblemJson {
    fn from(problem: &ReadProblem) -> Self {
        Self {
            what: problem.source.clone(),
            error: problem.error.clone(),
        }
    }
}
