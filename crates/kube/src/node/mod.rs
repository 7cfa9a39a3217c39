//! Watches this machine's Node and keeps it in its desired state.
//!
//! A [`NodeController`] runs as a separate task for the owner of its [`NodeHandle`]. It watches the Node, compares it with the
//! desired state ([`octavo_node::node::diff_node`]) and writes the differences. It writes nothing while the Node does
//! not exist, and never makes the hardware code wait for an API server.

mod controller;
mod patcher;
mod read;
mod report;
mod watcher;
mod write;

pub use controller::{NodeController, NodeHandle};
pub use report::NodeReport;
