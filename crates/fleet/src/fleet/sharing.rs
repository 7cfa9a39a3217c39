//! Allocation status of a node, as the node reports it.
//!
//! Modes and states are words, as in [`super::LayoutStatus`]: a newer agent may have some that an older reader does
//! not know. Every text and list has a maximum length, which the writer enforces and the reader validates.

use octavo_model::reason::{Reason, Severity};
use octavo_model::sharing_status::{HandOff, Health, ResourceStatus, RetainedId, UnitStatus};
use octavo_model::{resource::ResourceName, sharing_status::SharingStatus};

use super::layout::{MAX_TEXT_BYTES, MAX_WORD_BYTES, summarized, truncate, truncated_word};

/// Maximum number of resources per node.
pub const MAX_RESOURCES: usize = 64;
/// Maximum number of units per resource: whole devices, or all partitions of all devices.
pub const MAX_UNITS: usize = 1024;
/// Maximum number of ids reported as retained for pods.
pub const MAX_RETAINED: usize = 256;
/// Maximum length of the reported configuration of NVIDIA's plugin, in bytes.
pub const MAX_CONFIG_BYTES: usize = 32 * 1024;

/// Allocation status that a node reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharingReport {
    /// Component that allocates devices, as a word.
    pub mode: String,
    /// State, as a reason word.
    pub state: String,
    /// Explanation for users.
    pub message: Option<String>,
    /// Resources, ordered by name.
    pub resources: Vec<ResourceStatus>,
    /// Allocations that deviate from the desired ones until their pods release them.
    pub retained: Vec<RetainedId>,
    /// Desired configuration of NVIDIA's plugin.
    pub hand_off: Option<HandOff>,
    /// Configuration key that the node's plugin currently refers to and cannot start without.
    pub named: Option<String>,
}

/// Summary of a node's allocation status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingSummary {
    /// Component that allocates devices, as a word.
    pub mode: String,
    /// State, as a reason word.
    pub state: String,
    /// Explanation, truncated for lists.
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

impl SharingReport {
    /// Converts a status for reporting. A configuration that is too long is omitted, because a truncated one would
    /// have another meaning.
    pub fn from_status(status: &SharingStatus) -> Self {
        let fits = |told: &&HandOff| {
            told.key.len() <= MAX_WORD_BYTES && told.config.len() <= MAX_CONFIG_BYTES
        };
        let resources = status.resources.iter().take(MAX_RESOURCES);
        Self {
            mode: status.mode.as_str().to_owned(),
            state: truncated_word(status.state),
            message: status.message.as_deref().map(truncated_text),
            resources: resources.map(resource).collect(),
            retained: status
                .retained
                .iter()
                .take(MAX_RETAINED)
                .map(retained_for_report)
                .collect(),
            hand_off: status.hand_off.as_ref().filter(fits).cloned(),
            named: status.named.as_deref().map(truncated_word),
        }
    }

    /// Devices and partitions with the resource of each, where what the node allocates is what the layout asks for;
    /// empty otherwise.
    ///
    /// A fault of one device does not affect the others: then only resources count for which the Node offers all
    /// healthy units.
    pub fn applied_units(&self) -> impl Iterator<Item = (&ResourceName, &UnitStatus)> {
        let reason = Reason::parse(&self.state);
        let resources = self.resources.iter().filter(move |one| match reason {
            Some(Reason::SharingInForce | Reason::SharingHeld) => true,
            Some(Reason::SharingNotInForce) => is_fully_offered(one),
            Some(_) | None => false,
        });
        resources.flat_map(|one| one.units.iter().map(move |unit| (&one.name, unit)))
    }

    /// Truncates lists to `few` items and descriptions to `most` bytes. The configuration of NVIDIA's plugin is never
    /// truncated.
    pub fn shorten(&mut self, few: usize, most: usize) {
        self.retained.truncate(few);
        if let Some(text) = &mut self.message {
            *text = truncate(text, most);
        }
        for resource in &mut self.resources {
            resource.units.truncate(few);
            for unit in &mut resource.units {
                if let Health::Unhealthy { reason } = &mut unit.health {
                    *reason = truncate(reason, most);
                }
            }
        }
    }
}

impl SharingSummary {
    /// Summarizes a reported status.
    pub fn of(report: &SharingReport) -> Self {
        Self {
            mode: report.mode.clone(),
            state: report.state.clone(),
            message: report.message.as_deref().map(summarized),
            time_slicing: TimeSlicingExtent::of(report),
        }
    }

    /// Returns `true` if the state needs attention. An unknown state comes from a newer agent and is not treated as a
    /// warning.
    pub fn needs_attention(&self) -> bool {
        Reason::parse(&self.state).is_some_and(|reason| reason.kind() == Severity::Warning)
    }

    /// Explanation of the state for users.
    pub fn why(&self) -> String {
        match &self.message {
            Some(message) => summarized(&format!("{}: {message}", self.state)),
            None => self.state.clone(),
        }
    }
}

impl TimeSlicingExtent {
    /// Desired units that are not applied yet do not count.
    fn of(report: &SharingReport) -> Self {
        let units = report.applied_units().map(|(_, unit)| unit);
        let (shared, alone): (Vec<_>, Vec<_>) = units.partition(|unit| unit.replicas.is_some());
        match (shared.is_empty(), alone.is_empty()) {
            (true, _) => Self::None,
            (false, false) => Self::Some,
            (false, true) => Self::All,
        }
    }
}

/// Returns `true` if the Node offers all healthy units of the resource, and there are some.
fn is_fully_offered(resource: &ResourceStatus) -> bool {
    let healthy = resource.units.iter().filter(|one| one.health.is_healthy());
    let fit: u64 = healthy
        .map(|one| u64::from(one.replicas.unwrap_or(1)))
        .fold(0, u64::saturating_add);
    fit > 0 && resource.allocatable == Some(fit)
}

fn truncated_text(text: &str) -> String {
    truncate(text, MAX_TEXT_BYTES)
}

fn resource(resource: &ResourceStatus) -> ResourceStatus {
    let units = resource.units.iter().take(MAX_UNITS);
    ResourceStatus {
        units: units
            .map(|unit| {
                let mut unit = unit.clone();
                unit.uuid = truncated_word(&unit.uuid);
                if let Health::Unhealthy { reason } = &mut unit.health {
                    *reason = truncated_text(reason);
                }
                unit
            })
            .collect(),
        ..resource.clone()
    }
}

/// The device id is not repeated.
fn retained_for_report(one: &RetainedId) -> RetainedId {
    let mut one = one.clone();
    let by = &mut one.by;
    for text in [
        &mut by.namespace,
        &mut by.pod,
        &mut by.container,
        &mut by.resource,
    ] {
        *text = truncated_word(text);
    }
    by.device_id = one.id.to_string();
    one
}
