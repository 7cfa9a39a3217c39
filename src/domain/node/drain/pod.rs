//! Pods of a node: which of them may be evicted, and which of them a holder of a device is.

use crate::domain::holder::Holder;

/// A pod as the API server has it, as far as it concerns us.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Pod {
    /// Which one.
    pub id: PodId,
    /// The kind of what makes it again, such as `DaemonSet`; `None` where nothing does.
    pub controller: Option<String>,
    /// Where it is the image of a static pod: the UID that kubelet knows that one by. Source: Kubernetes, the annotation
    /// `kubernetes.io/config.mirror`.
    pub mirrors: Option<String>,
    /// How much it matters.
    pub priority: i32,
    /// What that is called.
    pub priority_class: Option<String>,
    /// Whether it goes to nodes with our taint.
    pub tolerates: bool,
    /// Whether all its containers have ended for good.
    pub is_finished: bool,
    /// Whether it was told to end.
    pub is_ending: bool,
}

/// Which pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: another pod may have the same name later.
    pub uid: String,
}

/// Why a pod is never evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Kubelet makes it from a file and evicts it itself.
    Static,
    /// It would be back at once, whatever taints the node has.
    DaemonSet,
    /// The cluster or the node needs it.
    Critical,
    /// Nothing would make it again.
    Alone,
    /// Our taint keeps it away from no node.
    Tolerates,
}

/// Source: Kubernetes, `pkg/apis/scheduling`, `SystemCriticalPriority` and the classes of that package.
const CRITICAL: i32 = 2_000_000_000;
const CRITICAL_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

impl PodId {
    /// What people call it: `team-a/notebook-7`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Pod {
    /// Why it is never evicted; `None` where it may be. The image of a static pod has an owner too: its Node.
    pub fn kept(&self) -> Option<Kept> {
        let class = self.priority_class.as_deref().unwrap_or_default();
        if self.mirrors.is_some() {
            Some(Kept::Static)
        } else if self.controller.as_deref() == Some("DaemonSet") {
            Some(Kept::DaemonSet)
        } else if self.priority >= CRITICAL || CRITICAL_CLASSES.contains(&class) {
            Some(Kept::Critical)
        } else if self.controller.is_none() {
            Some(Kept::Alone)
        } else if self.tolerates {
            Some(Kept::Tolerates)
        } else {
            None
        }
    }

    /// Why it will not go; `None` where it may be evicted, or was told to end and nothing puts it back.
    pub(super) fn stays(&self) -> Option<Kept> {
        let comes_back = |kept: &Kept| match kept {
            Kept::Static | Kept::DaemonSet | Kept::Tolerates => true,
            Kept::Critical | Kept::Alone => false,
        };
        self.kept()
            .filter(|kept| !self.is_ending || comes_back(kept))
    }
}

impl Kept {
    /// In words for a person.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Static => "it is a static pod, which is never evicted",
            Self::DaemonSet => "it is of a DaemonSet, whose pods are never evicted",
            Self::Critical => "it is critical for the cluster and never evicted",
            Self::Alone => "nothing would make it again, so it is never evicted",
            Self::Tolerates => {
                "it tolerates the taint octavo.dev/repartitioning and might be back at once, so it is never evicted"
            }
        }
    }
}

/// Who a holder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// This pod.
    Pod(&'a Pod),
    /// A pod that the API server does not list: it was made a moment ago, or is gone there already.
    Unlisted,
    /// No pod.
    Process,
}

/// Kubelet names pods; of a process its control group tells the UID, which tells a pod from its successor of the same name.
pub(super) fn find<'a>(pods: &'a [Pod], holder: &Holder) -> Found<'a> {
    let Some(known) = &holder.who.pod else {
        return Found::Process;
    };
    let is = |pod: &&Pod| match (&known.namespace, &known.name, &known.uid) {
        (_, _, Some(uid)) => pod.id.uid == *uid || pod.mirrors.as_ref() == Some(uid),
        (Some(namespace), Some(name), None) => {
            (&pod.id.namespace, &pod.id.name) == (namespace, name)
        }
        (_, _, None) => false,
    };
    pods.iter().find(is).map_or(Found::Unlisted, Found::Pod)
}
