//! A Node as the API server has it, as far as it concerns us.

use std::collections::{BTreeMap, BTreeSet};

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// Changes when the Node is deleted and made again.
    pub uid: String,
    /// Changes with every change of the Node.
    pub version: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations below `octavo.dev/`.
    pub annotations: BTreeMap<String, String>,
    /// All taints, in their order.
    pub taints: Vec<Taint>,
    /// What kubelet offers of each extended resource, such as `nvidia.com/gpu`.
    pub allocatable: BTreeMap<String, u64>,
    /// What kubelet has of each, fit or not.
    pub capacity: BTreeMap<String, u64>,
    /// Who writes labels and annotations.
    pub owners: Owners,
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, if it has one.
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, as the API server writes it.
    pub added: Option<String>,
}

/// Who writes which label and annotation of a Node. Source: Kubernetes, `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owners {
    /// By key; the managers' names, ours only where we applied it.
    pub labels: BTreeMap<String, BTreeSet<String>>,
    /// The same of annotations.
    pub annotations: BTreeMap<String, BTreeSet<String>>,
}

impl View {
    /// The labels of a manager, with their values now.
    pub fn labels_of(&self, manager: &str) -> BTreeMap<String, String> {
        of(&self.labels, &self.owners.labels, manager)
    }

    /// The annotations of a manager, with their values now.
    pub fn annotations_of(&self, manager: &str) -> BTreeMap<String, String> {
        of(&self.annotations, &self.owners.annotations, manager)
    }
}

fn of(
    values: &BTreeMap<String, String>,
    owners: &BTreeMap<String, BTreeSet<String>>,
    manager: &str,
) -> BTreeMap<String, String> {
    let owned = values.iter().filter(|(key, _)| has(owners, key, manager));
    owned
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Whether `manager` has `key`.
pub(super) fn has(owners: &BTreeMap<String, BTreeSet<String>>, key: &str, manager: &str) -> bool {
    owners.get(key).is_some_and(|all| all.contains(manager))
}
