//! Taints of nodes, and tolerations of pods.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};
use utoipa::ToSchema;

/// Taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty if absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Its effect.
    pub effect: Effect,
}

/// Effect of a taint on pods that do not tolerate it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    EnumString,
    Display,
    Serialize,
    Deserialize,
    ToSchema,
)]
pub enum Effect {
    /// They are not scheduled on the node.
    NoSchedule,
    /// They are scheduled on the node only if no other node fits.
    PreferNoSchedule,
    /// They are not scheduled on the node, and running ones are evicted.
    NoExecute,
}

/// Toleration of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// Key of the taint; empty for all keys.
    pub key: String,
    /// Comparison of the value.
    pub operator: TaintOperator,
    /// Operand.
    pub value: String,
    /// Effect of the taint; `None` for all effects.
    pub effect: Option<Effect>,
}

/// Comparison operator of a toleration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintOperator {
    /// Matches any value.
    Exists,
    /// Matches an equal value.
    Equal,
    /// Unknown operator, which tolerates nothing.
    Other,
}

/// Prefixes of taints that reflect a temporary state of a node: those of Kubernetes, cloud controllers, Octavo and
/// autoscalers. Source: Kubernetes, "Well-Known Labels, Annotations and Taints".
const TEMPORARY_PREFIXES: [&str; 7] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "octavo.dev/",
    "node.cilium.io/",
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
];
/// Taints that keep workloads off control-plane nodes.
const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

impl Taint {
    /// Returns `true` if it keeps away pods that do not tolerate it, and is no temporary state of the node.
    pub fn forbids_permanently(&self) -> bool {
        self.forbids() && !TEMPORARY_PREFIXES.iter().any(|prefix| self.key.starts_with(prefix))
    }

    /// Returns `true` if it marks a control-plane node.
    pub fn is_of_control_plane(&self) -> bool {
        CONTROL_PLANE.contains(&self.key.as_str())
    }

    /// Returns `true` if it keeps away pods that do not tolerate it.
    pub fn forbids(&self) -> bool {
        match self.effect {
            Effect::NoSchedule | Effect::NoExecute => true,
            Effect::PreferNoSchedule => false,
        }
    }

    /// Returns `true` if any of `tolerations` tolerates it. Source: Kubernetes, `ToleratesTaint` of
    /// `k8s.io/component-helpers`.
    pub fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        tolerations.iter().any(|one| one.tolerates(self))
    }
}

impl Toleration {
    /// Narrowest toleration for a taint.
    pub fn for_taint(taint: &Taint) -> Self {
        Self {
            key: taint.key.clone(),
            operator: if taint.value.is_empty() {
                TaintOperator::Exists
            } else {
                TaintOperator::Equal
            },
            value: taint.value.clone(),
            effect: Some(taint.effect),
        }
    }

    /// Tolerates every taint with this key.
    pub fn for_key(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            operator: TaintOperator::Exists,
            value: String::new(),
            effect: None,
        }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TaintOperator::Exists => true,
                TaintOperator::Equal => self.value == taint.value,
                TaintOperator::Other => false,
            }
    }
}

/// Formats the taint like `kubectl taint`: `key=value:NoSchedule`.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        let equals = if value.is_empty() { "" } else { "=" };
        write!(f, "{key}{equals}{value}:{effect}")
    }
}

#[cfg(test)]
mod tests {
    use super::TaintOperator::{Equal, Exists, Other};
    use super::*;

    #[test]
    fn toleration_is_compared_as_by_the_scheduler() {
        let taint = Taint {
            key: "nvidia.com/gpu".into(),
            value: "true".into(),
            effect: Effect::NoSchedule,
        };
        let tolerates = |key: &str, operator, value: &str, effect| {
            let (key, value) = (key.to_owned(), value.to_owned());
            taint.is_tolerated(&[Toleration { key, operator, value, effect }])
        };
        assert!(tolerates("nvidia.com/gpu", Exists, "", None));
        assert!(tolerates("", Exists, "", None));
        assert!(tolerates("nvidia.com/gpu", Equal, "true", Some(Effect::NoSchedule)));
        assert!(!tolerates("nvidia.com/gpu", Equal, "false", None));
        assert!(!tolerates("nvidia.com/gpu", Exists, "", Some(Effect::NoExecute)));
        assert!(!tolerates("amd.com/gpu", Exists, "", None));
        assert!(!tolerates("nvidia.com/gpu", Other, "true", None));
        assert_eq!(taint.to_string(), "nvidia.com/gpu=true:NoSchedule");
    }
}
