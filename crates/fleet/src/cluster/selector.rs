//! Node selectors and node affinity of pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::{DefaultOnNull, serde_as};
use utoipa::ToSchema;

/// Required labels and values of a node: a pod's `nodeSelector`.
pub type Selector = BTreeMap<String, String>;

/// Required node affinity of a pod: at least one term must match. Without terms it matches no node.
#[serde_as]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(default)]
pub struct Affinity {
    /// Alternative terms.
    #[serde(rename = "nodeSelectorTerms")]
    #[serde_as(as = "DefaultOnNull")]
    pub terms: Vec<Term>,
}

/// Term of a node affinity: all requirements must be met. An empty term matches no node.
#[serde_as]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(default)]
pub struct Term {
    /// Requirements on labels.
    #[serde(rename = "matchExpressions")]
    #[serde_as(as = "DefaultOnNull")]
    pub labels: Vec<Requirement>,
    /// Requirements on fields; Kubernetes supports only `metadata.name`.
    #[serde(rename = "matchFields")]
    #[serde_as(as = "DefaultOnNull")]
    pub fields: Vec<Requirement>,
}

/// Requirement on one label or field.
#[serde_as]
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(default)]
pub struct Requirement {
    /// Label key or field name.
    pub key: String,
    /// Comparison operator.
    pub operator: Operator,
    /// Operands.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde_as(as = "DefaultOnNull")]
    #[schema(value_type = Vec<String>)]
    pub values: Vec<String>,
}

/// Comparison operator. Source: Kubernetes, `NodeSelectorOperator`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
pub enum Operator {
    /// The value is one of the operands.
    In,
    /// The value is none of the operands, or the key is absent.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer greater than the operand.
    Gt,
    /// The value is an integer less than the operand.
    Lt,
    /// Unknown operator, which no value meets.
    #[default]
    #[serde(other)]
    Other,
}

/// The only supported node field. Source: Kubernetes, "Assigning Pods to Nodes".
const NAME_FIELD: &str = "metadata.name";

impl Affinity {
    /// Returns `true` if a node with this name and these labels matches.
    pub fn fits(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.terms.iter().any(|term| term.fits(name, labels))
    }
}

impl Term {
    fn fits(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let is_empty = self.labels.is_empty() && self.fields.is_empty();
        let is_named = |one: &Requirement| one.key == NAME_FIELD && one.is_met(Some(name));
        let of_label = |one: &Requirement| one.is_met(labels.get(&one.key).map(String::as_str));
        !is_empty && self.labels.iter().all(of_label) && self.fields.iter().all(is_named)
    }
}

impl Requirement {
    /// Returns `true` if this value of the label or field meets the requirement.
    pub fn is_met(&self, value: Option<&str>) -> bool {
        let is_listed = || value.is_some_and(|value| self.values.iter().any(|one| one == value));
        let compared = || {
            let [bound] = self.values.as_slice() else {
                return None;
            };
            let value: i64 = value?.parse().ok()?;
            Some(value.cmp(&bound.parse().ok()?))
        };
        match self.operator {
            Operator::In => is_listed(),
            Operator::NotIn => !is_listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => compared().is_some_and(std::cmp::Ordering::is_gt),
            Operator::Lt => compared().is_some_and(std::cmp::Ordering::is_lt),
            Operator::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> Requirement {
        Requirement {
            key: key.to_owned(),
            operator: serde_json::from_value(operator.into()).unwrap(),
            values: values.iter().map(|one| (*one).to_owned()).collect(),
        }
    }

    fn label(operator: &str, values: &[&str]) -> bool {
        let labels = BTreeMap::from([("count".to_owned(), "8".to_owned())]);
        let term =
            Term { labels: vec![requirement("count", operator, values)], fields: Vec::new() };
        Affinity { terms: vec![term] }.fits("node-a", &labels)
    }

    #[test]
    fn labels_are_compared_as_by_the_scheduler() {
        assert!(label("In", &["4", "8"]) && !label("In", &["4"]));
        assert!(label("NotIn", &["4"]) && !label("NotIn", &["8"]));
        assert!(label("Exists", &[]) && !label("DoesNotExist", &[]));
        assert!(label("Gt", &["7"]) && !label("Gt", &["8"]) && !label("Gt", &["x"]));
        assert!(label("Lt", &["9"]) && !label("Lt", &["8"]) && !label("Lt", &["9", "10"]));
        assert!(!label("Near", &["8"]));
    }

    #[test]
    fn one_affinity_term_must_match_completely() {
        let node = |terms| Affinity { terms }.fits("node-a", &BTreeMap::new());
        let named = |name| Term {
            labels: Vec::new(),
            fields: vec![requirement(NAME_FIELD, "In", &[name])],
        };
        assert!(node(vec![named("node-b"), named("node-a")]));
        assert!(!node(vec![named("node-b")]));
        assert!(!node(vec![Term::default()]) && !node(Vec::new()));
        let other =
            Term { fields: vec![requirement("metadata.uid", "Exists", &[])], ..Term::default() };
        assert!(!node(vec![other]));
    }
}
