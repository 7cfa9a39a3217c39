//! NVML calls: every call is recorded while it runs, errors have our own type, and absent features are distinguished
//! from failures.

use std::error::Error;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device as WrappedDevice, Nvml};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t};
use octavo_model::id::PciAddress;
use octavo_model::inventory::ReadProblem;
use octavo_toolkit::error::chain;

use crate::calls::CallRecord;
use crate::error::{DriverError, NvmlCode, Remedy};

/// NVML's device handle, valid until the library is shut down or the device is removed from the bus. NVML checks every
/// handle that it receives and returns an error for a removed device.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceHandle(pub(super) nvmlDevice_t);

// SAFETY: NVML's handles are plain references to objects of the library, and NVML is thread-safe (nvml.h, "NVML is
// thread-safe so it is safe to make simultaneous NVML calls from multiple threads").
unsafe impl Send for DeviceHandle {}

/// An initialized library together with the call record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session<'a> {
    nvml: &'a Arc<Nvml>,
    calls: &'a CallRecord,
    device: Option<PciAddress>,
}

/// Calls a raw NVML function: `raw!(session, nvmlFunction, |f| unsafe { f(..) })`.
macro_rules! raw {
    ($session:expr, $function:ident, $invoke:expr) => {
        $session.raw(stringify!($function), $session.lib().$function.as_ref().ok(), $invoke)
    };
}
pub(super) use raw;

/// A session together with the handle of one device or partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceSession<'a> {
    session: Session<'a>,
    pub(super) handle: DeviceHandle,
}

impl<'a> Deref for DeviceSession<'a> {
    type Target = Session<'a>;

    fn deref(&self) -> &Session<'a> {
        &self.session
    }
}

impl<'a> DeviceSession<'a> {
    /// Calls a function of the device through the wrapper library.
    pub(super) fn query<T>(
        &self,
        function: &'static str,
        call: impl FnOnce(&WrappedDevice<'a>) -> Result<T, NvmlError>,
    ) -> Result<T, DriverError> {
        // SAFETY: this library returned the handle, and it stays initialized while `nvml` is borrowed.
        let device = unsafe { WrappedDevice::new(self.handle.0, self.nvml) };
        self.wrapped(function, || call(&device))
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(nvml: &'a Arc<Nvml>, calls: &'a CallRecord) -> Self {
        Self { nvml, calls, device: None }
    }

    /// Returns a session for calls that concern one device.
    pub(super) fn for_device(self, device: PciAddress) -> Self {
        Self { device: Some(device), ..self }
    }

    /// Returns a session for calls with the handle of a device or partition.
    pub(super) fn with_handle(self, handle: DeviceHandle) -> DeviceSession<'a> {
        DeviceSession { session: self, handle }
    }

    pub(super) fn nvml(&self) -> &'a Nvml {
        self.nvml
    }

    /// Returns what an object of the library needs to free itself: the library, the call record and the device.
    pub(super) fn owned(&self) -> (Arc<Nvml>, CallRecord, Option<PciAddress>) {
        (Arc::clone(self.nvml), self.calls.clone(), self.device)
    }

    pub(super) fn lib(&self) -> &'a NvmlLib {
        self.nvml.lib()
    }

    /// Makes a call through nvml-wrapper. `function` is the NVML function that it calls.
    pub(super) fn wrapped<T>(
        &self,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, DriverError> {
        let result = self.calls.record(function, self.device, call);
        result.map_err(|error| DriverError { call: function, code: code_of(error) })
    }

    /// Makes a call through a raw function, which the library may lack.
    pub(super) fn raw<F: Copy>(
        &self,
        function: &'static str,
        symbol: Option<&F>,
        invoke: impl FnOnce(F) -> nvmlReturn_t,
    ) -> Result<(), DriverError> {
        let code = match symbol {
            None => NvmlCode::NoSuchFunction,
            Some(symbol) => match self.calls.record(function, self.device, || invoke(*symbol)) {
                0 => return Ok(()),
                number => NvmlCode::Nvml(number),
            },
        };
        Err(DriverError { call: function, code })
    }
}

