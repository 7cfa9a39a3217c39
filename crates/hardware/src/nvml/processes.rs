//! Processes with a context on a device.

use nvml_wrapper_sys::bindings::nvmlProcessInfo_t;
use octavo_model::inventory::{Process, ProcessKind, ReadProblem};
use octavo_model::quantity::Mebibytes;

use crate::error::{Code, DriverError, Remedy};
use crate::nvml::session::{DeviceHandle, Session, optional, raw};

/// Returns compute and graphics contexts in one list ordered by process ID. An unavailable list is reported in
/// `problems`, because otherwise the device would appear idle.
pub(super) fn read(
    session: Session<'_>,
    handle: DeviceHandle,
    problems: &mut Vec<ReadProblem>,
) -> Result<Vec<Process>, DriverError> {
    let mut processes = Vec::new();
    for answer in [compute(session, handle), graphics(session, handle)] {
        if let Err(error) = &answer
            && error.remedy() == Remedy::Unavailable
        {
            problems.push(ReadProblem {
                source: error.call.to_owned(),
                error: error.code.to_string(),
            });
        }
        processes.extend(optional(answer, problems)?.unwrap_or_default());
    }
    processes.sort();
    Ok(processes)
}

/// Like [`read`], but fails if either list is unavailable.
pub(super) fn read_all(
    session: Session<'_>,
    handle: DeviceHandle,
) -> Result<Vec<Process>, DriverError> {
    let mut processes = compute(session, handle)?;
    processes.extend(graphics(session, handle)?);
    processes.sort();
    Ok(processes)
}

fn compute(session: Session<'_>, handle: DeviceHandle) -> Result<Vec<Process>, DriverError> {
    list(ProcessKind::Compute, |count, told| {
        raw!(
            session,
            nvmlDeviceGetComputeRunningProcesses_v3,
            // SAFETY: the handle comes from this library; `told` has space for `count` entries, and both outlive the
            // call.
            |f| unsafe { f(handle.0, count, told) }
        )
    })
}

/// Returns the graphics contexts. A device without graphics has none, and a partitioned device may report that it does
/// not support them. A library without the call is an error.
fn graphics(session: Session<'_>, handle: DeviceHandle) -> Result<Vec<Process>, DriverError> {
    let told = list(ProcessKind::Graphics, |count, told| {
        raw!(
            session,
            nvmlDeviceGetGraphicsRunningProcesses_v3,
            // SAFETY: the handle comes from this library; `told` has space for `count` entries, and both outlive the
            // call.
            |f| unsafe { f(handle.0, count, told) }
        )
    });
    match told {
        Err(error) if error.is(Code::NOT_SUPPORTED) => Ok(Vec::new()),
        other => other,
    }
}

/// Reads a list with a buffer that suffices for most, and retries with a larger one if it does not.
fn list(
    kind: ProcessKind,
    ask: impl Fn(*mut u32, *mut nvmlProcessInfo_t) -> Result<(), DriverError>,
) -> Result<Vec<Process>, DriverError> {
    const BLANK: nvmlProcessInfo_t = nvmlProcessInfo_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    const ATTEMPTS: usize = 4;
    let mut room = 64_u32;
    let mut told = Vec::new();
    for attempt in 1.. {
        told.resize(room as usize, BLANK);
        let mut count = room;
        match ask(&raw mut count, told.as_mut_ptr()) {
            Ok(()) => {
                told.truncate(count as usize);
                break;
            }
            Err(error) if error.is(Code::INSUFFICIENT_SIZE) && attempt < ATTEMPTS => {
                room = count.max(room).saturating_mul(2).min(1 << 16);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(told.iter().map(|told| process(kind, told)).collect())
}

fn process(kind: ProcessKind, told: &nvmlProcessInfo_t) -> Process {
    let known = |id: u32| (id != u32::MAX).then_some(id);
    Process {
        pid: told.pid,
        kind,
        gpu_instance: known(told.gpuInstanceId),
        compute_instance: known(told.computeInstanceId),
        memory: (told.usedGpuMemory != u64::MAX).then(|| Mebibytes::from_bytes(told.usedGpuMemory)),
    }
}
