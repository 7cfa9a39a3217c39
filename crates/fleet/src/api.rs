//! The JSON of the REST API, written by the aggregator and read by the command line.
//!
//! Fields are only ever added, so readers must ignore unknown ones. Field names include the unit; unknown values are
//! omitted. Times are RFC 3339, in UTC.

use std::collections::BTreeMap;

use octavo_model::id::TypeName;
use octavo_model::inventory::{Inventory, InventoryDocument};
use octavo_model::quantity::Mebibytes;
use octavo_model::reported::Reported;
use octavo_model::sharing_status::SharingStatus;
use octavo_node::sharing::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::cluster::ClusterNode;
use crate::startup::StartupProgress;
use crate::summary::{DeviceCounts, LayoutSummary, NodeState, Sharing, TypeCounts};
use crate::type_source::TypeSource;

/// Nodes in the requested order.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `NodeList`.
    pub kind: String,
    /// Name of the cluster; absent unless it is configured.
    pub cluster: Option<String>,
    /// Revision of the fleet; increases with every change.
    pub revision: u64,
    /// Number of matching nodes on all pages.
    pub total: usize,
    /// Token of the next page, for the parameter `continue`; absent on the last page.
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
    /// Present while nodes are reconnecting after a start of the aggregator: the list is incomplete.
    pub starting: Option<StartupProgress>,
    /// The nodes of this page.
    pub items: Vec<NodeRow>,
}

/// A node in a list.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Name of the Kubernetes Node.
    pub name: String,
    /// State; the most severe one if several apply: `empty`, `passthrough`, `ok`, `applying`, `no-agent`,
    /// `attention`, `degraded`, `no-driver`, `nvml-lost`, `nvml-stalled`, `stale`.
    #[schema(value_type = String)]
    pub state: Reported<NodeState>,
    /// Human-readable explanation of the state; absent if there is nothing to explain, and for a stale node.
    pub reason: Option<String>,
    /// Source of its types and counts: `agent`; for a node without an agent, the key of the label that names its type,
    /// or `nothing` if there is none.
    #[serde(default = "default_source")]
    #[schema(value_type = String)]
    pub source: Reported<TypeSource>,
    /// Whether its agent is connected.
    pub connected: bool,
    /// Time of the last confirmation by its agent, or by the cluster for a node without an agent.
    pub last_confirmed: String,
    /// Time since then in seconds.
    pub age_seconds: u64,
    /// How its devices are allocated: `none`, `exclusive`, `mig`, `partitioned`, `time-slicing`, `mixed`.
    #[schema(value_type = String)]
    pub sharing: Reported<Sharing>,
    /// Devices of all types.
    pub devices: DeviceCounts,
    /// Memory of all devices in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// Devices by type.
    pub types: Vec<NodeType>,
    /// State of its layout; absent if no layout selects its devices.
    pub layout: Option<Box<LayoutSummary>>,
    /// Version of its agent.
    pub agent_version: String,
}

/// Layouts that a plan of the node can be requested for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayoutNames {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `LayoutNames`.
    pub kind: String,
    /// Name of the Kubernetes Node.
    pub node: String,
    /// Reason why the layouts may differ from the current content of the file; absent if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Layouts, those of the file first.
    pub items: Vec<LayoutName>,
}

/// A layout that a plan can be requested for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayoutName {
    /// Name in requests.
    pub name: String,
    /// `file`: from the aggregator's layouts file; `made`: generated for the devices of the node.
    pub source: String,
}

/// Devices of one type on one node.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeType {
    /// The canonical name, such as `nvidia-h200-141gb`; absent for unknown devices.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// Source of the type: `catalog`, `manual` (the label `octavo.dev/type-override`) or `mixed`; absent for unknown
    /// devices.
    #[schema(value_type = Option<String>)]
    pub type_source: Option<Reported<TypeIdentification>>,
    /// Memory of one device in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: Option<u64>,
    /// Counts by state.
    pub devices: DeviceCounts,
}

