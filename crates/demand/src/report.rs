//! Proposals as a document of the REST API. Unknown values are omitted. Times are RFC 3339, in UTC.

use std::collections::BTreeMap;

use octavo_model::catalog::Placement;
use octavo_model::reported::Reported;
use octavo_model::text::{count_noun, join};
use octavo_model::tone::Tone;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{AsRefStr, IntoStaticStr};
use utoipa::ToSchema;

/// Pending pods that request MIG instances, and the changes of idle instances that would place them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DemandReport {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `DemandReport`.
    pub kind: String,
    /// Time of the proposals.
    pub as_of: String,
    /// True if the pods were last read more than a minute ago.
    pub stale: bool,
    /// Pods, those that have waited longest first.
    pub items: Vec<PodProposal>,
    /// Number of pods that are not planned, because older ones reach the limit.
    pub omitted_pods: usize,
    /// Number of pods that have not waited long enough.
    pub recent_pods: usize,
    /// Devices that the proposals change, ordered by node and device.
    pub devices: Vec<DeviceProposal>,
}

/// Proposal for a pod.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodProposal {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Seconds since its creation.
    pub waiting_seconds: Option<u64>,
    /// Requested number of instances by resource.
    pub resources: BTreeMap<String, u64>,
    /// Kind of the proposal.
    #[schema(value_type = Outcome)]
    pub outcome: Reported<Outcome>,
    /// Human-readable explanation.
    pub message: String,
    /// Node of the instances.
    pub node: Option<String>,
    /// The instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<ProposedInstance>,
    /// Growth of the fragmentation: the slices that become unusable for an average request.
    pub fragmentation: Option<f64>,
    /// The next best nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// Number of nodes by the reason why they are not proposed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<ObstacleCount>,
    /// Running pods whose restart makes room for the pod; set for one pod of a report.
    pub defragmentation: Option<Defragmentation>,
}

/// Kind of a proposal.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
    AsRefStr,
    IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// Idle instances exist: the scheduler can place the pod.
    Available,
    /// The instances can be created in free slices.
    Create,
    /// The instances can be created after idle ones are destroyed.
    Replace,
    /// The pod has waited for a long time, and a device should be reserved for it until enough of its instances are idle.
    Reserve,
    /// No change of idle instances helps.
    Blocked,
}

/// Instance for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProposedInstance {
    /// PCI address of the device.
    pub device: String,
    /// Name of the device: `GPU 3`.
    pub device_name: String,
    /// The instance.
    #[serde(flatten)]
    pub instance: InstancePlace,
    /// True if it exists and is idle.
    pub exists: bool,
    /// Idle instances that are destroyed for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destroys: Vec<InstancePlace>,
}

/// Profile and placement of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstancePlace {
    /// Name of the profile: `3g.40gb`.
    pub profile: String,
    /// Placement in memory slices.
    pub placement: Placement,
}

/// Place for a pod once running pods have restarted on other nodes. Octavo does not restart them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmentation {
    /// Node of the instance that the blocked pod would get.
    pub node: String,
    /// PCI address of its device.
    pub device: String,
    /// Name of the device: `GPU 3`.
    pub device_name: String,
    /// The instance.
    pub instance: InstancePlace,
    /// The pods that would have to restart.
    pub moves: Vec<PodMove>,
    /// Growth of the fragmentation, with the instance of the blocked pod, in slices; usually negative.
    pub fragmentation: f64,
}

/// A running pod with another instance that it could get.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMove {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Seconds since its start.
    pub running_seconds: Option<u64>,
    /// Its instance, on the device of the blocked pod.
    pub from: InstancePlace,
    /// Node of the other instance.
    pub node: String,
    /// The other instance.
    pub to: ProposedInstance,
}

/// A node that is not proposed because another one is better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alternative {
    /// Its name.
    pub node: String,
    /// Human-readable reason.
    pub message: String,
}

/// Number of nodes with an obstacle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObstacleCount {
    /// The obstacle.
    #[schema(value_type = Obstacle)]
    pub reason: Reported<Obstacle>,
    /// Number of nodes.
    pub nodes: usize,
    /// Human-readable explanation.
    pub message: String,
}

