//! Layout status of a node and of its devices: one type each for the log, the control socket, the status stream, the API
//! and the pages.

use std::sync::Arc;

use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::sharing_status::SharingStatus;
use octavo_model::text::{MAX_TEXT_BYTES, truncate, truncated_word};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request::ChangeProgress;
use super::state::ApplyState;
use crate::layout::Targets;
use crate::plan::Cause;
use crate::plan::messages::PlanFormatter;

/// Maximum number of devices in a reported status.
pub const MAX_LAYOUT_DEVICES: usize = 256;

/// Status of a node relative to its layout.
///
/// The fields that are not serialized are known only in the agent that manages the node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLayoutStatus {
    /// Name of the desired layout; `None` if the node has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// True if a user selected it manually.
    #[serde(default, rename = "byHand")]
    pub is_manual: bool,
    /// The Node label that selected it, if any.
    #[serde(skip)]
    pub label: Option<&'static str>,
    /// Version of the layouts file: the first digits of its SHA-256.
    #[serde(skip)]
    pub layouts_version: Option<String>,
    /// The last selection that was fully reconciled; increases with each selection.
    #[serde(default)]
    pub generation: u64,
    /// Increases when the desired state of a device changes or is requested again. Other changes of the file do not
    /// count.
    #[serde(skip)]
    pub target_generation: u64,
    /// Id of the last plan that was executed, successfully or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// State that most needs attention; `None` if no device has a desired state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Reported<Reason>>,
    /// Problem with the layout, the journal or the state directory, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Action on pods that block a change, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
    /// Status of sharing: whether the offered resources match the desired ones; `None` if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingStatus>,
    /// The devices that have a desired state, in the order of their addresses.
    #[serde(default)]
    pub devices: Vec<DeviceLayoutStatus>,
    /// Interrupted changes of other layouts that were finished since this one was selected, in the order of
    /// addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<InterruptedChange>,
    /// The desired state of the devices; `None` if there is none.
    #[serde(skip)]
    pub targets: Option<Arc<Targets>>,
    /// Counters since the agent started.
    #[serde(skip)]
    pub history: ChangeHistory,
}

/// Counters since the agent started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeHistory {
    /// Number of times partitions were created or destroyed.
    pub changes: u64,
    /// Number of times drift was detected.
    pub drifts: u64,
    /// Names of the most recently drifted devices.
    pub drifted: Vec<String>,
}

/// Outcome of an interrupted device change whose layout is no longer the node's layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptedChange {
    /// The device.
    pub pci: PciAddress,
    /// Display name: `GPU 3`.
    pub name: String,
    /// The layout of the interrupted change.
    pub layout: String,
    /// State after its last attempt.
    pub state: Reported<Reason>,
    /// Human-readable explanation, without command-line arguments; empty if there is nothing to explain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Layout status of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceLayout)]
pub struct DeviceLayoutStatus {
    /// PCI address.
    #[schema(value_type = String)]
    pub pci: PciAddress,
    /// Display name: `GPU 3`.
    pub name: String,
    /// State, as of the node.
    #[schema(value_type = String)]
    pub state: Reported<Reason>,
    /// Explanation for users; absent if there is nothing to explain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Progress of a change that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ChangeProgress>,
    /// True if an open device handle blocks a change of MIG mode or a reset.
    #[serde(skip)]
    pub is_held: bool,
    /// The blocking holders, without command-line arguments.
    #[serde(skip)]
    pub holders: Vec<Holder>,
    /// True if the change can proceed once these holders are gone.
    #[serde(skip)]
    pub waits_for_holders: bool,
}

impl NodeLayoutStatus {
    /// Returns whether any device is being changed.
    pub fn is_busy(&self) -> bool {
        self.devices.iter().any(|device| device.state == Reason::Applying)
    }

    /// Returns whether no change is pending or running, regardless of the outcome.
    pub fn is_settled(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.all(|device| device.state != Reason::Pending && device.state != Reason::Applying)
    }

    /// Returns whether every device is in its desired state.
    pub fn is_applied(&self) -> bool {
        self.devices.iter().all(|device| device.state == Reason::Applied)
    }

    /// Returns the fields that commands on the node receive.
    #[must_use]
    pub fn for_commands(&self) -> Self {
        let device = |device: &DeviceLayoutStatus| DeviceLayoutStatus {
            message: device.message.clone(),
            progress: device.progress.clone(),
            ..DeviceLayoutStatus::new(device.pci, device.name.clone(), device.state.clone())
        };
        Self {
            layout: self.layout.clone(),
            is_manual: self.is_manual,
            generation: self.generation,
            plan: self.plan.clone(),
            state: self.state.clone(),
            notice: self.notice.clone(),
            drain: self.drain.clone(),
            sharing: self.sharing.as_ref().map(SharingStatus::bounded),
            devices: self.devices.iter().map(device).collect(),
            interrupted: self.interrupted.clone(),
            ..Self::default()
        }
    }

    /// Returns the fields that the aggregator receives, with lists and texts of limited length; `None` if no layout is
    /// desired and there is no problem. The status of sharing is reported separately.
    pub fn for_aggregator(&self) -> Option<Self> {
        if self.layout.is_none() && self.state.is_none() && self.notice.is_none() {
            return None;
        }
        let text = |text: &String| truncate(text, MAX_TEXT_BYTES);
        let devices = self.devices.iter().take(MAX_LAYOUT_DEVICES);
        Some(Self {
            layout: self.layout.as_deref().map(truncated_word),
            is_manual: self.is_manual,
            plan: self.plan.as_deref().map(truncated_word),
            state: self.state.clone(),
            notice: self.notice.as_ref().map(text),
            drain: self.drain.as_ref().map(text),
            devices: devices.map(DeviceLayoutStatus::bounded).collect(),
            ..Self::default()
        })
    }

    /// Truncates all descriptions to at most `most` bytes.
    pub fn shorten(&mut self, most: usize) {
        let messages = self.devices.iter_mut().map(|device| &mut device.message);
        for text in messages.chain(&mut self.notice).chain(&mut self.drain) {
            *text = truncate(text, most);
        }
    }
}

impl DeviceLayoutStatus {
    /// Creates the status of the device at `pci`, without explanation, progress and holders.
    pub fn new(pci: PciAddress, name: String, state: Reported<Reason>) -> Self {
        Self {
            pci,
            name,
            state,
            message: String::new(),
            progress: None,
            is_held: false,
            holders: Vec::new(),
            waits_for_holders: false,
        }
    }

    /// Converts the state of the device at `pci`.
    pub fn from_state(inventory: &Inventory, pci: PciAddress, state: &ApplyState) -> Self {
        let words = PlanFormatter::new(inventory, pci);
        let state = state.without_arguments();
        Self {
            message: state.message(&words),
            is_held: state.is_blocked_by_client(),
            holders: state.causes().iter().flat_map(Cause::holders).cloned().collect(),
            waits_for_holders: state.waits_for_holders(),
            ..Self::new(pci, words.device(pci), state.reason().into())
        }
    }

    fn bounded(&self) -> Self {
        let progress = self.progress.as_ref().map(|progress| ChangeProgress {
            current_step: truncate(&progress.current_step, MAX_TEXT_BYTES),
            ..progress.clone()
        });
        Self {
            message: truncate(&self.message, MAX_TEXT_BYTES),
            progress,
            ..Self::new(self.pci, truncated_word(&self.name), self.state.clone())
        }
    }
}