/// A node with its whole status.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDetail {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `Node`.
    pub kind: String,
    /// The fields of a list.
    #[serde(flatten)]
    pub row: NodeRow,
    /// Boot ID of the node.
    pub boot_id: String,
    /// Time of the last change of the status.
    pub last_changed: String,
    /// Labels published by the agent.
    pub labels: BTreeMap<String, String>,
    /// Status of sharing; absent if no agent reports it.
    pub sharing_status: Option<Box<SharingStatus>>,
    /// Usage of its devices by pod; absent if it is not observed.
    pub usage: Option<Box<Usage>>,
    /// Its inventory, in the format of `octavo inspect -o json`.
    #[schema(value_type = InventoryDocument)]
    pub inventory: Inventory,
}

/// Nodes with accelerators as the API server reports them, ordered by name: their labels, taints and resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNodeList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `ClusterNodeList`.
    pub kind: String,
    /// Reason why the nodes may be outdated or incomplete; absent if they are current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// The nodes.
    pub items: Vec<ClusterNode>,
}

/// Types ordered by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `TypeList`.
    pub kind: String,
    /// Name of the cluster; absent unless it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Revision of the fleet.
    pub revision: u64,
    /// Present while nodes are reconnecting after a start of the aggregator: the counts are incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<StartupProgress>,
    /// Types.
    pub items: Vec<TypeRow>,
}

/// Devices of one type in the whole fleet. Devices of stale nodes count as unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeRow {
    /// The fields of a node.
    #[serde(flatten)]
    pub of_all: NodeType,
    /// Number of nodes with at least one device of this type.
    pub nodes: u32,
    /// Number of these nodes without an agent. Their devices are counted by labels, and all are `unknown`.
    #[serde(default)]
    pub nodes_without_agent: u32,
}

/// An event of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
#[expect(
    clippy::large_enum_variant,
    reason = "one exists at a time, and it is almost always a node"
)]
pub enum Event {
    /// A new or changed node.
    Node {
        /// The node as in a list.
        node: NodeRow,
    },
    /// A removed node.
    Removed {
        /// Name of the node.
        name: String,
    },
    /// All nodes that existed at the start of the stream have been sent.
    Synced {
        /// Revision of the fleet.
        revision: u64,
    },
}

/// Default of `source` for aggregators that predate the field.
fn default_source() -> Reported<TypeSource> {
    TypeSource::Agent.into()
}

impl From<TypeCounts> for NodeType {
    fn from(counts: TypeCounts) -> Self {
        Self {
            type_name: counts.type_name.as_ref().map(TypeName::to_string),
            type_source: counts
                .type_name
                .is_some()
                .then(|| TypeIdentification::from_counts(&counts).into()),
            memory_mib: counts.memory.map(Mebibytes::get),
            devices: counts.counts,
        }
    }
}

/// Source of the type of devices: one word for all devices of the type on a node or in the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TypeIdentification {
    /// The catalog identified all devices.
    #[serde(alias = "catalogue")]
    Catalog,
    /// The type of all devices was set manually.
    Manual,
    /// The type of some devices was set manually.
    Mixed,
}

impl TypeIdentification {
    fn from_counts(counts: &TypeCounts) -> Self {
        match counts.manual {
            0 => Self::Catalog,
            some if some < counts.counts.total => Self::Mixed,
            _ => Self::Manual,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::summary::Occupancy;

    use super::*;

    #[test]
    fn type_source_is_catalog_manual_or_mixed() {
        let source = |type_name: Option<&str>, manual| {
            let free = DeviceCounts::default().with(Occupancy::Free);
            let row = NodeType::from(TypeCounts {
                type_name: type_name.map(|name| name.parse().unwrap()),
                manual,
                memory: None,
                counts: free.with(Occupancy::Free),
            });
            row.type_source
        };
        let known = |manual| source(Some("nvidia-l4-24gb"), manual).unwrap();
        let words = ["catalog", "mixed", "manual"];
        assert_eq!([0, 1, 2].map(known), words.map(Reported::parse));
        assert_eq!(source(None, 0), None);
    }
}
