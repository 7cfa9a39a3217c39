//! Draining: pods that stand in the way of a layout are evicted, where an administrator wants that.
//!
//! ```text
//!   Idle --> Looking --> Tainting --> Emptying --> Idle
//!               |            \____________|
//!            Refused                   Refused: every pod that may be evicted has gone, and others block the device
//!                                      GaveUp: the deadline has passed; retried after a backoff
//! ```
//!
//! First the Node gets our taint, so that what is evicted does not come back, and not before it was seen there is anything
//! evicted. The taint goes with whatever ends a drain, and is all that could outlive us: the next agent takes it off. Draining
//! only makes holders go. What is changed then is decided elsewhere, as ever, by who holds what.
//!
//! An attempt lasts for one deadline at most, counted from its taint. As long as the choice of a layout stands, another attempt
//! follows after a backoff that doubles each time. Only the first attempt evicts by the policy's scope: a layout that does not
//! change must not empty a node again and again, so a retry evicts the pods that block a device and no others.

mod attempts;
mod facts;
mod outcome;
mod pod;
mod sight;
mod words;

use std::time::Duration;

use self::attempts::{Attempts, Choice};
pub use self::facts::{Answer, Facts, Heard, Policy, Scope, Trouble};
pub use self::outcome::{Name, News, Orders, Outcome, Stage, Standing, Waiting};
pub use self::pod::{Kept, Pod, PodId};
use self::sight::{Sight, is_asked};

/// While something is to happen it is looked so often.
const OFTEN: Duration = Duration::from_secs(1);
/// Pods are listed so often while some shall go, and while nothing can be done.
const LIST: Duration = Duration::from_secs(2);
const LIST_SELDOM: Duration = Duration::from_secs(30);
/// A change that has not come back so long after the deadline keeps the taint no more: a call may hang for ever.
const STUCK: Duration = Duration::from_mins(5);
/// A device that is free and not done yet, such as one between two steps, is waited for so long.
const CALM: Duration = Duration::from_secs(5);
/// Pods that the API server does not list are looked for so long: most are new, or gone in a moment.
const LOOK: Duration = Duration::from_mins(1);
/// The same refusal in other words is told again after this.
const REFUSED_AGAIN: Duration = Duration::from_mins(5);
/// A drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    policy: Policy,
    phase: Phase,
    attempts: Option<Attempts>,
    refused: Option<(Choice, Duration, Vec<Waiting>)>,
    /// Since when nothing but pods that are not listed keeps a drain from beginning.
    unlisted: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Nobody knows yet who may be evicted.
    Looking,
    /// Somebody in the way would stay.
    Refused,
    /// The taint is on its way; the devices were in use or in work at `last`.
    Tainting {
        last: Duration,
    },
    /// Pods are evicted.
    Emptying {
        last: Duration,
    },
    GaveUp,
}

impl Phase {
    /// Since when nothing was in the way or in work any more, while a drain is on.
    fn last(self) -> Option<Duration> {
        match self {
            Self::Tainting { last } | Self::Emptying { last } => Some(last),
            Self::Idle | Self::Looking | Self::Refused | Self::GaveUp => None,
        }
    }

    fn stage(self) -> Option<Stage> {
        Some(match self {
            Self::Idle => return None,
            Self::Looking => Stage::Looking,
            Self::Refused => Stage::Refused,
            Self::Tainting { .. } => Stage::Tainting,
            Self::Emptying { .. } => Stage::Emptying,
            Self::GaveUp => Stage::GaveUp,
        })
    }
}

