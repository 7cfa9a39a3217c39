//! What a change of MIG mode costs.

use std::fmt;

use crate::domain::id::PciAddress;
use crate::domain::interconnect::InterconnectKind;
use crate::domain::inventory::MigMode;

/// What a change costs those who use the node, the cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Disruption {
    /// Nobody notices.
    #[default]
    None,
    /// Whoever has the device open must let go and come back: monitoring, the device plugin, persistence.
    ClientsBounce,
    /// The device is reset.
    GpuReset,
    /// The machine is rebooted.
    Reboot,
}

/// A change of MIG mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChange {
    /// The mode to have.
    pub to: MigMode,
    /// Whether the driver has been told already and only the reset is missing.
    pub pending: bool,
    /// What it costs. Source: NVIDIA MIG User Guide, "Enable MIG Mode": up to Ampere a GPU is reset, since Hopper it is not.
    pub disruption: Disruption,
    /// What a reset concerns, where there is one.
    pub reset: Option<ResetScope>,
}

/// What a reset concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetScope {
    /// The device itself.
    pub device: PciAddress,
    /// Devices that it is linked with, directly or through others, which the driver may want to reset with it; in the order of
    /// their addresses.
    pub coupled: Vec<PciAddress>,
    /// What couples them.
    pub links: Option<InterconnectKind>,
}

impl Disruption {
    /// All of them, the cheapest first.
    pub const ALL: [Self; 4] = [
        Self::None,
        Self::ClientsBounce,
        Self::GpuReset,
        Self::Reboot,
    ];

    /// The word.
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
