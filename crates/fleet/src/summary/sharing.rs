//! Summary of a node's sharing status.

use octavo_model::reason::{Reason, Severity};
use octavo_model::reported::Reported;
use octavo_model::sharing_status::{DeviceProvider, SharingStatus};

use super::layout::summarized;

/// Summary of a node's allocation status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingSummary {
    /// Component that allocates devices.
    pub mode: Reported<DeviceProvider>,
    /// State.
    pub state: Reported<Reason>,
    /// Explanation, truncated.
    pub message: Option<String>,
    /// Extent of time-slicing.
    pub time_slicing: TimeSlicingExtent,
}

/// Extent of time-slicing among the units that are currently allocatable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeSlicingExtent {
    /// No unit, or unknown.
    #[default]
    None,
    /// Some units.
    Some,
    /// All units.
    All,
}

impl SharingSummary {
    /// Summarizes a reported status.
    pub fn of(status: &SharingStatus) -> Self {
        Self {
            mode: status.mode.clone(),
            state: status.state.clone(),
            message: status.message.as_deref().map(summarized),
            time_slicing: TimeSlicingExtent::of(status),
        }
    }

    /// Returns `true` if the state needs attention. An unknown state comes from a newer agent and is not treated as a
    /// warning.
    pub fn needs_attention(&self) -> bool {
        self.state.known().is_some_and(|reason| reason.kind() == Severity::Warning)
    }

    /// Explanation of the state for users.
    pub fn why(&self) -> String {
        match &self.message {
            Some(message) => summarized(&format!("{}: {message}", self.state)),
            None => self.state.to_string(),
        }
    }
}

impl TimeSlicingExtent {
    /// Desired units that are not applied yet do not count.
    fn of(status: &SharingStatus) -> Self {
        let units = status.applied_units().map(|(_, unit)| unit);
        let (shared, alone): (Vec<_>, Vec<_>) = units.partition(|unit| unit.replicas.is_some());
        match (shared.is_empty(), alone.is_empty()) {
            (true, _) => Self::None,
            (false, false) => Self::Some,
            (false, true) => Self::All,
        }
    }
}