impl Drain {
    /// One that keeps to `policy`.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            phase: Phase::Idle,
            attempts: None,
            refused: None,
            unlisted: None,
        }
    }

    /// Holds it against what is known now.
    pub fn look(&mut self, now: Duration, facts: &Facts<'_>) -> Outcome {
        let mut news = Vec::new();
        let choice = Choice::of(facts.status);
        if let Some(attempts) = &self.attempts
            && attempts.choice != choice
        {
            news.extend(self.phase.last().map(|_| News::Withdrawn));
            self.phase = Phase::Idle;
            self.attempts = None;
        }
        let sight = Sight::new(facts);
        self.phase = match self.phase.last() {
            Some(last) => self.after_begun(now, last, (facts, &sight), &mut news),
            None => self.after_idle(now, choice, (facts, &sight), &mut news),
        };
        self.outcome(now, (facts, &sight), news)
    }

    /// Nothing can be done now, as where the driver does not answer or there is no Node. What was chosen has had of its deadline
    /// what it has had.
    pub fn rest(&mut self) -> Outcome {
        let was_on = self.phase.last().is_some();
        self.phase = Phase::Idle;
        Outcome {
            news: was_on.then_some(News::Interrupted).into_iter().collect(),
            ..Outcome::default()
        }
    }

    fn after_idle(
        &mut self,
        now: Duration,
        choice: Choice,
        (facts, sight): (&Facts<'_>, &Sight<'_>),
        news: &mut Vec<News>,
    ) -> Phase {
        let unlisted = self.unlisted.take();
        if !sight.is_held() || !is_asked(facts.status) {
            return Phase::Idle;
        }
        // Between two attempts nothing is evicted, whoever blocks the devices now.
        let is_waiting = self.retry_at(now).is_some_and(|at| now < at);
        if is_waiting && (facts.heard.pods.is_none() || sight.may_go()) {
            return Phase::GaveUp;
        }
        if facts.heard.trouble == Some(Trouble::Forbidden) {
            return self.refuse(now, choice, Vec::new(), news);
        }
        if facts.heard.pods.is_none() {
            return Phase::Looking;
        }
        if sight.may_begin {
            self.begin(now, choice, sight, news);
            return Phase::Tainting { last: now };
        }
        if !sight.obstacles.is_empty() {
            return self.refuse(now, choice, sight.obstacles.clone(), news);
        }
        if sight.unlisted.is_empty() {
            return Phase::Idle;
        }
        let since = unlisted.unwrap_or(now);
        self.unlisted = Some(since);
        if now.saturating_sub(since) >= LOOK {
            return self.refuse(now, choice, sight.unlisted.clone(), news);
        }
        Phase::Looking
    }

    /// Begins an attempt, or goes on with one that is within its deadline.
    fn begin(&mut self, now: Duration, choice: Choice, sight: &Sight<'_>, news: &mut Vec<News>) {
        let is_new = self.attempts.is_none() || self.retry_at(now).is_some();
        let attempts = self.attempts.get_or_insert_with(|| Attempts::new(choice));
        if is_new {
            attempts.count = attempts.count.saturating_add(1);
            attempts.since = now;
            attempts.gave_up = None;
        }
        attempts.devices.extend(sight.addresses.iter().copied());
        self.refused = None;
        news.push(News::Began {
            scope: self.scope(),
            devices: sight.devices.clone(),
            pods: sight.in_the_way.keys().map(|id| id.name()).collect(),
        });
    }

    /// When the next attempt may begin; `None` while the latest one may go on, or there was none.
    fn retry_at(&self, now: Duration) -> Option<Duration> {
        let attempts = self.attempts.as_ref()?;
        attempts.retry_at(now, self.policy.deadline)
    }

    /// Which pods this attempt evicts.
    fn scope(&self) -> Scope {
        let is_retry = |attempts: &Attempts| attempts.count > 1;
        if self.attempts.as_ref().is_some_and(is_retry) {
            Scope::Affected
        } else {
            self.policy.scope
        }
    }

    /// Nothing is begun. Processes come and go: the same in other words is told seldom.
    fn refuse(
        &mut self,
        now: Duration,
        choice: Choice,
        waits_for: Vec<Waiting>,
        news: &mut Vec<News>,
    ) -> Phase {
        let is_known = self.refused.as_ref().is_some_and(|(of, at, known)| {
            let late = now.saturating_sub(*at) >= REFUSED_AGAIN;
            *of == choice && (*known == waits_for || !late)
        });
        if !is_known {
            news.push(if waits_for.is_empty() {
                News::Forbidden
            } else {
                News::Refused {
                    waits_for: waits_for.clone(),
                }
            });
            self.refused = Some((choice, now, waits_for));
        }
        Phase::Refused
    }

    fn after_begun(
        &mut self,
        now: Duration,
        last: Duration,
        (facts, sight): (&Facts<'_>, &Sight<'_>),
        news: &mut Vec<News>,
    ) -> Phase {
        let is_busy = facts.status.is_busy();
        if !is_busy && !is_asked(facts.status) {
            news.push(News::Withdrawn);
            return Phase::Idle;
        }
        let is_waited_for = self.is_waited_for(now, sight);
        let last = if is_busy || is_waited_for { now } else { last };
        let calm = now.saturating_sub(last) >= CALM;
        if !is_busy && !is_waited_for && (calm || !sight.is_unfinished) {
            if !sight.is_held() {
                news.push(News::Ended);
                if let Some(attempts) = &mut self.attempts {
                    attempts.devices.clear();
                }
                return Phase::Idle;
            }
            // A process may be gone in a moment.
            if calm || !sight.is_held_by_a_process() {
                let blockers = sight.waits(facts);
                return self.refuse(now, Choice::of(facts.status), blockers, news);
            }
        }
        let deadline = self.policy.deadline;
        let Some(attempts) = &mut self.attempts else {
            return Phase::Idle;
        };
        // Devices that are blocked only since the attempt began are withheld too.
        attempts.devices.extend(sight.addresses.iter().copied());
        let spent = now.saturating_sub(attempts.since);
        let is_forbidden = sight.is_forbidden(facts.heard);
        let is_over = !is_busy && sight.is_held() && (spent >= deadline || is_forbidden);
        if is_over || spent >= deadline.saturating_add(STUCK) {
            let blockers = sight.waits(facts);
            attempts.give_up(now, blockers.clone());
            news.push(if is_forbidden {
                News::Forbidden
            } else {
                News::GaveUp {
                    after: spent,
                    retry: attempts.backoff(deadline),
                    waits_for: blockers,
                }
            });
            return Phase::GaveUp;
        }
        if facts.is_tainted {
            Phase::Emptying { last }
        } else {
            Phase::Tainting { last }
        }
    }

    /// Whether a pod that goes by itself or may be evicted blocks a device, or one of which that is not known yet.
    fn is_waited_for(&mut self, now: Duration, sight: &Sight<'_>) -> bool {
        if sight.goes_by_itself() {
            self.unlisted = None;
            return true;
        }
        if sight.unlisted.is_empty() {
            self.unlisted = None;
            // For a moment, the blocker of a device may be unknown.
            return sight.is_held() && sight.obstacles.is_empty();
        }
        let since = *self.unlisted.get_or_insert(now);
        now.saturating_sub(since) < LOOK
    }

    fn outcome(
        &self,
        now: Duration,
        (facts, sight): (&Facts<'_>, &Sight<'_>),
        news: Vec<News>,
    ) -> Outcome {
        let going = match self.scope() {
            Scope::Affected => sight.affected(),
            Scope::Node => sight.everybody(facts.heard),
        };
        let is_on = self.phase.last().is_some();
        let looks = matches!(self.phase, Phase::Looking);
        // While one device is being changed another drain goes on, but not longer than it may.
        let is_late = self.is_late(now);
        let evict = match self.phase {
            Phase::Emptying { .. } if !is_late && facts.is_current => going.clone(),
            Phase::Emptying { .. }
            | Phase::Idle
            | Phase::Looking
            | Phase::Refused
            | Phase::Tainting { .. }
            | Phase::GaveUp => Vec::new(),
        };
        let is_asked = sight.is_held() && is_asked(facts.status);
        let list = match self.phase {
            Phase::Looking | Phase::Tainting { .. } | Phase::Emptying { .. } => Some(LIST),
            // Who holds the devices now may be somebody else soon.
            Phase::Idle | Phase::Refused | Phase::GaveUp => is_asked.then_some(LIST_SELDOM),
        };
        let retry = self
            .retry_at(now)
            .filter(|_| matches!(self.phase, Phase::GaveUp));
        let unheard = facts.heard.pods.is_none() && facts.heard.trouble.is_none();
        Outcome {
            is_tainted: is_on,
            orders: Orders { list, evict },
            waits_for_pods: (looks && unheard) || (is_on && !sight.in_the_way.is_empty()),
            again: (is_on || looks)
                .then(|| now.saturating_add(OFTEN))
                .or(retry),
            devices: self
                .attempts
                .as_ref()
                .map(|one| one.devices.clone())
                .unwrap_or_default(),
            news,
            standing: self.standing(facts, sight, &going),
        }
    }

    /// Whether the latest attempt has had its deadline.
    fn is_late(&self, now: Duration) -> bool {
        let since = self.attempts.as_ref().map(|attempts| attempts.since);
        since.is_some_and(|since| now.saturating_sub(since) >= self.policy.deadline)
    }

    fn standing(&self, facts: &Facts<'_>, sight: &Sight<'_>, going: &[PodId]) -> Option<Standing> {
        let waits_for = match self.phase {
            Phase::GaveUp => {
                let waits = sight.waits(facts);
                let attempts = self.attempts.as_ref();
                attempts.map_or_else(Vec::new, |attempts| attempts.with_reasons(waits))
            }
            Phase::Emptying { .. } => sight.waits_for(facts, going),
            Phase::Idle | Phase::Looking | Phase::Refused | Phase::Tainting { .. } => {
                sight.waits(facts)
            }
        };
        // Who blocks the devices says enough.
        let message = self.phase.message(facts.heard);
        let is_pause = matches!(self.phase, Phase::GaveUp);
        let says_enough = is_pause && !waits_for.is_empty();
        let attempts = self.attempts.as_ref();
        // An attempt that ended well, or was interrupted, did not give up.
        let gave_up = attempts.is_some_and(|one| one.gave_up.is_some());
        let stage = self.phase.stage()?;
        Some(Standing {
            policy: self.policy.scope.as_str(),
            phase: if stage == Stage::GaveUp && !gave_up {
                Stage::Waiting
            } else {
                stage
            },
            message: message.filter(|_| !says_enough),
            waits_for,
        })
    }
}

#[cfg(test)]
mod tests;
