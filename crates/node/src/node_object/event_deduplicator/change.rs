//! Subjects of events, and changes of what they report.

use octavo_model::reason::Reason;

use super::Event;

/// Subject of events. A later event of a subject replaces an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Progress of the layout.
    Layout,
    /// Problems with the layout file or the state directory.
    Notice,
    /// Changes by another program that the agent reverts.
    Drift,
    /// Devices that the Node offers to pods.
    Sharing,
    /// The driver.
    Driver,
    /// Keys of the Node that another program writes.
    Keys,
    /// GPU Operator's operands.
    Operands,
    /// Partitions that kubelet offers.
    Partitions,
    /// Evictions.
    Drain,
    /// The health of a device or partition, by its UUID.
    Unit(String),
}

/// A change of what a subject reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The subject.
    pub subject: Subject,
    /// The event; `None` if unsent events of the subject no longer hold.
    pub event: Option<Event>,
}

impl Change {
    pub(super) fn none(subject: Subject) -> Self {
        Self { subject, event: None }
    }
}

impl From<Event> for Change {
    fn from(event: Event) -> Self {
        Self { subject: Subject::of(&event), event: Some(event) }
    }
}

impl Subject {
    fn of(event: &Event) -> Self {
        match event.reason {
            Reason::Applied
            | Reason::Pending
            | Reason::Applying
            | Reason::Yielded
            | Reason::Drifted
            | Reason::Blocked
            | Reason::RolledBack
            | Reason::NeedsReset
            | Reason::Infeasible
            | Reason::Failed => Self::Layout,
            Reason::LayoutNotice => Self::Notice,
            Reason::NoDriver
            | Reason::NvmlLost
            | Reason::NvmlStalled
            | Reason::DriverBack
            | Reason::Stale => Self::Driver,
            Reason::KeysLeftToOthers => Self::Keys,
            Reason::OperandsPaused
            | Reason::OperandsRestored
            | Reason::OperandsPauseIneffective => Self::Operands,
            Reason::DevicePluginRefreshed
            | Reason::PartitionsOffered
            | Reason::PartitionsNotOffered => Self::Partitions,
            Reason::DrainBegan
            | Reason::DrainEnded
            | Reason::DrainGaveUp
            | Reason::DrainRefused => Self::Drain,
            Reason::SharingInForce
            | Reason::SharingPending
            | Reason::SharingHeld
            | Reason::SharingNotInForce
            | Reason::SharingRefused
            | Reason::DevicePluginConflict => Self::Sharing,
            Reason::DeviceUnhealthy
            | Reason::DeviceHealthy
            | Reason::MemoryOverShare
            | Reason::MemoryWithinShare
            | Reason::MemoryNearlyExhausted => Self::Unit(event.unit.clone().unwrap_or_default()),
        }
    }
}
