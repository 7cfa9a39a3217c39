//! State of a node.

use octavo_model::tone::Tone;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// State of a node: the most severe applicable one, ordered by severity.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It has no accelerator.
    Empty,
    /// All its devices are reserved for virtual machines.
    Passthrough,
    /// No problem.
    Ok,
    /// A device is being changed to its layout.
    Applying,
    /// No agent reports it: types and counts come from the Node's labels.
    NoAgent,
    /// A device works but needs attention, or the layout or the allocation is not as desired.
    Attention,
    /// A device is unusable.
    Degraded,
    /// Its devices have no driver.
    NoDriver,
    /// The driver was present before and is not any more.
    NvmlLost,
    /// The driver hangs: the data was read before that.
    NvmlStalled,
    /// Its last report is too old: the data is outdated.
    Stale,
}

impl NodeState {
    /// All states, ordered by severity.
    pub const ALL: [Self; 11] = [
        Self::Empty,
        Self::Passthrough,
        Self::Ok,
        Self::Applying,
        Self::NoAgent,
        Self::Attention,
        Self::Degraded,
        Self::NoDriver,
        Self::NvmlLost,
        Self::NvmlStalled,
        Self::Stale,
    ];

    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether a user has to look at a node in this state.
    pub fn needs_attention(self) -> bool {
        self >= Self::Attention
    }

    /// Color of the state.
    pub fn tone(self) -> Tone {
        match self {
            Self::Ok => Tone::Good,
            Self::Empty | Self::Passthrough | Self::Applying | Self::NoAgent => Tone::Neutral,
            Self::Attention | Self::NoDriver | Self::Stale => Tone::Warning,
            Self::Degraded | Self::NvmlLost | Self::NvmlStalled => Tone::Bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Sharing;

    #[test]
    fn json_words_match_displayed_words() {
        for state in NodeState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        for sharing in Sharing::ALL {
            assert_eq!(serde_json::to_value(sharing).unwrap(), sharing.as_str());
        }
    }

    #[test]
    fn only_states_that_need_attention_have_a_warning_color() {
        for state in NodeState::ALL {
            assert_eq!(state.needs_attention(), state.tone() >= Tone::Warning, "{state}");
        }
    }
}
