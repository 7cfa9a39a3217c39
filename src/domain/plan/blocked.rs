//! Why nothing is done now, and what would change that.

use super::mode::Disruption;
use crate::domain::catalog::Placement;
use crate::domain::holder::Holder;

/// What is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// All of it; never empty. Of all ways to the target these are in the way of the one that least stands in the way of.
    pub causes: Vec<Cause>,
}

/// One thing that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A GPU instance, or compute instances of it, would have to go and is in use.
    InstanceInUse {
        /// The GPU instance, by the driver's id.
        gpu_instance: u32,
        /// What it is made from.
        profile_id: u32,
        /// Where it lies.
        placement: Placement,
        /// Those of its compute instances that are in use and would have to go, by id; empty for the whole instance.
        compute_instances: Vec<u32>,
        /// Who uses it; empty where the driver would not say, which counts as in use.
        holders: Vec<Holder>,
    },
    /// MIG mode would have to change and somebody uses the device.
    DeviceInUse {
        /// Who; empty where the driver would not say, which counts as in use.
        holders: Vec<Holder>,
    },
    /// A mode change costs more than is allowed.
    NotAllowed {
        /// What it costs.
        disruption: Disruption,
    },
    /// The device does not answer, or does not tell what it has.
    Untold {
        /// What is missing, in words for a person.
        reason: String,
    },
    /// The hardware refused every arrangement that its tables allow.
    Refused,
}

impl Cause {
    /// The same, to be changed.
    pub(in crate::domain) fn holders_mut(&mut self) -> &mut [Holder] {
        match self {
            Self::InstanceInUse { holders, .. } | Self::DeviceInUse { holders } => holders,
            Self::NotAllowed { .. } | Self::Untold { .. } | Self::Refused => &mut [],
        }
    }

    /// Who is in the way, as far as it is somebody and told.
    pub fn holders(&self) -> &[Holder] {
        match self {
            Self::InstanceInUse { holders, .. } | Self::DeviceInUse { holders } => holders,
            Self::NotAllowed { .. } | Self::Untold { .. } | Self::Refused => &[],
        }
    }
}
