//! Limits of a policy on the changes of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use octavo_policy::PolicyDemand;

use crate::proposal::MIN_AGE_SECONDS;

/// Settings of a policy that changes the instances of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLimits {
    /// Settings for pending pods.
    pub demand: PolicyDemand,
    /// Number of devices of each node.
    pub gpus_per_node: NonZeroUsize,
}

/// Changes of nodes within the limits. Times count from the start of the simulation.
#[derive(Debug)]
pub(super) struct NodeChanges {
    limits: NodeLimits,
    /// Times of the latest changes by node.
    changes: BTreeMap<usize, Vec<Timestamp>>,
    /// Proposed changes by node.
    proposed: BTreeMap<usize, ProposedChange>,
    /// Times at which a limit ends.
    wake_ups: BTreeSet<Duration>,
}

/// Change of a node that waits.
#[derive(Debug)]
struct ProposedChange {
    /// Time since which at least one job needs it.
    since: Duration,
    jobs: BTreeSet<usize>,
}

impl NodeChanges {
    pub(super) fn new(limits: NodeLimits) -> Self {
        Self {
            limits,
            changes: BTreeMap::new(),
            proposed: BTreeMap::new(),
            wake_ups: BTreeSet::new(),
        }
    }

    /// Next time at which a limit ends.
    pub(super) fn wake_up(&self) -> Option<Duration> {
        self.wake_ups.first().copied()
    }

    /// Removes the times until now.
    pub(super) fn wake(&mut self, now: Duration) {
        self.wake_ups.retain(|time| *time > now);
    }

    /// Returns whether the node of a device can be changed. All jobs of the same time are one change.
    pub(super) fn is_open(&self, gpu: usize, now: Duration) -> bool {
        let node = self.node(gpu);
        let Some(changes) = self.changes.get(&node) else { return true };
        let next = self.limits.demand.after_changes(changes);
        self.is_changed(node, now) || next.is_none_or(|next| next <= timestamp(now))
    }

    /// Returns whether a node is being changed at this time.
    fn is_changed(&self, node: usize, now: Duration) -> bool {
        let changes = self.changes.get(&node);
        changes.and_then(|changes| changes.last()) == Some(&timestamp(now))
    }

    /// Proposes an instance of a device for a job. Returns whether its node is changed now.
    pub(super) fn propose(
        &mut self,
        (job, gpu): (usize, usize),
        arrival: Duration,
        now: Duration,
    ) -> bool {
        let planned = arrival.saturating_add(Duration::from_secs(MIN_AGE_SECONDS.unsigned_abs()));
        if now < planned {
            self.wake_ups.insert(planned);
            return false;
        }
        let node = self.node(gpu);
        self.forget_others(job, Some(node));
        let proposed = self
            .proposed
            .entry(node)
            .or_insert_with(|| ProposedChange { since: now, jobs: BTreeSet::new() });
        proposed.jobs.insert(job);
        let due = proposed.since.saturating_add(self.limits.demand.hold.get());
        if self.is_changed(node, now) {
            return true;
        }
        if due > now {
            self.wake_ups.insert(due);
        }
        due <= now && self.is_open(gpu, now)
    }

    /// Records that no instance for a job can be created now, or that none is needed.
    pub(super) fn forget(&mut self, job: usize) {
        self.forget_others(job, None);
    }

    /// Removes a job from the changes of all nodes but one.
    fn forget_others(&mut self, job: usize, node: Option<usize>) {
        self.proposed.retain(|of, change| {
            if Some(*of) != node {
                change.jobs.remove(&job);
            }
            Some(*of) == node || !change.jobs.is_empty()
        });
    }

    /// Records a change of the node of a device.
    pub(super) fn record(&mut self, gpu: usize, now: Duration) {
        let node = self.node(gpu);
        if self.is_changed(node, now) {
            return;
        }
        let changes = self.changes.entry(node).or_default();
        changes.push(timestamp(now));
        let limit = usize::try_from(self.limits.demand.changes_per_hour).unwrap_or(usize::MAX);
        let outdated = changes.len().saturating_sub(limit.max(1));
        changes.drain(..outdated);
        if let Some(next) = self.limits.demand.after_changes(changes) {
            let next = next.duration_since(Timestamp::UNIX_EPOCH);
            self.wake_ups.extend(Duration::try_from(next).ok());
        }
    }

    fn node(&self, gpu: usize) -> usize {
        gpu.checked_div(self.limits.gpus_per_node.get()).unwrap_or(0)
    }
}

fn timestamp(now: Duration) -> Timestamp {
    let now = SignedDuration::try_from(now).unwrap_or(SignedDuration::MAX);
    Timestamp::UNIX_EPOCH.saturating_add(now).unwrap_or(Timestamp::MAX)
}
