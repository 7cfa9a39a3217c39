//! Watches this machine's Node and keeps it in its desired state.
//!
//! A [`NodeController`] runs as a separate task for the owner of its [`NodeHandle`]. It watches the Node, compares it with the
//! desired state ([`octavo_node::node_object::diff_node`]) and writes the differences. It writes nothing while the Node does
//! not exist, and never makes the hardware code wait for an API server.

mod controller;
mod patcher;
mod watcher;

use octavo_node::node_object::ConflictingKey;

pub use self::controller::{NodeController, NodeHandle};

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
    pub error: Option<String>,
}
