//! Texts, badges and number formats of the pages.

use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::access::Visibility;
use octavo_fleet::summary::NodeState;
use octavo_model::id::TypeName;
use octavo_model::inventory::{DeviceState, NeuronState, Severity};
pub(super) use octavo_model::text::{count_noun, format_age, format_memory, printable};
use octavo_store::view::FleetView;

/// Notice above a list while agents are still reconnecting after a start.
pub(super) fn starting(view: &FleetView, visibility: &Visibility) -> Option<String> {
    let text = view.startup()?.visible_to(visibility).to_string();
    let text = text.replacen("the", "The", 1);
    Some(format!("{text}. The data shown is incomplete."))
}

/// Label with icon and color, both of which are redundant to the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Badge {
    pub(super) tone: &'static str,
    pub(super) icon: &'static str,
    pub(super) word: &'static str,
}

/// Badge of a node's state.
pub(super) fn node_state(state: NodeState) -> Badge {
    let (tone, icon) = match state {
        NodeState::Empty | NodeState::NoAgent => ("soft", "empty"),
        NodeState::Ok => ("good", "ok"),
        NodeState::Attention => ("warn", "warn"),
        NodeState::Degraded => ("bad", "bad"),
        NodeState::NoDriver => ("warn", "off"),
        NodeState::NvmlLost => ("bad", "off"),
        NodeState::NvmlStalled => ("bad", "stale"),
        NodeState::Stale => ("warn", "stale"),
    };
    // The same word as in the API and the command line, so that it can be searched and filtered for.
    let word = state.as_str();
    Badge { tone, icon, word }
}

/// Badge of a device's state with this severity.
pub(super) fn device_state(state: DeviceState, severity: Option<Severity>) -> Badge {
    let (tone, icon) = severity.map_or(("good", "ok"), severity_style);
    Badge { tone, icon, word: state.as_str() }
}

/// Badge of a Neuron device's state. A device that reports nothing must not look healthy.
pub(super) fn neuron_state(state: NeuronState) -> Badge {
    let (tone, icon) = match (state, state.severity()) {
        (_, Some(severity)) => severity_style(severity),
        (NeuronState::Unknown, None) => severity_style(Severity::Note),
        (_, None) => ("good", "ok"),
    };
    let word = state.as_str();
    Badge { tone, icon, word }
}

/// Color and icon for a severity.
pub(super) fn severity_style(severity: Severity) -> (&'static str, &'static str) {
    match severity {
        Severity::Note => ("soft", "note"),
        Severity::Warning => ("warn", "warn"),
        Severity::Critical => ("bad", "bad"),
    }
}

/// Name of the type, or a placeholder.
pub(super) fn type_name(name: Option<&TypeName>) -> String {
    name.map_or_else(|| "type unknown".to_owned(), ToString::to_string)
}

/// Age in milliseconds, for the script.
pub(super) fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a time in ISO 8601; the script localizes it.
pub(super) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
