//! Derives Node events from the status of a node: each state change is reported once.
//!
//! Events are changes of what a [`Subject`] reports. [`super::event_queue::EventQueue`] decides how many are sent, and
//! when.

use std::time::Duration;

use octavo_model::inventory::NvmlState;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::sharing_status::SharingStatus;
use octavo_model::text::join;
use octavo_planner::reconcile::NodeLayoutStatus;

use super::node_diff::ConflictingKey;
use super::operands::{Mismatch, OperandEvent};

/// An event of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Reason, which users filter by, and which determines the event's type.
    pub reason: Reason,
    /// Message text.
    pub message: String,
    /// UUID of the device or partition that the event concerns, if any.
    pub unit: Option<String>,
}

/// Event deduplicator: retains the last reported state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventDeduplicator {
    layout: Option<EmittedEvent>,
    sharing: Option<EmittedSharing>,
    /// True if the last event about sharing was a warning.
    sharing_warned: bool,
    /// True if the status was observed before.
    began: bool,
    driver: Option<Reason>,
    notice: Option<String>,
    yielded: Vec<ConflictingKey>,
    drifts: u64,
}

/// A reported layout state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EmittedEvent {
    layout: String,
    state: Reported<Reason>,
    /// State of each device.
    devices: Vec<Reported<Reason>>,
    message: String,
    at: Duration,
}

/// A reported sharing state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EmittedSharing {
    state: Reported<Reason>,
    message: String,
    at: Duration,
}

/// The current state that events are derived from.
#[derive(Debug, Clone, Copy)]
pub struct NodeObservation<'a> {
    /// Status of the node, if a layout can be chosen for it.
    pub status: Option<&'a NodeLayoutStatus>,
    /// State of the driver.
    pub nvml: &'a NvmlState,
    /// Keys that other managers own.
    pub yielded: &'a [ConflictingKey],
}

/// Interval after which an unchanged state with a changed message is reported again.
const REPEAT_INTERVAL: Duration = Duration::from_mins(5);

impl EventDeduplicator {
    /// Returns the changes since the last call.
    pub fn changes(&mut self, now: Duration, observation: &NodeObservation<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        changes.extend(self.driver(observation.nvml));
        if let Some(status) = observation.status {
            changes.extend(self.notice(status));
            changes.extend(self.drift(status));
            changes.extend(self.layout(now, status));
            changes.extend(self.sharing(now, status));
        }
        changes.extend(self.foreign_keys(observation.yielded));
        changes
    }

    fn driver(&mut self, nvml: &NvmlState) -> Option<Change> {
        let event = match nvml {
            NvmlState::Ready(driver) => {
                event(Reason::DriverBack, format!("driver {} responds again", driver.version))
            }
            NvmlState::Lost { reason } => {
                event(Reason::NvmlLost, format!("the driver is no longer available: {reason}"))
            }
            NvmlState::Stalled { call, .. } => {
                event(Reason::NvmlStalled, format!("{call} does not return"))
            }
            // The driver has not been loaded yet, or is being replaced.
            NvmlState::Absent { .. } | NvmlState::Loading => return None,
        };
        let before = self.driver.replace(event.reason);
        let first = before.is_none() && event.reason == Reason::DriverBack;
        (before != Some(event.reason) && !first).then(|| Change::from(event))
    }

    fn notice(&mut self, status: &NodeLayoutStatus) -> Option<Change> {
        if self.notice == status.notice {
            return None;
        }
        self.notice.clone_from(&status.notice);
        // A layout that does not apply to this node is reported as a layout event instead.
        let notice = status.notice.clone().filter(|_| inapplicable_reason(status).is_none());
        Some(Change {
            subject: Subject::Notice,
            event: notice.map(|notice| event(Reason::LayoutNotice, notice)),
        })
    }

