//! Queue of events for the API server. Only the latest event of each subject counts; an event is done once the API
//! server has accepted it.
//!
//! Transient events, such as `LayoutApplying`, have a budget separate from all others, so that neither can exhaust the
//! other's. An event without budget waits and is replaced by the next one of its subject.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use octavo_model::reason::Reason;

use super::event_deduplicator::Event;
use super::rate_limit::{EventBudget, truncate_message};

/// Events that wait for the API server. A single sender has at most one event in flight.
#[derive(Debug, Clone)]
pub struct EventQueue<S> {
    /// Events in sending order.
    pending: VecDeque<QueuedEvent<S>>,
    in_flight: Option<S>,
    rates: Rates,
    /// Maximum age; older events are dropped.
    max_age: Duration,
}

/// A queued event. The sender returns it with the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedEvent<S> {
    /// Subject of the event.
    pub subject: S,
    /// The event.
    pub event: Event,
    /// Time when it was queued.
    since: Duration,
}

#[derive(Debug, Clone)]
enum Rates {
    Unlimited,
    Limited { transient: EventBudget, other: EventBudget },
}

/// Maximum number of waiting events; beyond it the oldest are dropped. A node has ten subjects and one for each device
/// or partition.
const MAX_PENDING: usize = 512;

impl<S: Clone + Ord> EventQueue<S> {
    /// Creates a queue with a rate limit; events never expire.
    pub fn limited() -> Self {
        Self {
            pending: VecDeque::new(),
            in_flight: None,
            rates: Rates::Limited {
                transient: EventBudget::default(),
                other: EventBudget::default(),
            },
            max_age: Duration::MAX,
        }
    }

    /// Creates a queue without a rate limit; events older than `max_age` are dropped.
    pub fn unlimited(max_age: Duration) -> Self {
        Self { rates: Rates::Unlimited, max_age, ..Self::limited() }
    }

    /// Adds an event.
    pub fn push(&mut self, now: Duration, subject: S, mut event: Event) {
        truncate_message(&mut event.message);
        self.pending.push_back(QueuedEvent { subject, event, since: now });
        if self.pending.len() > MAX_PENDING {
            self.coalesce();
        }
        if self.pending.len() > MAX_PENDING {
            self.pending.pop_front();
        }
    }

    /// Drops the unsent events of a subject because they no longer hold.
    pub fn retract(&mut self, subject: &S) {
        self.pending.retain(|one| one.subject != *subject);
        if self.in_flight.as_ref() == Some(subject) {
            self.in_flight = None;
        }
    }

    /// Returns the next event to send. Older events of its subject are dropped.
    pub fn next(&mut self, now: Duration) -> Option<QueuedEvent<S>> {
        let max_age = self.max_age;
        let is_new = |one: &QueuedEvent<S>| now.saturating_sub(one.since) <= max_age;
        self.pending.retain(is_new);
        let rates = &mut self.rates;
        let is_allowed = |one: &QueuedEvent<S>| rates.wait(now, one.event.reason).is_zero();
        let Some(at) = self.pending.iter().position(is_allowed) else {
            self.coalesce();
            return None;
        };
        let next = self.pending.remove(at)?;
        let mut position = 0;
        self.pending.retain(|one| {
            let is_later = position >= at;
            position = position.saturating_add(1);
            is_later || one.subject != next.subject
        });
        self.in_flight = Some(next.subject.clone());
        Some(next)
    }

    /// Returns the delay until [`Self::next`] returns an event; `None` if none waits.
    pub fn wait(&mut self, now: Duration) -> Option<Duration> {
        let rates = &mut self.rates;
        let all = self.pending.iter();
        all.map(|one| rates.wait(now, one.event.reason)).min()
    }

    /// Records that the API server accepted the event.
    pub fn accepted(&mut self, now: Duration, sent: &QueuedEvent<S>) {
        self.in_flight = None;
        self.rates.spend(now, sent.event.reason);
    }

    /// Records that the API server did not accept the event. It is sent again unless it no longer holds or a later
    /// event of its subject waits.
    pub fn not_accepted(&mut self, sent: QueuedEvent<S>) {
        let holds = self.in_flight.take().is_some();
        let is_latest = self.pending.iter().all(|one| one.subject != sent.subject);
        if holds && is_latest {
            // At the end of the queue, so that other events can be accepted first.
            self.pending.push_back(sent);
        }
        self.coalesce();
    }

    /// Retains the last event of each subject.
    fn coalesce(&mut self) {
        let mut known = BTreeSet::new();
        let mut latest = VecDeque::new();
        for one in std::mem::take(&mut self.pending).into_iter().rev() {
            if known.insert(one.subject.clone()) {
                latest.push_front(one);
            }
        }
        self.pending = latest;
    }
}

impl Rates {
    fn wait(&mut self, now: Duration, reason: Reason) -> Duration {
        self.limit(reason).and_then(|budget| budget.wait(now)).unwrap_or_default()
    }

    fn spend(&mut self, now: Duration, reason: Reason) {
        if let Some(budget) = self.limit(reason) {
            budget.take(now, 1);
        }
    }

    fn limit(&mut self, reason: Reason) -> Option<&mut EventBudget> {
        match self {
            Self::Unlimited => None,
            Self::Limited { transient, other } => {
                Some(if is_transient(reason) { transient } else { other })
            }
        }
    }
}

/// Returns true if another event of the same subject always follows.
fn is_transient(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Pending | Reason::Applying | Reason::OperandsPaused | Reason::DevicePluginRefreshed
    )
}

#[cfg(test)]
mod tests;
