//! What the driver would report through `nvmlEventSetWait`.
//!
//! Events are numbered and kept in the world, so that a wait is a question: what came after the last one I saw? The list
//! is bounded; a reader that falls far behind misses the oldest, as with the real queue.

use serde::{Deserialize, Serialize};

/// How many events are kept.
pub(crate) const KEPT: usize = 1024;

/// The kinds an event set can ask for.
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

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Grows by one with each event of the world; the first is 1.
    pub sequence: u64,
    /// What kind.
    pub kind: EventKind,
    /// For an Xid its number, else kind-specific or 0.
    pub data: u64,
    /// The GPU it happened on.
    pub gpu_uuid: String,
    /// The GPU instance, when it is known to be confined to one.
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
