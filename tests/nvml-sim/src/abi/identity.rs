//! Identity of devices: names, numbers, addresses. A MIG device has its own name and UUID, and otherwise the facts of
//! its GPU.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Architecture, Code, Gpu, PciAddress};

use super::call::Call;
use super::export::exports;
use super::handle::DeviceHandle;
use super::pointer::{OutputPtr, OutputText, field, version_of};

/// `nvmlPciInfo_t` of the first version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct PciInfoV1 {
    bus_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
}

/// `nvmlPciInfo_v2_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PciInfoV2 {
    first: PciInfoV1,
    pci_subsystem_id: c_uint,
    reserved: [c_uint; 4],
}

exports! {
    fn nvmlDeviceGetName(device: DeviceHandle, name: OutputText, length: c_uint) |call| {
        let device = call.device(device)?;
        match device.mig {
            Some(mig) => {
                let gi = device.gpu.profile_of(mig.gi)?;
                let ci = gi.compute_profile(mig.ci.profile_id).ok_or(Code::Unknown)?;
                name.put(length, &format!("{} MIG {}", device.gpu.name, ci.name))
            }
            None => name.put(length, &device.gpu.name),
        }
    }

    fn nvmlDeviceGetUUID(device: DeviceHandle, uuid: OutputText, length: c_uint) |call| {
        if let Some(destroyed) = call.destroyed(device) {
            return uuid.put(length, &destroyed.uuid);
        }
        let device = call.device(device)?;
        uuid.put(length, device.mig.map_or(&device.gpu.uuid, |mig| &mig.ci.uuid))
    }

    fn nvmlDeviceGetIndex(device: DeviceHandle, index: OutputPtr<c_uint>) |call| {
        let device = call.device(device)?;
        let Some(mig) = device.mig else {
            return index.put(shown_index(call, device.gpu.index));
        };
        let at = device.gpu.mig_devices().position(|other| other.ci.serial == mig.ci.serial);
        index.put(at.and_then(|at| c_uint::try_from(at).ok()).ok_or(Code::Unknown)?)
    }

    fn nvmlDeviceGetBrand(device: DeviceHandle, brand: OutputPtr<c_uint>) |call| {
        brand.put(call.device(device)?.gpu.brand.number())
    }

    fn nvmlDeviceGetArchitecture(device: DeviceHandle, architecture: OutputPtr<c_uint>) |call| {
        architecture.put(call.device(device)?.gpu.architecture.number())
    }

    fn nvmlDeviceGetCudaComputeCapability(device: DeviceHandle, major: OutputPtr<c_int>, minor: OutputPtr<c_int>) |call| {
        let (high, low) = call.device(device)?.gpu.compute_capability;
        minor.check()?;
        major.put(c_int::try_from(high).map_err(|_| Code::Unknown)?)?;
        minor.put(c_int::try_from(low).map_err(|_| Code::Unknown)?)
    }

    fn nvmlDeviceGetNumGpuCores(device: DeviceHandle, cores: OutputPtr<c_uint>) |call| {
        let (_, gpu) = call.gpu(device)?;
        cores.put(gpu.multiprocessors.saturating_mul(cores_per_multiprocessor(gpu)))
    }

    fn nvmlDeviceGetSerial(device: DeviceHandle, serial: OutputText, length: c_uint) |call| {
        let (_, gpu) = call.gpu(device)?;
        if gpu.serial.is_empty() {
            return Err(Code::NotSupported);
        }
        serial.put(length, &gpu.serial)
    }

    fn nvmlDeviceGetMinorNumber(device: DeviceHandle, minor: OutputPtr<c_uint>) |call| {
        minor.put(call.gpu(device)?.1.minor)
    }

    fn nvmlDeviceGetVbiosVersion(device: DeviceHandle, version: OutputText, length: c_uint) |call| {
        version.put(length, &call.gpu(device)?.1.vbios)
    }

    fn nvmlDeviceGetBoardPartNumber(device: DeviceHandle, number: OutputText, length: c_uint) |call| {
        let (_, gpu) = call.gpu(device)?;
        number.put(length, &format!("900-2{:04X}-0000-000", gpu.pci_ids.device))
    }

    fn nvmlDeviceGetBoardId(device: DeviceHandle, id: OutputPtr<c_uint>) |call| {
        let (_, gpu) = call.gpu(device)?;
        id.put(gpu.pci.domain << 16 | c_uint::from(gpu.pci.bus) << 8)
    }

    fn nvmlDeviceGetMultiGpuBoard(device: DeviceHandle, multi: OutputPtr<c_uint>) |call| {
        call.gpu(device)?;
        multi.put(0)
    }

    /// The documented buffer has 80 bytes (`NVML_GSP_FIRMWARE_VERSION_BUF_SIZE`); the call has no length argument.
    fn nvmlDeviceGetGspFirmwareVersion(device: DeviceHandle, version: OutputText) |call| {
        has_gsp(call.gpu(device)?.1)?;
        version.put(80, &call.world().driver.version)
    }

    fn nvmlDeviceGetGspFirmwareMode(device: DeviceHandle, enabled: OutputPtr<c_uint>, default: OutputPtr<c_uint>) |call| {
        has_gsp(call.gpu(device)?.1)?;
        default.check()?;
        enabled.put(1)?;
        default.put(1)
    }

    fn nvmlDeviceGetAddressingMode(device: DeviceHandle, mode: OutputPtr<sys::nvmlDeviceAddressingMode_t>) |call| {
        addressing_mode(call, device, mode)
    }

    fn nvmlDeviceGetPciInfo(device: DeviceHandle, info: OutputPtr<PciInfoV1>) |call| {
        info.put(pci_info_v1(call.device(device)?.gpu))
    }

    fn nvmlDeviceGetPciInfo_v2(device: DeviceHandle, info: OutputPtr<PciInfoV2>) |call| {
        info.put(pci_info_v2(call.device(device)?.gpu))
    }

    fn nvmlDeviceGetPciInfo_v3(device: DeviceHandle, info: OutputPtr<sys::nvmlPciInfo_t>) |call| {
        let gpu = call.device(device)?.gpu;
        info.put(pci_info(gpu.pci, device_id(gpu), subsystem_id(gpu)))
    }

    fn nvmlDeviceGetPciInfoExt(device: DeviceHandle, info: OutputPtr<sys::nvmlPciInfoExt_t>) |call| {
        pci_info_ext(call, device, info)
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(device: DeviceHandle, generation: OutputPtr<c_uint>) |call| {
        generation.put(pcie_generation(call.gpu(device)?.1))
    }

    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(device: DeviceHandle, generation: OutputPtr<c_uint>) |call| {
        generation.put(pcie_generation(call.gpu(device)?.1))
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(device: DeviceHandle, generation: OutputPtr<c_uint>) |call| {
        generation.put(pcie_generation(call.gpu(device)?.1))
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(device: DeviceHandle, width: OutputPtr<c_uint>) |call| {
        call.gpu(device)?;
        width.put(16)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(device: DeviceHandle, width: OutputPtr<c_uint>) |call| {
        call.gpu(device)?;
        width.put(16)
    }
}

/// The reported index of a GPU, which a fault can change.
fn shown_index(call: &Call<'_>, index: c_uint) -> c_uint {
    let order = call.verdict().index_order.as_ref();
    let shown = order.and_then(|order| order.iter().position(|real| *real == index));
    shown.and_then(|at| c_uint::try_from(at).ok()).unwrap_or(index)
}

/// The layout shared by `nvmlDeviceGetPciInfo_v3` and `nvmlDeviceGetNvLinkRemotePciInfo_v2`.
pub(super) fn pci_info(
    address: PciAddress,
    device_id: c_uint,
    subsystem_id: c_uint,
) -> sys::nvmlPciInfo_t {
    sys::nvmlPciInfo_t {
        busIdLegacy: field(&address.legacy()),
        domain: address.domain,
        bus: address.bus.into(),
        device: address.device.into(),
        pciDeviceId: device_id,
        pciSubSystemId: subsystem_id,
        busId: field(&address.to_string()),
    }
}

/// NVML's answer, with SUCCESS, for a switch that is not on the PCI bus: all address bits set.
pub(super) fn no_pci_info() -> sys::nvmlPciInfo_t {
    sys::nvmlPciInfo_t {
        busIdLegacy: field("FFFF:FF:FF.0"),
        domain: c_uint::MAX,
        bus: 0xff,
        device: 0xff,
        pciDeviceId: c_uint::MAX,
        pciSubSystemId: c_uint::MAX,
        busId: field("FFFFFFFF:FF:FF.0"),
    }
}

/// The older layout of the same data.
pub(super) fn older(info: sys::nvmlPciInfo_t) -> PciInfoV2 {
    PciInfoV2 {
        first: PciInfoV1 {
            bus_id: info.busIdLegacy,
            domain: info.domain,
            bus: info.bus,
            device: info.device,
            pci_device_id: info.pciDeviceId,
        },
        pci_subsystem_id: info.pciSubSystemId,
        reserved: [0; 4],
    }
}

fn pci_info_v1(gpu: &Gpu) -> PciInfoV1 {
    pci_info_v2(gpu).first
}

fn pci_info_v2(gpu: &Gpu) -> PciInfoV2 {
    older(pci_info(gpu.pci, device_id(gpu), subsystem_id(gpu)))
}

/// Device in the upper half, vendor in the lower, as in NVML's PCI ids.
pub(super) fn device_id(gpu: &Gpu) -> c_uint {
    c_uint::from(gpu.pci_ids.device) << 16 | 0x10de
}

pub(super) fn subsystem_id(gpu: &Gpu) -> c_uint {
    let ids = gpu.pci_ids;
    c_uint::from(ids.subsystem_device) << 16 | c_uint::from(ids.subsystem_vendor)
}

fn pci_info_ext(
    call: &Call<'_>,
    device: DeviceHandle,
    info: OutputPtr<sys::nvmlPciInfoExt_t>,
) -> Result<(), Code> {
    let gpu = call.device(device)?.gpu;
    let version = version_of::<sys::nvmlPciInfoExt_t>(1);
    if info.version()? != version {
        return Err(Code::ArgumentVersionMismatch);
    }
    info.put(sys::nvmlPciInfoExt_t {
        version,
        domain: gpu.pci.domain,
        bus: gpu.pci.bus.into(),
        device: gpu.pci.device.into(),
        pciDeviceId: device_id(gpu),
        pciSubSystemId: subsystem_id(gpu),
        baseClass: gpu.pci_ids.class >> 16,
        subClass: (gpu.pci_ids.class >> 8) & 0xff,
        busId: field(&gpu.pci.to_string()),
    })
}

fn addressing_mode(
    call: &Call<'_>,
    device: DeviceHandle,
    mode: OutputPtr<sys::nvmlDeviceAddressingMode_t>,
) -> Result<(), Code> {
    call.gpu(device)?;
    let version = version_of::<sys::nvmlDeviceAddressingMode_t>(1);
    if mode.version()? != version {
        return Err(Code::ArgumentVersionMismatch);
    }
    mode.put(sys::nvmlDeviceAddressingMode_t { version, value: 0 })
}

/// The GPU system processor was introduced with Turing.
fn has_gsp(gpu: &Gpu) -> Result<(), Code> {
    if gpu.architecture < Architecture::Turing {
        return Err(Code::NotSupported);
    }
    Ok(())
}

/// From the architecture white papers: GA100 (8.0) has 64 like its predecessors, all later ones 128.
fn cores_per_multiprocessor(gpu: &Gpu) -> u32 {
    if gpu.compute_capability <= (8, 0) { 64 } else { 128 }
}

fn pcie_generation(gpu: &Gpu) -> u32 {
    match gpu.architecture {
        Architecture::Volta | Architecture::Turing => 3,
        Architecture::Ampere | Architecture::Ada => 4,
        Architecture::Hopper | Architecture::Blackwell => 5,
    }
}
