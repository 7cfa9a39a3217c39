//! Attempts of a drain: their number for a choice, and the backoff between them.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_model::backoff::Backoff;
use octavo_model::id::PciAddress;
use octavo_planner::reconcile::NodeLayoutStatus;

use super::blockers::is_yet_to_be_evicted;
use super::messages;
use super::outcome::Blocker;

/// Lower bound of the first backoff after an attempt. The backoff is also at least as long as an attempt, so that a
/// node is tainted for no more than half of the time.
const FIRST_BACKOFF: Duration = Duration::from_mins(1);
/// Upper bound of the backoff, unless the deadline is longer.
const MAX_BACKOFF: Duration = Duration::from_hours(1);

/// The layout chosen for the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    generation: u64,
    layout: Option<String>,
    /// Hash of the resolved layout: other layouts in the same file may be edited at any time.
    target_generation: u64,
}

/// The attempts made for a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempts {
    pub(super) choice: Choice,
    pub(super) count: u32,
    /// Start of the latest attempt.
    pub(super) since: Duration,
    /// When the latest attempt gave up before or at its deadline.
    pub(super) gave_up: Option<Duration>,
    /// The blockers at that time, with the reasons that the API server gave.
    blockers: Vec<Blocker>,
    /// The devices that pods were evicted for.
    pub(super) devices: BTreeSet<PciAddress>,
}

impl Attempts {
    pub(super) fn new(choice: Choice) -> Self {
        Self {
            choice,
            count: 0,
            since: Duration::ZERO,
            gave_up: None,
            blockers: Vec::new(),
            devices: BTreeSet::new(),
        }
    }

    /// Returns when the next attempt may begin; `None` while the latest one may continue.
    pub(super) fn retry_at(&self, now: Duration, deadline: Duration) -> Option<Duration> {
        let until = self.since.saturating_add(deadline);
        let ended = self.gave_up.or_else(|| (now >= until).then_some(until))?;
        Some(ended.saturating_add(self.backoff(deadline)))
    }

    /// Returns the backoff after the latest attempt.
    pub(super) fn backoff(&self, deadline: Duration) -> Duration {
        let backoff =
            Backoff { initial: FIRST_BACKOFF.max(deadline), max: MAX_BACKOFF.max(deadline) };
        backoff.delay(self.count.saturating_sub(1))
    }

    /// Records that the latest attempt gave up with these blockers.
    pub(super) fn give_up(&mut self, now: Duration, blockers: Vec<Blocker>) {
        self.gave_up = Some(now);
        self.blockers = blockers;
    }

    /// Returns `waits` with the reasons recorded when the latest attempt gave up: between attempts, the API server is
    /// not asked to evict.
    pub(super) fn with_reasons(&self, mut waits: Vec<Blocker>) -> Vec<Blocker> {
        for waiting in waits.iter_mut().filter(|one| is_yet_to_be_evicted(one)) {
            let known = self.blockers.iter().find(|known| known.name == waiting.name);
            let reason = known.map_or(messages::NEXT_ATTEMPT, |known| known.reason.as_str());
            reason.clone_into(&mut waiting.reason);
        }
        waits
    }
}

impl Choice {
    pub(super) fn of(status: &NodeLayoutStatus) -> Self {
        Self {
            generation: status.generation,
            layout: status.layout.clone(),
            target_generation: status.target_generation,
        }
    }
}
