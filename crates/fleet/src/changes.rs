//! Changes of a node over time: its agent, driver, devices, partitions, layout and allocation.
//!
//! ```text
//!   report --> Baseline: what differs from the last known values? --> Change --> ChangeLog: the last 64 of a node
//! ```
//!
//! A [`Baseline`] remembers the last known value of each property. A value that is unknown for a while, for example
//! while a driver is loaded, is therefore compared with the previous value. Reports that change nothing relevant, such as
//! those about processes and usage, are compared without allocations.

mod baseline;
pub mod document;
mod log;

use octavo_model::reported::Reported;
use octavo_model::text::truncate_visibly;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{AsRefStr, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

pub use baseline::{AgentRun, Baseline, Report};
pub use log::{ChangeEntry, ChangeLog, MAX_ENTRIES};

/// Change of a node.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Changed property: `connection`, `reports`, `agent`, `boot`, `driver`, `nvml`, `device`, `device-health`,
    /// `partitions`, `layout`, `layout-state`, `drain`, `allocation`, `replicas`, `unit-health`.
    #[schema(value_type = String)]
    pub kind: Reported<ChangeKind>,
    /// Changed devices, resource or driver; absent if the change concerns the node.
    pub object: Option<String>,
    /// Previous value; absent if there was none.
    pub from: Option<String>,
    /// New value; absent if there is none.
    pub to: Option<String>,
    /// Human-readable reason or further detail.
    pub message: Option<String>,
    /// True if the new value needs attention.
    pub needs_attention: bool,
}

/// Property of a node whose changes are recorded.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    AsRefStr,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// Connection of the agent.
    Connection,
    /// Timeliness of reports.
    Reports,
    /// Version or restart of the agent.
    Agent,
    /// Reboot of the node.
    Boot,
    /// Version of a driver.
    Driver,
    /// State of NVML.
    Nvml,
    /// A device was added, removed or replaced.
    Device,
    /// Health state of a device.
    DeviceHealth,
    /// Partitions of a device.
    Partitions,
    /// Desired layout.
    Layout,
    /// State of the layout.
    LayoutState,
    /// Drain of pods that block a layout.
    Drain,
    /// State of the allocation to pods.
    Allocation,
    /// Replicas of a shared resource.
    Replicas,
    /// Health of a unit that pods can be allocated.
    UnitHealth,
}

impl ChangeKind {
    /// Name of the property in texts.
    fn title(self) -> &'static str {
        match self {
            Self::Connection => "Agent",
            Self::Reports => "Reports",
            Self::Agent => "Agent version",
            Self::Boot => "Node",
            Self::Driver => "Driver",
            Self::Nvml => "NVML",
            Self::Device | Self::DeviceHealth => "Device",
            Self::Partitions => "Partitions",
            Self::Layout => "Desired layout",
            Self::LayoutState => "Layout state",
            Self::Drain => "Drain",
            Self::Allocation => "Allocation to pods",
            Self::Replicas => "Replicas",
            Self::UnitHealth => "Device or partition",
        }
    }
}

/// Maximum length of an object or value in bytes.
const MAX_VALUE_BYTES: usize = 128;
/// Maximum length of a message in bytes.
const MAX_MESSAGE_BYTES: usize = 512;

impl Change {
    /// Change of `kind` to a new value, without object, previous value and message.
    fn to(kind: ChangeKind, to: &str) -> Self {
        Self {
            kind: kind.into(),
            object: None,
            from: None,
            to: Some(truncate_visibly(to, MAX_VALUE_BYTES)),
            message: None,
            needs_attention: false,
        }
    }

    /// Change of `kind` from one value to another, each `None` if there is none.
    fn between(kind: ChangeKind, from: Option<&str>, to: Option<&str>) -> Self {
        let value = |value: &str| truncate_visibly(value, MAX_VALUE_BYTES);
        Self { from: from.map(value), to: to.map(value), ..Self::to(kind, "") }
    }

    #[must_use]
    fn of(self, object: &str) -> Self {
        Self { object: Some(truncate_visibly(object, MAX_VALUE_BYTES)), ..self }
    }

    #[must_use]
    fn because(self, message: Option<&str>) -> Self {
        let message = message.filter(|message| !message.is_empty());
        Self {
            message: message.map(|message| truncate_visibly(message, MAX_MESSAGE_BYTES)),
            ..self
        }
    }

    #[must_use]
    fn attention(self, needs_attention: bool) -> Self {
        Self { needs_attention, ..self }
    }

    /// One line without the message: `GPU 3: ok -> failing`.
    pub fn summary(&self) -> String {
        let kind = self.kind.known().map(ChangeKind::title);
        let kind = kind.unwrap_or_else(|| self.kind.as_str());
        let subject = self.object.as_deref().unwrap_or(kind);
        match (self.from.as_deref(), self.to.as_deref()) {
            (Some(from), to) => format!("{subject}: {from} -> {}", to.unwrap_or("none")),
            (None, Some(to)) => format!("{subject}: {to}"),
            (None, None) => subject.to_owned(),
        }
    }

    /// Returns whether it is a change of the layout or of its state.
    pub fn is_of_layout(&self) -> bool {
        let layout = [ChangeKind::Layout, ChangeKind::LayoutState, ChangeKind::Partitions];
        self.kind.known().is_some_and(|kind| layout.contains(&kind))
    }

    /// Returns whether it is a change of the health of a node, a device or a layout, in either direction.
    pub fn is_of_health(&self) -> bool {
        let health = [
            ChangeKind::Connection,
            ChangeKind::Reports,
            ChangeKind::Boot,
            ChangeKind::Driver,
            ChangeKind::Nvml,
            ChangeKind::Device,
            ChangeKind::DeviceHealth,
            ChangeKind::LayoutState,
            ChangeKind::Drain,
            ChangeKind::UnitHealth,
        ];
        self.kind.known().is_some_and(|kind| health.contains(&kind))
    }

    /// Returns whether it is the same change as `other`, apart from the message.
    fn repeats(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.object == other.object
            && self.from == other.from
            && self.to == other.to
    }
}

#[cfg(test)]
mod tests;
