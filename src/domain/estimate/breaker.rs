//! When an engine that fails is left alone: a state machine. Time is an argument, counted from any fixed moment.
//!
//! ```text
//! Closed --[MOST failures in a row]--> Open --[REST has passed, one is let through]--> Probing
//!    ^                                   ^------------------[it fails]-------------------'
//!    '-------------------------------[any good answer]-----------------------------------'
//! ```
//!
//! Without it every page would wait for a dead engine as long as it may take, and an engine that has too much to do would get more.

use std::time::Duration;

/// Failures in a row after which it is left alone.
pub const MOST_FAILURES: u32 = 3;
/// For how long it is.
pub const REST: Duration = Duration::from_secs(10);

/// Whether the engine is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// Everybody may ask.
    Closed {
        /// Failures since the last good answer.
        failures: u32,
    },
    /// Nobody may.
    Open {
        /// When one may again.
        until: Duration,
    },
    /// One asks, and who comes meanwhile does not.
    Probing {
        /// When another one may: the first may have been given up and never report.
        until: Duration,
    },
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants to ask.
    Wanted,
    /// A good answer came.
    Answered,
    /// It was there, and would not answer this question: that says nothing against it.
    Declined,
    /// None came, or one that cannot be.
    Failed,
}

/// What who wants to ask is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Ask.
    Ask,
    /// Do without for now.
    Leave,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    /// What becomes of it, and what who wants to ask is told; others are told nothing that matters.
    #[must_use]
    pub fn step(self, event: Event, now: Duration) -> (Self, Decision) {
        let until = now.saturating_add(REST);
        match (self, event) {
            (Self::Closed { .. }, Event::Wanted)
            | (Self::Closed { .. } | Self::Open { .. }, Event::Declined) => (self, Decision::Ask),
            (Self::Open { until: then } | Self::Probing { until: then }, Event::Wanted) => {
                if now >= then {
                    (Self::Probing { until }, Decision::Ask)
                } else {
                    (self, Decision::Leave)
                }
            }
            (_, Event::Answered) | (Self::Probing { .. }, Event::Declined) => {
                (Self::default(), Decision::Ask)
            }
            (Self::Closed { failures }, Event::Failed) => {
                let failures = failures.saturating_add(1);
                if failures >= MOST_FAILURES {
                    (Self::Open { until }, Decision::Leave)
                } else {
                    (Self::Closed { failures }, Decision::Ask)
                }
            }
            // One that was asked before it was left alone says nothing new.
            (Self::Open { .. }, Event::Failed) => (self, Decision::Leave),
            (Self::Probing { .. }, Event::Failed) => (Self::Open { until }, Decision::Leave),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events() -> impl Strategy<Value = Vec<(Event, u64)>> {
        let event = prop::sample::select(vec![
            Event::Wanted,
            Event::Wanted,
            Event::Answered,
            Event::Declined,
            Event::Failed,
            Event::Failed,
        ]);
        prop::collection::vec((event, 0..7_000_u64), 0..200)
    }

    proptest! {
        #[test]
        fn an_engine_that_never_answers_is_asked_seldom_and_never_given_up(
            wanted in prop::collection::vec(0..3_000_u64, 1..200),
        ) {
            let (mut breaker, mut now, mut last) = (Breaker::default(), Duration::ZERO, None);
            let mut asked = 0_u32;
            for pause in wanted {
                now += Duration::from_millis(pause);
                let (next, decision) = breaker.step(Event::Wanted, now);
                breaker = next;
                if decision == Decision::Ask {
                    asked += 1;
                    if asked > MOST_FAILURES {
                        prop_assert!(last.is_none_or(|last| now >= last + REST));
                    }
                    last = Some(now);
                    breaker = breaker.step(Event::Failed, now).0;
                }
                // Whoever comes late enough is always let through.
                prop_assert_eq!(breaker.step(Event::Wanted, now + REST).1, Decision::Ask);
            }
        }

        #[test]
        fn a_good_answer_opens_the_way_for_all_and_nobody_waits_longer_than_a_rest(events in events()) {
            let (mut breaker, mut now) = (Breaker::default(), Duration::ZERO);
            let mut probes = 0_u32;
            for (event, pause) in events {
                now += Duration::from_millis(pause);
                let before = breaker;
                let (next, decision) = breaker.step(event, now);
                breaker = next;
                match event {
                    Event::Answered => prop_assert_eq!(breaker, Breaker::default()),
                    Event::Declined => prop_assert!(decision == Decision::Ask),
                    Event::Failed => {}
                    Event::Wanted => {
                        let probing = matches!(breaker, Breaker::Probing { .. }) && before != breaker;
                        probes += u32::from(probing);
                        prop_assert!(decision == Decision::Ask || before == breaker);
                    }
                }
                if let Breaker::Closed { failures } = breaker {
                    prop_assert!(failures < MOST_FAILURES);
                }
                if let Breaker::Open { until } | Breaker::Probing { until } = breaker {
                    prop_assert!(until <= now + REST);
                }
            }
            prop_assert!(probes <= u32::try_from(now.as_millis() / REST.as_millis()).unwrap());
        }
    }
}
