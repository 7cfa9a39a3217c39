//! Change of the instances of a node for pending pods, as the status lists it.

use jiff::Timestamp;
use octavo_model::digest::Digest;
use octavo_model::text::join;
use octavo_node::node_object::demand_layout;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::record::NodeRecord;

/// Maximum number of pods of a change in the status.
const MAX_PODS: usize = 64;
/// Maximum length of the message of a change, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// Instances that pending pods need on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeProposal {
    /// All instances of the devices that can be planned, as a checkpoint.
    pub instances: String,
    /// The pods, as `namespace/name`, with the created and destroyed instances.
    pub pods: Vec<(String, String)>,
    /// Running pods that are evicted to make room.
    pub evictions: Vec<PodEviction>,
    /// PCI address of the GPU that is reserved until its pods have ended.
    pub reserved_device: Option<String>,
}

impl NodeProposal {
    /// Returns whether running pods must end before the instances exist.
    pub(crate) fn waits_for_pods(&self) -> bool {
        !self.evictions.is_empty() || self.reserved_device.is_some()
    }
}

/// Running pod that is evicted to make room for a pending pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PodEviction {
    /// The pod, as namespace/name.
    pub pod: String,
    /// Its UID, which distinguishes it from a later pod with the same name.
    pub uid: String,
}

/// Change of the instances of a node for pending pods.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceChange {
    /// Identifier of this proposal, for its approval.
    pub id: String,
    /// Name of the node.
    pub node: String,
    /// Name of the layout: a digest of the instances.
    pub layout: String,
    /// Pods that need the instances, as namespace/name; the first 64.
    pub pods: Vec<String>,
    /// Created and destroyed instances.
    pub message: String,
    /// Running pods that are evicted to make room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<PodEviction>,
    /// PCI address of the GPU that is reserved until its pods have ended.
    pub reserved_device: Option<String>,
    /// Time since which the pods are proposed instances of the node.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Time at which the change began; absent for a proposal.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun: Option<Timestamp>,
    /// Instances of the node as a checkpoint; absent for a proposal.
    pub instances: Option<String>,
    /// True if pods block the change and either no pod needs it or its deadline has passed, so the layout is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
}

impl InstanceChange {
    /// A proposal for a node that is not being changed. `before` is the last one for the node.
    pub(crate) fn proposed(
        node: &str,
        proposal: &NodeProposal,
        before: Option<&Self>,
        now: Timestamp,
    ) -> Self {
        let layout = demand_layout(&proposal.instances);
        let is_for = |pod: &String| proposal.pods.iter().any(|(known, _)| known == pod);
        // Otherwise, pods that come or go would delay the change for those that wait.
        let is_same = |before: &&Self| before.layout == layout || before.pods.iter().any(is_for);
        let since = before.filter(is_same).map_or(now, |before| before.since);
        let each = proposal.pods.iter().map(|(pod, instances)| format!("{pod}: {instances}"));
        let message = shortened(&join(each, "; "));
        // An approval is for exactly what was shown.
        let evicted = proposal.evictions.iter().map(|one| format!(" {} {}", one.pod, one.uid));
        let evicted: String = evicted.collect();
        // The message of a reservation lists the instances in use, which change while the pod waits.
        let shown = match &proposal.reserved_device {
            Some(device) => join(proposal.pods.iter().map(|(pod, _)| pod).chain([device]), " "),
            None => message.clone(),
        };
        let content = format!("{node} {layout} {since} {shown}{evicted}");
        let id = format!("{:016x}", Digest::from_bytes(content.as_bytes()));
        Self {
            id: id.chars().take(8).collect(),
            node: node.to_owned(),
            layout,
            pods: proposal.pods.iter().take(MAX_PODS).map(|(pod, _)| pod.clone()).collect(),
            message,
            evictions: proposal.evictions.clone(),
            reserved_device: proposal.reserved_device.clone(),
            since,
            begun: None,
            instances: None,
            withdrawn: false,
        }
    }

    /// The withdrawal of a recorded layout.
    pub(crate) fn withdrawal(node: &str, layout: &str, now: Timestamp) -> Self {
        Self {
            id: String::new(),
            node: node.to_owned(),
            layout: layout.to_owned(),
            pods: Vec::new(),
            message: "the layout cannot be applied".to_owned(),
            evictions: Vec::new(),
            reserved_device: None,
            since: now,
            begun: Some(now),
            instances: None,
            withdrawn: true,
        }
    }

    /// Returns whether running pods must end before the instances exist.
    pub(crate) fn waits_for_pods(&self) -> bool {
        !self.evictions.is_empty() || self.reserved_device.is_some()
    }

    /// Returns whether a GPU of the node is reserved now.
    pub(crate) fn is_reservation(&self) -> bool {
        self.is_in_progress() && self.reserved_device.is_some()
    }

    /// Returns whether the node is being changed.
    pub fn is_in_progress(&self) -> bool {
        self.begun.is_some()
    }

    /// Returns whether a record is that of this change. An earlier change can have had the same instances.
    pub(crate) fn is_recorded(&self, record: &NodeRecord) -> bool {
        record.layout.as_ref() == Some(&self.layout) && record.changes.last().copied() >= self.begun
    }
}

/// The beginning of a message that is too long.
pub(crate) fn shortened(message: &str) -> String {
    if message.chars().count() <= MAX_MESSAGE_CHARS {
        return message.to_owned();
    }
    message.chars().take(MAX_MESSAGE_CHARS).chain(['…']).collect()
}
