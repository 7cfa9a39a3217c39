//! Progress and errors of a Node controller.

use octavo_node::node::ConflictingKey;

/// Progress of keeping a Node in its desired state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeReport {
    /// Whether the API server has responded, possibly that there is no such Node.
    pub is_read: bool,
    /// The generation of the desired state that the Node has, except for fields of others.
    pub applied_generation: Option<u64>,
    /// Keys that others own.
    pub foreign_keys: Vec<ConflictingKey>,
    /// The current error.
    pub trouble: Option<String>,
}