    fn drift(&mut self, status: &NodeLayoutStatus) -> Option<Change> {
        let known = std::mem::replace(&mut self.drifts, status.history.drifts);
        if known >= status.history.drifts {
            return None;
        }
        let devices = status.history.drifted.join(", ");
        let message = format!("another program changed {devices}; the layout is being restored");
        Some(Change { subject: Subject::Drift, event: Some(event(Reason::Drifted, message)) })
    }

    fn layout(&mut self, now: Duration, status: &NodeLayoutStatus) -> Option<Change> {
        let began = std::mem::replace(&mut self.began, true);
        let (Some(layout), Some(state)) = (status.layout.clone(), status.state.clone()) else {
            return self.layout.take().map(|_| Change::none(Subject::Layout));
        };
        let emitted = EmittedEvent {
            devices: status.devices.iter().map(|device| device.state.clone()).collect(),
            message: message(&layout, status),
            layout,
            state,
            at: now,
        };
        let before = self.layout.as_ref();
        let same = before.is_some_and(|before| before.is_same_state(&emitted));
        let is_new = !same || before.is_some_and(|before| before.is_repeat_due(&emitted));
        // A node that already matches its layout when the agent starts is not an event.
        let quiet = !began && emitted.state == Reason::Applied && status.history.changes == 0;
        let change = (is_new && !quiet).then(|| {
            let reason = emitted.state.known().unwrap_or(Reason::Failed);
            Change { subject: Subject::Layout, event: Some(event(reason, emitted.message.clone())) }
        });
        if is_new {
            self.layout = Some(emitted);
        }
        change
    }

    fn sharing(&mut self, now: Duration, status: &NodeLayoutStatus) -> Option<Change> {
        let Some(sharing) = &status.sharing else {
            let withdrawn = self.sharing.take().filter(|_| self.sharing_warned);
            return withdrawn.map(|_| Change::none(Subject::Sharing));
        };
        let sharing =
            EmittedSharing { state: sharing.state.clone(), message: offered(sharing), at: now };
        let before = self.sharing.as_ref();
        let same = before.is_some_and(|before| before.state == sharing.state);
        let again = before.is_some_and(|before| {
            before.message != sharing.message && now.saturating_sub(before.at) >= REPEAT_INTERVAL
        });
        if same && !again {
            return None;
        }
        // A node that already offers its layout when the agent starts is not an event.
        let in_force = sharing.state == Reason::SharingInForce;
        let quiet = before.is_none() && in_force && !self.sharing_warned;
        let reason = sharing.state.known().filter(|reason| reason.event().is_some());
        let event = reason.map(|reason| event(reason, sharing.message.clone()));
        self.sharing = Some(sharing);
        // A state without an event withdraws a waiting warning.
        let is_change = event.is_some() || self.sharing_warned;
        if let Some(event) = &event {
            self.sharing_warned = event.reason != Reason::SharingInForce;
        }
        (is_change && !quiet).then_some(Change { subject: Subject::Sharing, event })
    }

    fn foreign_keys(&mut self, yielded: &[ConflictingKey]) -> Option<Change> {
        if self.yielded == yielded {
            return None;
        }
        self.yielded = yielded.to_vec();
        if yielded.is_empty() {
            return Some(Change::none(Subject::Keys));
        }
        let keys: Vec<String> =
            yielded.iter().map(|one| format!("{} ({})", one.key, one.owner)).collect();
        let message = format!(
            "other writers manage these keys, so Octavo does not write them: {}",
            keys.join(", ")
        );
        Some(Change::from(event(Reason::KeysLeftToOthers, message)))
    }
}

impl EmittedEvent {
    fn is_same_state(&self, other: &Self) -> bool {
        (&self.layout, &self.state, &self.devices) == (&other.layout, &other.state, &other.devices)
    }

    fn is_repeat_due(&self, other: &Self) -> bool {
        self.message != other.message && other.at.saturating_sub(self.at) >= REPEAT_INTERVAL
    }
}

