//! Causes that block a plan. Their texts are in `messages.rs`.

use octavo_model::catalog::Placement;
use octavo_model::holder::Holder;

use super::mode::Disruption;

/// The causes that block a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// All causes; never empty. Of all ways to reach the target, these block the one with the fewest instances in use.
    pub causes: Vec<Cause>,
}

/// A cause that blocks a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A GPU instance, or some of its compute instances, must be destroyed but is in use.
    InstanceInUse {
        /// The driver's id of the GPU instance.
        gpu_instance: u32,
        /// Profile of the GPU instance.
        profile_id: u32,
        /// Placement of the GPU instance.
        placement: Placement,
        /// Ids of the compute instances that are in use and must be destroyed; empty for the whole GPU instance.
        compute_instances: Vec<u32>,
        /// The holders; empty if the driver does not report them, which counts as in use.
        holders: Vec<Holder>,
    },
    /// The MIG mode must change but the device is in use.
    DeviceInUse {
        /// The holders; empty if the driver does not report them, which counts as in use.
        holders: Vec<Holder>,
    },
    /// A mode change exceeds the allowed disruption.
    NotAllowed {
        /// Disruption of the mode change.
        disruption: Disruption,
    },
    /// The device does not respond, or does not report its state.
    StateUnknown {
        /// The missing information, as text.
        reason: String,
    },
    /// The hardware refused every arrangement that its profile tables allow.
    HardwareRefused,
}

impl Cause {
    /// Returns the known holders that block the change, mutably.
    pub(crate) fn holders_mut(&mut self) -> &mut [Holder] {
        match self {
            Self::InstanceInUse { holders, .. } | Self::DeviceInUse { holders } => holders,
            Self::NotAllowed { .. } | Self::StateUnknown { .. } | Self::HardwareRefused => &mut [],
        }
    }

    /// Returns the known holders that block the change.
    pub fn holders(&self) -> &[Holder] {
        match self {
            Self::InstanceInUse { holders, .. } | Self::DeviceInUse { holders } => holders,
            Self::NotAllowed { .. } | Self::StateUnknown { .. } | Self::HardwareRefused => &[],
        }
    }
}
