//! Health data of a device, and read errors.

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as, skip_serializing_none};
use utoipa::ToSchema;

/// Health data that the driver reports. Absent: the board does not support it, or it could not be read.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Health {
    /// True if ECC is enabled; `None` if not reported.
    pub ecc_enabled: Option<bool>,
    /// Uncorrected memory errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// Row remapping.
    pub remapped_rows: Option<RemappedRows>,
    /// Recovery action that the driver requests.
    #[schema(value_type = Option<String>)]
    pub recovery_action: Option<RecoveryAction>,
}

/// Row remapping of a device's memory. Source: `nvmlDeviceGetRemappedRows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
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
#[serde_as]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    expecting = "expected none, resetGpu, rebootNode, drainP2p, drainAndReset or a number in quotes"
)]
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
    #[serde(untagged)]
    Other(#[serde_as(as = "DisplayFromStr")] u32),
}

impl From<u32> for RecoveryAction {
    /// Converts NVML's number.
    fn from(number: u32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::ResetGpu,
            2 => Self::RebootNode,
            3 => Self::DrainP2p,
            4 => Self::DrainAndReset,
            other => Self::Other(other),
        }
    }
}

impl RecoveryAction {
    /// NVML's number.
    pub fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::ResetGpu => 1,
            Self::RebootNode => 2,
            Self::DrainP2p => 3,
            Self::DrainAndReset => 4,
            Self::Other(number) => number,
        }
    }
}

/// Read error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HealthProblem)]
pub struct ReadProblem {
    /// NVML function or file.
    #[serde(rename = "what")]
    pub source: String,
    /// Error that it returned.
    pub error: String,
}
