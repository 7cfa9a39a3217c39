//! Events that the driver reports through `nvmlEventSetWait`.
//!
//! Events are numbered and stored in the world, so that a wait queries the events after the last one it saw. The list
//! is bounded; a slow reader misses the oldest, as with the real queue.

use serde::{Deserialize, Serialize};

/// Number of stored events.
pub(crate) const MAX_EVENTS: usize = 1024;

/// Event types that a client can register for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A corrected ECC error.
    SingleBitEcc,
    /// An uncorrected ECC error.
    DoubleBitEcc,
    /// An Xid; `data` is its number.
    Xid,
    /// MIG instances or mode changed.
    MigConfigChange,
    /// The GPU cannot be used any more.
    GpuUnavailable,
    /// The recovery action (field 230) changed; `data` is the new one.
    RecoveryAction,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Increases by one with each event of the world; the first is 1.
    pub sequence: u64,
    /// Its type.
    pub kind: EventKind,
    /// For an Xid its number, else kind-specific or 0.
    pub data: u64,
    /// Its GPU.
    pub gpu_uuid: String,
    /// The GPU instance, if it is confined to one.
    pub gi: Option<u32>,
    /// The compute instance, when known.
    pub ci: Option<u32>,
}

impl EventKind {
    /// The `nvmlEventType*` bit.
    pub const fn bit(self) -> u64 {
        match self {
            Self::SingleBitEcc => 0x1,
            Self::DoubleBitEcc => 0x2,
            Self::Xid => 0x8,
            Self::MigConfigChange => 0x100,
            Self::GpuUnavailable => 0x4000,
            Self::RecoveryAction => 0x8000,
        }
    }
}
