//! Draining: pods that stand in the way of a layout are evicted, where an administrator wants that.
//!
//! ```text
//!   Idle --> Looking --> Tainting --> Emptying --> Idle
//!               |            \____________|
//!            Refused                   GaveUp: for what was chosen then it is not begun again
//! ```
//!
//! First the Node gets our taint, so that what is evicted does not come back, and not before it was seen there is anything
//! evicted. The taint goes with whatever ends a drain, and is all that could outlive us: the next agent takes it off. Draining
//! only makes holders go. What is changed then is decided elsewhere, as ever, by who holds what.
//!
//! For one choice of a layout pods are evicted within one deadline, counted from the first taint: a layout that does not change
//! must not empty a node again and again.

mod facts;
mod outcome;
mod pod;
mod sight;
mod words;

use std::time::Duration;

pub use self::facts::{Answer, Facts, Heard, Policy, Scope, Trouble};
pub use self::outcome::{Name, News, Orders, Outcome, Stage, Standing, Waiting};
pub use self::pod::{Kept, Pod, PodId};
use self::sight::{Sight, is_asked};
use crate::domain::reconcile::Status;

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
    spent: Option<Spent>,
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

/// What was chosen for the node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    generation: u64,
    layout: Option<String>,
    /// What it means here: another layout of the same file may be edited at any time.
    meaning: u64,
}

/// What a choice has had of its deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spent {
    choice: Choice,
    since: Duration,
    /// Who was there when it was given up.
    over: Option<Vec<Waiting>>,
}

impl Choice {
    fn of(status: &Status) -> Self {
        Self {
            generation: status.generation,
            layout: status.layout.clone(),
            meaning: status.meaning,
        }
    }
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
            spent: None,
            refused: None,
            unlisted: None,
        }
    }

    /// Holds it against what is known now.
    pub fn look(&mut self, now: Duration, facts: &Facts<'_>) -> Outcome {
        let mut news = Vec::new();
        let choice = Choice::of(facts.status);
        if let Some(spent) = &self.spent
            && spent.choice != choice
        {
            news.extend(self.phase.last().map(|_| News::Withdrawn));
            self.phase = Phase::Idle;
            self.spent = None;
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
        let is_late = self.is_late(now);
        if let Some(spent) = &mut self.spent
            && (spent.over.is_some() || is_late)
        {
            spent.over.get_or_insert_with(Vec::new);
            return Phase::GaveUp;
        }
        if facts.heard.trouble == Some(Trouble::Forbidden) {
            return self.refuse(now, choice, Vec::new(), news);
        }
        if facts.heard.pods.is_none() {
            return Phase::Looking;
        }
        if sight.may_begin {
            news.push(News::Began {
                scope: self.policy.scope,
                devices: sight.devices.clone(),
                pods: sight.in_the_way.keys().map(|id| id.name()).collect(),
            });
            self.refused = None;
            let over = None;
            let since = now;
            self.spent.get_or_insert(Spent {
                choice,
                since,
                over,
            });
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
        let last = if is_busy || sight.is_held() {
            now
        } else {
            last
        };
        let is_calm = !sight.is_unfinished || now.saturating_sub(last) >= CALM;
        if !is_busy && !sight.is_held() && is_calm {
            news.push(News::Ended);
            return Phase::Idle;
        }
        let deadline = self.policy.deadline;
        let Some(spent) = &mut self.spent else {
            return Phase::Idle;
        };
        let spent_so_far = now.saturating_sub(spent.since);
        let is_forbidden = sight.is_forbidden(facts.heard);
        let is_over = !is_busy && sight.is_held() && (spent_so_far >= deadline || is_forbidden);
        if is_over || spent_so_far >= deadline.saturating_add(STUCK) {
            let waits_for = sight.waits(facts);
            spent.over = Some(waits_for.clone());
            news.push(if is_forbidden {
                News::Forbidden
            } else {
                News::GaveUp {
                    after: spent_so_far,
                    waits_for,
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

    fn outcome(
        &self,
        now: Duration,
        (facts, sight): (&Facts<'_>, &Sight<'_>),
        news: Vec<News>,
    ) -> Outcome {
        let going = match self.policy.scope {
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
            Phase::Idle | Phase::Refused => is_asked.then_some(LIST_SELDOM),
            Phase::GaveUp => None,
        };
        let unheard = facts.heard.pods.is_none() && facts.heard.trouble.is_none();
        Outcome {
            is_tainted: is_on,
            orders: Orders { list, evict },
            waits_for_pods: (looks && unheard) || (is_on && !sight.in_the_way.is_empty()),
            again: (is_on || looks).then(|| now.saturating_add(OFTEN)),
            news,
            standing: self.standing(facts, sight, &going),
        }
    }

    /// Whether the choice has had its deadline.
    fn is_late(&self, now: Duration) -> bool {
        let since = self.spent.as_ref().map(|spent| spent.since);
        since.is_some_and(|since| now.saturating_sub(since) >= self.policy.deadline)
    }

    fn standing(&self, facts: &Facts<'_>, sight: &Sight<'_>, going: &[PodId]) -> Option<Standing> {
        let waits_for = match self.phase {
            Phase::GaveUp => self.spent.clone()?.over?,
            Phase::Emptying { .. } => sight.waits_for(facts, going),
            Phase::Idle | Phase::Looking | Phase::Refused | Phase::Tainting { .. } => {
                sight.waits(facts)
            }
        };
        // Who was there when it was given up says enough.
        let message = self.phase.message(facts.heard);
        let says_enough = matches!(self.phase, Phase::GaveUp) && !waits_for.is_empty();
        Some(Standing {
            policy: self.policy.scope.as_str(),
            phase: self.phase.stage()?,
            message: message.filter(|_| !says_enough),
            waits_for,
        })
    }
}

impl Phase {
    fn message(self, heard: &Heard) -> Option<String> {
        let forbidden = heard
            .answers
            .values()
            .any(|answer| *answer == Answer::Forbidden);
        match (&heard.trouble, self) {
            (_, Self::GaveUp) => Some(words::SPENT.to_owned()),
            (Some(Trouble::Forbidden), _) => Some(words::FORBIDDEN.to_owned()),
            (Some(Trouble::Other(trouble)), _) => Some(trouble.clone()),
            (None, _) => forbidden.then(|| words::FORBIDDEN.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
