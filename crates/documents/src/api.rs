//! The JSON of the REST API, written by the aggregator and read by the command line.
//!
//! Fields are only ever added, so readers must ignore unknown ones. Field names include the unit; unknown values are
//! omitted. Times are RFC 3339, in UTC.

mod layout;
mod progress;

use std::collections::BTreeMap;

use octavo_fleet::fleet::{Counts, Partitions, TypeCounts};
use octavo_fleet::type_source::TypeSource;
use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::progress::{ProgressJson, StepsJson};
use super::inventory::Document;
use super::sharing::SharingJson;
use super::startup::StartingJson;
use super::usage::UsageJson;

/// API version of every document in this module.
pub const API_VERSION: &str = "octavo.dev/v1";

/// Nodes, ordered as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `NodeList`.
    pub kind: String,
    /// Of the fleet; grows with each change.
    pub revision: u64,
    /// How many nodes match, on this page and all others.
    pub total: usize,
    /// Where the next page begins: give it as `continue`. Absent on the last page.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// Present while nodes are still returning after a start: the list is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<StartingJson>,
    /// The nodes of this page.
    pub items: Vec<NodeRow>,
}

/// A node in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// The Kubernetes node's name.
    pub name: String,
    /// How it is, the gravest of what is to be said: `empty`, `ok`, `no-agent`, `attention`, `degraded`, `no-driver`,
    /// `nvml-lost`, `nvml-stalled`, `stale`.
    pub state: String,
    /// Why it is not as it should be, in words for a person; absent where it is, and of a stale node, of which nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where its types and counts are from: `default_source`; or, of a node of the cluster that no agent reports, the key of the label that
    /// names its type, and `nothing` where none does.
    #[serde(default = "default_source")]
    pub source: String,
    /// Whether its agent is connected now.
    pub connected: bool,
    /// When its agent last confirmed what is shown; of a node that no agent reports, when the cluster did.
    pub last_confirmed: String,
    /// How long ago that was.
    pub age_seconds: u64,
    /// How its devices are given out: `none`, `exclusive`, `mig`, `time-slicing`, `mixed`.
    pub sharing: String,
    /// Devices, all types together.
    pub devices: CountsJson,
    /// Memory of all devices.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// Devices by type.
    pub types: Vec<NodeType>,
    /// Where it stands with regard to its layout; absent where nobody asks anything of its devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Box<LayoutRow>>,
    /// The version of its agent.
    pub agent_version: String,
}

/// Where a node stands with regard to its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayoutRow {
    /// The layout that it shall have; absent where none is chosen and a device is still being brought to an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether a person chose it by hand on the node.
    #[serde(default)]
    pub by_hand: bool,
    /// Of its devices' states the one that most needs attention: `applied`, `pending`, `applying`, `yielded`, `drifted`,
    /// `blocked`, `rolled-back`, `needs-reset`, `infeasible`, `failed`; absent where nothing is asked of any device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why, in words for a person: of the first device in that state, or what is wrong with the layout itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the agent does about pods in the way, in words for a person; absent while it does nothing about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
    /// The id of the last plan that was carried out, in vain or not: as in the agent's log and its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// How far the devices are that are being changed now, taken together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<StepsJson>,
    /// The devices that something is asked of, ordered by address. Not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceLayoutJson>,
}

/// Where a device stands with regard to its node's layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceLayoutJson {
    /// Its PCI address.
    pub pci: String,
    /// What people call it: `GPU 3`.
    pub name: String,
    /// As of the node.
    pub state: String,
    /// Why, in words for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How far it is, while it is being changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressJson>,
}

/// Layouts that a node's plan can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayoutNames {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `LayoutNames`.
    pub kind: String,
    /// The Kubernetes node's name.
    pub node: String,
    /// Why the file's layouts may not be what the file says now; absent while they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Those of the file first.
    pub items: Vec<LayoutName>,
}

/// A layout that can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayoutName {
    /// What it is asked for by.
    pub name: String,
    /// `file`: of the aggregator's file of layouts; `made`: for the devices of the node.
    pub source: String,
}

/// The devices of one type on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeType {
    /// The canonical name, such as `nvidia-h200-141gb`; absent for devices nobody knows.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// Source of the type: `catalogue`, `manual` (the label `octavo.dev/type-override`) or `mixed`; absent for unknown devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_source: Option<String>,
    /// Memory of one device.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// How many.
    pub devices: CountsJson,
}

