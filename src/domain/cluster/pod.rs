//! A pod, as far as it takes devices or wants them.

use super::amounts::Amounts;
use super::selector::{Affinity, Selector};
use super::taint::Toleration;

/// A pod as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterPod {
    /// Which one.
    pub key: PodKey,
    /// The node it is bound to.
    pub node: Option<String>,
    /// How far it is.
    pub phase: Phase,
    /// What it asks for.
    pub wants: Wants,
    /// When kubelet took it in, in seconds since 1970, where it has said so. The API server keeps it: it does not depend on who looks.
    pub began: Option<i64>,
    /// When it ends by itself at the latest, in seconds since 1970, where it says so: its start and `activeDeadlineSeconds`.
    pub until: Option<i64>,
}

/// Which pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Phase {
    /// It waits for a node.
    #[default]
    Pending,
    /// It waits for something else first: a scheduling gate.
    Gated,
    /// It has a node, and what it asked for there.
    Bound,
    /// All its containers have ended for good: it has nothing any more.
    Finished,
}

/// What a pod asks of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Wants {
    /// How much of each resource, as the scheduler reckons it: of containers, of those that start first, and overhead.
    pub amounts: Amounts,
    /// Labels that the node has to have.
    pub selector: Selector,
    /// More that is asked of the node; `None` where nothing is.
    pub affinity: Option<Affinity>,
    /// Which taints it does not mind.
    pub tolerations: Vec<Toleration>,
}

impl ClusterPod {
    /// The node on which it holds what it asked for.
    pub fn holds_on(&self) -> Option<&str> {
        match self.phase {
            Phase::Finished => None,
            Phase::Pending | Phase::Gated | Phase::Bound => self.node.as_deref(),
        }
    }

    /// Whether it waits for a node.
    pub fn is_pending(&self) -> bool {
        self.phase == Phase::Pending && self.node.is_none()
    }
}
