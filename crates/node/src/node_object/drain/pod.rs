//! Pods of a node: which may be evicted, and which one a holder of a device belongs to.

use octavo_model::holder::Holder;

/// The relevant fields of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Pod {
    /// Identity of the pod.
    pub id: PodId,
    /// Kind of the controller that recreates the pod, such as `DaemonSet`; `None` if there is none.
    pub controller: Option<String>,
    /// For the mirror pod of a static pod: the UID that kubelet uses for the static pod. Source: Kubernetes, the
    /// annotation `kubernetes.io/config.mirror`.
    pub mirrors: Option<String>,
    /// Priority.
    pub priority: i32,
    /// Name of the priority class.
    pub priority_class: Option<String>,
    /// True if the pod tolerates the drain's taint.
    pub tolerates: bool,
    /// True if all containers have terminated permanently.
    pub is_finished: bool,
    /// True if the pod is terminating.
    pub is_ending: bool,
}

/// Identity of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodId {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID, which distinguishes pods that reuse a name.
    pub uid: String,
}

/// Reason why a pod is never evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionExemption {
    /// Kubelet creates it from a file and evicts it itself.
    Static,
    /// Its `DaemonSet` would recreate it immediately, regardless of taints.
    DaemonSet,
    /// The cluster or the node depends on it.
    Critical,
    /// No controller would recreate it.
    Unmanaged,
    /// It tolerates the drain's taint and may return to the node.
    Tolerates,
}

/// Source: Kubernetes, `pkg/apis/scheduling`, `SystemCriticalPriority` and the classes of that package.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;
const CRITICAL_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

impl PodId {
    /// Returns the name for users: `team-a/notebook-7`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Pod {
    /// Returns the reason why the pod is never evicted; `None` if it may be. A mirror pod has an owner too: its Node.
    pub fn eviction_exemption(&self) -> Option<EvictionExemption> {
        let class = self.priority_class.as_deref().unwrap_or_default();
        if self.mirrors.is_some() {
            Some(EvictionExemption::Static)
        } else if self.controller.as_deref() == Some("DaemonSet") {
            Some(EvictionExemption::DaemonSet)
        } else if self.priority >= CRITICAL_PRIORITY || CRITICAL_CLASSES.contains(&class) {
            Some(EvictionExemption::Critical)
        } else if self.controller.is_none() {
            Some(EvictionExemption::Unmanaged)
        } else if self.tolerates {
            Some(EvictionExemption::Tolerates)
        } else {
            None
        }
    }

    /// Returns the reason why the pod stays; `None` if it may be evicted, or terminates and is not recreated on this
    /// node.
    pub(super) fn stay_reason(&self) -> Option<EvictionExemption> {
        let comes_back = |exemption: &EvictionExemption| match exemption {
            EvictionExemption::Static
            | EvictionExemption::DaemonSet
            | EvictionExemption::Tolerates => true,
            EvictionExemption::Critical | EvictionExemption::Unmanaged => false,
        };
        self.eviction_exemption().filter(|exemption| !self.is_ending || comes_back(exemption))
    }
}

impl EvictionExemption {
    /// Returns the reason as text.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Static => "it is a static pod, which is never evicted",
            Self::DaemonSet => "it belongs to a DaemonSet, whose pods are never evicted",
            Self::Critical => "it is critical for the cluster and is never evicted",
            Self::Unmanaged => {
                "it has no controller that would recreate it, so it is never evicted"
            }
            Self::Tolerates => {
                "it tolerates the taint octavo.dev/repartitioning and could return immediately, so it is never \
                 evicted"
            }
        }
    }
}

/// The pod that a holder belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HolderPod<'a> {
    /// This pod.
    Pod(&'a Pod),
    /// A pod that the API server does not list: just created, or already deleted there.
    Unlisted,
    /// The holder is a process outside any pod.
    Process,
}

/// Finds the pod of a holder. Kubelet reports pod names; the control group of a process contains the UID, which
/// distinguishes a pod from a later one with the same name.
pub(super) fn find_pod<'a>(pods: &'a [Pod], holder: &Holder) -> HolderPod<'a> {
    let Some(known) = &holder.details.pod else {
        return HolderPod::Process;
    };
    let is = |pod: &&Pod| match (&known.namespace, &known.name, &known.uid) {
        (_, _, Some(uid)) => pod.id.uid == *uid || pod.mirrors.as_ref() == Some(uid),
        (Some(namespace), Some(name), None) => {
            (&pod.id.namespace, &pod.id.name) == (namespace, name)
        }
        (_, _, None) => false,
    };
    pods.iter().find(is).map_or(HolderPod::Unlisted, HolderPod::Pod)
}
