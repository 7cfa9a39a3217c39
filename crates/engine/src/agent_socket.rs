//! Messages between the agent and a command on the same node, sent over the agent's socket as one JSON object per line.
//! The command sends one request. The agent answers with [`Answer::Accepted`] or [`Answer::Refused`], and then sends
//! the node's status on every change until the command disconnects.

use octavo_node::sharing::usage::Usage;
use octavo_planner::reconcile::NodeLayoutStatus;
use serde::{Deserialize, Serialize};

/// Name of the socket in the agent's state directory.
pub const SOCKET_NAME: &str = "agent.sock";
/// Maximum line length in bytes. A request contains a whole layout file.
pub const MAX_LINE_BYTES: usize = 6 << 20;

/// Request of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Applies a layout until another one is chosen manually or this choice is discarded.
    Apply(LayoutChoice),
    /// Discards the manual choice and returns to the layout of the agent's settings.
    Forget {},
    /// Subscribes to the status of the node.
    Watch {},
    /// Subscribes to the usage of the node's devices. Answered with [`Answer::Usage`], immediately and after every
    /// refresh.
    Usage {},
}

/// A manually chosen layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LayoutChoice {
    /// Name of the layout.
    pub layout: String,
    /// Content of the layout file. By default, the layout comes from the agent's own file or is generated for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layouts: Option<String>,
    /// Content of a checkpoint to restore instead of a layout. The name is then only displayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

impl LayoutChoice {
    /// Layout name displayed for a checkpoint.
    pub const CHECKPOINT_NAME: &str = "(checkpoint)";
}

/// Response of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The request is accepted. Every status with this generation or a later one takes it into account.
    Accepted {
        /// Increases with every choice.
        generation: u64,
    },
    /// The request is rejected.
    Refused {
        /// Human-readable reason.
        reason: String,
    },
    /// The status of the node.
    Status(Box<NodeLayoutStatus>),
    /// The usage of the node's devices.
    Usage(Usage),
}

/// Serializes a value as a line, including the line feed.
pub fn line(value: &impl Serialize) -> String {
    // Serialization cannot fail: the types contain only values that JSON supports.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}
