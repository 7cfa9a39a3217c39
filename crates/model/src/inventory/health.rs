//! Health data of a device, and read errors.

/// Health data that the driver reports. Absent: the board does not support it, or it could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// True if ECC is enabled; `None` if not reported.
    pub ecc_enabled: Option<bool>,
    /// Uncorrected memory errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// Row remapping.
    pub remapped_rows: Option<RemappedRows>,
    /// Recovery action that the driver requests.
    pub recovery_action: Option<RecoveryAction>,
}

/// Row remapping of a device's memory. Source: `nvmlDeviceGetRemappedRows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemappedRows {
    /// Rows remapped after correctable errors.
    pub correctable: u32,
    /// Rows remapped after uncorrectable errors.
    pub uncorrectable: u32,
    /// A remapping waits for a reset.
    pub pending: bool,
    /// A remapping failed: the board must be replaced.
    pub failed: bool,
}

/// Recovery action that the driver requests. Source: field 230, `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryAction {
    /// No action.
    None,
    /// Reset the GPU.
    ResetGpu,
    /// Reboot the node.
    RebootNode,
    /// Drain peer-to-peer traffic.
    DrainP2p,
    /// Drain, then reset.
    DrainAndReset,
    /// A value newer than this list.
    Other(u32),
}

/// Read error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadProblem {
    /// NVML function or file.
    pub source: String,
    /// Error that it returned.
    pub error: String,
}
