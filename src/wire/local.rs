//! What the agent and a command on the same node say to each other through the agent's socket: one JSON object a line. The
//! command says one, the agent answers with [`Answer::Accepted`] or [`Answer::Refused`], and then says where the node stands
//! whenever that changes, until the command goes.

use serde::{Deserialize, Serialize};

use super::sharing::SharingJson;
use super::usage::UsageJson;
use crate::domain::fleet::SharingReport;
use crate::domain::reason::Reason;
use crate::domain::reconcile;

/// The socket's name in the agent's state directory.
pub const SOCKET: &str = "agent.sock";
/// Longest line that is read: a file of layouts is in it.
pub const LONGEST_LINE: usize = 6 << 20;

/// What a command asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Give the node a layout, until another one is chosen by hand or this choice is forgotten.
    Apply(Choice),
    /// Go back to the layout that the agent's settings name.
    Forget {},
    /// Say where the node stands.
    Watch {},
    /// Say who has what of the node's devices; answered with [`Answer::Usage`] now and whenever it was looked at again.
    Usage {},
}

/// A layout that was chosen by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Choice {
    /// Its name.
    pub layout: String,
    /// The file it is in, whole; without it the agent's own file, or the layouts that are generated for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layouts: Option<String>,
    /// A checkpoint, whole, instead of a layout; then the name is for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

impl Choice {
    /// What a checkpoint is called where a layout has its name.
    pub const CHECKPOINT: &str = "(checkpoint)";
}

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// It will be done; what is said with this generation or a later one has taken it in.
    Accepted {
        /// Grows with each choice.
        generation: u64,
    },
    /// It will not be done.
    Refused {
        /// Why, in words for a person.
        reason: String,
    },
    /// Where the node stands.
    Status(Box<Status>),
    /// Who has what.
    Usage(UsageJson),
}

/// Where a node stands with regard to its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The layout it shall have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Whether it was chosen by hand.
    #[serde(default)]
    pub by_hand: bool,
    /// The last choice that was looked at from beginning to end.
    #[serde(default)]
    pub generation: u64,
    /// The last plan that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The state that most needs attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What is wrong with the layout, the journal or the state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// What is done about pods in the way, in words for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
    /// How far what is given out to pods is what shall be; absent where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingJson>,
    /// The devices that something is asked of.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Devices that were changed for another layout, whose change was interrupted before this one was chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<InterruptedChange>,
}

/// How an interrupted change of a device ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterruptedChange {
    /// Its PCI address.
    pub pci: String,
    /// What people call it: `GPU 3`.
    pub name: String,
    /// The layout of the interrupted change.
    pub layout: String,
    /// How its last attempt ended: a device's `state`.
    pub state: String,
    /// Why, where there is something to explain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Where a device stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Its PCI address.
    pub pci: String,
    /// What people call it: `GPU 3`.
    pub name: String,
    /// `applied`, `pending`, `applying`, `blocked`, `infeasible`, `rolled-back`, `failed`, `needs-reset`, `drifted`,
    /// `yielded`.
    pub state: String,
    /// Why, where there is something to explain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How far it is, while it is being changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// How far a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// What is being done.
    pub doing: String,
    /// Steps of the present plan that are done.
    pub done: usize,
    /// Steps that it has.
    pub steps: usize,
    /// Whether what it had is being brought back.
    pub back: bool,
}

impl From<&reconcile::Status> for Status {
    fn from(status: &reconcile::Status) -> Self {
        let devices = status.devices.iter().map(|device| Device {
            pci: device.pci.to_string(),
            name: device.name.clone(),
            state: device.state.to_owned(),
            message: device.message.clone(),
            progress: device.progress.as_ref().map(|progress| Progress {
                doing: progress.doing.clone(),
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
            by_hand: status.by_hand,
            generation: status.generation,
            plan: status.plan.clone(),
            state: status.state.map(ToOwned::to_owned),
            notice: status.notice.clone(),
            drain: status.drain.clone(),
            sharing: status
                .sharing
                .as_ref()
                .map(|told| (&SharingReport::of(told)).into()),
            devices: devices.collect(),
        }
    }
}

impl Status {
    /// Whether nothing is left to do now, well or badly.
    pub fn is_settled(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.all(|device| {
            let reason = Reason::of(&device.state);
            !matches!(reason, Some(Reason::Pending | Reason::Applying))
        })
    }

    /// Whether every device has what it shall have.
    pub fn is_applied(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.all(|device| Reason::Applied.is(&device.state))
    }
}

/// A line, with its end.
pub fn line(value: &impl Serialize) -> String {
    // Texts and numbers: there is nothing that JSON does not have.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}
