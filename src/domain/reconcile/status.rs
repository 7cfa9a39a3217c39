//! Where a node stands, for everybody who asks: log, stream, pages, command line.

use std::sync::Arc;

use super::job::Progress;
use super::state::State;
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;
use crate::domain::layout::Targets;
use crate::domain::plan::Cause;
use crate::domain::plan::words::Words;
use crate::domain::sharing::SharingStatus;

/// Where a node stands with regard to its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The layout it shall have; `None` where nothing is asked of it.
    pub layout: Option<String>,
    /// Whether a person chose it by hand.
    pub by_hand: bool,
    /// The label of the Node that chose it, if it was one.
    pub label: Option<&'static str>,
    /// The file that it was looked up in, by its content: the first digits of its SHA-256.
    pub layouts: Option<String>,
    /// The last choice that was looked at from beginning to end; grows with each.
    pub generation: u64,
    /// Grows whenever something else is asked of a device, or the same once more; what else changes in the file does not count.
    pub meaning: u64,
    /// The id of the last plan that was carried out, in vain or not.
    pub plan: Option<String>,
    /// The state that most needs attention, in a word; `None` where nothing is asked of any device.
    pub state: Option<&'static str>,
    /// What is wrong with the layout, the journal or the state directory, in words for a person.
    pub notice: Option<String>,
    /// What is done about pods in the way, in words for a person.
    pub drain: Option<String>,
    /// The devices that something is asked of, in the order of their addresses.
    pub devices: Vec<DeviceStatus>,
    /// What was done for other layouts, whose changes were interrupted, since this one was chosen; in the order of addresses.
    pub interrupted: Vec<InterruptedChange>,
    /// What is asked of them; absent where nothing is.
    pub asked: Option<Arc<Targets>>,
    /// How far what is given out to pods is what shall be; absent where nobody says.
    pub sharing: Option<SharingStatus>,
    /// What happened so far.
    pub past: Past,
}

/// What happened since the agent started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Past {
    /// How often partitions were made or destroyed.
    pub changes: u64,
    /// How often devices were found changed by somebody else.
    pub drifts: u64,
    /// Which, the last time.
    pub drifted: Vec<String>,
}

/// How an interrupted change of a device ended, for a layout that is not the node's now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptedChange {
    /// The device.
    pub pci: PciAddress,
    /// What people call it: `GPU 3`.
    pub name: String,
    /// The layout of the interrupted change.
    pub layout: String,
    /// How its last attempt ended, in a word: [`State::as_str`].
    pub state: &'static str,
    /// Why, in words for a person and without the arguments of programs; empty where there is nothing to explain.
    pub message: String,
}

impl Status {
    /// Whether devices are being changed.
    pub fn is_busy(&self) -> bool {
        let applying = State::Applying.as_str();
        self.devices.iter().any(|device| device.state == applying)
    }
}

/// Where a device stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    /// The device.
    pub pci: PciAddress,
    /// What people call it: `GPU 3`.
    pub name: String,
    /// In a word: [`State::as_str`].
    pub state: &'static str,
    /// Why, in words for a person and without the arguments of programs; empty where there is nothing to explain.
    pub message: String,
    /// Whether somebody has it open who is in the way of a change of its MIG mode, or of a reset.
    pub is_held: bool,
    /// Who is in the way, without the arguments of programs.
    pub holders: Vec<Holder>,
    /// Whether it is enough that these go.
    pub waits_for_holders: bool,
    /// How far it is, while it is being changed.
    pub progress: Option<Progress>,
}

impl DeviceStatus {
    /// Of the device at `pci` of the node.
    pub fn new(inventory: &Inventory, pci: PciAddress, state: &State) -> Self {
        let words = Words::new(inventory, pci);
        let state = state.without_arguments();
        Self {
            pci,
            name: words.device(pci),
            state: state.as_str(),
            message: state.message(&words),
            is_held: state.is_held(),
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
