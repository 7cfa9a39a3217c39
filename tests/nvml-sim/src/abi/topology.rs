//! Connections of GPUs: NUMA, PCIe, NVLink, fabric.

use std::ffi::{c_uint, c_ulong};

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Architecture, Code, Gpu, NvLink, RemoteKind};

use super::call::Call;
use super::export::exports;
use super::handle::DeviceHandle;
use super::identity::{PciInfoV2, device_id, no_pci_info, older, pci_info, subsystem_id};
use super::pointer::{OutputPtr, version_of};

/// `NVML_NVLINK_MAX_LINKS`.
const MOST_LINKS: c_uint = 18;

/// CPUs per NUMA node of the simulated machine, numbered node by node.
const CPUS_PER_NODE: u32 = 32;

/// Levels of `nvmlGpuTopologyLevel_t`.
const LEVELS: [c_uint; 6] = [0, 10, 20, 30, 40, 50];
const LEVEL_SYSTEM: c_uint = 50;

/// `nvmlGpuP2PStatus_t` and `nvmlGpuP2PCapsIndex_t`.
const P2P_OK: c_uint = 0;
const P2P_TOPOLOGY: c_uint = 3;
const P2P_NOT_SUPPORTED: c_uint = 5;
const P2P_NVLINK: c_uint = 2;
const P2P_PCI: c_uint = 4;

