//! Watches this machine's Node and keeps it in its desired state.
//!
//! A [`NodeController`] runs as a separate task for the owner of its [`NodeHandle`]. It watches the Node, compares it with the
//! desired state ([`octavo_node::node::diff_node`]) and writes the differences. It writes nothing while the Node does
//! not exist, and never makes the hardware code wait for an API server.

mod backoff;
mod controller;
mod patcher;
mod read;
mod watcher;
mod write;

pub(super) use backoff::{MAX_DELAY, ReconnectBackoff};
pub use controller::{NodeController, NodeHandle, NodeReport};
pub(super) use write::patience;
