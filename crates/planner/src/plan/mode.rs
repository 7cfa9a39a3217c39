//! Changes of MIG mode and their disruption.

use std::fmt;

use octavo_model::id::PciAddress;
use octavo_model::interconnect::InterconnectKind;
use octavo_model::inventory::MigMode;
use serde::Serialize;
use serde_with::{DisplayFromStr, serde_as, skip_serializing_none};
use utoipa::ToSchema;

/// Disruption of workloads by a change, smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = DisruptionJson)]
pub enum Disruption {
    /// Nothing is affected.
    #[default]
    None,
    /// All clients of the device must close it temporarily: monitoring, the device plugin, persistence.
    ClientsBounce,
    /// The device is reset.
    GpuReset,
    /// The machine is rebooted.
    Reboot,
}

/// A change of MIG mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModeChange {
    /// The desired mode.
    pub to: MigMode,
    /// True if the mode is already set and only the reset is missing.
    pub pending: bool,
    /// Disruption of the change. Source: NVIDIA MIG User Guide, "Enable MIG Mode": GPUs up to Ampere need a reset,
    /// since Hopper they do not.
    pub disruption: Disruption,
    /// Devices affected by the reset, if one is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<ResetScope>,
}

/// Devices affected by a reset.
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResetScope {
    /// PCI address of the device itself.
    #[schema(value_type = String)]
    pub device: PciAddress,
    /// Devices linked to it directly or indirectly, which the driver may require to be reset together; ordered by
    /// address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub coupled: Vec<PciAddress>,
    /// Kind of the links: `nvlink`, `nvswitch`.
    #[serde_as(as = "Option<DisplayFromStr>")]
    #[schema(value_type = Option<String>)]
    pub links: Option<InterconnectKind>,
}

impl Disruption {
    /// All values, smallest first.
    pub const ALL: [Self; 4] = [Self::None, Self::ClientsBounce, Self::GpuReset, Self::Reboot];

    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ClientsBounce => "clients-bounce",
            Self::GpuReset => "gpu-reset",
            Self::Reboot => "reboot",
        }
    }
}

impl fmt::Display for Disruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
