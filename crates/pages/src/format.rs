//! Texts, badges and number formats of the pages.

use std::time::Duration;

use jiff::Timestamp;
use octavo_fleet::access::Sight;
use octavo_fleet::fleet::NodeState;
use octavo_model::id::TypeName;
use octavo_model::inventory::{DeviceState, NeuronState, Severity};
use octavo_model::quantity::Mebibytes;
pub(super) use octavo_model::text::printable;
use octavo_store::view::View;

/// Notice above a list while agents are still reconnecting after a start.
pub(super) fn starting(view: &View, sight: &Sight) -> Option<String> {
    let told = view.startup()?.told(sight);
    let told = told.replacen("the", "The", 1);
    Some(format!("{told}. What is shown is not complete."))
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
pub(super) fn device_state(state: DeviceState, gravity: Option<Severity>) -> Badge {
    let (tone, icon) = gravity.map_or(("good", "ok"), severity_style);
    Badge {
        tone,
        icon,
        word: state.as_str(),
    }
}

/// Badge of a Neuron device's state. A device that reports nothing must not look healthy.
pub(super) fn neuron_state(state: NeuronState) -> Badge {
    let (tone, icon) = match (state, state.severity()) {
        (_, Some(gravity)) => severity_style(gravity),
        (NeuronState::Unknown, None) => severity_style(Severity::Note),
        (_, None) => ("good", "ok"),
    };
    let word = state.as_str();
    Badge { tone, icon, word }
}

/// Color and icon for a severity.
pub(super) fn severity_style(gravity: Severity) -> (&'static str, &'static str) {
    match gravity {
        Severity::Note => ("soft", "note"),
        Severity::Warning => ("warn", "warn"),
        Severity::Critical => ("bad", "bad"),
    }
}

/// Name of the type, or a placeholder.
pub(super) fn type_name(name: Option<&TypeName>) -> String {
    name.map_or_else(|| "type unknown".to_owned(), ToString::to_string)
}

/// Formats an age: `12 s`, `3 min`, `5 h`, `2 d`. The script updates it in the same format: `words` in `octavo.js`.
pub(super) fn format_age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Age in milliseconds, for the script.
pub(super) fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

/// Formats memory, rounded down to a tenth: `79.6 GiB`, `12.5 TiB`. TiB starts at ten, because below that a tenth of a
/// TiB would hide a whole GPU.
pub(super) fn format_memory(memory: Mebibytes) -> String {
    let mebibytes = memory.get();
    let (unit, name) = match mebibytes {
        0..1024 => return format!("{mebibytes} MiB"),
        1024..10_485_760 => (1024, "GiB"),
        10_485_760..1_073_741_824 => (1_048_576, "TiB"),
        _ => (1_073_741_824, "PiB"),
    };
    let tenths = (mebibytes % unit).saturating_mul(10) / unit;
    match tenths {
        0 => format!("{} {name}", mebibytes / unit),
        _ => format!("{}.{tenths} {name}", mebibytes / unit),
    }
}

/// Formats a count with its noun: `1 node`, `2 nodes`.
pub(super) fn count_noun(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Formats a time in ISO 8601; the script localizes it.
pub(super) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_amounts_are_short() {
        let ages = [0, 59, 60, 3599, 3600, 172_799, 172_800].map(Duration::from_secs);
        assert_eq!(
            ages.map(format_age),
            ["0 s", "59 s", "1 min", "59 min", "1 h", "47 h", "2 d"]
        );
        let amounts = [512, 15_360, 81_559, 652_472, 1_150_168, 13_107_200].map(Mebibytes::new);
        assert_eq!(
            amounts.map(format_memory),
            [
                "512 MiB",
                "15 GiB",
                "79.6 GiB",
                "637.1 GiB",
                "1123.2 GiB",
                "12.5 TiB"
            ]
        );
    }
}