/// Devices, each counted once: the six kinds add up to `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CountsJson {
    /// All.
    pub total: u32,
    /// Whole, without a process on it.
    pub free: u32,
    /// Whole, with one.
    pub in_use: u32,
    /// In MIG mode: given out in parts.
    pub partitioned: u32,
    /// Of no use until somebody does something: failing, without a driver, waiting for a reset.
    pub unavailable: u32,
    /// Set aside for virtual machines: no pod gets them, on purpose.
    #[serde(default)]
    pub set_aside: u32,
    /// Nobody can tell now.
    pub unknown: u32,
    /// Partitions of those that are partitioned.
    pub partitions: PartitionsJson,
}

/// Partitions: compute instances, which is what a container is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionsJson {
    /// All.
    pub total: u32,
    /// Without a process.
    pub free: u32,
    /// With one.
    pub in_use: u32,
}

/// One node with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDetail {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `Node`.
    pub kind: String,
    /// As in a list.
    #[serde(flatten)]
    pub row: NodeRow,
    /// The node's boot id.
    pub boot_id: String,
    /// When the status last became another one.
    pub last_changed: String,
    /// The labels that the node says of itself.
    pub labels: BTreeMap<String, String>,
    /// How far what it gives out to pods is what shall be; absent where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing_status: Option<Box<SharingJson>>,
    /// Who has what of its devices; absent where nobody looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<UsageJson>>,
    /// Its devices, as `octavo inspect -o json` prints them on the node.
    pub inventory: Document,
}

/// Types, ordered by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `TypeList`.
    pub kind: String,
    /// Of the fleet.
    pub revision: u64,
    /// Present while nodes are still returning after a start: the counts are not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<StartingJson>,
    /// The types.
    pub items: Vec<TypeRow>,
}

/// A type over the whole fleet. The devices of stale nodes count as unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeRow {
    /// As on a node.
    #[serde(flatten)]
    pub of_all: NodeType,
    /// Nodes that have at least one.
    pub nodes: u32,
    /// How many of these nodes no agent reports: their devices are counted by labels, and are all `unknown`.
    #[serde(default)]
    pub nodes_without_agent: u32,
}

/// What went wrong. Source of the form: RFC 9457, `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Which kind of problem; the page explains it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong in this case, and what to do.
    pub detail: String,
    /// The path that was asked for.
    pub instance: String,
    /// The parameter that is wrong, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
}

/// What an event stream sends, one object an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is almost always a node"
)]
pub enum Event {
    /// A node that is new or has changed.
    Node {
        /// As in a list.
        node: NodeRow,
    },
    /// A node that is no more.
    Removed {
        /// Its name.
        name: String,
    },
    /// All that was there at the start has been sent.
    Synced {
        /// Of the fleet.
        revision: u64,
    },
}

/// Default of `type_source` for aggregators that predate the field.
fn default_source() -> String {
    TypeSource::Agent.as_str().to_owned()
}

impl From<TypeCounts> for NodeType {
    fn from(counts: TypeCounts) -> Self {
        Self {
            type_name: counts.type_name.as_ref().map(TypeName::to_string),
            type_source: counts.type_name.is_some().then(|| type_source(&counts)),
            memory_mib: counts.memory.map(Mebibytes::get),
            devices: counts.counts.into(),
        }
    }
}

fn type_source(of: &TypeCounts) -> String {
    let word = match of.manual {
        0 => "catalogue",
        some if some < of.counts.total() => "mixed",
        _ => "manual",
    };
    word.to_owned()
}

impl From<Counts> for CountsJson {
    fn from(counts: Counts) -> Self {
        Self {
            total: counts.total(),
            free: counts.free,
            in_use: counts.in_use,
            partitioned: counts.partitioned,
            unavailable: counts.unavailable,
            set_aside: counts.reserved,
            unknown: counts.unknown,
            partitions: counts.partitions.into(),
        }
    }
}

impl From<Partitions> for PartitionsJson {
    fn from(partitions: Partitions) -> Self {
        Self {
            total: partitions.count,
            free: partitions.free(),
            in_use: partitions.in_use,
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::fleet::Occupancy;

    use super::*;

    #[test]
    fn type_source_is_catalogue_manual_or_mixed() {
        let told = |type_name: Option<&str>, by_hand| {
            let free = Counts::default().with(Occupancy::Free);
            let row = NodeType::from(TypeCounts {
                type_name: type_name.map(|name| name.parse().unwrap()),
                manual: by_hand,
                memory: None,
                counts: free.with(Occupancy::Free),
            });
            row.type_source
        };
        let known = |by_hand| told(Some("nvidia-l4-24gb"), by_hand).unwrap();
        assert_eq!(
            [0, 1, 2].map(known),
            ["catalogue", "mixed", "manual"].map(str::to_owned)
        );
        assert_eq!(told(None, 0), None);
    }
}
