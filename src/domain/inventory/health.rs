//! How a device is, and what of it could not be read.

/// What the driver says of a device's health. Absent: the board does not have it, or would not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// Whether ECC is on.
    pub ecc_enabled: Option<bool>,
    /// Uncorrected memory errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// Row remapping.
    pub remapped_rows: Option<RemappedRows>,
    /// What the driver wants done.
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
    /// A remapping failed: the board is to be replaced.
    pub failed: bool,
}

/// What the driver wants done. Source: field 230, `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Nothing.
    None,
    /// A GPU reset.
    ResetGpu,
    /// A reboot of the node.
    RebootNode,
    /// Peer-to-peer traffic to be drained.
    DrainP2p,
    /// To be drained and then reset.
    DrainAndReset,
    /// A number newer than this list.
    Other(u32),
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The NVML function or the file.
    pub what: String,
    /// What it answered.
    pub error: String,
}
