//! Progress of the agents' reconnection after a restart of the aggregator.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::access::Visibility;

/// Number of nodes that have reported since the aggregator was started.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Starting)]
pub struct StartupProgress {
    /// Nodes that have reported, among the expected ones if they are known; absent for readers who may not list nodes.
    pub nodes: Option<usize>,
    /// Expected nodes; absent without a watched cluster, and for readers who may not list nodes.
    pub expected: Option<usize>,
}

impl StartupProgress {
    /// Creates the progress from the nodes that have reported and those that are expected.
    pub fn new(nodes: usize, expected: Option<usize>) -> Self {
        Self { nodes: Some(nodes), expected }
    }

    /// The progress without counts, unless the reader is allowed to list nodes.
    #[must_use]
    pub fn visible_to(self, visibility: &Visibility) -> Self {
        Self {
            nodes: self.nodes.filter(|_| visibility.nodes),
            expected: self.expected.filter(|_| visibility.nodes),
        }
    }
}

impl fmt::Display for StartupProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the aggregator is starting: ")?;
        match (self.nodes, self.expected) {
            (Some(nodes), Some(expected)) => {
                write!(f, "{nodes} of about {expected} nodes have reported")
            }
            (Some(nodes), None) => write!(f, "nodes that have reported so far: {nodes}"),
            (None, _) => f.write_str("not all nodes have reported"),
        }
    }
}
