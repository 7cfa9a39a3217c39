//! A node, as far as it decides what may stand on it.

use std::collections::BTreeMap;

use super::amounts::Amounts;
use super::taint::Taint;

/// A node as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether a person has cordoned it.
    pub is_cordoned: bool,
    /// Whether its kubelet says that it is well.
    pub readiness: Readiness,
    /// What kubelet says it has.
    pub capacity: Amounts,
    /// What pods may have of that.
    pub allocatable: Amounts,
}

/// What the condition `Ready` of a node says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Readiness {
    /// It is ready.
    Ready,
    /// It is not.
    NotReady,
    /// Its kubelet has not been heard of for a while, or never.
    #[default]
    Unknown,
}

impl ClusterNode {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}
