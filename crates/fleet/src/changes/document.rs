//! API document of the changes of a node.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::Change;

/// Changes of a node, newest first.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `ChangeList`.
    pub kind: String,
    /// Name of the Kubernetes Node.
    pub node: String,
    /// Start of the record: the first report of the node since the aggregator started; absent for a node without an agent.
    pub since: Option<String>,
    /// Number of older changes that are no longer recorded.
    pub dropped: u64,
    /// The last 64 changes.
    pub items: Vec<ChangeRow>,
}

/// A recorded change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeRow {
    /// Time at which the aggregator last received the change.
    pub time: String,
    /// Time of the first of several equal changes; otherwise the same as `time`.
    pub first_time: String,
    /// Number of equal changes, each at most 15 minutes after the previous one.
    pub count: u32,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}
