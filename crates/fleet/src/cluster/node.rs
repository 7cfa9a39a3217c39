//! Node properties that decide which pods fit on it.

use std::collections::BTreeMap;

use super::amounts::Amounts;
use super::taint::Taint;

/// Node of the cluster, as reported by the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// True if an administrator cordoned it.
    pub is_cordoned: bool,
    /// Condition `Ready`, as the kubelet reports it.
    pub readiness: Readiness,
    /// Capacity that the kubelet reports.
    pub capacity: Amounts,
    /// Part of the capacity that pods may be allocated.
    pub allocatable: Amounts,
}

/// Condition `Ready` of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Readiness {
    /// It is ready.
    Ready,
    /// It is not ready.
    NotReady,
    /// Its kubelet has never reported, or not for a while.
    #[default]
    Unknown,
}

impl ClusterNode {
    /// Value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}
