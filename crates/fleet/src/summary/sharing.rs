//! Summary of a node's sharing status.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use octavo_model::reason::{Reason, Severity};
use octavo_model::reported::Reported;
use octavo_model::resource::ResourceName;
use octavo_model::sharing_status::{DeviceProvider, Health, ResourceStatus, SharingStatus};

use super::layout::summarized;
use super::problem::problem_text;

/// Summary of a node's allocation status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingSummary {
    /// Component that allocates devices.
    pub mode: Reported<DeviceProvider>,
    /// State.
    pub state: Reported<Reason>,
    /// Explanation, of bounded length.
    pub message: Option<String>,
    /// Extent of time-slicing.
    pub time_slicing: TimeSlicingExtent,
    /// Resources and unhealthy units.
    pub units: Arc<SharedUnits>,
}

/// Resources of a node and its unhealthy units, for comparison with later reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharedUnits {
    /// Replicas of each resource.
    pub replicas: BTreeMap<ResourceName, Replicas>,
    /// Reasons of unhealthy devices and partitions, by UUID.
    pub unhealthy: BTreeMap<String, String>,
}

/// Replicas of the units of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// Not time-sliced.
    None,
    /// Minimum and maximum number of replicas per unit.
    PerUnit(u32, u32),
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
            message: status.message.as_deref().map(problem_text),
            time_slicing: TimeSlicingExtent::of(status),
            units: Arc::new(SharedUnits::of(status)),
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

impl SharedUnits {
    fn of(status: &SharingStatus) -> Self {
        let resources = status.resources.iter();
        let units = status.resources.iter().flat_map(|resource| &resource.units);
        let unhealthy = units.filter_map(|unit| match &unit.health {
            Health::Healthy => None,
            Health::Unhealthy { reason } => Some((unit.uuid.clone(), problem_text(reason))),
        });
        Self {
            replicas: resources.map(|one| (one.name.clone(), Replicas::of(one))).collect(),
            unhealthy: unhealthy.collect(),
        }
    }
}

impl Replicas {
    fn of(resource: &ResourceStatus) -> Self {
        let counts = || resource.units.iter().filter_map(|unit| unit.replicas);
        match (counts().min(), counts().max()) {
            (Some(min), Some(max)) => Self::PerUnit(min, max),
            (None, _) | (_, None) => Self::None,
        }
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("not shared"),
            Self::PerUnit(min, max) if min == max => write!(f, "{min} replicas"),
            Self::PerUnit(min, max) => write!(f, "{min} to {max} replicas"),
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
