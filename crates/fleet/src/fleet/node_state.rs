//! State of a node.

use std::fmt;

use octavo_model::reason::Reason;

/// State of a node: the most severe applicable one, ordered by severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// It has no accelerator.
    Empty,
    /// No problem.
    Ok,
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
    pub const ALL: [Self; 9] = [
        Self::Empty,
        Self::Ok,
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
        match self {
            Self::Empty => "empty",
            Self::Ok => "ok",
            Self::NoAgent => "no-agent",
            Self::Attention => "attention",
            Self::Degraded => "degraded",
            Self::NoDriver => Reason::NoDriver.as_str(),
            Self::NvmlLost => Reason::NvmlLost.as_str(),
            Self::NvmlStalled => Reason::NvmlStalled.as_str(),
            Self::Stale => Reason::Stale.as_str(),
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
