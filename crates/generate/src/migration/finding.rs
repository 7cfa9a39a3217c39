//! Settings of the GPU Operator that need attention, each with its object, its path and what to do.

use std::fmt;

/// Setting that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Kind and name of the object, with its namespace if it has one.
    pub object: String,
    /// Path of the field.
    pub path: String,
    /// Explanation.
    pub problem: String,
    /// Recommended action.
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(object: String, path: String, problem: String, remedy: &str) -> Self {
        Self { object, path, problem, remedy: remedy.to_owned() }
    }

    /// Finding about a label of a node.
    pub(super) fn of_label(node: &str, label: &str, problem: String, remedy: &str) -> Self {
        Self::new(format!("Node {node}"), format!("metadata.labels[{label}]"), problem, remedy)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: {}; {}", self.object, self.path, self.problem, self.remedy)
    }
}
