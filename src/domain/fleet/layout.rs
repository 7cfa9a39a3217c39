//! Where a node stands with regard to its layout, as the node tells it to others.
//!
//! States are words here and not an enumeration: a newer agent has states that an older reader has not, and still has
//! something to say. Every text has a bound, which who tells keeps to and who reads checks.

use crate::domain::id::PciAddress;
use crate::domain::reconcile::{DeviceStatus, Progress, State, Status};
pub(super) use crate::domain::text::beginning;

/// Longest name, plan or state, in bytes.
pub const LONGEST_WORD: usize = 256;
/// Longest text for a person, in bytes.
pub const LONGEST_TEXT: usize = 4096;
/// Most devices of a node that something is asked of.
pub const MOST_DEVICES: usize = 256;

/// What a node tells of its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutStatus {
    /// The layout it shall have; `None` where nothing is asked of it.
    pub layout: Option<String>,
    /// Whether a person chose it by hand.
    pub by_hand: bool,
    /// The id of the last plan that was carried out, in vain or not.
    pub plan: Option<String>,
    /// The state that most needs attention, in a word; `None` where nothing is asked of any device.
    pub state: Option<String>,
    /// What is wrong with the layout, the journal or the state directory, in words for a person.
    pub notice: Option<String>,
    /// What is done about pods in the way, in words for a person.
    pub drain: Option<String>,
    /// The devices that something is asked of, in the order of their addresses.
    pub devices: Vec<DeviceLayout>,
}

/// What a node tells of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLayout {
    /// The device.
    pub pci: PciAddress,
    /// What people call it: `GPU 3`.
    pub name: String,
    /// Where it stands, in a word.
    pub state: String,
    /// Why, in words for a person; empty where there is nothing to explain.
    pub message: String,
    /// How far it is, while it is being changed.
    pub progress: Option<Progress>,
}

/// What a fleet keeps of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutSummary {
    /// The layout.
    pub layout: Option<String>,
    /// Whether a person chose it by hand.
    pub by_hand: bool,
    /// The id of the last plan.
    pub plan: Option<String>,
    /// The state that most needs attention.
    pub state: Option<String>,
    /// Why it stands so: of the device that most needs attention, and how many more stand like it; else what is wrong with the
    /// layout as such.
    pub message: Option<String>,
    /// What is done about pods in the way.
    pub drain: Option<String>,
    /// Steps that are done and steps that there are, of all devices that are being changed.
    pub progress: Option<(usize, usize)>,
}

/// Longest message that is kept of a node, in characters: a list shows it, and the node's own page has all of it.
const LONGEST_KEPT: usize = 160;

impl LayoutStatus {
    /// What is told of `status`; `None` where no layout is asked for and nothing is wrong.
    pub fn of(status: &Status) -> Option<Self> {
        if status.layout.is_none() && status.state.is_none() && status.notice.is_none() {
            return None;
        }
        let devices = status.devices.iter().take(MOST_DEVICES);
        Some(Self {
            layout: status.layout.as_deref().map(word),
            by_hand: status.by_hand,
            plan: status.plan.as_deref().map(word),
            state: status.state.map(word),
            notice: status
                .notice
                .as_deref()
                .map(|text| beginning(text, LONGEST_TEXT)),
            drain: status
                .drain
                .as_deref()
                .map(|text| beginning(text, LONGEST_TEXT)),
            devices: devices.map(DeviceLayout::of).collect(),
        })
    }

    /// Cuts every text for a person to so many bytes.
    pub fn shorten(&mut self, most: usize) {
        let messages = self.devices.iter_mut().map(|device| &mut device.message);
        for text in messages.chain(&mut self.notice).chain(&mut self.drain) {
            *text = beginning(text, most);
        }
    }
}

impl DeviceLayout {
    fn of(device: &DeviceStatus) -> Self {
        Self {
            pci: device.pci,
            name: word(&device.name),
            state: word(device.state),
            message: beginning(&device.message, LONGEST_TEXT),
            progress: device.progress.as_ref().map(|progress| Progress {
                doing: beginning(&progress.doing, LONGEST_TEXT),
                ..progress.clone()
            }),
        }
    }
}

impl LayoutSummary {
    /// Of what a node tells.
    pub fn of(status: &LayoutStatus) -> Self {
        let told: Vec<(usize, usize)> = status
            .devices
            .iter()
            .filter_map(|device| device.progress.as_ref())
            .map(|progress| (progress.done, progress.steps))
            .collect();
        let sum = |(done, steps): (usize, usize), more: &(usize, usize)| {
            (done.saturating_add(more.0), steps.saturating_add(more.1))
        };
        Self {
            layout: status.layout.clone(),
            by_hand: status.by_hand,
            plan: status.plan.clone(),
            state: status.state.clone(),
            message: message(status),
            drain: status.drain.as_deref().map(kept),
            progress: (!told.is_empty()).then(|| told.iter().fold((0, 0), sum)),
        }
    }

    /// Whether somebody should look at the node for its layout's sake.
    pub fn wants_a_look(&self) -> bool {
        match self.state.as_deref() {
            // Nothing is asked of any device, and yet there may be something to say.
            None => self.message.is_some(),
            Some(state) => State::wants_a_look(state),
        }
    }
}

fn message(status: &LayoutStatus) -> Option<String> {
    let state = status.state.as_deref();
    let mut worst = status
        .devices
        .iter()
        .filter(|device| Some(device.state.as_str()) == state && !device.message.is_empty());
    let text = match worst.next() {
        Some(first) => {
            let text = format!("{}: {}: {}", first.name, first.state, first.message);
            match worst.count() {
                0 => text,
                more => format!("{} (and {more} more)", kept(&text)),
            }
        }
        None => status.notice.clone()?,
    };
    Some(kept(&text))
}

pub(super) fn kept(text: &str) -> String {
    text.chars().take(LONGEST_KEPT).collect()
}

pub(super) fn word(text: &str) -> String {
    beginning(text, LONGEST_WORD)
}