/// Reason why a node with GPUs in MIG mode is not proposed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, AsRefStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Obstacle {
    /// Instances that are in use or proposed for other pods leave no room.
    Occupied,
    /// The room is reserved for a pod that has waited longer.
    Reserved,
    /// Too little CPU, memory or another resource is free.
    OtherResources,
    /// The node is cordoned or not ready.
    Unschedulable,
    /// The pod does not tolerate a taint.
    Tainted,
    /// The node selector or the node affinity of the pod excludes the node.
    NotSelected,
    /// The node would not offer the instance exclusively and under its own resource name.
    NotOffered,
    /// No GPU in MIG mode has the profile.
    NoProfile,
    /// The GPUs have too few slices for all instances of the pod, even without other instances.
    TooSmall,
    /// The agent has not reported recently.
    Stale,
    /// The users of the instances, or the state of some GPUs, are unknown.
    Unknown,
}

/// Change of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceProposal {
    /// Its node.
    pub node: String,
    /// PCI address.
    pub device: String,
    /// Name: `GPU 3`.
    pub device_name: String,
    /// Number of instances by profile before the change.
    pub before: BTreeMap<String, usize>,
    /// Number of instances by profile after the change.
    pub after: BTreeMap<String, usize>,
    /// Instances that are created.
    pub creates: Vec<InstancePlace>,
    /// Idle instances that are destroyed.
    pub destroys: Vec<InstancePlace>,
    /// Number of pods that get an instance.
    pub pods: usize,
}

impl Outcome {
    /// Its name, as in the document.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the pod gets instances that exist or can be created.
    pub(crate) fn is_placed(self) -> bool {
        matches!(self, Self::Available | Self::Create | Self::Replace)
    }

    /// Its rating.
    pub fn tone(self) -> Tone {
        match self {
            Self::Available => Tone::Good,
            Self::Create | Self::Replace => Tone::Neutral,
            Self::Reserve | Self::Blocked => Tone::Warning,
        }
    }
}

impl Obstacle {
    /// Describes the obstacle on this number of nodes, as a clause.
    pub(crate) fn describe(self, nodes: usize) -> String {
        let on = count_noun(nodes, "node", "nodes");
        match self {
            Self::Occupied => format!(
                "instances that are in use or proposed for other pods leave no room on {on}"
            ),
            Self::Reserved => {
                format!("the room on {on} is reserved for a pod that has waited longer")
            }
            Self::OtherResources => {
                format!("too little CPU, memory or another resource is free on {on}")
            }
            Self::Unschedulable => count_noun(
                nodes,
                "node is cordoned or not ready",
                "nodes are cordoned or not ready",
            ),
            Self::Tainted => format!("the pod does not tolerate a taint of {on}"),
            Self::NotSelected => format!("the node selector or affinity excludes {on}"),
            Self::NotOffered => {
                format!("{on} would not offer the instance under its resource name")
            }
            Self::NoProfile => format!("no GPU in MIG mode has the profile on {on}"),
            Self::TooSmall => {
                let are = count_noun(nodes, "node is", "nodes are");
                format!("the GPUs of {are} too small for all instances of the pod")
            }
            Self::Stale => count_noun(
                nodes,
                "agent has not reported recently",
                "agents have not reported recently",
            ),
            Self::Unknown => {
                format!(
                    "the users of the instances, or the state of some GPUs, are unknown on {on}"
                )
            }
        }
    }
}

impl InstancePlace {
    /// Describes the place: `3g.40gb at slice 4`.
    pub fn describe(&self) -> String {
        format!("{} at slice {}", self.profile, self.placement.start)
    }
}

impl DeviceProposal {
    /// Instances by profile as text: `2 x 1g.10gb, 3g.40gb`; `none` without any.
    pub fn describe(counts: &BTreeMap<String, usize>) -> String {
        if counts.is_empty() {
            return "none".to_owned();
        }
        let each = counts.iter().map(|(profile, count)| match count {
            1 => profile.clone(),
            count => format!("{count} x {profile}"),
        });
        join(each, ", ")
    }
}
