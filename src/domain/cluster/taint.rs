//! Taints of nodes, and what pods tolerate.

use std::fmt;

/// What keeps pods away from a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty where there is none.
    pub value: String,
    /// What it does.
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// They are not placed there.
    NoSchedule,
    /// They are placed there when there is nowhere else.
    PreferNoSchedule,
    /// They are not placed there, and those there have to go.
    NoExecute,
}

/// What a pod does not mind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// Of which key; empty for every one.
    pub key: String,
    /// How the value is compared.
    pub operator: TaintOperator,
    /// The value.
    pub value: String,
    /// Of which effect; `None` for every one.
    pub effect: Option<Effect>,
}

/// How a toleration compares a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintOperator {
    /// Any value will do.
    Exists,
    /// The value is this one.
    Equal,
    /// One that is not known here: it tolerates nothing.
    Other,
}

impl Taint {
    /// Whether it keeps away pods that do not tolerate it.
    pub fn forbids(&self) -> bool {
        match self.effect {
            Effect::NoSchedule | Effect::NoExecute => true,
            Effect::PreferNoSchedule => false,
        }
    }

    /// Whether one of these tolerates it. Source: Kubernetes, `ToleratesTaint` of `k8s.io/component-helpers`.
    pub fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        tolerations.iter().any(|one| one.tolerates(self))
    }
}

impl Toleration {
    /// Of every taint with this key.
    pub fn of_key(key: &str) -> Self {
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

impl Effect {
    /// Kubernetes' word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// The effect of Kubernetes' word.
    pub fn of(word: &str) -> Option<Self> {
        [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute]
            .into_iter()
            .find(|effect| effect.as_str() == word)
    }
}

/// As `kubectl taint` writes it: `key=value:NoSchedule`.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        if value.is_empty() {
            write!(f, "{key}:{}", effect.as_str())
        } else {
            write!(f, "{key}={value}:{}", effect.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TaintOperator::{Equal, Exists, Other};
    use super::*;

    #[test]
    fn a_toleration_is_compared_as_the_scheduler_does() {
        let taint = Taint {
            key: "nvidia.com/gpu".into(),
            value: "true".into(),
            effect: Effect::NoSchedule,
        };
        let tolerates = |key: &str, operator, value: &str, effect| {
            let (key, value) = (key.to_owned(), value.to_owned());
            taint.is_tolerated(&[Toleration {
                key,
                operator,
                value,
                effect,
            }])
        };
        assert!(tolerates("nvidia.com/gpu", Exists, "", None));
        assert!(tolerates("", Exists, "", None));
        assert!(tolerates(
            "nvidia.com/gpu",
            Equal,
            "true",
            Some(Effect::NoSchedule)
        ));
        assert!(!tolerates("nvidia.com/gpu", Equal, "false", None));
        assert!(!tolerates(
            "nvidia.com/gpu",
            Exists,
            "",
            Some(Effect::NoExecute)
        ));
        assert!(!tolerates("amd.com/gpu", Exists, "", None));
        assert!(!tolerates("nvidia.com/gpu", Other, "true", None));
        assert_eq!(taint.to_string(), "nvidia.com/gpu=true:NoSchedule");
    }
}
