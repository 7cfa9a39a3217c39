//! Drains: evict pods that block a layout, if an administrator enables that.
//!
//! ```text
//!   Idle --> Looking --> Tainting --> Emptying --> Idle
//!               |            \____________|
//!            Refused                   Refused: every pod that may be evicted has gone, and others block the device
//!                                      GaveUp: the deadline has passed; retried after a backoff
//! ```
//!
//! The Node is tainted first, so that evicted pods do not return; no pod is evicted before the agent has observed the
//! taint. The end of a drain removes the taint. The taint is the only state that can outlive the agent, and the next
//! agent removes it. A drain only removes holders; other components change devices.
//!
//! An attempt lasts for one deadline at most, counted from its taint. While the choice of a layout stands, another
//! attempt follows after a backoff that doubles each time. Only the first attempt evicts by the policy's scope: an
//! unchanged layout must not empty a node repeatedly, so a retry evicts only the pods that block a device.

mod attempts;
mod blockers;
mod messages;
mod outcome;
mod pod;

use std::time::Duration;

use self::attempts::{Attempts, Choice};
use self::blockers::{Blockers, is_requested};
pub use self::outcome::{
    Blocker, BlockerName, DrainEvent, DrainInputs, DrainOutcome, DrainStatus, EvictionResult,
    ListError, PodObservations, PodRequests, Policy, Scope, Stage,
};
pub use self::pod::{CRITICAL_PRIORITY, EvictionExemption, Pod, PodId};

/// Interval of reconciliation while a drain is active.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of listing pods: while some must go, and while nothing can be done.
const LIST_INTERVAL: Duration = Duration::from_secs(2);
const IDLE_LIST_INTERVAL: Duration = Duration::from_secs(30);
/// Time after the deadline at which the taint is removed even if a driver call has not returned.
const STUCK_TIMEOUT: Duration = Duration::from_mins(5);
/// Grace period for a device that is free but not done, for example between two steps.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Grace period for pods that the API server does not list: most were just created, or disappear shortly.
const UNLISTED_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval at which a refusal with changed blockers is reported again.
const REFUSAL_REPORT_INTERVAL: Duration = Duration::from_mins(5);

/// State machine of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    policy: Policy,
    phase: Phase,
    attempts: Option<Attempts>,
    refused: Option<(Choice, Duration, Vec<Blocker>)>,
    /// Start of the time in which only unlisted pods prevent a drain from starting.
    unlisted: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The pods of the node are not listed yet.
    Listing,
    /// A blocker can never be evicted.
    Refused,
    /// The taint is requested. The devices were last in use or being changed at `last_active`.
    Tainting {
        last: Duration,
    },
    /// Pods are being evicted.
    Evicting {
        last: Duration,
    },
    GaveUp,
}

impl Phase {
    /// Returns when devices were last in use or being changed, while a drain is active.
    fn last_active(self) -> Option<Duration> {
        match self {
            Self::Tainting { last } | Self::Evicting { last } => Some(last),
            Self::Idle | Self::Listing | Self::Refused | Self::GaveUp => None,
        }
    }

    fn stage(self) -> Option<Stage> {
        Some(match self {
            Self::Idle => return None,
            Self::Listing => Stage::Listing,
            Self::Refused => Stage::Refused,
            Self::Tainting { .. } => Stage::Tainting,
            Self::Evicting { .. } => Stage::Evicting,
            Self::GaveUp => Stage::GaveUp,
        })
    }
}

