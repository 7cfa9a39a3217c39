//! Memory usage: sizes, processes, utilization. A MIG device reports only its own.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Code, Gpu, Process, ProcessKind};

use super::call::{Call, Device};
use super::export::exports;
use super::handle::DeviceHandle;
use super::pointer::{OutputPtr, version_of};

const MIB: u64 = 1 << 20;

/// NVML's value for "not on an instance".
pub(super) const NO_INSTANCE: c_uint = c_uint::MAX;

/// Most BAR1 windows of data-center boards span the framebuffer, rounded up to a power of two.
const BAR1_USED: u64 = MIB;

struct Memory {
    total: u64,
    reserved: u64,
    used: u64,
}

exports! {
    fn nvmlDeviceGetMemoryInfo(device: DeviceHandle, info: OutputPtr<sys::nvmlMemory_t>) |call| {
        let memory = memory(call, device)?;
        let used = memory.used.saturating_add(memory.reserved);
        info.put(sys::nvmlMemory_t {
            total: memory.total,
            free: memory.total.saturating_sub(used),
            used,
        })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: DeviceHandle, info: OutputPtr<sys::nvmlMemory_v2_t>) |call| {
        memory_v2(call, device, info)
    }

    fn nvmlDeviceGetBAR1MemoryInfo(device: DeviceHandle, info: OutputPtr<sys::nvmlBAR1Memory_t>) |call| {
        let (_, gpu) = call.gpu(device)?;
        let memory = gpu.memory_mib.saturating_mul(MIB);
        let total = memory.checked_next_power_of_two().unwrap_or(memory);
        info.put(sys::nvmlBAR1Memory_t {
            bar1Total: total,
            bar1Free: total.saturating_sub(BAR1_USED),
            bar1Used: BAR1_USED,
        })
    }

    /// A partitioned GPU has no utilization of its own, according to the header.
    fn nvmlDeviceGetUtilizationRates(device: DeviceHandle, utilization: OutputPtr<sys::nvmlUtilization_t>) |call| {
        let (_, gpu) = call.gpu(device)?;
        if gpu.mig.as_ref().is_some_and(|mig| mig.current) {
            return Err(Code::NotSupported);
        }
        let (gpu, memory) = gpu.utilization;
        utilization.put(sys::nvmlUtilization_t { gpu, memory })
    }

    fn nvmlDeviceGetComputeRunningProcesses(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v1_t>) |call| {
        list.put_list(count, &older(&processes(call, device, ProcessKind::Compute)?))
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v2_t>) |call| {
        list.put_list(count, &processes(call, device, ProcessKind::Compute)?)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v2_t>) |call| {
        list.put_list(count, &processes(call, device, ProcessKind::Compute)?)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v1_t>) |call| {
        list.put_list(count, &older(&processes(call, device, ProcessKind::Graphics)?))
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v2_t>) |call| {
        list.put_list(count, &processes(call, device, ProcessKind::Graphics)?)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v2_t>) |call| {
        list.put_list(count, &processes(call, device, ProcessKind::Graphics)?)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v1_t>) |call| {
        list.put_list(count, &older(&processes(call, device, ProcessKind::Mps)?))
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v2_t>) |call| {
        list.put_list(count, &processes(call, device, ProcessKind::Mps)?)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: DeviceHandle, count: OutputPtr<c_uint>, list: OutputPtr<sys::nvmlProcessInfo_v2_t>) |call| {
        list.put_list(count, &processes(call, device, ProcessKind::Mps)?)
    }

    fn nvmlDeviceGetRunningProcessDetailList(device: DeviceHandle, list: OutputPtr<sys::nvmlProcessDetailList_t>) |call| {
        process_details(call, device, list)
    }

    /// One current sample for each busy process, so it is always newer than the caller's last.
    fn nvmlDeviceGetProcessUtilization(device: DeviceHandle, samples: OutputPtr<sys::nvmlProcessUtilizationSample_t>, count: OutputPtr<c_uint>, _since: u64) |call| {
        let (_, gpu) = call.gpu(device)?;
        if gpu.mig.as_ref().is_some_and(|mig| mig.current) {
            return Err(Code::NotSupported);
        }
        if gpu.process_utilization.is_empty() {
            count.put(0)?;
            return Err(Code::NotFound);
        }
        let all: Vec<_> = gpu.process_utilization.iter().map(sample).collect();
        samples.put_list(count, &all)
    }

    /// The period of the driver's sampling, in microseconds.
    fn nvmlDeviceGetEncoderUtilization(device: DeviceHandle, utilization: OutputPtr<c_uint>, period_us: OutputPtr<c_uint>) |call| {
        video(call.gpu(device)?.1.video_utilization.0, call.gpu(device)?.1, (utilization, period_us))
    }

    fn nvmlDeviceGetDecoderUtilization(device: DeviceHandle, utilization: OutputPtr<c_uint>, period_us: OutputPtr<c_uint>) |call| {
        video(call.gpu(device)?.1.video_utilization.1, call.gpu(device)?.1, (utilization, period_us))
    }
}

