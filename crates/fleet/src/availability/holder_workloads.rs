//! Workloads that hold units.

use std::collections::BTreeMap;

/// Holders grouped into workloads by namespace and start minute (since 1970). Pods of one namespace that start in the
/// same minute are usually replicas or workers of one job and end together. Counting them individually would
/// underestimate the time until the first end.
pub(super) type HolderWorkloads<'a> = BTreeMap<(&'a str, i64), HolderWorkload>;

/// Workload that holds units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HolderWorkload {
    /// Start of its first pod, in seconds since 1970.
    pub(super) began: i64,
    /// True if another pod could use its units afterwards.
    pub(super) is_usable: bool,
}

/// Workload that a pod belongs to.
pub(super) fn workload_key(namespace: &str, began: i64) -> (&str, i64) {
    (namespace, began.div_euclid(60))
}
