//! Layout status of a node, as the node reports it.
//!
//! States are words instead of an enum: a newer agent may report states that an older reader does not know, but can
//! still show. Every text has a maximum length, which the writer enforces and the reader validates.

use crate::domain::id::PciAddress;
use crate::domain::reconcile::{DeviceStatus, Progress, State, Status};
pub(super) use crate::domain::text::beginning;

/// Maximum length of a name, plan id or state, in bytes.
pub const LONGEST_WORD: usize = 256;
/// Maximum length of a description for users, in bytes.
pub const LONGEST_TEXT: usize = 4096;
/// Maximum number of devices covered by a node's layout.
pub const MOST_DEVICES: usize = 256;

/// Layout status that a node reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutStatus {
    /// Desired layout; `None` if there is none.
    pub layout: Option<String>,
    /// True if a user selected it manually.
    pub by_hand: bool,
    /// Id of the last plan that was executed, successfully or not.
    pub plan: Option<String>,
    /// State that most needs attention; `None` if no device is covered by the layout.
    pub state: Option<String>,
    /// Problem with the layout, the journal or the state directory, for users.
    pub notice: Option<String>,
    /// Action on pods that block a change, for users.
    pub drain: Option<String>,
    /// Devices covered by the layout, ordered by PCI address.
    pub devices: Vec<DeviceLayout>,
}

/// Layout status of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLayout {
    /// PCI address.
    pub pci: PciAddress,
    /// Display name: `GPU 3`.
    pub name: String,
    /// State, as a word.
    pub state: String,
    /// Explanation for users; may be empty.
    pub message: String,
    /// Progress of a change that is under way.
    pub progress: Option<Progress>,
}

/// Summary of a node's layout status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutSummary {
    /// Desired layout.
    pub layout: Option<String>,
    /// True if a user selected it manually.
    pub by_hand: bool,
    /// Id of the last plan.
    pub plan: Option<String>,
    /// State that most needs attention.
    pub state: Option<String>,
    /// Explanation of the state: that of the first device in this state and the number of further ones, otherwise the
    /// problem with the layout itself.
    pub message: Option<String>,
    /// Action on pods that block a change.
    pub drain: Option<String>,
    /// Completed and total steps of all devices that are being changed.
    pub progress: Option<(usize, usize)>,
}

/// Maximum length of a summarized message in characters: lists show it; the node's page shows the full text.
const LONGEST_KEPT: usize = 160;

impl LayoutStatus {
    /// Converts a status for reporting; `None` if no layout is desired and there is no problem.
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

    /// Truncates all descriptions to at most `most` bytes.
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
    /// Summarizes a reported status.
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

    /// Returns `true` if the layout status needs attention.
    pub fn wants_a_look(&self) -> bool {
        match self.state.as_deref() {
            // No device is covered, but there may be a problem with the layout itself.
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
