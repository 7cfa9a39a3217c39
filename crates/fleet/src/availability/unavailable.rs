//! Reasons why units of a node are unavailable.

use octavo_node::node_object::{NOT_READY_TAINT, REPARTITIONING_TAINT};
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use super::shape::DeviceResource;
use crate::cluster::{
    ClusterNode, PlacementObstacle, PodRequirements, Readiness, Toleration, placement_obstacle,
};
use crate::summary::DeviceUse;

/// Reason why units are neither allocated nor free; the first that applies to a node.
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
    Display,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum UnavailableReason {
    /// An administrator cordoned the node.
    Cordoned,
    /// Its devices are being repartitioned.
    Repartitioning,
    /// Neither its agent nor its kubelet has reported for too long.
    Stale,
    /// Its kubelet reports that the node is not ready, or reports nothing.
    NotReady,
    /// It has a taint other than the usual ones of accelerator nodes.
    Tainted,
    /// It has its maximum number of pods.
    PodsFull,
    /// Its device plugin does not offer them.
    Unhealthy,
    /// Its agent reports a fault, but its device plugin offers them nevertheless.
    UnhealthyAdvertised,
    /// Claims cannot use them, because the layout of the node determines the partitions of their GPUs.
    StaticLayout,
    /// They are reserved for virtual machines on purpose.
    #[serde(alias = "set-aside")]
    Passthrough,
    /// The agent reports them, but no device plugin offers them.
    PluginMissing,
    /// It is unknown whether they are in use.
    UseUnknown,
    /// An agent reports a node that is not in the cluster.
    NoSuchNode,
}

/// Kubernetes' own taints that mirror the condition `Ready`. Source: Kubernetes, "Taints and Tolerations".
const NOT_READY_TAINTS: [&str; 2] =
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Reason why a pod that requests one unit of `resource`, and nothing else, should not be scheduled on `node`.
pub(super) fn unavailable_reason(
    node: &ClusterNode,
    resource: &str,
    agent: AgentState,
) -> Option<UnavailableReason> {
    let found = placement_obstacle(&single_unit_request(resource), node);
    let has_taint = |keys: &[&str]| {
        let mut forbidding = node.taints.iter().filter(|taint| taint.forbids());
        forbidding.any(|taint| keys.contains(&taint.key.as_str()))
    };
    let is_unwell = node.readiness != Readiness::Ready || has_taint(&NOT_READY_TAINTS);
    let is_ours = agent.is_changing || has_taint(&[REPARTITIONING_TAINT, NOT_READY_TAINT]);
    match found {
        Some(PlacementObstacle::Cordoned) => Some(UnavailableReason::Cordoned),
        _ if is_ours => Some(UnavailableReason::Repartitioning),
        _ if is_unwell && agent.is_stale => Some(UnavailableReason::Stale),
        _ if is_unwell => Some(UnavailableReason::NotReady),
        Some(
            PlacementObstacle::Tainted(_)
            | PlacementObstacle::Selector(_)
            | PlacementObstacle::Affinity,
        ) => Some(UnavailableReason::Tainted),
        None => None,
    }
}

/// State of a node's agent; the default stands for a node without an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AgentState {
    pub(super) is_stale: bool,
    pub(super) is_changing: bool,
}

/// Pod that requests a unit: with the toleration that the admission plugin `ExtendedResourceToleration` adds, and the
/// usual toleration for the vendor's accelerators.
fn single_unit_request(resource: &str) -> PodRequirements {
    let usual =
        DeviceResource::for_resource(resource).map(|whole| Toleration::for_key(whole.as_str()));
    let own = Toleration::for_key(resource);
    PodRequirements {
        tolerations: usual.into_iter().chain([own]).collect(),
        ..PodRequirements::default()
    }
}

impl UnavailableReason {
    /// Reason in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Use of the units, as of devices: only passthrough and unknown use are not failures.
    pub fn device_use(self) -> DeviceUse {
        match self {
            Self::Passthrough => DeviceUse::Passthrough,
            Self::UseUnknown => DeviceUse::Unknown,
            Self::Cordoned
            | Self::Repartitioning
            | Self::Stale
            | Self::NotReady
            | Self::Tainted
            | Self::PodsFull
            | Self::Unhealthy
            | Self::UnhealthyAdvertised
            | Self::StaticLayout
            | Self::PluginMissing
            | Self::NoSuchNode => DeviceUse::Unavailable,
        }
    }

    /// Explanation for users, with a remedy.
    pub fn description(self) -> &'static str {
        match self {
            Self::Cordoned => "the node is cordoned; make it schedulable with kubectl uncordon",
            Self::Repartitioning => {
                "devices of the node are being repartitioned; no action is needed"
            }
            Self::Stale => {
                "neither the agent nor the kubelet of the node reports; check that the node is running"
            }
            Self::NotReady => "the node is not ready; see kubectl describe node",
            Self::Tainted => {
                "the node has a taint that pods with accelerators do not usually tolerate"
            }
            Self::PodsFull => "the node has reached its maximum number of pods",
            Self::Unhealthy => {
                "they are unhealthy, so they cannot be allocated to pods; see octavo doctor"
            }
            Self::UnhealthyAdvertised => {
                "they are unhealthy, but the device plugin still advertises them, so a pod can be allocated one; see \
                 octavo doctor"
            }
            Self::StaticLayout => {
                "the layout of the node determines the partitions of their GPUs, so resource claims cannot use them; to \
                 allow claims, add `claims: dra` to the layout rule"
            }
            Self::Passthrough => {
                "they are reserved for virtual machines and cannot be allocated to pods"
            }
            Self::PluginMissing => {
                "the agent detects them, but no device plugin advertises them; see octavo doctor"
            }
            Self::UseUnknown => "the driver does not report whether they are in use",
            Self::NoSuchNode => "an agent reports a node that does not exist in the cluster",
        }
    }
}
