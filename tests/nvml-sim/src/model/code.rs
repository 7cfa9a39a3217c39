//! NVML's return codes.
//!
//! Every operation of the model returns `Result<_, Code>`, and the C layer converts the code to its number. The numbers
//! and messages are those of `nvml.h` and of `nvmlErrorString`.

use std::ffi::CStr;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $constant:literal, $message:literal;)*) => {
        /// Return code of an NVML call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u32)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $constant)] $name = $number,)*
        }

        impl Code {
            /// Every code, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name without its prefix (`NVML_SUCCESS`, `NVML_ERROR_`), as in scenarios and fault rules.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $constant,)* }
            }

            /// The answer of `nvmlErrorString`; lives as long as the library.
            pub const fn message(self) -> &'static CStr {
                match self { $(Self::$name => $message,)* }
            }
        }
    };
}

codes! {
    /// The call succeeded.
    Success = 0, "SUCCESS", c"Success";
    /// `nvmlInit` was not called, or the session ended.
    Uninitialized = 1, "UNINITIALIZED", c"Uninitialized";
    /// An argument is null, unknown or out of range.
    InvalidArgument = 2, "INVALID_ARGUMENT", c"Invalid Argument";
    /// The device does not support the call.
    NotSupported = 3, "NOT_SUPPORTED", c"Not Supported";
    /// The caller has no permission.
    NoPermission = 4, "NO_PERMISSION", c"Insufficient Permissions";
    /// Deprecated and unused.
    AlreadyInitialized = 5, "ALREADY_INITIALIZED", c"Already Initialized";
    /// The object does not exist.
    NotFound = 6, "NOT_FOUND", c"Not Found";
    /// The caller's buffer is too small.
    InsufficientSize = 7, "INSUFFICIENT_SIZE", c"Insufficient Size";
    /// A power cable is missing.
    InsufficientPower = 8, "INSUFFICIENT_POWER", c"Insufficient External Power";
    /// The kernel module is not loaded.
    DriverNotLoaded = 9, "DRIVER_NOT_LOADED", c"Driver Not Loaded";
    /// The timeout expired.
    Timeout = 10, "TIMEOUT", c"Timeout";
    /// Interrupts do not arrive.
    IrqIssue = 11, "IRQ_ISSUE", c"Interrupt Request Issue";
    /// The library itself is missing.
    LibraryNotFound = 12, "LIBRARY_NOT_FOUND", c"NVML Shared Library Not Found";
    /// The library lacks the function.
    FunctionNotFound = 13, "FUNCTION_NOT_FOUND", c"Function Not Found";
    /// The board's `InfoROM` is damaged.
    CorruptedInforom = 14, "CORRUPTED_INFOROM", c"Corrupted infoROM";
    /// The GPU fell off the bus.
    GpuIsLost = 15, "GPU_IS_LOST", c"GPU is lost";
    /// The GPU needs a reset first.
    ResetRequired = 16, "RESET_REQUIRED", c"GPU requires restart";
    /// The operating system (cgroups) blocks the device.
    OperatingSystem = 17, "OPERATING_SYSTEM", c"The operating system has blocked the request.";
    /// Library and kernel module are of different driver versions.
    LibRmVersionMismatch = 18, "LIB_RM_VERSION_MISMATCH", c"RM has detected an NVML/RM version mismatch.";
    /// The object is in use.
    InUse = 19, "IN_USE", c"In use by another client";
    /// Out of memory.
    Memory = 20, "MEMORY", c"Insufficient Memory";
    /// Nothing to report.
    NoData = 21, "NO_DATA", c"No data";
    /// ECC is off on a vGPU that needs it.
    VgpuEccNotSupported = 22, "VGPU_ECC_NOT_SUPPORTED", c"The requested vgpu operation is not available on target device, because ECC is enabled";
    /// The GPU is full, or the placement is taken: NVML does not distinguish them.
    InsufficientResources = 23, "INSUFFICIENT_RESOURCES", c"Insufficient Resources";
    /// The frequency is not offered.
    FreqNotSupported = 24, "FREQ_NOT_SUPPORTED", c"Frequency is not supported";
    /// The `version` field of a structure is unknown.
    ArgumentVersionMismatch = 25, "ARGUMENT_VERSION_MISMATCH", c"Version of an argument is not supported";
    /// The function is no longer supported.
    Deprecated = 26, "DEPRECATED", c"The requested functionality has been deprecated";
    /// Not ready yet; retry later.
    NotReady = 27, "NOT_READY", c"The system is not ready for the request";
    /// There is no GPU.
    GpuNotFound = 28, "GPU_NOT_FOUND", c"No GPUs were found";
    /// Not possible in this state.
    InvalidState = 29, "INVALID_STATE", c"Resource not in correct state to perform requested operation";
    /// The device does not support this reset.
    ResetTypeNotSupported = 30, "RESET_TYPE_NOT_SUPPORTED", c"Reset type not supported for the specified device";
    /// Anything else.
    Unknown = 999, "UNKNOWN", c"Unknown Error";
}

impl Code {
    /// The number for C clients.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The code of a number; `None` if `nvml.h` has no such number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.code() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_those_of_the_header_without_gaps() {
        let numbers: Vec<u32> = Code::ALL.iter().map(|code| code.code()).collect();
        let expected: Vec<u32> = (0..=30).chain([999]).collect();
        assert_eq!(numbers, expected);
        assert_eq!(Code::from_number(23), Some(Code::InsufficientResources));
        assert_eq!(Code::from_number(31), None);
    }

    #[test]
    fn scenario_writes_code_by_its_name() {
        let code: Code = serde_json::from_str("\"IN_USE\"").unwrap();
        assert_eq!(code, Code::InUse);
    }
}
