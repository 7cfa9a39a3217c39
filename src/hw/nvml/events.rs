//! Waits for what devices say by themselves.
//!
//! Through the raw functions, because the wrapper gives up its whole set when one device has no events, and knows no
//! events newer than itself.

use std::sync::Arc;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlEventMigConfigChange, nvmlEventSet_t, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypeGpuRecoveryAction, nvmlEventTypeGpuUnavailableError,
    nvmlEventTypeXidCriticalError,
};

use crate::domain::id::PciAddress;
use crate::hw::error::{Code, DriverError, Remedy};
use crate::hw::nvml::session::{DeviceHandle, Session, raw};
use crate::hw::{EventSource, Heard};

/// What makes a device worth another look; performance states and clocks do not.
const WANTED: u32 = nvmlEventTypeDoubleBitEccError
    | nvmlEventTypeXidCriticalError
    | nvmlEventMigConfigChange
    | nvmlEventTypeGpuUnavailableError
    | nvmlEventTypeGpuRecoveryAction;

/// Long enough that an idle agent hardly wakes, short enough that a lost driver is let go of soon.
const PATIENCE_MS: u32 = 5000;

const WAIT: &str = "nvmlEventSetWait_v2";

/// A set of events. It holds the library, so that the library outlives it.
#[derive(Debug)]
pub(super) struct NvmlEvents {
    set: nvmlEventSet_t,
    nvml: Arc<Nvml>,
}

// SAFETY: the set is an object of the library, bound to no thread; it is used by one at a time, as `wait` takes `&mut`.
unsafe impl Send for NvmlEvents {}

impl NvmlEvents {
    /// Registers each device for those of the wanted events that it has. `None` when no device has any.
    pub(super) fn register(
        nvml: &Arc<Nvml>,
        session: Session<'_>,
        devices: &[(PciAddress, DeviceHandle)],
    ) -> Result<Option<Self>, DriverError> {
        let mut set: nvmlEventSet_t = std::ptr::null_mut();
        // SAFETY: `set` may be written until the call returns.
        raw!(session, nvmlEventSetCreate, |f| unsafe { f(&raw mut set) })?;
        let events = Self {
            set,
            nvml: Arc::clone(nvml),
        };
        let mut registered = 0_usize;
        for (pci, device) in devices {
            match events.register_one(session.about(*pci), *device) {
                Ok(()) => registered += 1,
                Err(error) if error.remedy() == Remedy::Reinitialise => return Err(error),
                // Without events, what happens to the device is seen at the next poll.
                Err(_) => {}
            }
        }
        Ok((registered > 0).then_some(events))
    }

    fn register_one(&self, session: Session<'_>, device: DeviceHandle) -> Result<(), DriverError> {
        let mut supported = 0;
        // SAFETY: the handle is this library's, and `supported` may be written until the call returns.
        raw!(session, nvmlDeviceGetSupportedEventTypes, |f| unsafe {
            f(device.0, &raw mut supported)
        })?;
        let wanted = supported & u64::from(WANTED);
        if wanted == 0 {
            return Err(DriverError {
                call: "nvmlDeviceGetSupportedEventTypes",
                code: Code::NOT_SUPPORTED,
            });
        }
        // SAFETY: handle and set are this library's, and the set lives as long as `self`.
        raw!(session, nvmlDeviceRegisterEvents, |f| unsafe {
            f(device.0, wanted, self.set)
        })
    }
}

impl EventSource for NvmlEvents {
    fn wait(&mut self) -> Result<Heard, DriverError> {
        let error = |code| DriverError { call: WAIT, code };
        let Ok(wait) = &self.nvml.lib().nvmlEventSetWait_v2 else {
            return Err(error(Code::NoSuchFunction));
        };
        // SAFETY: a structure of numbers and a nullable handle, for which zero is a value.
        let mut data: nvmlEventData_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is this library's and not freed before `self`; `data` may be written until the call returns.
        let code = unsafe { wait(self.set, &raw mut data, PATIENCE_MS) };
        match Code::Nvml(code) {
            Code::Nvml(0) => Ok(Heard::Something),
            Code::TIMEOUT => Ok(Heard::Nothing),
            code @ (Code::Nvml(_) | Code::NoSuchFunction | Code::NotText) => Err(error(code)),
        }
    }
}

impl Drop for NvmlEvents {
    fn drop(&mut self) {
        if let Ok(free) = &self.nvml.lib().nvmlEventSetFree {
            // SAFETY: the set was created by this library and is freed once, here; the library is still held.
            let _nobody_to_tell = unsafe { free(self.set) };
        }
    }
}
