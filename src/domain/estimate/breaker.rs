//! Circuit breaker for a failing engine, as a state machine. Time is an argument, measured from any fixed moment.
//!
//! ```text
//! Closed --[MOST_FAILURES in a row]--> Open --[after REST, one request]--> Probing
//!    ^                                   ^------------[failure]---------------'
//!    '------------------------------[success]--------------------------------'
//! ```
//!
//! Without it every page would wait for the timeout of a dead engine, and an overloaded engine would receive even
//! more requests.

use std::time::Duration;

/// Number of consecutive failures that opens the breaker.
pub const MOST_FAILURES: u32 = 3;
/// Time for which it stays open.
pub const REST: Duration = Duration::from_secs(10);

/// State of the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// All requests pass.
    Closed {
        /// Consecutive failures.
        failures: u32,
    },
    /// No request passes.
    Open {
        /// Time of the next probe.
        until: Duration,
    },
    /// One request is under way as a probe; others do not pass.
    Probing {
        /// Time of the next probe, in case the current one was abandoned without a result.
        until: Duration,
    },
}

/// Event that changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A caller wants to send a request.
    Wanted,
    /// The engine returned a valid response.
    Answered,
    /// The engine responded but declined this request, which is not a failure.
    Declined,
    /// The engine did not respond, or its response was invalid.
    Failed,
}

/// Decision for a caller that wants to send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Send the request.
    Ask,
    /// Skip the engine for now.
    Leave,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    /// Returns the new state, and the decision in response to [`Event::Wanted`]; for other events the decision is
    /// meaningless.
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
            // A late failure of an earlier request carries no new information.
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
                // After the rest time a request always passes.
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
