//! How far what is given out is what shall be: for everybody who asks.

use super::health::Health;
use super::resource::{ResourceName, ShareId};
use crate::domain::holder::PodDevice;

/// Who gives devices out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// NVIDIA's device plugin, which is told how.
    HandOff,
    /// The agent.
    Embedded,
}

impl Mode {
    /// The word: as in `--sharing`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HandOff => "hand-off",
            Self::Embedded => "embedded",
        }
    }
}

/// How far what is given out is what shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingStatus {
    /// Who gives devices out.
    pub mode: Mode,
    /// In a word, one of `domain::reason`'s for sharing: `sharing-in-force`, `sharing-pending`, `sharing-held`, `sharing-not-in-force`,
    /// `sharing-refused`, `device-plugin-conflict`.
    pub state: &'static str,
    /// Why, and what to do, in words for a person; absent where there is nothing to explain.
    pub message: Option<String>,
    /// Ordered by name.
    pub resources: Vec<ResourceStatus>,
    /// What is given out otherwise than it shall be for as long as pods have it.
    pub kept: Vec<Kept>,
    /// What NVIDIA's plugin shall be told; absent where it is told nothing.
    pub hand_off: Option<HandOff>,
    /// The key that the Node's label names now, where it is ours: the plugin does not start without it, whatever it shall be told.
    pub named: Option<String>,
}

/// How far a resource is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceStatus {
    /// Its name.
    pub name: ResourceName,
    /// How many there shall be.
    pub wanted: u64,
    /// How many of them the Node offers to pods; `None` where nobody looks at the Node.
    pub allocatable: Option<u64>,
    /// Ordered by device, then by the driver's ids of the instances.
    pub units: Vec<UnitStatus>,
}

/// How a unit is given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitStatus {
    /// UUID of the device or partition.
    pub uuid: String,
    /// How many have it by turns; `None` where one has it alone.
    pub replicas: Option<u32>,
    /// Whether it is fit to be given out.
    pub health: Health,
}

/// An id that is given out otherwise than it shall be, because a pod has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// The id.
    pub id: ShareId,
    /// Who has it.
    pub by: PodDevice,
}

/// What NVIDIA's plugin shall be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOff {
    /// The key of the `ConfigMap`, which is also the value of the Node's label.
    pub key: String,
    /// The configuration, `version: v1` of NVIDIA's.
    pub config: String,
}
