//! A problem of a node, of its layout or of its devices.

use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::text::truncate_visibly;
use octavo_model::tone::Tone;
use octavo_planner::reconcile::{ApplyState, NodeLayoutStatus};

use super::device::DeviceSummary;
use super::device_facts::DevicePlace;

/// Part of a node that has a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemArea {
    /// Its devices or their driver.
    Devices,
    /// Its layout.
    Layout,
    /// The allocation of its devices to pods.
    Allocation,
}

/// Problem of a node or of its devices that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeProblem {
    /// Part of the node.
    pub area: ProblemArea,
    /// Severity: needs attention, or needs action.
    pub tone: Tone,
    /// Stable word: a reason, or a state of a device or node.
    pub reason: &'static str,
    /// Affected devices, such as `GPU 3`; `None` for the whole node.
    pub device: Option<String>,
    /// Place of the affected device; `None` for several devices or the whole node.
    pub place: Option<DevicePlace>,
    /// Explanation for users; empty if there is none. It can contain driver messages and therefore any character.
    pub message: String,
    /// Recommended action, as sentences. Commands are in backquotes.
    pub remedy: &'static str,
}

/// Problem of a node's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutProblem {
    /// Affected device; `None` for the whole node.
    pub device: Option<String>,
    /// PCI address of the device.
    pub pci: Option<PciAddress>,
    /// Kind of problem; `None` for a drain that waits for pods or processes.
    pub reason: Option<Reason>,
    /// Explanation for users, of bounded length; it names the blockers.
    pub message: String,
}

/// Word of a drain that waits for pods or processes.
const DRAIN: &str = "drain";

/// Maximum length of an explanation in bytes.
const MAX_PROBLEM_BYTES: usize = 1024;
/// Maximum number of problems of one layout.
const MAX_LAYOUT_PROBLEMS: usize = 64;

/// Returns an explanation of bounded length. A truncated one ends with an ellipsis.
pub(super) fn problem_text(text: &str) -> String {
    truncate_visibly(text, MAX_PROBLEM_BYTES)
}

impl LayoutProblem {
    /// Problems of a reported status; empty unless its state needs attention.
    pub(super) fn all(status: &NodeLayoutStatus) -> Vec<Self> {
        let notice = status.notice.as_deref().map(|notice| Self {
            device: None,
            pci: None,
            reason: Some(Reason::LayoutNotice),
            message: problem_text(notice),
        });
        let Some(state) = &status.state else {
            return notice.into_iter().collect();
        };
        if !ApplyState::needs_attention(state) {
            return Vec::new();
        }
        let devices = status.devices.iter();
        let devices = devices.filter(|device| ApplyState::needs_attention(&device.state));
        let devices = devices.map(|device| Self {
            device: Some(device.name.clone()),
            pci: Some(device.pci),
            reason: device.state.known(),
            message: problem_text(&device.message),
        });
        // A drain without details makes progress.
        let drain = status.drain.as_deref().filter(|text| text.contains(": "));
        let drain = drain.map(|text| Self {
            device: None,
            pci: None,
            reason: None,
            message: problem_text(text),
        });
        let mut all: Vec<Self> = devices.take(MAX_LAYOUT_PROBLEMS).collect();
        if all.is_empty() {
            all.push(Self {
                device: None,
                pci: None,
                reason: state.known(),
                message: String::new(),
            });
        }
        all.extend(drain);
        all.extend(notice);
        all
    }

    /// Returns whether it describes a drain.
    pub fn is_drain(&self) -> bool {
        self.reason.is_none()
    }
}

impl NodeProblem {
    /// Problem of a whole node with this reason.
    pub fn of_node(tone: Tone, reason: Reason, message: String) -> Self {
        Self {
            area: ProblemArea::Devices,
            tone,
            reason: reason.as_str(),
            device: None,
            place: None,
            message,
            remedy: reason.remedy(),
        }
    }

    /// Problem of the allocation of devices to pods.
    pub(super) fn of_allocation(reason: Reason, message: String) -> Self {
        Self { area: ProblemArea::Allocation, ..Self::of_node(Tone::Warning, reason, message) }
    }

    pub(super) fn of_layout(problem: &LayoutProblem) -> Self {
        let (tone, reason, remedy) = match problem.reason {
            Some(Reason::LayoutNotice) => {
                (Tone::Warning, Reason::LayoutNotice.as_str(), Reason::LayoutNotice.remedy())
            }
            Some(reason) => {
                (ApplyState::tone(&Reported::from(reason)), reason.as_str(), reason.remedy())
            }
            None => (Tone::Warning, DRAIN, Reason::DrainGaveUp.remedy()),
        };
        Self {
            area: ProblemArea::Layout,
            tone,
            reason,
            device: problem.device.clone(),
            place: problem.pci.map(DevicePlace::Pci),
            message: problem.message.clone(),
            remedy,
        }
    }

    pub(super) fn of_device(device: &DeviceSummary) -> Self {
        let (name, message) = device.named_issue().unzip();
        Self {
            area: ProblemArea::Devices,
            tone: device.health.tone,
            reason: device.health.state.as_str(),
            device: Some(name.unwrap_or(&device.facts.name).to_owned()),
            place: Some(device.facts.place),
            message: message.unwrap_or_default().to_owned(),
            remedy: device.health.state.remedy(),
        }
    }
}
