//! Progress of the agents' reconnection after a restart of the aggregator, as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many nodes have reported since the aggregator was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartingJson {
    /// Nodes that have reported; absent for readers who may not list nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// About how many are expected; absent where no cluster is followed that tells, and for readers who may not list nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<usize>,
}
