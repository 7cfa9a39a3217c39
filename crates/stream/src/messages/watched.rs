//! Decoding of the events of a watch stream.

use octavo_model::id::NodeName;

use super::{StreamError, check_count, check_text, incoming_parts, node_name, required};
use crate::proto::v1;
use crate::proto::v1::watch_event::Event;
use crate::protocol::{Identity, Parts};

/// An event of a watch stream. A client must ignore other events, which later versions can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedEvent {
    /// A new or changed node.
    Node(Box<WatchedNode>),
    /// A node was removed.
    Removed(NodeName),
    /// All nodes were sent.
    Synced,
}

/// A node of another aggregator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedNode {
    /// Its name, and the version of its agent.
    pub identity: Identity,
    /// Its boot ID.
    pub boot_id: String,
    /// True if its agent is connected.
    pub is_connected: bool,
    /// True if its agent has not confirmed the status recently.
    pub is_stale: bool,
    /// Its last status.
    pub parts: Parts,
}

/// Parses an event of a watch stream.
///
/// # Errors
/// Fails if a field is invalid or exceeds its limit.
pub fn parse_watch_event(event: v1::WatchEvent) -> Result<WatchedEvent, StreamError> {
    match required(event.event)? {
        Event::Node(node) => {
            let node = watched_node(node).map_err(|error| error.within("node"))?;
            Ok(WatchedEvent::Node(Box::new(node)))
        }
        Event::Removed(name) => node_name("removed", &name).map(WatchedEvent::Removed),
        Event::Synced(_) => Ok(WatchedEvent::Synced),
    }
}

fn watched_node(node: v1::NodeStatus) -> Result<WatchedNode, StreamError> {
    check_count("parts", node.parts.len())?;
    Ok(WatchedNode {
        identity: Identity {
            node: node_name("name", &node.name)?,
            agent_version: check_text("agent_version", node.agent_version)?,
        },
        boot_id: check_text("boot_id", node.boot_id)?,
        is_connected: node.connected,
        is_stale: node.stale,
        parts: incoming_parts("parts", node.parts)?.into_iter().collect(),
    })
}
