//! Infallible conversion of domain values to Protobuf messages.

use octavo_fleet::fleet::{DeviceLayout, LayoutStatus};
use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::inventory::{
    Architecture, Completeness, ComputeInstance, Condition, Device, Driver, Fabric, GpuInstance,
    Health, LinkRemote, Machine, Mig, MigMode, MigState, NvLink, NvmlState, PciIds, Process,
    ProcessKind, ReadProblem, RecoveryAction, RemappedRows,
};
use octavo_model::quantity::Mebibytes;
use octavo_node::label_set::LabelSet;

use super::amd;
use crate::proto::v1;

pub(super) fn node(machine: &Machine, state: &NvmlState) -> v1::Node {
    let vgpu = machine.vgpu.as_ref();
    v1::Node {
        product_name: machine.product_name.clone(),
        vgpu_host_driver_version: vgpu.map(|host| host.driver_version.clone()),
        vgpu_host_driver_branch: vgpu.map(|host| host.driver_branch.clone()),
        nvml: Some(nvml(state)),
        bus_error: machine.bus_error.clone(),
    }
}

fn nvml(state: &NvmlState) -> v1::Nvml {
    use v1::nvml::State;
    let (number, reason, call) = match state {
        NvmlState::Absent { reason } => (State::Absent, reason.clone(), String::new()),
        NvmlState::Loading => (State::Loading, String::new(), String::new()),
        NvmlState::Ready(_) => (State::Ready, String::new(), String::new()),
        NvmlState::Lost { reason } => (State::Lost, reason.clone(), String::new()),
        NvmlState::Stalled { call, .. } => (State::Stalled, String::new(), call.clone()),
    };
    let driver: Option<&Driver> = state.driver();
    v1::Nvml {
        state: number.into(),
        reason,
        call,
        driver_version: driver.map(|driver| driver.version.to_string()),
        cuda_version: driver
            .and_then(|driver| driver.cuda)
            .map(|version| version.to_string()),
    }
}

pub(super) fn layout(layout: &LayoutStatus) -> v1::Layout {
    v1::Layout {
        layout: layout.layout.clone(),
        by_hand: layout.is_manual,
        plan: layout.plan.clone(),
        state: layout.state.clone(),
        notice: layout.notice.clone(),
        drain: layout.drain.clone(),
        devices: layout.devices.iter().map(device_layout).collect(),
    }
}

fn device_layout(device: &DeviceLayout) -> v1::LayoutDevice {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    v1::LayoutDevice {
        pci: device.pci.to_string(),
        name: device.name.clone(),
        state: device.state.clone(),
        message: device.message.clone(),
        progress: device.progress.as_ref().map(|progress| v1::LayoutProgress {
            doing: progress.current_step.clone(),
            done: count(progress.done),
            steps: count(progress.steps),
            back: progress.back,
        }),
    }
}

pub(super) fn labels(labels: &LabelSet) -> v1::Labels {
    v1::Labels {
        labels: labels
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    }
}

/// Encodes a device. `profiles` is the key of the part with its profile catalog.
pub(super) fn device(device: &Device, profiles: String) -> v1::Device {
    let identity = &device.identity;
    v1::Device {
        uuid: device.uuid.as_ref().map(ToString::to_string),
        pci_ids: Some(pci_ids(device.pci_ids)),
        r#type: identity.type_name().map(ToString::to_string),
        sku: identity.sku().map(ToString::to_string),
        type_by_hand: identity.is_manual(),
        condition: Some(condition(&device.condition)),
        product_name: device.product_name.clone(),
        index: device.index,
        minor: device.minor,
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
        mig: Some(mig(&device.mig, profiles)),
        processes: device.processes.iter().map(process).collect(),
        links: device.links.iter().map(link).collect(),
        fabric: device.fabric.as_ref().map(fabric),
        p2p_group: device.p2p_group,
        health: Some(health(device.health)),
        problems: device.problems.iter().map(problem).collect(),
        amd: device.amd.as_ref().map(amd::write),
    }
}

fn pci_ids(ids: PciIds) -> v1::PciIds {
    v1::PciIds {
        vendor: ids.vendor.into(),
        device: ids.device.into(),
        subsystem_vendor: ids.subsystem_vendor.into(),
        subsystem_device: ids.subsystem_device.into(),
        class: ids.class,
    }
}

fn condition(condition: &Condition) -> v1::Condition {
    use v1::condition::State;
    let (state, reason, kernel_driver) = match condition {
        Condition::Working => (State::Working, String::new(), None),
        Condition::Failing { reason } => (State::Failing, reason.clone(), None),
        Condition::PciOnly { kernel_driver } => {
            (State::PciOnly, String::new(), kernel_driver.clone())
        }
    };
    v1::Condition {
        state: state.into(),
        reason,
        kernel_driver,
    }
}

