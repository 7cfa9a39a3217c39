//! Errors, temperatures, power, clocks, and modes of whole GPUs: MIG devices answer `NOT_SUPPORTED`.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Architecture, Code, Gpu, RemappedRows};

use super::call::Call;
use super::export::exports;
use super::handle::DeviceHandle;
use super::pointer::{OutputPtr, version_of};

/// `nvmlMemoryErrorType_t` and `nvmlEccCounterType_t` both go from 0 to 1.
const CORRECTED: c_uint = 0;
const UNCORRECTED: c_uint = 1;
const VOLATILE: c_uint = 0;
const AGGREGATE: c_uint = 1;

/// Banks of the row remapper on HBM boards, all with all spare rows available.
const REMAPPER_BANKS: c_uint = 640;

exports! {
    fn nvmlDeviceGetEccMode(device: DeviceHandle, current: OutputPtr<c_uint>, pending: OutputPtr<c_uint>) |call| {
        let mode = call.gpu(device)?.1.ecc.ok_or(Code::NotSupported)?;
        pending.check()?;
        current.put(mode.current.into())?;
        pending.put(mode.pending.into())
    }

    fn nvmlDeviceGetDefaultEccMode(device: DeviceHandle, default: OutputPtr<c_uint>) |call| {
        call.gpu(device)?.1.ecc.ok_or(Code::NotSupported)?;
        default.put(1)
    }

    fn nvmlDeviceGetTotalEccErrors(device: DeviceHandle, error: c_uint, counter: c_uint, count: OutputPtr<c_ulonglong>) |call| {
        count.put(ecc_errors(call.gpu(device)?.1, error, counter)?)
    }

    fn nvmlDeviceGetRemappedRows(device: DeviceHandle, correctable: OutputPtr<c_uint>, uncorrectable: OutputPtr<c_uint>, pending: OutputPtr<c_uint>, failed: OutputPtr<c_uint>) |call| {
        let rows = remapped(call.gpu(device)?.1)?;
        for out in [correctable, uncorrectable, pending, failed] {
            out.check()?;
        }
        correctable.put(rows.correctable)?;
        uncorrectable.put(rows.uncorrectable)?;
        pending.put(rows.pending.into())?;
        failed.put(rows.failed.into())
    }

    fn nvmlDeviceGetRowRemapperHistogram(device: DeviceHandle, values: OutputPtr<sys::nvmlRowRemapperHistogramValues_t>) |call| {
        let rows = remapped(call.gpu(device)?.1)?;
        let none = c_uint::from(rows.failed);
        let touched = rows.correctable.saturating_add(rows.uncorrectable).min(REMAPPER_BANKS - none);
        values.put(sys::nvmlRowRemapperHistogramValues_t {
            max: REMAPPER_BANKS - none - touched,
            high: touched,
            partial: 0,
            low: 0,
            none,
        })
    }

    /// Pages were retired until Turing; boards that remap rows do not support the call.
    fn nvmlDeviceGetRetiredPages(device: DeviceHandle, _cause: c_uint, count: OutputPtr<c_uint>, _addresses: OutputPtr<c_ulonglong>) |call| {
        retires_pages(call.gpu(device)?.1)?;
        count.put(0)
    }

    fn nvmlDeviceGetRetiredPages_v2(device: DeviceHandle, _cause: c_uint, count: OutputPtr<c_uint>, _addresses: OutputPtr<c_ulonglong>, _times: OutputPtr<c_ulonglong>) |call| {
        retires_pages(call.gpu(device)?.1)?;
        count.put(0)
    }

    fn nvmlDeviceGetRetiredPagesPendingStatus(device: DeviceHandle, pending: OutputPtr<c_uint>) |call| {
        retires_pages(call.gpu(device)?.1)?;
        pending.put(0)
    }

    fn nvmlDeviceGetTemperature(device: DeviceHandle, sensor: c_uint, temperature: OutputPtr<c_uint>) |call| {
        let (_, gpu) = call.gpu(device)?;
        if sensor != 0 {
            return Err(Code::InvalidArgument);
        }
        temperature.put(gpu.temperature_c)
    }

    fn nvmlDeviceGetTemperatureV(device: DeviceHandle, temperature: OutputPtr<sys::nvmlTemperature_t>) |call| {
        temperature_v(call, device, temperature)
    }

    fn nvmlDeviceGetPowerUsage(device: DeviceHandle, power: OutputPtr<c_uint>) |call| {
        power.put(call.gpu(device)?.1.power_mw)
    }

    fn nvmlDeviceGetTotalEnergyConsumption(device: DeviceHandle, energy: OutputPtr<c_ulonglong>) |call| {
        energy.put(call.gpu(device)?.1.energy_mj)
    }

    fn nvmlDeviceGetPcieReplayCounter(device: DeviceHandle, replays: OutputPtr<c_uint>) |call| {
        replays.put(call.gpu(device)?.1.pcie_replays)
    }

    fn nvmlDeviceGetPowerManagementLimit(device: DeviceHandle, limit: OutputPtr<c_uint>) |call| {
        limit.put(call.gpu(device)?.1.power_limit_mw)
    }

    fn nvmlDeviceGetPowerManagementDefaultLimit(device: DeviceHandle, limit: OutputPtr<c_uint>) |call| {
        limit.put(call.gpu(device)?.1.power_limit_mw)
    }

    fn nvmlDeviceGetEnforcedPowerLimit(device: DeviceHandle, limit: OutputPtr<c_uint>) |call| {
        limit.put(call.gpu(device)?.1.power_limit_mw)
    }

    /// A third of the limit is close to the real minimum of the boards.
    fn nvmlDeviceGetPowerManagementLimitConstraints(device: DeviceHandle, least: OutputPtr<c_uint>, most: OutputPtr<c_uint>) |call| {
        let limit = call.gpu(device)?.1.power_limit_mw;
        most.check()?;
        least.put(limit / 3)?;
        most.put(limit)
    }

    /// No passthrough.
    fn nvmlDeviceGetVirtualizationMode(device: DeviceHandle, mode: OutputPtr<c_uint>) |call| {
        call.gpu(device)?;
        mode.put(0)
    }

    fn nvmlDeviceGetClockInfo(device: DeviceHandle, clock: c_uint, mhz: OutputPtr<c_uint>) |call| {
        mhz.put(clock_mhz(call.gpu(device)?.1, clock)?)
    }

    fn nvmlDeviceGetMaxClockInfo(device: DeviceHandle, clock: c_uint, mhz: OutputPtr<c_uint>) |call| {
        mhz.put(clock_mhz(call.gpu(device)?.1, clock)?)
    }

    fn nvmlDeviceGetPerformanceState(device: DeviceHandle, state: OutputPtr<c_uint>) |call| {
        call.gpu(device)?;
        state.put(0)
    }

    fn nvmlDeviceGetPersistenceMode(device: DeviceHandle, mode: OutputPtr<c_uint>) |call| {
        mode.put(call.gpu(device)?.1.persistence.into())
    }

    fn nvmlDeviceSetPersistenceMode(device: DeviceHandle, mode: c_uint) |call| {
        let (slot, _) = call.gpu(device)?;
        if mode > 1 {
            return Err(Code::InvalidArgument);
        }
        call.change(|world| {
            world.gpu_mut(slot)?.persistence = mode == 1;
            Ok(())
        })
    }

    fn nvmlDeviceGetComputeMode(device: DeviceHandle, mode: OutputPtr<c_uint>) |call| {
        mode.put(call.device(device)?.gpu.compute_mode)
    }

    fn nvmlDeviceSetComputeMode(device: DeviceHandle, mode: c_uint) |call| {
        set_compute_mode(call, device, mode)
    }
}

