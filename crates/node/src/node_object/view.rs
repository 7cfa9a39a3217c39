//! The relevant fields of a Node.

use std::collections::{BTreeMap, BTreeSet};

/// A Node as read from the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedNode {
    /// UID; changes when the Node is deleted and recreated.
    pub uid: String,
    /// Resource version; changes with every update of the Node.
    pub version: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations below `octavo.dev/`.
    pub annotations: BTreeMap<String, String>,
    /// All taints, in order.
    pub taints: Vec<Taint>,
    /// Allocatable count of each extended resource, such as `nvidia.com/gpu`.
    pub allocatable: BTreeMap<String, u64>,
    /// Capacity of each extended resource, including unhealthy devices.
    pub capacity: BTreeMap<String, u64>,
    /// Field managers of labels and annotations.
    pub owners: FieldManagers,
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, if any.
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Time when the taint was added, as formatted by the API server.
    pub added: Option<String>,
}

/// Field managers of a Node's labels and annotations. Source: Kubernetes, `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldManagers {
    /// Managers by label key; Octavo's own only for fields that it applied.
    pub labels: BTreeMap<String, BTreeSet<String>>,
    /// Managers by annotation key.
    pub annotations: BTreeMap<String, BTreeSet<String>>,
}

impl ObservedNode {
    /// Returns the labels of a manager with their current values.
    pub fn labels_of(&self, manager: &str) -> BTreeMap<String, String> {
        of(&self.labels, &self.owners.labels, manager)
    }

    /// Returns the annotations of a manager with their current values.
    pub fn annotations_of(&self, manager: &str) -> BTreeMap<String, String> {
        of(&self.annotations, &self.owners.annotations, manager)
    }
}

fn of(
    values: &BTreeMap<String, String>,
    owners: &BTreeMap<String, BTreeSet<String>>,
    manager: &str,
) -> BTreeMap<String, String> {
    let owned = values.iter().filter(|(key, _)| is_owned_by(owners, key, manager));
    owned.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns true if `manager` owns `key`.
pub(super) fn is_owned_by(
    owners: &BTreeMap<String, BTreeSet<String>>,
    key: &str,
    manager: &str,
) -> bool {
    owners.get(key).is_some_and(|all| all.contains(manager))
}
