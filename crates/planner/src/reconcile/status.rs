//! Status of a node, shared by the log, the status stream, the web pages and the command line.

use std::sync::Arc;

use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::sharing_status::SharingStatus;

use super::request::ChangeProgress;
use super::state::ApplyState;
use crate::layout::Targets;
use crate::plan::Cause;
use crate::plan::messages::PlanFormatter;

/// Status of a node relative to its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeLayoutStatus {
    /// Name of the desired layout; `None` if the node has none.
    pub layout: Option<String>,
    /// True if a user selected it manually.
    pub is_manual: bool,
    /// The Node label that selected it, if any.
    pub label: Option<&'static str>,
    /// Version of the layouts file: the first digits of its SHA-256.
    pub layouts_version: Option<String>,
    /// The last selection that was fully reconciled; increases with each selection.
    pub generation: u64,
    /// Increases when the desired state of a device changes or is requested again. Other changes of the file do not
    /// count.
    pub target_generation: u64,
    /// The id of the last plan that was executed, successfully or not.
    pub plan: Option<String>,
    /// The word of the state that most needs attention; `None` if no device has a desired state.
    pub state: Option<&'static str>,
    /// Human-readable problem with the layout, the journal or the state directory.
    pub notice: Option<String>,
    /// Human-readable action taken about blocking pods.
    pub drain: Option<String>,
    /// The devices that have a desired state, in the order of their addresses.
    pub devices: Vec<DeviceStatus>,
    /// Interrupted changes of other layouts that were finished since this one was selected, in the order of
    /// addresses.
    pub interrupted: Vec<InterruptedChange>,
    /// The desired state of the devices; `None` if there is none.
    pub targets: Option<Arc<Targets>>,
    /// Status of sharing: whether the offered resources match the desired ones; `None` if not reported.
    pub sharing: Option<SharingStatus>,
    /// Counters since the agent started.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptedChange {
    /// The device.
    pub pci: PciAddress,
    /// Display name: `GPU 3`.
    pub name: String,
    /// The layout of the interrupted change.
    pub layout: String,
    /// Word of the state after its last attempt: [`ApplyState::as_str`].
    pub state: &'static str,
    /// Human-readable explanation, without command-line arguments; empty if there is nothing to explain.
    pub message: String,
}

impl NodeLayoutStatus {
    /// Returns whether any device is being changed.
    pub fn is_busy(&self) -> bool {
        let applying = ApplyState::Applying.as_str();
        self.devices.iter().any(|device| device.state == applying)
    }
}

/// Status of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    /// The device.
    pub pci: PciAddress,
    /// Display name: `GPU 3`.
    pub name: String,
    /// Word of the state: [`ApplyState::as_str`].
    pub state: &'static str,
    /// Human-readable explanation, without command-line arguments; empty if there is nothing to explain.
    pub message: String,
    /// True if an open device handle blocks a change of MIG mode or a reset.
    pub is_held: bool,
    /// The blocking holders, without command-line arguments.
    pub holders: Vec<Holder>,
    /// True if the change can proceed once these holders are gone.
    pub waits_for_holders: bool,
    /// Progress of the change, while it runs.
    pub progress: Option<ChangeProgress>,
}

impl DeviceStatus {
    /// Creates the status of the device at `pci`.
    pub fn new(inventory: &Inventory, pci: PciAddress, state: &ApplyState) -> Self {
        let words = PlanFormatter::new(inventory, pci);
        let state = state.without_arguments();
        Self {
            pci,
            name: words.device(pci),
            state: state.as_str(),
            message: state.message(&words),
            is_held: state.is_blocked_by_client(),
            holders: state
                .causes()
                .iter()
                .flat_map(Cause::holders)
                .cloned()
                .collect(),
            waits_for_holders: state.waits_for_holders(),
            progress: None,
        }
    }
}
