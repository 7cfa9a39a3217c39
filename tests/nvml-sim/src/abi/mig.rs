//! MIG mode, and MIG devices.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Attributes, Code, MigMode};

use super::call::Call;
use super::export::exports;
use super::handle::{DeviceHandle, Kind};
use super::pointer::OutputPtr;

/// `nvmlDeviceAttributes_t` of the first version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct AttributesV1 {
    multiprocessors: c_uint,
    copy: c_uint,
    decoder: c_uint,
    encoder: c_uint,
    jpeg: c_uint,
    ofa: c_uint,
}

exports! {
    fn nvmlDeviceGetMigMode(device: DeviceHandle, current: OutputPtr<c_uint>, pending: OutputPtr<c_uint>) |call| {
        let mig = call.gpu(device)?.1.mig()?;
        pending.check()?;
        current.put(mig.current.into())?;
        pending.put(mig.pending.into())
    }

    fn nvmlDeviceSetMigMode(device: DeviceHandle, mode: c_uint, status: OutputPtr<c_uint>) |call| {
        let (slot, _) = call.gpu(device)?;
        let mode = match mode {
            0 => MigMode::Disabled,
            1 => MigMode::Enabled,
            _ => return Err(Code::InvalidArgument),
        };
        status.check()?;
        let bent = call.verdict().activation;
        let activated = call.change(|world| match bent {
            Some(status) => world.defer_mig_mode(slot, mode, status),
            None => world.set_mig_mode(slot, mode),
        })?;
        status.put(activated.code())
    }

    /// "Returns zero if MIG is not supported or enabled", according to the header.
    fn nvmlDeviceGetMaxMigDeviceCount(device: DeviceHandle, count: OutputPtr<c_uint>) |call| {
        let (_, gpu) = call.gpu(device)?;
        let divided = gpu.mig.as_ref().is_some_and(|mig| mig.current);
        count.put(if divided { gpu.max_mig_devices() } else { 0 })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(device: DeviceHandle, index: c_uint, mig: OutputPtr<DeviceHandle>) |call| {
        mig_by_index(call, device, index, mig)
    }

    fn nvmlDeviceIsMigDeviceHandle(device: DeviceHandle, is_mig: OutputPtr<c_uint>) |call| {
        if call.destroyed(device).is_some() {
            return is_mig.put(1);
        }
        is_mig.put(call.device(device)?.mig.is_some().into())
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig: DeviceHandle, device: OutputPtr<DeviceHandle>) |call| {
        let (slot, _) = call.mig_device(mig)?;
        device.put(call.gpu_handle(slot))
    }

    fn nvmlDeviceGetGpuInstanceId(device: DeviceHandle, id: OutputPtr<c_uint>) |call| {
        if let Some(destroyed) = call.destroyed(device) {
            return id.put(destroyed.gi);
        }
        id.put(call.mig_device(device)?.1.gi.id)
    }

    fn nvmlDeviceGetComputeInstanceId(device: DeviceHandle, id: OutputPtr<c_uint>) |call| {
        if let Some(destroyed) = call.destroyed(device) {
            return id.put(destroyed.ci);
        }
        id.put(call.mig_device(device)?.1.ci.id)
    }

    fn nvmlDeviceGetAttributes(device: DeviceHandle, attributes: OutputPtr<AttributesV1>) |call| {
        let has = attributes_of(call, device)?;
        attributes.put(AttributesV1 {
            multiprocessors: has.multiprocessors,
            copy: has.engines.copy,
            decoder: has.engines.decoder,
            encoder: has.engines.encoder,
            jpeg: has.engines.jpeg,
            ofa: has.engines.ofa,
        })
    }

    fn nvmlDeviceGetAttributes_v2(device: DeviceHandle, attributes: OutputPtr<sys::nvmlDeviceAttributes_t>) |call| {
        let has = attributes_of(call, device)?;
        attributes.put(sys::nvmlDeviceAttributes_t {
            multiprocessorCount: has.multiprocessors,
            sharedCopyEngineCount: has.engines.copy,
            sharedDecoderCount: has.engines.decoder,
            sharedEncoderCount: has.engines.encoder,
            sharedJpegCount: has.engines.jpeg,
            sharedOfaCount: has.engines.ofa,
            gpuInstanceSliceCount: has.gi_slices,
            computeInstanceSliceCount: has.ci_slices,
            memorySizeMB: has.memory_mib,
        })
    }
}

fn attributes_of(call: &Call<'_>, device: DeviceHandle) -> Result<Attributes, Code> {
    let device = call.device(device)?;
    device.gpu.attributes(device.mig.ok_or(Code::NotSupported)?)
}

/// `NOT_FOUND` for an index without a device, also while MIG mode is off; `INVALID_ARGUMENT` beyond the maximum.
fn mig_by_index(
    call: &Call<'_>,
    device: DeviceHandle,
    index: c_uint,
    mig: OutputPtr<DeviceHandle>,
) -> Result<(), Code> {
    let (slot, gpu) = call.gpu(device)?;
    if !gpu.mig()?.current {
        return Err(Code::NotFound);
    }
    if index >= gpu.max_mig_devices() {
        return Err(Code::InvalidArgument);
    }
    let at = usize::try_from(index).map_err(|_| Code::InvalidArgument)?;
    let devices: Vec<u64> = gpu.mig_devices().map(|mig| mig.ci.serial).collect();
    if let Some(serial) = devices.get(at) {
        return mig.put(call.mig_handle(slot, *serial));
    }
    let behind = at.saturating_sub(devices.len());
    let destroyed = &gpu.mig()?.destroyed;
    let stale = call.verdict().stale_mig_handles.then(|| destroyed.get(behind));
    let stale = stale.flatten().ok_or(Code::NotFound)?;
    mig.put(call.handle(Kind::DestroyedMig, slot, stale.ci_serial))
}
