//! Progress of a start of the aggregator, and the notice of it for readers.

use std::fmt;

use octavo_documents::startup::StartingJson;
use octavo_fleet::access::Sight;

/// Number of nodes that have reported since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartupProgress {
    /// Nodes that have reported, among the expected ones if they are known.
    pub nodes: usize,
    /// Expected nodes; `None` without a watched cluster.
    pub expected: Option<usize>,
}

impl fmt::Display for StartupProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes;
        match self.expected {
            Some(expected) => write!(
                f,
                "the aggregator is starting: {nodes} of about {expected} nodes have reported"
            ),
            None => write!(
                f,
                "the aggregator is starting: nodes that have reported so far: {nodes}"
            ),
        }
    }
}

impl StartupProgress {
    /// Converts the progress to a document; includes counts only for readers who are allowed to list nodes.
    pub fn document(self, sight: &Sight) -> StartingJson {
        StartingJson {
            nodes: sight.nodes.then_some(self.nodes),
            expected: self.expected.filter(|_| sight.nodes),
        }
    }

    /// Describes the progress; includes counts only for readers who are allowed to list nodes.
    pub fn told(self, sight: &Sight) -> String {
        if sight.nodes {
            self.to_string()
        } else {
            "the aggregator is starting: not all nodes have reported".to_owned()
        }
    }
}