/// Returns whether the call failed. A feature that the device or the library does not support is not a failure.
pub(super) fn failed<T>(result: &Result<T, DriverError>) -> bool {
    matches!(result, Err(error) if error.remedy() != Remedy::Unavailable)
}

/// Converts a response to a value, to `None` if the device or the library does not support the feature, or to `None`
/// and a problem. Returns errors that concern more than this call.
pub(super) fn optional<T>(
    result: Result<T, DriverError>,
    problems: &mut Vec<ReadProblem>,
) -> Result<Option<T>, DriverError> {
    let error = match result {
        Ok(value) => return Ok(Some(value)),
        Err(error) => error,
    };
    match error.remedy() {
        Remedy::Unavailable => Ok(None),
        Remedy::Reinitialize | Remedy::Reset => Err(error),
        Remedy::Retry | Remedy::Refused | Remedy::Bug => {
            let problem = ReadProblem::from(error);
            if !problems.contains(&problem) {
                problems.push(problem);
            }
            Ok(None)
        }
    }
}

/// Like [`optional`], for calls about partitions, which NVML permits only to privileged processes.
pub(super) fn privileged<T>(
    result: Result<T, DriverError>,
    problems: &mut Vec<ReadProblem>,
) -> Result<Option<T>, DriverError> {
    let before = problems.len();
    let value = optional(result, problems)?;
    for problem in problems.iter_mut().skip(before) {
        if problem.error == NvmlCode::NO_PERMISSION.to_string() {
            problem.error.push_str(PERMISSION_HINT);
        }
    }
    problems.dedup();
    Ok(value)
}

const PERMISSION_HINT: &str = ": requires root and, in a container, NVIDIA_MIG_MONITOR_DEVICES=all";

/// Returns the code of the wrapper's error, which covers fewer codes than NVML has.
pub(super) fn code_of(error: NvmlError) -> NvmlCode {
    if matches!(error, NvmlError::FailedToLoadSymbol(_)) {
        NvmlCode::NoSuchFunction
    } else if matches!(error, NvmlError::Utf8Error(_)) {
        NvmlCode::InvalidText
    } else {
        NvmlCode::Nvml(nvmlReturn_t::from(error))
    }
}

/// Parses a UUID that `nvmlDeviceGetUUID` returned. An invalid one is `None` and a problem.
pub(super) fn parse_uuid<T: FromStr<Err: Error>>(
    text: &str,
    problems: &mut Vec<ReadProblem>,
) -> Option<T> {
    let source = "nvmlDeviceGetUUID".to_owned();
    let parsed = text.parse();
    parsed.map_err(|error| problems.push(ReadProblem { source, error: chain(&error) })).ok()
}

/// Reads one field of `nvmlDeviceGetFieldValues` that is an unsigned integer. Returns the status of the field, which is
/// zero if the device has it, and the value.
pub(super) fn unsigned_field(
    gpu: DeviceSession<'_>,
    id: u32,
) -> Result<(nvmlReturn_t, u32), DriverError> {
    // SAFETY: the structure consists of numbers, for which zero is valid.
    let mut field: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
    field.fieldId = id;
    // SAFETY: the handle comes from this library, and `field` is one field, writable until the call returns.
    raw!(gpu, nvmlDeviceGetFieldValues, |f| unsafe { f(gpu.handle.0, 1, &raw mut field) })?;
    // SAFETY: every member of the union is a number, so any content is valid; this field is an unsigned int.
    Ok((field.nvmlReturn, unsafe { field.value.uiVal }))
}

/// The `version` field of a versioned structure. Source: `NVML_STRUCT_VERSION` in `nvml.h`.
pub(super) fn struct_version<T>(number: u32) -> u32 {
    let size = u32::try_from(size_of::<T>()).unwrap_or(0);
    size | (number << 24)
}
