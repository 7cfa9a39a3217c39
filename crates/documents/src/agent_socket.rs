//! Messages between the agent and a command on the same node, sent over the agent's socket as one JSON object per line.
//! The command sends one request. The agent answers with [`Answer::Accepted`] or [`Answer::Refused`], and then sends
//! the node's status on every change until the command disconnects.

use octavo_fleet::fleet::SharingReport;
use octavo_model::reason::Reason;
use octavo_planner::reconcile;
use serde::{Deserialize, Serialize};

use super::sharing::SharingJson;
use super::usage::UsageJson;

/// Name of the socket in the agent's state directory.
pub const SOCKET_NAME: &str = "agent.sock";
/// Maximum line length in bytes. A request contains a whole layout file.
pub const MAX_LINE_BYTES: usize = 6 << 20;

/// Request of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Applies a layout until another one is chosen manually or this choice is discarded.
    Apply(LayoutChoice),
    /// Discards the manual choice and returns to the layout of the agent's settings.
    Forget {},
    /// Subscribes to the status of the node.
    Watch {},
    /// Subscribes to the usage of the node's devices. Answered with [`Answer::Usage`], immediately and after every
    /// refresh.
    Usage {},
}

/// A manually chosen layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LayoutChoice {
    /// Name of the layout.
    pub layout: String,
    /// Content of the layout file. By default, the layout comes from the agent's own file or is generated for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layouts: Option<String>,
    /// Content of a checkpoint to restore instead of a layout. The name is then only displayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

impl LayoutChoice {
    /// Layout name displayed for a checkpoint.
    pub const CHECKPOINT_NAME: &str = "(checkpoint)";
}

/// Response of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The request is accepted. Every status with this generation or a later one takes it into account.
    Accepted {
        /// Increases with every choice.
        generation: u64,
    },
    /// The request is rejected.
    Refused {
        /// Human-readable reason.
        reason: String,
    },
    /// The status of the node.
    Status(Box<NodeLayoutStatus>),
    /// The usage of the node's devices.
    Usage(UsageJson),
}

/// Layout status of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLayoutStatus {
    /// The desired layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Whether the layout was chosen manually.
    #[serde(default)]
    pub by_hand: bool,
    /// The last choice that was fully evaluated.
    #[serde(default)]
    pub generation: u64,
    /// ID of the last executed plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The device state that most needs attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Problem with the layout, the journal or the state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Human-readable progress of draining the pods that block a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
    /// Sharing status of the node's resources; absent if sharing is not managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingJson>,
    /// Devices in the scope of the layout.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Devices whose change to another layout was interrupted before this one was chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<InterruptedChange>,
}

/// Outcome of an interrupted change of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterruptedChange {
    /// PCI address.
    pub pci: String,
    /// Display name: `GPU 3`.
    pub name: String,
    /// The layout of the interrupted change.
    pub layout: String,
    /// State after the last attempt, as in a device's `state`.
    pub state: String,
    /// Explanation, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Layout status of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// PCI address.
    pub pci: String,
    /// Display name: `GPU 3`.
    pub name: String,
    /// `applied`, `pending`, `applying`, `blocked`, `infeasible`, `rolled-back`, `failed`, `needs-reset`, `drifted`,
    /// `yielded`.
    pub state: String,
    /// Explanation, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Progress of the current change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// Progress of a device's change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The current step.
    pub doing: String,
    /// Number of completed steps of the current plan.
    pub done: usize,
    /// Total number of steps.
    pub steps: usize,
    /// Whether the change is being rolled back.
    pub back: bool,
}

impl From<&reconcile::NodeLayoutStatus> for NodeLayoutStatus {
    fn from(status: &reconcile::NodeLayoutStatus) -> Self {
        let devices = status.devices.iter().map(|device| Device {
            pci: device.pci.to_string(),
            name: device.name.clone(),
            state: device.state.to_owned(),
            message: device.message.clone(),
            progress: device.progress.as_ref().map(|progress| Progress {
                doing: progress.current_step.clone(),
                done: progress.done,
                steps: progress.steps,
                back: progress.back,
            }),
        });
        let interrupted = status.interrupted.iter().map(|change| InterruptedChange {
            pci: change.pci.to_string(),
            name: change.name.clone(),
            layout: change.layout.clone(),
            state: change.state.to_owned(),
            message: change.message.clone(),
        });
        Self {
            interrupted: interrupted.collect(),
            layout: status.layout.clone(),
            by_hand: status.is_manual,
            generation: status.generation,
            plan: status.plan.clone(),
            state: status.state.map(ToOwned::to_owned),
            notice: status.notice.clone(),
            drain: status.drain.clone(),
            sharing: status
                .sharing
                .as_ref()
                .map(|told| (&SharingReport::from_status(told)).into()),
            devices: devices.collect(),
        }
    }
}

impl NodeLayoutStatus {
    /// Reports whether no change is pending or running, regardless of the outcome.
    pub fn is_settled(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.all(|device| {
            let reason = Reason::parse(&device.state);
            !matches!(reason, Some(Reason::Pending | Reason::Applying))
        })
    }

    /// Reports whether every device has its desired layout.
    pub fn is_applied(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.all(|device| Reason::Applied.is(&device.state))
    }
}

/// Serializes a value as a line, including the line feed.
pub fn line(value: &impl Serialize) -> String {
    // Serialization cannot fail: the types contain only values that JSON supports.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}
