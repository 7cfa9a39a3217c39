//! Layout status of a node, as the node reports it.
//!
//! States are words instead of an enum: a newer agent may report states that an older reader does not know, but can
//! still show. Every text has a maximum length, which the writer enforces and the reader validates.

use octavo_model::id::PciAddress;
pub(super) use octavo_model::text::truncate;
use octavo_planner::reconcile::{ApplyState, ChangeProgress, DeviceStatus, NodeLayoutStatus};

/// Maximum length of a name, plan id or state, in bytes.
pub const MAX_WORD_BYTES: usize = 256;
/// Maximum length of a description for users, in bytes.
pub const MAX_TEXT_BYTES: usize = 4096;
/// Maximum number of devices covered by a node's layout.
pub const MAX_LAYOUT_DEVICES: usize = 256;

/// Layout status that a node reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutStatus {
    /// Desired layout; `None` if there is none.
    pub layout: Option<String>,
    /// True if a user selected it manually.
    pub is_manual: bool,
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
    pub progress: Option<ChangeProgress>,
}

/// Summary of a node's layout status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutSummary {
    /// Desired layout.
    pub layout: Option<String>,
    /// True if a user selected it manually.
    pub is_manual: bool,
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
const MAX_SUMMARY_CHARS: usize = 160;

impl LayoutStatus {
    /// Converts a status for reporting; `None` if no layout is desired and there is no problem.
    pub fn of(status: &NodeLayoutStatus) -> Option<Self> {
        if status.layout.is_none() && status.state.is_none() && status.notice.is_none() {
            return None;
        }
        let devices = status.devices.iter().take(MAX_LAYOUT_DEVICES);
        Some(Self {
            layout: status.layout.as_deref().map(truncated_word),
            is_manual: status.is_manual,
            plan: status.plan.as_deref().map(truncated_word),
            state: status.state.map(truncated_word),
            notice: status
                .notice
                .as_deref()
                .map(|text| truncate(text, MAX_TEXT_BYTES)),
            drain: status
                .drain
                .as_deref()
                .map(|text| truncate(text, MAX_TEXT_BYTES)),
            devices: devices.map(DeviceLayout::of).collect(),
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

impl DeviceLayout {
    fn of(device: &DeviceStatus) -> Self {
        Self {
            pci: device.pci,
            name: truncated_word(&device.name),
            state: truncated_word(device.state),
            message: truncate(&device.message, MAX_TEXT_BYTES),
            progress: device.progress.as_ref().map(|progress| ChangeProgress {
                current_step: truncate(&progress.current_step, MAX_TEXT_BYTES),
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
            is_manual: status.is_manual,
            plan: status.plan.clone(),
            state: status.state.clone(),
            message: message(status),
            drain: status.drain.as_deref().map(summarized),
            progress: (!told.is_empty()).then(|| told.iter().fold((0, 0), sum)),
        }
    }

    /// Returns `true` if the layout status needs attention.
    pub fn needs_attention(&self) -> bool {
        match self.state.as_deref() {
            // No device is covered, but there may be a problem with the layout itself.
            None => self.message.is_some(),
            Some(state) => ApplyState::needs_attention(state),
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
                more => format!("{} (and {more} more)", summarized(&text)),
            }
        }
        None => status.notice.clone()?,
    };
    Some(summarized(&text))
}

pub(super) fn summarized(text: &str) -> String {
    text.chars().take(MAX_SUMMARY_CHARS).collect()
}

pub(super) fn truncated_word(text: &str) -> String {
    truncate(text, MAX_WORD_BYTES)
}
