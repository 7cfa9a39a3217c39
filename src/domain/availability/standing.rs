//! Why what a node has is of no use now.

use super::shape::Whole;
use crate::domain::cluster::{ClusterNode, Hindrance, Readiness, Toleration, Wants, hindrance};
use crate::domain::node::{NOT_READY, REPARTITIONING};
use crate::domain::reason::Reason;

/// Why units are neither taken nor free, the first that holds of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// A person has cordoned the node.
    Cordoned,
    /// Its devices are being given other partitions.
    Repartitioning,
    /// Its agent was not heard of for too long, and neither is its kubelet.
    Stale,
    /// Its kubelet says that it is not well, or says nothing.
    NotReady,
    /// A taint that is none of the usual ones of accelerators.
    Tainted,
    /// As many pods are there as may be.
    PodsFull,
    /// Its device plugin does not give them out.
    Unhealthy,
    /// They are set aside for virtual machines, on purpose.
    SetAside,
    /// The agent sees them, and no device plugin offers them.
    PluginMissing,
    /// Nobody tells whether they are in use.
    UseUnknown,
    /// An agent speaks for a node that the cluster has not.
    NoSuchNode,
}

/// Taints of Kubernetes' own that say what the condition `Ready` says. Source: Kubernetes, "Taints and Tolerations".
const UNWELL: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// Why a pod that asks for one unit of `resource`, and nothing else, should not be sent to `node`.
pub(super) fn standing(node: &ClusterNode, resource: &str, agent: AgentWord) -> Option<Why> {
    let found = hindrance(&asking(resource), node);
    let has_taint = |keys: &[&str]| {
        let mut forbidding = node.taints.iter().filter(|taint| taint.forbids());
        forbidding.any(|taint| keys.contains(&taint.key.as_str()))
    };
    let is_unwell = node.readiness != Readiness::Ready || has_taint(&UNWELL);
    let is_ours = agent.is_changing || has_taint(&[REPARTITIONING, NOT_READY]);
    match found {
        Some(Hindrance::Cordoned) => Some(Why::Cordoned),
        _ if is_ours => Some(Why::Repartitioning),
        _ if is_unwell && agent.is_stale => Some(Why::Stale),
        _ if is_unwell => Some(Why::NotReady),
        Some(Hindrance::Tainted(_) | Hindrance::Selector(_) | Hindrance::Affinity) => {
            Some(Why::Tainted)
        }
        None => None,
    }
}

/// What a node's agent says beside its devices; nothing where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AgentWord {
    pub(super) is_stale: bool,
    pub(super) is_changing: bool,
}

/// A pod that asks for a unit: as the admission plugin `ExtendedResourceToleration` completes it, and with the toleration that is
/// usual for accelerators of the maker.
fn asking(resource: &str) -> Wants {
    let usual = Whole::behind(resource).map(|whole| Toleration::of_key(whole.as_str()));
    let own = Toleration::of_key(resource);
    Wants {
        tolerations: usual.into_iter().chain([own]).collect(),
        ..Wants::default()
    }
}

impl Why {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cordoned => "cordoned",
            Self::Repartitioning => "repartitioning",
            Self::Stale => Reason::Stale.word(),
            Self::NotReady => "not-ready",
            Self::Tainted => "tainted",
            Self::PodsFull => "pods-full",
            Self::Unhealthy => "unhealthy",
            Self::SetAside => "set-aside",
            Self::PluginMissing => "plugin-missing",
            Self::UseUnknown => "use-unknown",
            Self::NoSuchNode => "no-such-node",
        }
    }

    /// In words for a person, and what to do.
    pub fn words(self) -> &'static str {
        match self {
            Self::Cordoned => "the node is cordoned; kubectl uncordon gives it back",
            Self::Repartitioning => {
                "devices of the node are being given other partitions; it ends by itself"
            }
            Self::Stale => {
                "neither the agent nor the kubelet of the node is heard of; see whether it runs"
            }
            Self::NotReady => "the node is not ready; kubectl describe node says why",
            Self::Tainted => {
                "the node has a taint that pods with accelerators do not usually tolerate"
            }
            Self::PodsFull => "the node has as many pods as it may have",
            Self::Unhealthy => {
                "they are not healthy, so no pod can be allocated them; octavo doctor says more"
            }
            Self::SetAside => {
                "they are set aside for virtual machines; no pod of the node gets them"
            }
            Self::PluginMissing => {
                "the agent sees them and no device plugin offers them; octavo doctor says more"
            }
            Self::UseUnknown => "the driver does not report whether they are in use",
            Self::NoSuchNode => "an agent speaks for a node that the cluster does not have",
        }
    }
}
