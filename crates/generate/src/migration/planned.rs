//! Changes that the aggregator plans for a node.

use std::fmt;

use octavo_model::text::{count_noun, join};
use serde::Deserialize;

use super::comparison::NO_CHANGE;

/// Plan of a layout on a node: the part of the aggregator's document that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PlannedChange {
    /// Outcome, in the words of the document.
    outcome: String,
    destroyed: usize,
    created: usize,
    /// Warnings about the layout on this node.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl fmt::Display for PlannedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome.as_str() {
            "nothing" => f.write_str(NO_CHANGE),
            "changes" if (self.destroyed, self.created) == (0, 0) => {
                f.write_str("changes MIG modes")
            }
            "changes" => {
                let parts = [("destroys", self.destroyed), ("creates", self.created)];
                let parts =
                    parts.into_iter().filter(|(_, count)| *count > 0).map(|(verb, count)| {
                        format!("{verb} {}", count_noun(count, "partition", "partitions"))
                    });
                f.write_str(&join(parts, ", "))
            }
            outcome => write!(f, "{outcome}; `octavo plan` on the node shows the reason"),
        }
    }
}