impl From<OperandEvent> for Event {
    fn from(operand_event: OperandEvent) -> Self {
        match operand_event {
            OperandEvent::Paused => event(
                Reason::OperandsPaused,
                "the GPU Operator's operands are paused: a client has a GPU open whose MIG mode must change",
            ),
            OperandEvent::Restored => {
                event(Reason::OperandsRestored, "the GPU Operator's operands run again")
            }
            OperandEvent::StillBlocked => event(
                Reason::OperandsPauseIneffective,
                "the GPU Operator's operands run again; pausing them did not release the GPU",
            ),
            OperandEvent::Refreshed => event(
                Reason::DevicePluginRefreshed,
                "NVIDIA's device plugin is being restarted to detect the new partitions",
            ),
            OperandEvent::Offered => event(
                Reason::PartitionsOffered,
                "the kubelet advertises the partitions of the node",
            ),
            OperandEvent::NotOffered(mismatches) => event(
                Reason::PartitionsNotOffered,
                format!(
                    "the kubelet does not advertise the partitions of the node ({}): check NVIDIA's device plugin",
                    listed(&mismatches)
                ),
            ),
        }
    }
}

fn listed(mismatches: &[Mismatch]) -> String {
    join(
        mismatches.iter().map(|one| {
            format!("{}: {} present, {} advertised", one.resource, one.actual, one.offered)
        }),
        "; ",
    )
}

/// Returns the message of the sharing status, or the offered counts by resource.
fn offered(sharing: &SharingStatus) -> String {
    if let Some(message) = &sharing.message {
        return message.clone();
    }
    let texts: Vec<String> = sharing
        .resources
        .iter()
        .map(|one| match one.allocatable {
            Some(offered) => format!("{}: {offered} of {} advertised", one.name, one.wanted),
            None => format!("{}: {} requested", one.name, one.wanted),
        })
        .collect();
    texts.join("; ")
}

/// Returns the reason why the layout does not apply to this node, if it does not. Its devices keep their previous
/// state.
fn inapplicable_reason(status: &NodeLayoutStatus) -> Option<&str> {
    let is_failed = |state: &Reported<Reason>| *state == Reason::Failed;
    let of_a_device = status.devices.iter().any(|device| is_failed(&device.state));
    let notice = status.notice.as_deref()?;
    (status.state.as_ref().is_some_and(is_failed) && !of_a_device).then_some(notice)
}

/// Counts devices by state, and appends the messages of devices that have one.
fn message(layout: &str, status: &NodeLayoutStatus) -> String {
    if let Some(refusal) = inapplicable_reason(status) {
        return format!("layout {layout}: {refusal}");
    }
    let texts: Vec<String> = status
        .devices
        .iter()
        .filter(|device| !device.message.is_empty())
        .map(|device| format!("{}: {}: {}", device.name, device.state, device.message))
        .collect();
    let mut words: Vec<&str> = status.devices.iter().map(|device| device.state.as_str()).collect();
    words.sort_unstable();
    let mut counts: Vec<String> = Vec::new();
    for same in words.chunk_by(|one, other| one == other) {
        let word = same.first().copied().unwrap_or_default();
        counts.push(format!("{} {word}", same.len()));
    }
    let head = format!("layout {layout}: {}", counts.join(", "));
    match texts.as_slice() {
        [] => head,
        some => format!("{head}. {}", some.join("; ")),
    }
}

pub(super) fn event(reason: Reason, message: impl Into<String>) -> Event {
    Event { reason, message: message.into(), unit: None }
}

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
    fn none(subject: Subject) -> Self {
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
            | Reason::DevicePluginConflict
            | Reason::ClaimsServed
            | Reason::ClaimsNotServed => Self::Sharing,
            Reason::DeviceUnhealthy
            | Reason::DeviceHealthy
            | Reason::MemoryOverShare
            | Reason::MemoryWithinShare
            | Reason::MemoryNearlyExhausted => Self::Unit(event.unit.clone().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests;