impl Drain {
    /// Creates an idle drain with this policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy, phase: Phase::Idle, attempts: None, refused: None, unlisted: None }
    }

    /// Replaces the policy. Attempts and their deadlines continue.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Advances the state machine with the current facts.
    pub fn reconcile(&mut self, now: Duration, facts: &DrainInputs<'_>) -> DrainOutcome {
        let mut events = Vec::new();
        let choice = Choice::of(facts.status);
        if let Some(attempts) = &self.attempts
            && attempts.choice != choice
        {
            events.extend(self.phase.last_active().map(|_| DrainEvent::Withdrawn));
            self.phase = Phase::Idle;
            self.attempts = None;
        }
        let blockers = Blockers::new(facts);
        self.phase = match self.phase.last_active() {
            Some(last) => self.step_active(now, last, (facts, &blockers), &mut events),
            None => self.step_idle(now, choice, (facts, &blockers), &mut events),
        };
        self.outcome(now, (facts, &blockers), events)
    }

    /// Suspends the drain, e.g. while the driver does not respond or no policy permits it. Time already spent counts towards the deadline.
    pub fn rest(&mut self) -> DrainOutcome {
        let was_on = self.phase.last_active().is_some();
        self.phase = Phase::Idle;
        DrainOutcome {
            events: was_on.then_some(DrainEvent::Interrupted).into_iter().collect(),
            ..DrainOutcome::default()
        }
    }

    fn step_idle(
        &mut self,
        now: Duration,
        choice: Choice,
        (facts, blockers): (&DrainInputs<'_>, &Blockers<'_>),
        events: &mut Vec<DrainEvent>,
    ) -> Phase {
        let unlisted = self.unlisted.take();
        if !blockers.is_held() || !is_requested(facts.status) {
            return Phase::Idle;
        }
        // Between two attempts nothing is evicted, whatever blocks the devices now.
        let is_waiting = self.retry_at(now).is_some_and(|at| now < at);
        if is_waiting && (facts.pod_observations.pods.is_none() || blockers.may_go()) {
            return Phase::GaveUp;
        }
        if facts.pod_observations.error == Some(ListError::Forbidden) {
            return self.refuse(now, choice, Vec::new(), events);
        }
        if facts.pod_observations.pods.is_none() {
            return Phase::Listing;
        }
        if blockers.may_begin {
            self.begin(now, choice, blockers, events);
            return Phase::Tainting { last: now };
        }
        if !blockers.obstacles.is_empty() {
            return self.refuse(now, choice, blockers.obstacles.clone(), events);
        }
        if blockers.unlisted.is_empty() {
            return Phase::Idle;
        }
        let since = unlisted.unwrap_or(now);
        self.unlisted = Some(since);
        if now.saturating_sub(since) >= UNLISTED_TIMEOUT {
            return self.refuse(now, choice, blockers.unlisted.clone(), events);
        }
        Phase::Listing
    }

    /// Starts an attempt, or continues one that is within its deadline.
    fn begin(
        &mut self,
        now: Duration,
        choice: Choice,
        blockers: &Blockers<'_>,
        events: &mut Vec<DrainEvent>,
    ) {
        let is_new = self.attempts.is_none() || self.retry_at(now).is_some();
        let attempts = self.attempts.get_or_insert_with(|| Attempts::new(choice));
        if is_new {
            attempts.count = attempts.count.saturating_add(1);
            attempts.since = now;
            attempts.gave_up = None;
        }
        attempts.devices.extend(blockers.addresses.iter().copied());
        self.refused = None;
        events.push(DrainEvent::Began {
            scope: self.scope(),
            devices: blockers.devices.clone(),
            pods: blockers.blocking_pods.keys().map(|id| id.name()).collect(),
        });
    }

    /// Returns when the next attempt may begin; `None` while the latest one may continue, or if there was none.
    fn retry_at(&self, now: Duration) -> Option<Duration> {
        let attempts = self.attempts.as_ref()?;
        attempts.retry_at(now, self.policy.deadline)
    }

    /// Returns the scope of the current attempt.
    fn scope(&self) -> Scope {
        let is_retry = |attempts: &Attempts| attempts.count > 1;
        if self.attempts.as_ref().is_some_and(is_retry) {
            Scope::Affected
        } else {
            self.policy.scope
        }
    }

    /// Refuses to start or continue. Changed blockers are reported at intervals only: processes change often.
    fn refuse(
        &mut self,
        now: Duration,
        choice: Choice,
        waits_for: Vec<Blocker>,
        events: &mut Vec<DrainEvent>,
    ) -> Phase {
        let is_known = self.refused.as_ref().is_some_and(|(refused, at, known)| {
            let late = now.saturating_sub(*at) >= REFUSAL_REPORT_INTERVAL;
            *refused == choice && (*known == waits_for || !late)
        });
        if !is_known {
            events.push(if waits_for.is_empty() {
                DrainEvent::Forbidden
            } else {
                DrainEvent::Refused { waits_for: waits_for.clone() }
            });
            self.refused = Some((choice, now, waits_for));
        }
        Phase::Refused
    }

    fn step_active(
        &mut self,
        now: Duration,
        last: Duration,
        (facts, blockers): (&DrainInputs<'_>, &Blockers<'_>),
        events: &mut Vec<DrainEvent>,
    ) -> Phase {
        let is_busy = facts.status.is_busy();
        if !is_busy && !is_requested(facts.status) {
            events.push(DrainEvent::Withdrawn);
            return Phase::Idle;
        }
        let is_waited_for = self.is_waited_for(now, blockers);
        let last = if is_busy || is_waited_for { now } else { last };
        let calm = now.saturating_sub(last) >= SETTLE_TIMEOUT;
        if !is_busy && !is_waited_for && (calm || !blockers.is_unfinished) {
            if !blockers.is_held() {
                events.push(DrainEvent::Ended);
                if let Some(attempts) = &mut self.attempts {
                    attempts.devices.clear();
                }
                return Phase::Idle;
            }
            // A process may end shortly.
            if calm || !blockers.is_held_by_a_process() {
                let waits_for = blockers.blockers(facts);
                return self.refuse(now, Choice::of(facts.status), waits_for, events);
            }
        }
        let deadline = self.policy.deadline;
        let Some(attempts) = &mut self.attempts else {
            return Phase::Idle;
        };
        // Devices that became blocked during the attempt are withheld too.
        attempts.devices.extend(blockers.addresses.iter().copied());
        let spent = now.saturating_sub(attempts.since);
        let is_forbidden = blockers.is_forbidden(facts.pod_observations);
        let is_over = !is_busy && blockers.is_held() && (spent >= deadline || is_forbidden);
        if is_over || spent >= deadline.saturating_add(STUCK_TIMEOUT) {
            let waits_for = blockers.blockers(facts);
            attempts.give_up(now, waits_for.clone());
            events.push(if is_forbidden {
                DrainEvent::Forbidden
            } else {
                DrainEvent::GaveUp { after: spent, retry: attempts.backoff(deadline), waits_for }
            });
            return Phase::GaveUp;
        }
        if facts.is_tainted { Phase::Evicting { last } } else { Phase::Tainting { last } }
    }

    /// Returns true if a device is blocked by a pod that terminates or may be evicted, or by one not listed yet.
    fn is_waited_for(&mut self, now: Duration, blockers: &Blockers<'_>) -> bool {
        if blockers.will_be_released() {
            self.unlisted = None;
            return true;
        }
        if blockers.unlisted.is_empty() {
            self.unlisted = None;
            // The blocker of a device may be unknown for a short time.
            return blockers.is_held() && blockers.obstacles.is_empty();
        }
        let since = *self.unlisted.get_or_insert(now);
        now.saturating_sub(since) < UNLISTED_TIMEOUT
    }

    fn outcome(
        &self,
        now: Duration,
        (facts, blockers): (&DrainInputs<'_>, &Blockers<'_>),
        events: Vec<DrainEvent>,
    ) -> DrainOutcome {
        let going = match self.scope() {
            Scope::Affected => blockers.pods_to_evict(),
            Scope::Node => blockers.all_pods_to_evict(facts.pod_observations),
        };
        let is_on = self.phase.last_active().is_some();
        let is_listing = matches!(self.phase, Phase::Listing);
        // While one device is being changed, the drain continues for others, but not beyond the deadline.
        let is_late = self.is_late(now);
        let evict = match self.phase {
            Phase::Evicting { .. } if !is_late && facts.is_current => going.clone(),
            Phase::Evicting { .. }
            | Phase::Idle
            | Phase::Listing
            | Phase::Refused
            | Phase::Tainting { .. }
            | Phase::GaveUp => Vec::new(),
        };
        let is_wanted = blockers.is_held() && is_requested(facts.status);
        let list = match self.phase {
            Phase::Listing | Phase::Tainting { .. } | Phase::Evicting { .. } => Some(LIST_INTERVAL),
            // Other pods may hold the devices later.
            Phase::Idle | Phase::Refused | Phase::GaveUp => is_wanted.then_some(IDLE_LIST_INTERVAL),
        };
        let retry = self.retry_at(now).filter(|_| matches!(self.phase, Phase::GaveUp));
        let is_list_pending =
            facts.pod_observations.pods.is_none() && facts.pod_observations.error.is_none();
        DrainOutcome {
            is_tainted: is_on,
            pod_requests: PodRequests { list, evict },
            waits_for_pods: (is_listing && is_list_pending)
                || (is_on && !blockers.blocking_pods.is_empty()),
            again: (is_on || is_listing).then(|| now.saturating_add(RECONCILE_INTERVAL)).or(retry),
            devices: self.attempts.as_ref().map(|one| one.devices.clone()).unwrap_or_default(),
            events,
            drain_status: self.drain_status(facts, blockers, &going),
        }
    }

    /// Returns true if the latest attempt has exceeded its deadline.
    fn is_late(&self, now: Duration) -> bool {
        let since = self.attempts.as_ref().map(|attempts| attempts.since);
        since.is_some_and(|since| now.saturating_sub(since) >= self.policy.deadline)
    }

    fn drain_status(
        &self,
        facts: &DrainInputs<'_>,
        blockers: &Blockers<'_>,
        going: &[PodId],
    ) -> Option<DrainStatus> {
        let waits_for = match self.phase {
            Phase::GaveUp => {
                let waits = blockers.blockers(facts);
                let attempts = self.attempts.as_ref();
                attempts.map_or_else(Vec::new, |attempts| attempts.with_reasons(waits))
            }
            Phase::Evicting { .. } => blockers.blockers_and(facts, going),
            Phase::Idle | Phase::Listing | Phase::Refused | Phase::Tainting { .. } => {
                blockers.blockers(facts)
            }
        };
        // The blockers describe the state sufficiently.
        let message = self.phase.message(facts.pod_observations);
        let is_pause = matches!(self.phase, Phase::GaveUp);
        let is_explained = is_pause && !waits_for.is_empty();
        let attempts = self.attempts.as_ref();
        // An attempt that succeeded or was interrupted did not give up.
        let gave_up = attempts.is_some_and(|one| one.gave_up.is_some());
        let stage = self.phase.stage()?;
        Some(DrainStatus {
            policy: self.policy.scope.as_str(),
            phase: if stage == Stage::GaveUp && !gave_up { Stage::Waiting } else { stage },
            message: message.filter(|_| !is_explained),
            waits_for,
        })
    }
}

#[cfg(test)]
mod tests;
