//! Processes with a context on a device.

use nvml_wrapper_sys::bindings::nvmlProcessInfo_t;
use octavo_model::inventory::{Process, ProcessKind, ReadProblem};
use octavo_model::quantity::Mebibytes;

use crate::error::{DriverError, NvmlCode, Remedy};
use crate::nvml::session::{DeviceSession, optional, raw};

/// Returns compute and graphics contexts in one list ordered by process ID. An unavailable list is reported in
/// `problems`, because otherwise the device would appear idle.
pub(super) fn read(
    gpu: DeviceSession<'_>,
    problems: &mut Vec<ReadProblem>,
) -> Result<Vec<Process>, DriverError> {
    let mut processes = Vec::new();
    for result in [compute(gpu), graphics(gpu)] {
        if let Err(error) = &result
            && error.remedy() == Remedy::Unavailable
        {
            problems.push((*error).into());
        }
        processes.extend(optional(result, problems)?.unwrap_or_default());
    }
    processes.sort();
    Ok(processes)
}

/// Like [`read`], but fails if either list is unavailable.
pub(super) fn read_all(gpu: DeviceSession<'_>) -> Result<Vec<Process>, DriverError> {
    let mut processes = compute(gpu)?;
    processes.extend(graphics(gpu)?);
    processes.sort();
    Ok(processes)
}

fn compute(gpu: DeviceSession<'_>) -> Result<Vec<Process>, DriverError> {
    list(ProcessKind::Compute, |count, buffer| {
        raw!(
            gpu,
            nvmlDeviceGetComputeRunningProcesses_v3,
            // SAFETY: the handle comes from this library; `buffer` has space for `count` entries, and both outlive the
            // call.
            |f| unsafe { f(gpu.handle.0, count, buffer) }
        )
    })
}

/// Returns the graphics contexts. A device without graphics has none, and a partitioned device may report that it does
/// not support them. A library without the call is an error.
fn graphics(gpu: DeviceSession<'_>) -> Result<Vec<Process>, DriverError> {
    let processes = list(ProcessKind::Graphics, |count, buffer| {
        raw!(
            gpu,
            nvmlDeviceGetGraphicsRunningProcesses_v3,
            // SAFETY: the handle comes from this library; `buffer` has space for `count` entries, and both outlive the
            // call.
            |f| unsafe { f(gpu.handle.0, count, buffer) }
        )
    });
    match processes {
        Err(error) if error.is(NvmlCode::NOT_SUPPORTED) => Ok(Vec::new()),
        other => other,
    }
}

/// Reads a list with a buffer that suffices for most, and retries with a larger one if it does not.
fn list(
    kind: ProcessKind,
    ask: impl Fn(*mut u32, *mut nvmlProcessInfo_t) -> Result<(), DriverError>,
) -> Result<Vec<Process>, DriverError> {
    const BLANK: nvmlProcessInfo_t =
        nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    const ATTEMPTS: usize = 4;
    let mut capacity = 64_u32;
    let mut buffer = Vec::new();
    for attempt in 1.. {
        buffer.resize(capacity as usize, BLANK);
        let mut count = capacity;
        match ask(&raw mut count, buffer.as_mut_ptr()) {
            Ok(()) => {
                buffer.truncate(count as usize);
                break;
            }
            Err(error) if error.is(NvmlCode::INSUFFICIENT_SIZE) && attempt < ATTEMPTS => {
                capacity = count.max(capacity).saturating_mul(2).min(1 << 16);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(buffer.iter().map(|info| process(kind, info)).collect())
}

fn process(kind: ProcessKind, info: &nvmlProcessInfo_t) -> Process {
    let known = |id: u32| (id != u32::MAX).then_some(id);
    Process {
        pid: info.pid,
        kind,
        gpu_instance: known(info.gpuInstanceId),
        compute_instance: known(info.computeInstanceId),
        memory: (info.usedGpuMemory != u64::MAX).then(|| Mebibytes::from_bytes(info.usedGpuMemory)),
    }
}