exports! {
    fn nvmlDeviceGetNumaNodeId(device: DeviceHandle, node: OutputPtr<c_uint>) |call| {
        node.put(call.gpu(device)?.1.numa_node.ok_or(Code::NotSupported)?)
    }

    fn nvmlDeviceGetMemoryAffinity(device: DeviceHandle, size: c_uint, set: OutputPtr<c_ulong>, scope: c_uint) |call| {
        let (_, gpu) = call.gpu(device)?;
        let node = gpu.numa_node.unwrap_or(0);
        put_bits(size, set, scope, node..node.saturating_add(1))
    }

    fn nvmlDeviceGetCpuAffinity(device: DeviceHandle, size: c_uint, set: OutputPtr<c_ulong>) |call| {
        put_bits(size, set, 0, cpus(call.gpu(device)?.1))
    }

    fn nvmlDeviceGetCpuAffinityWithinScope(device: DeviceHandle, size: c_uint, set: OutputPtr<c_ulong>, scope: c_uint) |call| {
        put_bits(size, set, scope, cpus(call.gpu(device)?.1))
    }

    fn nvmlDeviceGetTopologyCommonAncestor(one: DeviceHandle, other: DeviceHandle, level: OutputPtr<c_uint>) |call| {
        let (one, _) = call.gpu(one)?;
        let (other, _) = call.gpu(other)?;
        level.put(call.world().common_ancestor(one, other)?)
    }

    fn nvmlDeviceGetTopologyNearestGpus(device: DeviceHandle, level: c_uint, count: OutputPtr<c_uint>, list: OutputPtr<DeviceHandle>) |call| {
        nearest(call, device, level, count, list)
    }

    fn nvmlDeviceGetP2PStatus(one: DeviceHandle, other: DeviceHandle, index: c_uint, status: OutputPtr<c_uint>) |call| {
        status.put(p2p(call, one, other, index)?)
    }

    fn nvmlDeviceOnSameBoard(one: DeviceHandle, other: DeviceHandle, same: OutputPtr<c_uint>) |call| {
        let (one, _) = call.gpu(one)?;
        let (other, _) = call.gpu(other)?;
        same.put((one == other).into())
    }

    fn nvmlDeviceGetNvLinkState(device: DeviceHandle, number: c_uint, active: OutputPtr<c_uint>) |call| {
        active.put(link(call.gpu(device)?.1, number)?.active.into())
    }

    fn nvmlDeviceGetNvLinkVersion(device: DeviceHandle, number: c_uint, version: OutputPtr<c_uint>) |call| {
        version.put(active_link(call.gpu(device)?.1, number)?.version)
    }

    /// All capabilities except SLI (4), which no such board has.
    fn nvmlDeviceGetNvLinkCapability(device: DeviceHandle, number: c_uint, capability: c_uint, result: OutputPtr<c_uint>) |call| {
        link(call.gpu(device)?.1, number)?;
        match capability {
            0..=3 | 5 => result.put(1),
            4 => result.put(0),
            _ => Err(Code::InvalidArgument),
        }
    }

    fn nvmlDeviceGetNvLinkRemoteDeviceType(device: DeviceHandle, number: c_uint, kind: OutputPtr<c_uint>) |call| {
        kind.put(match active_link(call.gpu(device)?.1, number)?.remote {
            RemoteKind::Gpu => 0,
            RemoteKind::Switch | RemoteKind::HiddenSwitch => 2,
        })
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo(device: DeviceHandle, number: c_uint, info: OutputPtr<PciInfoV2>) |call| {
        info.put(older(remote_pci_info(call, device, number)?))
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: DeviceHandle, number: c_uint, info: OutputPtr<sys::nvmlPciInfo_t>) |call| {
        info.put(remote_pci_info(call, device, number)?)
    }

    fn nvmlDeviceGetGpuFabricInfo(device: DeviceHandle, info: OutputPtr<sys::nvmlGpuFabricInfo_t>) |call| {
        let (_, gpu) = call.gpu(device)?;
        has_fabric(gpu)?;
        info.put(sys::nvmlGpuFabricInfo_t {
            clusterUuid: gpu.fabric.cluster_uuid,
            status: gpu.fabric.status,
            cliqueId: gpu.fabric.clique,
            state: gpu.fabric.state,
        })
    }

    fn nvmlDeviceGetGpuFabricInfoV(device: DeviceHandle, info: OutputPtr<sys::nvmlGpuFabricInfo_v3_t>) |call| {
        fabric_info_v(call, device, info)
    }
}

fn link(gpu: &Gpu, number: c_uint) -> Result<&NvLink, Code> {
    if number >= MOST_LINKS && !gpu.links.is_empty() {
        return Err(Code::InvalidArgument);
    }
    let at = usize::try_from(number).map_err(|_| Code::InvalidArgument)?;
    gpu.links.get(at).ok_or(Code::NotSupported)
}

/// An inactive link has no remote end.
fn active_link(gpu: &Gpu, number: c_uint) -> Result<&NvLink, Code> {
    let link = link(gpu, number)?;
    link.active.then_some(link).ok_or(Code::NotSupported)
}

fn remote_pci_info(
    call: &Call<'_>,
    device: DeviceHandle,
    number: c_uint,
) -> Result<sys::nvmlPciInfo_t, Code> {
    let link = active_link(call.gpu(device)?.1, number)?;
    if link.remote == RemoteKind::HiddenSwitch {
        return Ok(no_pci_info());
    }
    let gpus = &call.world().gpus;
    let peer = gpus.iter().find(|gpu| gpu.pci == link.remote_pci);
    let (device, subsystem) = peer
        .map_or_else(|| (switch_id(link.version), 0), |gpu| (device_id(gpu), subsystem_id(gpu)));
    Ok(pci_info(link.remote_pci, device, subsystem))
}

/// PCI ids of the NVSwitch of each NVLink generation.
fn switch_id(version: u32) -> c_uint {
    match version {
        3 => 0x1af1_10de,
        4 => 0x22a3_10de,
        _ => 0x10de,
    }
}

fn cpus(gpu: &Gpu) -> std::ops::Range<u32> {
    let first = gpu.numa_node.unwrap_or(0).saturating_mul(CPUS_PER_NODE);
    first..first.saturating_add(CPUS_PER_NODE)
}

/// Writes a bit set of `size` words with the bits of `range` that fit; scope 0 is the node, 1 the socket.
fn put_bits(
    size: c_uint,
    set: OutputPtr<c_ulong>,
    scope: c_uint,
    range: std::ops::Range<u32>,
) -> Result<(), Code> {
    if size == 0 || scope > 1 {
        return Err(Code::InvalidArgument);
    }
    set.check()?;
    let mut word = 0..size;
    word.try_for_each(|at| {
        let from = at.saturating_mul(c_ulong::BITS);
        let bits = range
            .clone()
            .filter(|bit| (from..from.saturating_add(c_ulong::BITS)).contains(bit))
            .fold(0, |bits: c_ulong, bit| bits | 1 << (bit - from));
        let at = usize::try_from(at).map_err(|_| Code::InvalidArgument)?;
        set.element(at).put(bits)
    })
}

fn nearest(
    call: &Call<'_>,
    device: DeviceHandle,
    level: c_uint,
    count: OutputPtr<c_uint>,
    list: OutputPtr<DeviceHandle>,
) -> Result<(), Code> {
    let (slot, _) = call.gpu(device)?;
    if !LEVELS.contains(&level) {
        return Err(Code::InvalidArgument);
    }
    let world = call.world();
    let others = call.slots().filter(|other| *other != slot);
    let near = others.filter(|other| world.common_ancestor(slot, *other) == Ok(level));
    let handles: Vec<DeviceHandle> = near.map(|other| call.gpu_handle(other)).collect();
    if count.get()? == 0 {
        return count.put(c_uint::try_from(handles.len()).map_err(|_| Code::Unknown)?);
    }
    list.put_list(count, &handles)
}

/// Peers over NVLink have all capabilities; over PCIe they read and write unless on different sockets; MIG has no
/// peers.
fn p2p(
    call: &Call<'_>,
    one: DeviceHandle,
    other: DeviceHandle,
    index: c_uint,
) -> Result<c_uint, Code> {
    let (one, a) = call.gpu(one)?;
    let (other, b) = call.gpu(other)?;
    if index > P2P_PCI {
        return Err(Code::InvalidArgument);
    }
    let divided = |gpu: &Gpu| gpu.mig.as_ref().is_some_and(|mig| mig.current);
    let linked = are_linked(a, b);
    Ok(if divided(a) || divided(b) {
        P2P_NOT_SUPPORTED
    } else if one == other || (linked && index != P2P_PCI) {
        P2P_OK
    } else if index == P2P_NVLINK {
        P2P_NOT_SUPPORTED
    } else if call.world().common_ancestor(one, other)? >= LEVEL_SYSTEM {
        P2P_TOPOLOGY
    } else {
        P2P_OK
    })
}

fn are_linked(one: &Gpu, other: &Gpu) -> bool {
    let switched = |gpu: &Gpu| {
        let mut links = gpu.links.iter();
        links.any(|link| link.active && link.remote.is_switch())
    };
    let direct = one.links.iter().any(|link| link.active && link.remote_pci == other.pci);
    direct || (switched(one) && switched(other))
}

/// Boards before Hopper do not register with a fabric manager through the driver.
fn has_fabric(gpu: &Gpu) -> Result<(), Code> {
    if gpu.architecture < Architecture::Hopper {
        return Err(Code::NotSupported);
    }
    Ok(())
}

fn fabric_info_v(
    call: &Call<'_>,
    device: DeviceHandle,
    info: OutputPtr<sys::nvmlGpuFabricInfo_v3_t>,
) -> Result<(), Code> {
    let (_, gpu) = call.gpu(device)?;
    has_fabric(gpu)?;
    let version = info.version()?;
    let fabric = gpu.fabric;
    // Only GPUs of a multi-node domain report health; all are healthy.
    let in_domain = fabric.cluster_uuid != [0; 16];
    let health_mask = if in_domain { 0x1aa } else { 0 };
    if version == version_of::<sys::nvmlGpuFabricInfo_v2_t>(2) {
        return info.cast::<sys::nvmlGpuFabricInfo_v2_t>().put(sys::nvmlGpuFabricInfo_v2_t {
            version,
            clusterUuid: fabric.cluster_uuid,
            status: fabric.status,
            cliqueId: fabric.clique,
            state: fabric.state,
            healthMask: health_mask,
        });
    }
    if version != version_of::<sys::nvmlGpuFabricInfo_v3_t>(3) {
        return Err(Code::ArgumentVersionMismatch);
    }
    info.put(sys::nvmlGpuFabricInfo_v3_t {
        version,
        clusterUuid: fabric.cluster_uuid,
        status: fabric.status,
        cliqueId: fabric.clique,
        state: fabric.state,
        healthMask: health_mask,
        healthSummary: in_domain.into(),
    })
}
