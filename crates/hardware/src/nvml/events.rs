//! Waits for hardware events.
//!
//! Uses the raw functions, because the wrapper fails for the whole set if one device has no events, and does not know
//! newer events.

use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlEventMigConfigChange, nvmlEventSet_t, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypeGpuRecoveryAction, nvmlEventTypeGpuUnavailableError,
    nvmlEventTypeXidCriticalError,
};
use octavo_model::id::PciAddress;
use octavo_model::xid::Xid;
use tokio::time::Instant;

use crate::error::{DriverError, NvmlCode, Remedy};
use crate::nvml::session::{DeviceHandle, DeviceSession, Session, raw};
use crate::{EventSource, EventWait};

/// Events that require a new observation. Performance states and clocks do not.
const WANTED_EVENTS: u32 = nvmlEventTypeDoubleBitEccError
    | nvmlEventTypeXidCriticalError
    | nvmlEventMigConfigChange
    | nvmlEventTypeGpuUnavailableError
    | nvmlEventTypeGpuRecoveryAction;

/// Wait timeout in milliseconds: long enough that an idle agent rarely wakes, short enough that a lost driver is
/// released soon.
const WAIT_TIMEOUT_MS: u32 = 5000;

/// Maximum number of errors returned together, and how long they are collected: a driver that reports errors
/// continuously is interrupted. The rest stays in its queue until the next wait.
const MAX_BATCH: usize = 1000;
const MAX_BATCH_DURATION: Duration = Duration::from_millis(100);

/// Instance ID of an error that concerns the whole GPU. Source: `nvml.h`, `nvmlEventData_t`.
const WHOLE_GPU: u32 = u32::MAX;

const WAIT: &str = "nvmlEventSetWait_v2";

/// An NVML event set. It holds the library, which therefore outlives it.
#[derive(Debug)]
pub(super) struct NvmlEvents {
    set: nvmlEventSet_t,
    nvml: Arc<Nvml>,
    /// The registered devices: an event identifies its device by handle.
    devices: Vec<(PciAddress, DeviceHandle)>,
}

// SAFETY: the set is an object of the library, bound to no thread; one thread uses it at a time, because `wait` takes
// `&mut`.
unsafe impl Send for NvmlEvents {}

impl NvmlEvents {
    /// Registers each device for the wanted events that it supports. Returns `None` if no device supports any.
    pub(super) fn register(
        nvml: &Arc<Nvml>,
        session: Session<'_>,
        devices: &[(PciAddress, DeviceHandle)],
    ) -> Result<Option<Self>, DriverError> {
        let mut set: nvmlEventSet_t = std::ptr::null_mut();
        // SAFETY: `set` is writable until the call returns.
        raw!(session, nvmlEventSetCreate, |f| unsafe { f(&raw mut set) })?;
        let mut events = Self { set, nvml: Arc::clone(nvml), devices: Vec::new() };
        for (pci, device) in devices {
            match events.register_one(session.for_device(*pci).with_handle(*device)) {
                Ok(()) => events.devices.push((*pci, *device)),
                Err(error) if error.remedy() == Remedy::Reinitialize => return Err(error),
                // Without events, changes of the device are detected by the next poll.
                Err(_) => {}
            }
        }
        Ok((!events.devices.is_empty()).then_some(events))
    }

    fn register_one(&self, gpu: DeviceSession<'_>) -> Result<(), DriverError> {
        let mut supported = 0;
        // SAFETY: the handle comes from this library, and `supported` is writable until the call returns.
        raw!(gpu, nvmlDeviceGetSupportedEventTypes, |f| unsafe {
            f(gpu.handle.0, &raw mut supported)
        })?;
        let wanted = supported & u64::from(WANTED_EVENTS);
        if wanted == 0 {
            return Err(DriverError {
                call: "nvmlDeviceGetSupportedEventTypes",
                code: NvmlCode::NOT_SUPPORTED,
            });
        }
        // SAFETY: handle and set come from this library, and the set lives as long as `self`.
        raw!(gpu, nvmlDeviceRegisterEvents, |f| unsafe { f(gpu.handle.0, wanted, self.set) })
    }

    /// Waits for one event; `None` after `timeout_ms` milliseconds without one.
    fn wait_for_one(&self, timeout_ms: u32) -> Result<Option<nvmlEventData_t>, DriverError> {
        let error = |code| DriverError { call: WAIT, code };
        let Ok(wait) = &self.nvml.lib().nvmlEventSetWait_v2 else {
            return Err(error(NvmlCode::NoSuchFunction));
        };
        // SAFETY: the structure consists of numbers and a nullable handle, for which zero is valid.
        let mut data: nvmlEventData_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set comes from this library and is not freed before `self`; `data` is writable until the call
        // returns.
        let code = unsafe { wait(self.set, &raw mut data, timeout_ms) };
        match code {
            0 => Ok(Some(data)),
            code if NvmlCode::Nvml(code) == NvmlCode::TIMEOUT => Ok(None),
            code => Err(error(NvmlCode::Nvml(code))),
        }
    }

    /// Returns the Xid error of an event, if it is one and its device is known.
    fn xid(&self, data: &nvmlEventData_t) -> Option<Xid> {
        if data.eventType & u64::from(nvmlEventTypeXidCriticalError) == 0 {
            return None;
        }
        let mut devices = self.devices.iter();
        let (pci, _) = devices.find(|(_, handle)| handle.0 == data.device)?;
        let confined = |id: u32| (id != WHOLE_GPU).then_some(id);
        let gpu_instance = confined(data.gpuInstanceId);
        Some(Xid {
            pci: *pci,
            gpu_instance,
            compute_instance: gpu_instance.and_then(|_| confined(data.computeInstanceId)),
            number: data.eventData,
        })
    }
}

impl EventSource for NvmlEvents {
    fn wait(&mut self) -> Result<EventWait, DriverError> {
        let Some(first) = self.wait_for_one(WAIT_TIMEOUT_MS)? else {
            return Ok(EventWait::TimedOut);
        };
        let until = Instant::now() + MAX_BATCH_DURATION;
        let mut xids: Vec<Xid> = self.xid(&first).into_iter().collect();
        while xids.len() < MAX_BATCH && Instant::now() < until {
            // The next wait fails with the same error, so return the collected Xids first.
            let Ok(Some(next)) = self.wait_for_one(0) else {
                break;
            };
            xids.extend(self.xid(&next));
        }
        if xids.is_empty() {
            return Ok(EventWait::Changed);
        }
        Ok(EventWait::Xids(xids))
    }
}

impl Drop for NvmlEvents {
    fn drop(&mut self) {
        if let Ok(free) = &self.nvml.lib().nvmlEventSetFree {
            // SAFETY: the set was created by this library and is freed only here; the library is still loaded.
            let _ignored = unsafe { free(self.set) };
        }
    }
}
