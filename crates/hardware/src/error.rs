//! Driver errors and the action that each requires.

use std::fmt;
use std::path::PathBuf;

use octavo_model::call::{CallFailure, FailureKind};
use octavo_model::inventory::ReadProblem;
use thiserror::Error;

/// A failed driver call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{call}: {code}")]
pub struct DriverError {
    /// The NVML function.
    pub call: &'static str,
    /// The returned code.
    pub code: NvmlCode,
}

/// Error code returned by NVML.
///
/// This is our own list, because nvml-wrapper's ends at 22 and the codes relevant for partitioning come after it.
/// Source: `nvmlReturn_t` in `nvml.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NvmlCode {
    /// The library is too old to have this function.
    NoSuchFunction,
    /// The response was not valid text.
    InvalidText,
    /// The response has no PCI address.
    MissingPciAddress,
    /// A value of `nvmlReturn_t`.
    Nvml(u32),
}

/// The action that an error requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Try again; nothing is wrong.
    Retry,
    /// Unload the library and initialize it again: it has lost its driver.
    Reinitialize,
    /// Reset the device, which is out of service until then.
    Reset,
    /// None: the device or the library does not support the request.
    Unavailable,
    /// None: the request was refused for lack of permission or space, or because the object does not exist.
    Refused,
    /// Report a bug in Octavo or the driver.
    Bug,
}

impl NvmlCode {
    /// Invalid argument, also returned past the end of a list.
    pub const INVALID_ARGUMENT: Self = Self::Nvml(2);
    /// Not supported by this device.
    pub const NOT_SUPPORTED: Self = Self::Nvml(3);
    /// Insufficient permission.
    pub const NO_PERMISSION: Self = Self::Nvml(4);
    /// The buffer is too small, or its size was queried.
    pub const INSUFFICIENT_SIZE: Self = Self::Nvml(7);
    /// No event within the timeout.
    pub const TIMEOUT: Self = Self::Nvml(10);

    /// Returns the required action. Source: the meaning of each number in `nvml.h`.
    pub fn remedy(self) -> Remedy {
        match self {
            Self::NoSuchFunction => Remedy::Unavailable,
            Self::InvalidText | Self::MissingPciAddress => Remedy::Bug,
            Self::Nvml(number) => match number {
                1 | 9 | 18 => Remedy::Reinitialize,
                3 | 13 | 21 => Remedy::Unavailable,
                2 | 4 | 6 | 23 | 28 => Remedy::Refused,
                10 | 11 | 19 | 27 => Remedy::Retry,
                15 | 16 => Remedy::Reset,
                _ => Remedy::Bug,
            },
        }
    }
}

/// The object of a call that changes a device. Determines the meaning of "invalid argument".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallTarget {
    /// An instance that existed, by ID or handle: an invalid argument means that it no longer exists.
    Instance,
    /// Any other object.
    Other,
}

impl DriverError {
    /// Converts the error of a call that changes a device.
    pub(crate) fn failure(self, concerns: CallTarget) -> CallFailure {
        CallFailure { kind: self.code.failure_kind(concerns), what: self.to_string() }
    }
}

impl NvmlCode {
    fn failure_kind(self, concerns: CallTarget) -> FailureKind {
        let number = match self {
            Self::NoSuchFunction | Self::InvalidText | Self::MissingPciAddress => {
                return FailureKind::Rejected;
            }
            Self::Nvml(number) => number,
        };
        match (number, concerns) {
            (19, _) => FailureKind::InUse,
            (23, _) => FailureKind::InsufficientResources,
            (6, _) | (2, CallTarget::Instance) => FailureKind::NotFound,
            (10 | 11 | 27, _) => FailureKind::Temporary,
            (15 | 16, _) => FailureKind::DeviceLost,
            (1 | 9 | 18, _) => FailureKind::DriverLost,
            _ => FailureKind::Rejected,
        }
    }
}

impl fmt::Display for NvmlCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match self {
            Self::NoSuchFunction => return f.pad("not in this driver's library"),
            Self::InvalidText => return f.pad("returned bytes that are not text"),
            Self::MissingPciAddress => return f.pad("no PCI address in the response"),
            Self::Nvml(number) => *number,
        };
        let words = match number {
            1 => "uninitialized",
            2 => "invalid argument",
            3 => "not supported",
            4 => "no permission",
            6 => "not found",
            7 => "insufficient size",
            9 => "driver not loaded",
            10 => "timeout",
            11 => "interrupt problem",
            12 => "library not found",
            13 => "function not found",
            14 => "corrupted InfoROM",
            15 => "GPU is lost",
            16 => "reset required",
            17 => "blocked by the operating system",
            18 => "driver and library version mismatch",
            19 => "in use",
            20 => "out of memory",
            21 => "no data",
            23 => "insufficient resources",
            25 => "argument version mismatch",
            26 => "deprecated",
            27 => "not ready",
            28 => "GPU not found",
            29 => "invalid state",
            999 => "unknown error",
            _ => "error",
        };
        f.pad(&format!("{words} ({number})"))
    }
}

impl From<DriverError> for ReadProblem {
    fn from(error: DriverError) -> Self {
        Self { source: error.call.to_owned(), error: error.code.to_string() }
    }
}