/// The counter of an error type and counter type; the numbers are those of `nvml.h`.
pub(super) fn ecc_errors(gpu: &Gpu, error: c_uint, counter: c_uint) -> Result<u64, Code> {
    gpu.ecc.filter(|mode| mode.current).ok_or(Code::NotSupported)?;
    let counts = gpu.ecc_errors;
    match (error, counter) {
        (CORRECTED, VOLATILE) => Ok(counts.volatile_corrected),
        (UNCORRECTED, VOLATILE) => Ok(counts.volatile_uncorrected),
        (CORRECTED, AGGREGATE) => Ok(counts.aggregate_corrected),
        (UNCORRECTED, AGGREGATE) => Ok(counts.aggregate_uncorrected),
        _ => Err(Code::InvalidArgument),
    }
}

/// Row remapping was introduced with Ampere.
pub(super) fn remapped(gpu: &Gpu) -> Result<RemappedRows, Code> {
    gpu.remapped_rows.ok_or(Code::NotSupported)
}

fn retires_pages(gpu: &Gpu) -> Result<(), Code> {
    if gpu.architecture >= Architecture::Ampere || gpu.ecc.is_none() {
        return Err(Code::NotSupported);
    }
    Ok(())
}

fn temperature_v(
    call: &Call<'_>,
    device: DeviceHandle,
    temperature: OutputPtr<sys::nvmlTemperature_t>,
) -> Result<(), Code> {
    let (_, gpu) = call.gpu(device)?;
    let version = version_of::<sys::nvmlTemperature_t>(1);
    if temperature.version()? != version {
        return Err(Code::ArgumentVersionMismatch);
    }
    let requested = temperature.get()?;
    if requested.sensorType != 0 {
        return Err(Code::InvalidArgument);
    }
    temperature.put(sys::nvmlTemperature_t {
        temperature: c_int::try_from(gpu.temperature_c).map_err(|_| Code::Unknown)?,
        ..requested
    })
}

/// Highest clocks of the flagship of each architecture: 0 graphics, 1 SM, 2 memory, 3 video.
fn clock_mhz(gpu: &Gpu, clock: c_uint) -> Result<c_uint, Code> {
    let (graphics, memory) = match gpu.architecture {
        Architecture::Volta => (1530, 877),
        Architecture::Turing => (1590, 5001),
        Architecture::Ampere => (1410, 1593),
        Architecture::Ada => (2520, 9001),
        Architecture::Hopper => (1980, 2619),
        Architecture::Blackwell => (1965, 3996),
    };
    match clock {
        0 | 1 | 3 => Ok(graphics),
        2 => Ok(memory),
        _ => Err(Code::InvalidArgument),
    }
}

/// `EXCLUSIVE_THREAD` (1) was removed in CUDA 8; `EXCLUSIVE_PROCESS` (3) does not exist in MIG mode.
fn set_compute_mode(call: &Call<'_>, device: DeviceHandle, mode: c_uint) -> Result<(), Code> {
    let (slot, gpu) = call.gpu(device)?;
    let divided = gpu.mig.as_ref().is_some_and(|mig| mig.current);
    match mode {
        0 | 2 => {}
        3 if !divided => {}
        1 | 3 => return Err(Code::NotSupported),
        _ => return Err(Code::InvalidArgument),
    }
    call.change(|world| {
        world.gpu_mut(slot)?.compute_mode = mode;
        Ok(())
    })
}
