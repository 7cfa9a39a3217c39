//! Derives Node events from the status of a node: each state change is reported once.
//!
//! Events are changes of what a [`Subject`] reports. [`super::event_queue::EventQueue`] decides how many are sent, and
//! when.

mod change;

use std::time::Duration;

use octavo_model::inventory::NvmlState;
use octavo_model::reason::Reason;
use octavo_model::sharing_status::SharingStatus;
use octavo_planner::reconcile::NodeLayoutStatus;

pub use self::change::{Change, Subject};
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
    state: &'static str,
    /// State of each device.
    devices: Vec<&'static str>,
    message: String,
    at: Duration,
}

/// A reported sharing state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EmittedSharing {
    state: &'static str,
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
    pub fn changes(&mut self, now: Duration, scene: &NodeObservation<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        changes.extend(self.driver(scene.nvml));
        if let Some(status) = scene.status {
            changes.extend(self.notice(status));
            changes.extend(self.drift(status));
            changes.extend(self.layout(now, status));
            changes.extend(self.sharing(now, status));
        }
        changes.extend(self.foreign_keys(scene.yielded));
        changes
    }

    fn driver(&mut self, nvml: &NvmlState) -> Option<Change> {
        let event = match nvml {
            NvmlState::Ready(driver) => event(
                Reason::DriverBack,
                format!("driver {} answers again", driver.version),
            ),
            NvmlState::Lost { reason } => {
                event(Reason::NvmlLost, format!("the driver is gone: {reason}"))
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
        let notice = status
            .notice
            .clone()
            .filter(|_| inapplicable_reason(status).is_none());
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
        let message = format!("somebody changed what {devices} had; it is brought back");
        Some(Change {
            subject: Subject::Drift,
            event: Some(event(Reason::Drifted, message)),
        })
    }

    fn layout(&mut self, now: Duration, status: &NodeLayoutStatus) -> Option<Change> {
        let began = std::mem::replace(&mut self.began, true);
        let (Some(layout), Some(state)) = (status.layout.clone(), status.state) else {
            return self.layout.take().map(|_| Change::none(Subject::Layout));
        };
        let told = EmittedEvent {
            devices: status.devices.iter().map(|device| device.state).collect(),
            message: message(&layout, status),
            layout,
            state,
            at: now,
        };
        let before = self.layout.as_ref();
        let same = before.is_some_and(|before| before.is_same_state(&told));
        let news = !same || before.is_some_and(|before| before.is_repeat_due(&told));
        // A node that already matches its layout when the agent starts is not an event.
        let quiet = !began && Reason::Applied.is(state) && status.history.changes == 0;
        let change = (news && !quiet).then(|| {
            let reason = Reason::parse(state).unwrap_or(Reason::Failed);
            Change {
                subject: Subject::Layout,
                event: Some(event(reason, told.message.clone())),
            }
        });
        if news {
            self.layout = Some(told);
        }
        change
    }

    fn sharing(&mut self, now: Duration, status: &NodeLayoutStatus) -> Option<Change> {
        let Some(sharing) = &status.sharing else {
            let withdrawn = self.sharing.take().filter(|_| self.sharing_warned);
            return withdrawn.map(|_| Change::none(Subject::Sharing));
        };
        let given = EmittedSharing {
            state: sharing.state,
            message: offered(sharing),
            at: now,
        };
        let before = self.sharing.as_ref();
        let same = before.is_some_and(|before| before.state == given.state);
        let again = before.is_some_and(|before| {
            before.message != given.message && now.saturating_sub(before.at) >= REPEAT_INTERVAL
        });
        if same && !again {
            return None;
        }
        // A node that already offers its layout when the agent starts is not an event.
        let in_force = Reason::SharingInForce.is(given.state);
        let quiet = before.is_none() && in_force && !self.sharing_warned;
        let reason = Reason::parse(given.state).filter(|reason| reason.event().is_some());
        let told = reason.map(|reason| event(reason, given.message.clone()));
        self.sharing = Some(given);
        // A state without an event withdraws a waiting warning.
        let is_change = told.is_some() || self.sharing_warned;
        if let Some(told) = &told {
            self.sharing_warned = told.reason != Reason::SharingInForce;
        }
        (is_change && !quiet).then_some(Change {
            subject: Subject::Sharing,
            event: told,
        })
    }

    fn foreign_keys(&mut self, yielded: &[ConflictingKey]) -> Option<Change> {
        if self.yielded == yielded {
            return None;
        }
        self.yielded = yielded.to_vec();
        if yielded.is_empty() {
            return Some(Change::none(Subject::Keys));
        }
        let keys: Vec<String> = yielded
            .iter()
            .map(|one| format!("{} ({})", one.key, one.owner))
            .collect();
        let message = format!(
            "others write these, and they are left to them: {}",
            keys.join(", ")
        );
        Some(Change::from(event(Reason::KeysLeftToOthers, message)))
    }
}

impl EmittedEvent {
    fn is_same_state(&self, other: &Self) -> bool {
        (&self.layout, self.state, &self.devices) == (&other.layout, other.state, &other.devices)
    }

    fn is_repeat_due(&self, other: &Self) -> bool {
        self.message != other.message && other.at.saturating_sub(self.at) >= REPEAT_INTERVAL
    }
}

impl From<OperandEvent> for Event {
    fn from(news: OperandEvent) -> Self {
        match news {
            OperandEvent::Paused => event(
                Reason::OperandsPaused,
                "GPU Operator's operands are paused: a client has a GPU open whose MIG mode is to change".to_owned(),
            ),
            OperandEvent::Restored => event(
                Reason::OperandsRestored,
                "GPU Operator's operands run again".to_owned(),
            ),
            OperandEvent::StillBlocked => event(
                Reason::OperandsPauseIneffective,
                "GPU Operator's operands run again; it was not they who have the GPU open".to_owned(),
            ),
            OperandEvent::Refreshed => event(
                Reason::DevicePluginRefreshed,
                "NVIDIA's device plugin starts again to see the new partitions".to_owned(),
            ),
            OperandEvent::Offered => event(
                Reason::PartitionsOffered,
                "kubelet offers the partitions that the node has".to_owned(),
            ),
            OperandEvent::NotOffered(mismatches) => event(
                Reason::PartitionsNotOffered,
                format!(
                    "kubelet does not offer the partitions that the node has ({}): look at NVIDIA's device plugin",
                    listed(&mismatches)
                ),
            ),
        }
    }
}

fn listed(mismatches: &[Mismatch]) -> String {
    let told: Vec<String> = mismatches
        .iter()
        .map(|one| {
            format!(
                "{}: {} there, {} offered",
                one.resource, one.actual, one.offered
            )
        })
        .collect();
    told.join("; ")
}

/// Returns the message of the sharing status, or the offered counts by resource.
fn offered(sharing: &SharingStatus) -> String {
    if let Some(message) = &sharing.message {
        return message.clone();
    }
    let told: Vec<String> = sharing
        .resources
        .iter()
        .map(|one| match one.allocatable {
            Some(offered) => format!("{}: {offered} of {} offered", one.name, one.wanted),
            None => format!("{}: {} asked for", one.name, one.wanted),
        })
        .collect();
    told.join("; ")
}

/// Returns the reason why the layout does not apply to this node, if it does not. Its devices keep their previous
/// state.
fn inapplicable_reason(status: &NodeLayoutStatus) -> Option<&str> {
    let failed = |word: &str| Reason::Failed.is(word);
    let of_a_device = status.devices.iter().any(|device| failed(device.state));
    let notice = status.notice.as_deref()?;
    (status.state.is_some_and(failed) && !of_a_device).then_some(notice)
}

/// Counts devices by state, and appends the messages of devices that have one.
fn message(layout: &str, status: &NodeLayoutStatus) -> String {
    if let Some(refusal) = inapplicable_reason(status) {
        return format!("layout {layout}: {refusal}");
    }
    let told: Vec<String> = status
        .devices
        .iter()
        .filter(|device| !device.message.is_empty())
        .map(|device| format!("{}: {}: {}", device.name, device.state, device.message))
        .collect();
    let mut words: Vec<&'static str> = status.devices.iter().map(|device| device.state).collect();
    words.sort_unstable();
    let mut counts: Vec<String> = Vec::new();
    for same in words.chunk_by(|one, other| one == other) {
        let word = same.first().copied().unwrap_or_default();
        counts.push(format!("{} {word}", same.len()));
    }
    let head = format!("layout {layout}: {}", counts.join(", "));
    match told.as_slice() {
        [] => head,
        some => format!("{head}. {}", some.join("; ")),
    }
}

pub(super) fn event(reason: Reason, message: String) -> Event {
    Event {
        reason,
        message,
        unit: None,
    }
}

#[cfg(test)]
mod tests;