fn mig(mig: &Mig, profiles: String) -> v1::Mig {
    use v1::mig::Capability;
    let only = |capability: Capability| v1::Mig {
        capability: capability.into(),
        ..v1::Mig::default()
    };
    match mig {
        Mig::Unknown => only(Capability::Unknown),
        Mig::NotCapable => only(Capability::NotCapable),
        Mig::Capable(state) => capable(state, profiles),
    }
}

fn capable(state: &MigState, profiles: String) -> v1::Mig {
    v1::Mig {
        capability: v1::mig::Capability::Capable.into(),
        enabled: state.current == MigMode::Enabled,
        pending_enabled: state.pending == MigMode::Enabled,
        profiles,
        gpu_instances: state.gpu_instances.iter().map(gpu_instance).collect(),
        partial: state.geometry == Completeness::Partial,
    }
}

fn gpu_instance(instance: &GpuInstance) -> v1::GpuInstance {
    let computes = instance.compute_instances.iter();
    v1::GpuInstance {
        id: instance.id,
        profile_id: instance.profile_id,
        placement: Some(placement(instance.placement)),
        compute_instances: computes.map(compute_instance).collect(),
    }
}

fn compute_instance(instance: &ComputeInstance) -> v1::ComputeInstance {
    v1::ComputeInstance {
        id: instance.id,
        profile_id: instance.profile_id,
        placement: instance.placement.map(placement),
        uuid: instance.uuid.as_ref().map(ToString::to_string),
        memory_mib: instance.memory.map(Mebibytes::get),
        resources: instance.resources.map(resources),
    }
}

fn placement(placement: Placement) -> v1::Placement {
    v1::Placement {
        start: placement.start,
        size: placement.size,
    }
}

fn resources(resources: InstanceResources) -> v1::Resources {
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

fn process(process: &Process) -> v1::Process {
    use v1::process::Kind;
    let kind = match process.kind {
        ProcessKind::Compute => Kind::Compute,
        ProcessKind::Graphics => Kind::Graphics,
    };
    v1::Process {
        pid: process.pid,
        kind: kind.into(),
        gpu_instance: process.gpu_instance,
        compute_instance: process.compute_instance,
        memory_mib: process.memory.map(Mebibytes::get),
    }
}

fn link(link: &NvLink) -> v1::NvLink {
    use v1::nv_link::Remote;
    let (remote, pci) = match link.remote {
        LinkRemote::Device(pci) => (Remote::Device, Some(pci)),
        LinkRemote::Switch(pci) => (Remote::Switch, Some(pci)),
        LinkRemote::HiddenSwitch => (Remote::HiddenSwitch, None),
        LinkRemote::Unknown => (Remote::Unknown, None),
    };
    v1::NvLink {
        link: link.link,
        remote: remote.into(),
        remote_pci: pci.map(|pci| pci.to_string()),
    }
}

fn fabric(fabric: &Fabric) -> v1::Fabric {
    v1::Fabric {
        cluster_uuid: fabric.cluster_uuid.clone(),
        clique_id: fabric.clique_id,
    }
}

fn health(health: Health) -> v1::Health {
    v1::Health {
        ecc_enabled: health.ecc_enabled,
        uncorrected_errors: health.uncorrected_errors,
        remapped_rows: health.remapped_rows.map(remapped_rows),
        recovery_action: health.recovery_action.map(|action| match action {
            RecoveryAction::None => 0,
            RecoveryAction::ResetGpu => 1,
            RecoveryAction::RebootNode => 2,
            RecoveryAction::DrainP2p => 3,
            RecoveryAction::DrainAndReset => 4,
            RecoveryAction::Other(number) => number,
        }),
    }
}

fn remapped_rows(rows: RemappedRows) -> v1::RemappedRows {
    v1::RemappedRows {
        correctable: rows.correctable,
        uncorrectable: rows.uncorrectable,
        pending: rows.pending,
        failed: rows.failed,
    }
}

pub(super) fn problem(problem: &ReadProblem) -> v1::Problem {
    v1::Problem {
        what: problem.source.clone(),
        error: problem.error.clone(),
    }
}

pub(super) fn profiles(catalog: &ProfileCatalog) -> v1::Profiles {
    v1::Profiles {
        profiles: catalog.profiles().iter().map(profile).collect(),
    }
}

fn profile(profile: &GpuInstanceProfile) -> v1::GpuInstanceProfile {
    let computes = profile.compute_profiles.iter();
    v1::GpuInstanceProfile {
        id: profile.id,
        index: profile.index,
        name: profile.name.to_string(),
        max_count: profile.max_count,
        memory_mib: profile.memory.get(),
        resources: Some(resources(profile.resources)),
        placements: profile.placements.iter().copied().map(placement).collect(),
        compute_profiles: computes.map(compute_profile).collect(),
    }
}

fn compute_profile(profile: &ComputeInstanceProfile) -> v1::ComputeInstanceProfile {
    v1::ComputeInstanceProfile {
        id: profile.id,
        index: profile.index,
        slices: profile.slices,
        max_count: profile.max_count,
        multiprocessors: profile.multiprocessors,
    }
}
