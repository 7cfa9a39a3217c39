//! Waits for what devices say by themselves.
//!
//! Through the raw functions, because the wrapper gives up its whole set when one device has no events, and knows no
//! events newer than itself.

use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlEventMigConfigChange, nvmlEventSet_t, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypeGpuRecoveryAction, nvmlEventTypeGpuUnavailableError,
    nvmlEventTypeXidCriticalError,
};
use tokio::time::Instant;

use crate::domain::id::PciAddress;
use crate::domain::sharing::health::Xid;
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

/// How many errors are told at once, and how long they are gathered: a driver that has something to say for ever is
/// interrupted. What is left stays in its queue until the next wait.
const MANY: usize = 1000;
const LONG: Duration = Duration::from_millis(100);

/// What stands for an instance where an error concerns the whole GPU. Source: `nvml.h`, `nvmlEventData_t`.
const WHOLE: u32 = u32::MAX;

const WAIT: &str = "nvmlEventSetWait_v2";

/// A set of events. It holds the library, so that the library outlives it.
#[derive(Debug)]
pub(super) struct NvmlEvents {
    set: nvmlEventSet_t,
    nvml: Arc<Nvml>,
    /// Those that were registered: an event names its device by the handle.
    devices: Vec<(PciAddress, DeviceHandle)>,
}

/// What one wait came to.
enum One {
    Event(nvmlEventData_t),
    Nothing,
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
        let mut events = Self {
            set,
            nvml: Arc::clone(nvml),
            devices: Vec::new(),
        };
        for (pci, device) in devices {
            match events.register_one(session.about(*pci), *device) {
                Ok(()) => events.devices.push((*pci, *device)),
                Err(error) if error.remedy() == Remedy::Reinitialise => return Err(error),
                // Without events, what happens to the device is seen at the next poll.
                Err(_) => {}
            }
        }
        Ok((!events.devices.is_empty()).then_some(events))
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

    fn wait_for_one(&self, patience_ms: u32) -> Result<One, DriverError> {
        let error = |code| DriverError { call: WAIT, code };
        let Ok(wait) = &self.nvml.lib().nvmlEventSetWait_v2 else {
            return Err(error(Code::NoSuchFunction));
        };
        // SAFETY: a structure of numbers and a nullable handle, for which zero is a value.
        let mut data: nvmlEventData_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is this library's and not freed before `self`; `data` may be written until the call returns.
        let code = unsafe { wait(self.set, &raw mut data, patience_ms) };
        match Code::Nvml(code) {
            Code::Nvml(0) => Ok(One::Event(data)),
            Code::TIMEOUT => Ok(One::Nothing),
            code @ (Code::Nvml(_) | Code::NoSuchFunction | Code::NotText | Code::NoAddress) => {
                Err(error(code))
            }
        }
    }

    /// The error that an event tells of, if it does and its device is known.
    fn xid(&self, data: &nvmlEventData_t) -> Option<Xid> {
        if data.eventType & u64::from(nvmlEventTypeXidCriticalError) == 0 {
            return None;
        }
        let mut devices = self.devices.iter();
        let (pci, _) = devices.find(|(_, handle)| handle.0 == data.device)?;
        let confined = |id: u32| (id != WHOLE).then_some(id);
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
    fn wait(&mut self) -> Result<Heard, DriverError> {
        let One::Event(first) = self.wait_for_one(PATIENCE_MS)? else {
            return Ok(Heard::Nothing);
        };
        let until = Instant::now() + LONG;
        let mut xids: Vec<Xid> = self.xid(&first).into_iter().collect();
        while xids.len() < MANY && Instant::now() < until {
            // An error ends the next wait too, and these are told before.
            let Ok(One::Event(next)) = self.wait_for_one(0) else {
                break;
            };
            xids.extend(self.xid(&next));
        }
        if xids.is_empty() {
            return Ok(Heard::Something);
        }
        Ok(Heard::Xids(xids))
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
