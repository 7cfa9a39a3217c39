//! Requests from the usage that the ledger exports.
//!
//! The ledger has intervals: a part of a device with one holder, within one day. An allocation of a MIG instance has several of them: one for
//! each day, and a new one when its processes start or end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use octavo_model::profile::ProfileName;
use serde::Deserialize;

use super::trace::Job;

/// Columns that distinguish exported usage from requests. The other columns of the export are not read.
pub(super) const COLUMNS: [&str; 8] =
    ["state", "namespace", "pod", "pod_uid", "partition_uuid", "profile", "start_time", "end_time"];

/// Row of an export. Values that are not known are empty.
#[derive(Debug, Deserialize)]
pub(super) struct LedgerRow {
    state: String,
    namespace: String,
    pod: String,
    pod_uid: String,
    partition_uuid: String,
    profile: String,
    start_time: String,
    end_time: String,
}

/// The rows of an export that are allocations of MIG instances, by instance.
#[derive(Debug, Default)]
pub(super) struct LedgerRows {
    by_instance: BTreeMap<(String, ProfileName), Vec<Usage>>,
    /// Number of rows without a MIG partition.
    pub(super) without_partition: usize,
    /// Number of allocations of compute instances that share a MIG instance.
    pub(super) compute_instances: usize,
}

/// Use of an instance by a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Usage {
    start: Timestamp,
    end: Timestamp,
    pod: Pod,
}

/// A pod. Without a UID, another pod can have the same name later. Usage whose holder is not known has an empty name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pod {
    uid: String,
    namespace: String,
    name: String,
}

/// Use of an instance without an interruption.
#[derive(Debug)]
struct Allocation {
    start: Timestamp,
    end: Timestamp,
    pods: BTreeSet<Pod>,
}

impl LedgerRows {
    /// Adds a row. Parts that are not allocated are ignored.
    pub(super) fn add(&mut self, row: LedgerRow) -> Result<(), String> {
        let (start, end) = (time("start_time", &row.start_time)?, time("end_time", &row.end_time)?);
        if end < start {
            return Err("end_time is before start_time".to_owned());
        }
        match row.state.as_str() {
            "used" | "idle" => {}
            "unallocated" | "unknown" => return Ok(()),
            other => return Err(format!("state: {other:?} is not a state of the ledger")),
        }
        if row.partition_uuid.is_empty() {
            self.without_partition = self.without_partition.saturating_add(1);
            return Ok(());
        }
        let profile: ProfileName =
            row.profile.parse().map_err(|error| format!("profile: {error}"))?;
        if profile.compute_slices() < profile.gpu_slices() {
            self.compute_instances = self.compute_instances.saturating_add(1);
            return Ok(());
        }
        let pod = Pod { uid: row.pod_uid, namespace: row.namespace, name: row.pod };
        let instance = self.by_instance.entry((row.partition_uuid, profile)).or_default();
        instance.push(Usage { start, end, pod });
        Ok(())
    }

    /// The allocations as requests, in the order of their arrival. The first one arrives at time 0.
    pub(super) fn jobs(self) -> Vec<Job> {
        let mut all: Vec<(Allocation, ProfileName)> = Vec::new();
        for ((_, profile), usage) in self.by_instance {
            let allocations = allocations(usage).into_iter();
            all.extend(allocations.map(|allocation| (allocation, profile.clone())));
        }
        all.sort_by_key(|(allocation, _)| allocation.start);
        let Some(first) = all.first().map(|(allocation, _)| allocation.start) else {
            return Vec::new();
        };
        let jobs = all.into_iter().map(|(allocation, profile)| Job {
            arrival: between(first, allocation.start),
            duration: between(allocation.start, allocation.end),
            profile,
        });
        jobs.collect()
    }
}

/// Joins the intervals of an instance that are one allocation.
fn allocations(mut usage: Vec<Usage>) -> Vec<Allocation> {
    usage.sort_unstable();
    let mut all: Vec<Allocation> = Vec::new();
    for one in usage {
        if let Some(last) = all.last_mut().filter(|last| last.continues_with(&one)) {
            last.end = last.end.max(one.end);
            last.pods.insert(one.pod);
        } else {
            let pods = BTreeSet::from([one.pod]);
            all.push(Allocation { start: one.start, end: one.end, pods });
        }
    }
    all
}

impl Allocation {
    /// Returns whether the usage is part of this allocation: of the same pod, or at the same time, because the pods share the instance.
    fn continues_with(&self, usage: &Usage) -> bool {
        if usage.start < self.end {
            return true;
        }
        // A pod has its instance until it ends, so a gap is time without a report.
        let is_adjacent = usage.start == self.end || !usage.pod.uid.is_empty();
        // Usage without a pod can have any holder, so two intervals of it can be of different ones.
        is_adjacent && !usage.pod.name.is_empty() && self.pods.contains(&usage.pod)
    }
}

fn time(name: &str, text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        format!("{name} must be a time with an offset, such as 2026-11-27 08:30:00+00")
    })
}

fn between(start: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(start)).unwrap_or(Duration::ZERO)
}
