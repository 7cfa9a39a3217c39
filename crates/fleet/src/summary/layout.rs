//! Summary of a node's layout status.

use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_planner::reconcile::{ApplyState, DeviceLayoutStatus, NodeLayoutStatus};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::problem::LayoutProblem;

/// Summary of a node's layout status.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LayoutRow)]
pub struct LayoutSummary {
    /// Desired layout; absent if none is selected and a device is still finishing a change.
    pub name: Option<String>,
    /// True if a user selected it manually.
    #[serde(default, rename = "byHand")]
    pub is_manual: bool,
    /// State that most needs attention: `applied`, `pending`, `applying`, `yielded`, `drifted`, `blocked`, `rolled-back`,
    /// `needs-reset`, `infeasible`, `failed`; absent if no device is covered.
    #[schema(value_type = Option<String>)]
    pub state: Option<Reported<Reason>>,
    /// Explanation of the state: that of the first device in this state and the number of further ones, otherwise the
    /// problem with the layout itself.
    pub message: Option<String>,
    /// Action on pods that block a change.
    pub drain: Option<String>,
    /// Id of the last plan, as in the agent's log and history.
    pub plan: Option<String>,
    /// Steps of all devices that are being changed.
    pub progress: Option<StepCounts>,
    /// True if a device is being changed.
    #[serde(skip)]
    pub is_changing: bool,
    /// Problems of its devices, of the layout itself and of the drain, with their complete explanations.
    #[serde(skip)]
    pub problems: Vec<LayoutProblem>,
    /// Devices covered by the layout, ordered by PCI address. Not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceLayoutStatus>,
}

/// Steps of plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Steps)]
pub struct StepCounts {
    /// Completed steps.
    pub done: usize,
    /// Total steps.
    pub steps: usize,
}

/// Maximum length of a summarized message in characters.
const MAX_SUMMARY_CHARS: usize = 1000;

impl LayoutSummary {
    /// Summarizes a reported status.
    pub fn of(status: &NodeLayoutStatus) -> Self {
        let changes = status.devices.iter().filter_map(|device| device.progress.as_ref());
        let progress = changes.fold(None, |sum: Option<StepCounts>, change| {
            let StepCounts { done, steps } = sum.unwrap_or(StepCounts { done: 0, steps: 0 });
            Some(StepCounts {
                done: done.saturating_add(change.done),
                steps: steps.saturating_add(change.steps),
            })
        });
        Self {
            name: status.layout.clone(),
            is_manual: status.is_manual,
            plan: status.plan.clone(),
            state: status.state.clone(),
            message: message(status),
            drain: status.drain.as_deref().map(summarized),
            progress,
            is_changing: status.is_busy() || progress.is_some(),
            problems: LayoutProblem::all(status),
            devices: Vec::new(),
        }
    }

    /// Returns `true` if the layout status needs attention.
    pub fn needs_attention(&self) -> bool {
        match &self.state {
            // No device is covered, but there may be a problem with the layout itself.
            None => self.message.is_some(),
            Some(state) => ApplyState::needs_attention(state),
        }
    }
}

fn message(status: &NodeLayoutStatus) -> Option<String> {
    let state = status.state.as_ref();
    let mut worst = status
        .devices
        .iter()
        .filter(|device| Some(&device.state) == state && !device.message.is_empty());
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
