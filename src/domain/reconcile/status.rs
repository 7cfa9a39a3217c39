//! Where a node stands, for everybody who asks: log, stream, pages, command line.

use super::job::Progress;
use super::state::State;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;
use crate::domain::plan::words::Words;

/// Where a node stands with regard to its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The layout it shall have; `None` where nothing is asked of it.
    pub layout: Option<String>,
    /// Whether a person chose it by hand.
    pub by_hand: bool,
    /// The last choice that was looked at from beginning to end; grows with each.
    pub generation: u64,
    /// The id of the last plan that was carried out, in vain or not.
    pub plan: Option<String>,
    /// The state that most needs attention, in a word; `None` where nothing is asked of any device.
    pub state: Option<&'static str>,
    /// What is wrong with the layout, the journal or the state directory, in words for a person.
    pub notice: Option<String>,
    /// The devices that something is asked of, in the order of their addresses.
    pub devices: Vec<DeviceStatus>,
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
    /// Why, in words for a person; empty where there is nothing to explain.
    pub message: String,
    /// How far it is, while it is being changed.
    pub progress: Option<Progress>,
}

impl DeviceStatus {
    /// Of the device at `pci` of the node.
    pub fn new(inventory: &Inventory, pci: PciAddress, state: &State) -> Self {
        let words = Words::new(inventory, pci);
        Self {
            pci,
            name: words.device(pci),
            state: state.as_str(),
            message: state.message(&words),
            progress: None,
        }
    }
}