fn sample((pid, (sm, memory)): (&u32, &(u32, u32))) -> sys::nvmlProcessUtilizationSample_t {
    sys::nvmlProcessUtilizationSample_t {
        pid: *pid,
        timeStamp: super::log::wall_us(),
        smUtil: *sm,
        memUtil: *memory,
        encUtil: 0,
        decUtil: 0,
    }
}

/// A partitioned GPU has none of its own, like its other utilization.
fn video(
    percent: u32,
    gpu: &Gpu,
    (utilization, period_us): (OutputPtr<c_uint>, OutputPtr<c_uint>),
) -> Result<(), Code> {
    if gpu.mig.as_ref().is_some_and(|mig| mig.current) {
        return Err(Code::NotSupported);
    }
    period_us.check()?;
    utilization.put(percent)?;
    period_us.put(167_000)
}

fn memory(call: &Call<'_>, device: DeviceHandle) -> Result<Memory, Code> {
    let Device { slot, gpu, mig } = call.device(device)?;
    let used = |instance| call.world().used_mib(slot, instance).saturating_mul(MIB);
    Ok(match mig {
        Some(mig) => Memory {
            total: gpu.attributes(mig)?.memory_mib.saturating_mul(MIB),
            reserved: 0,
            used: used(Some(mig.gi.id)),
        },
        None => Memory {
            total: gpu.memory_mib.saturating_mul(MIB),
            reserved: gpu.reserved_mib.saturating_mul(MIB),
            used: used(None),
        },
    })
}

fn memory_v2(
    call: &Call<'_>,
    device: DeviceHandle,
    info: OutputPtr<sys::nvmlMemory_v2_t>,
) -> Result<(), Code> {
    let memory = memory(call, device)?;
    let version = version_of::<sys::nvmlMemory_v2_t>(2);
    if info.version()? != version {
        return Err(Code::ArgumentVersionMismatch);
    }
    let taken = memory.used.saturating_add(memory.reserved);
    info.put(sys::nvmlMemory_v2_t {
        version,
        total: memory.total,
        reserved: memory.reserved,
        free: memory.total.saturating_sub(taken),
        used: memory.used,
    })
}

/// A GPU lists all its processes with their instances; a MIG device only its own.
fn processes(
    call: &Call<'_>,
    device: DeviceHandle,
    kind: ProcessKind,
) -> Result<Vec<sys::nvmlProcessInfo_v2_t>, Code> {
    let device = call.device(device)?;
    let instance = device.mig.map(|mig| (mig.gi.id, Some(mig.ci.id)));
    let found = call.world().processes_on(device.slot, kind, instance);
    Ok(found.into_iter().map(process_info).collect())
}

/// The list of one mode (compute, graphics, MPS), in a struct with capacity, count and array.
fn process_details(
    call: &Call<'_>,
    device: DeviceHandle,
    list: OutputPtr<sys::nvmlProcessDetailList_t>,
) -> Result<(), Code> {
    call.device(device)?;
    if list.version()? != version_of::<sys::nvmlProcessDetailList_t>(1) {
        return Err(Code::ArgumentVersionMismatch);
    }
    let requested = list.get()?;
    let kind = match requested.mode {
        0 => ProcessKind::Compute,
        1 => ProcessKind::Graphics,
        2 => ProcessKind::Mps,
        _ => return Err(Code::InvalidArgument),
    };
    let details: Vec<_> = processes(call, device, kind)?
        .into_iter()
        .map(|process| sys::nvmlProcessDetail_v1_t {
            pid: process.pid,
            usedGpuMemory: process.usedGpuMemory,
            gpuInstanceId: process.gpuInstanceId,
            computeInstanceId: process.computeInstanceId,
            usedGpuCcProtectedMemory: 0,
        })
        .collect();
    let number = c_uint::try_from(details.len()).map_err(|_| Code::Unknown)?;
    list.put(sys::nvmlProcessDetailList_t { numProcArrayEntries: number, ..requested })?;
    if number > requested.numProcArrayEntries {
        return Err(Code::InsufficientSize);
    }
    OutputPtr::from_caller(requested.procArray).put_all(&details)
}

fn process_info(process: &Process) -> sys::nvmlProcessInfo_v2_t {
    sys::nvmlProcessInfo_v2_t {
        pid: process.pid,
        usedGpuMemory: process.memory_mib.saturating_mul(MIB),
        gpuInstanceId: process.gi.unwrap_or(NO_INSTANCE),
        computeInstanceId: process.ci.unwrap_or(NO_INSTANCE),
    }
}

fn older(list: &[sys::nvmlProcessInfo_v2_t]) -> Vec<sys::nvmlProcessInfo_v1_t> {
    list.iter()
        .map(|info| sys::nvmlProcessInfo_v1_t { pid: info.pid, usedGpuMemory: info.usedGpuMemory })
        .collect()
}