impl DriverError {
    /// Returns the action that this error requires.
    pub fn remedy(self) -> Remedy {
        self.code.remedy()
    }

    /// Returns whether the error has this code.
    pub fn is(self, code: NvmlCode) -> bool {
        self.code == code
    }
}

/// Reason why no driver library is loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file was not found in any directory.
    #[error("no NVML library {name} (looked in {searched})")]
    NotFound {
        /// The file name.
        name: String,
        /// The searched directories, abbreviated.
        searched: String,
    },
    /// The dynamic loader rejected the file.
    #[error("cannot load {path}: {reason}")]
    Unloadable {
        /// The file.
        path: PathBuf,
        /// The dynamic loader's error.
        reason: String,
    },
    /// The file is a library other than NVML.
    #[error("{path} is not an NVML library: it lacks {missing}")]
    NotNvml {
        /// The file.
        path: PathBuf,
        /// The missing functions.
        missing: String,
    },
    /// NVML failed to initialize.
    #[error("cannot initialize NVML from {path}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// The returned error.
        source: DriverError,
    },
    /// The driver version has an unknown format.
    #[error("cannot read the driver version from {path}")]
    Version {
        /// The file.
        path: PathBuf,
        /// The parse error.
        source: octavo_model::id::ParseError,
    },
}

impl LoadError {
    /// Returns whether another file may work. After an error from NVML itself, the file is the right one.
    pub fn is_file_error(&self) -> bool {
        match self {
            Self::NotFound { .. } | Self::Unloadable { .. } | Self::NotNvml { .. } => true,
            Self::Refused { .. } | Self::Version { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::inventory::NvmlState;
    use octavo_toolkit::error::chain;

    use super::*;

    #[test]
    fn missing_library_differs_from_unusable_one() {
        let path = PathBuf::from("/usr/lib64/libnvidia-ml.so.1");
        let is_without = |error: &LoadError| {
            let reason = chain(error);
            NvmlState::Absent { reason }.is_without_library()
        };
        assert!(is_without(&LoadError::NotFound {
            name: "libnvidia-ml.so.1".to_owned(),
            searched: "/".to_owned(),
        }));
        let (reason, missing) = ("too short".to_owned(), "nvmlInit_v2".to_owned());
        for error in [
            LoadError::Unloadable { path: path.clone(), reason },
            LoadError::NotNvml { path, missing },
        ] {
            assert!(!is_without(&error), "{error}");
        }
    }

    #[test]
    fn every_code_has_one_remedy() {
        let remedy = |number| NvmlCode::Nvml(number).remedy();
        assert_eq!([1, 9, 18].map(remedy), [Remedy::Reinitialize; 3]);
        assert_eq!([15, 16].map(remedy), [Remedy::Reset; 2]);
        assert_eq!([10, 19, 27].map(remedy), [Remedy::Retry; 3]);
        assert_eq!([2, 4, 23].map(remedy), [Remedy::Refused; 3]);
        assert_eq!([3, 13].map(remedy), [Remedy::Unavailable; 2]);
        assert_eq!([7, 25, 999, 77].map(remedy), [Remedy::Bug; 4]);
        assert_eq!(NvmlCode::NoSuchFunction.remedy(), Remedy::Unavailable);
    }

    #[test]
    fn every_code_has_one_failure_kind() {
        use FailureKind::{
            DeviceLost, DriverLost, InUse, InsufficientResources, NotFound, Rejected, Temporary,
        };
        let cases = [
            (19, InUse),
            (23, InsufficientResources),
            (6, NotFound),
            (10, Temporary),
            (11, Temporary),
            (27, Temporary),
            (15, DeviceLost),
            (16, DeviceLost),
            (1, DriverLost),
            (9, DriverLost),
            (18, DriverLost),
            (3, Rejected),
            (4, Rejected),
            (13, Rejected),
            (20, Rejected),
            (999, Rejected),
        ];
        for concerns in [CallTarget::Instance, CallTarget::Other] {
            for (number, kind) in cases {
                let found = NvmlCode::Nvml(number).failure_kind(concerns);
                assert_eq!(found, kind, "{number}");
            }
            let lacking = NvmlCode::NoSuchFunction.failure_kind(concerns);
            assert_eq!(lacking, Rejected);
        }
        let meaningless = |concerns| NvmlCode::INVALID_ARGUMENT.failure_kind(concerns);
        assert_eq!(meaningless(CallTarget::Instance), NotFound);
        assert_eq!(meaningless(CallTarget::Other), Rejected);
        let error = DriverError { call: "nvmlGpuInstanceDestroy", code: NvmlCode::Nvml(19) };
        assert_eq!(
            error.failure(CallTarget::Instance).to_string(),
            "nvmlGpuInstanceDestroy: in use (19)"
        );
    }

    #[test]
    fn error_message_names_call_and_code_once() {
        let source = DriverError { call: "nvmlInit_v2", code: NvmlCode::Nvml(9) };
        let error =
            LoadError::Refused { path: PathBuf::from("/usr/lib64/libnvidia-ml.so.1"), source };
        assert_eq!(
            chain(&error),
            "cannot initialize NVML from /usr/lib64/libnvidia-ml.so.1: nvmlInit_v2: driver not loaded (9)"
        );
    }
}
