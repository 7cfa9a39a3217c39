//! What a drain goes by.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pod::{Pod, PodId};
use crate::domain::reconcile::Status;

/// What may be evicted, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Which pods.
    pub scope: Scope,
    /// How long a drain may take.
    pub deadline: Duration,
}

/// Which pods are evicted when some are in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those that are in the way.
    Affected,
    /// All of the node that may be evicted.
    Node,
}

/// What is known of the node.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Where its devices stand.
    pub status: &'a Status,
    /// Whether that is for what the Node asks for now, as far as it is known.
    pub is_current: bool,
    /// What the API server says.
    pub heard: &'a Heard,
    /// Whether the node has operands that are paused for a device that they hold.
    pub pauses_operands: bool,
    /// Whether our taint was seen on the Node.
    pub is_tainted: bool,
}

/// What the API server says of the node's pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heard {
    /// The node's pods; `None` before they were listed.
    pub pods: Option<Vec<Pod>>,
    /// Why they cannot be listed now.
    pub trouble: Option<Trouble>,
    /// What became of evictions, of those pods that shall go.
    pub answers: BTreeMap<PodId, Answer>,
}

/// Why pods cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// We may not.
    Forbidden,
    /// Something that may pass.
    Other(String),
}

/// What the API server says to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The pod was told to end.
    Ending,
    /// There is no such pod any more.
    Gone,
    /// A disruption budget is in the way.
    Budget,
    /// We may not.
    Forbidden,
    /// Something else; it is tried again.
    Refused(String),
}

impl Scope {
    /// The word that settings have for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Affected => "affected",
            Self::Node => "node",
        }
    }
}
