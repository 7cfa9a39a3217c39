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
pub const FAILURE_THRESHOLD: u32 = 3;
/// Time for which it stays open.
pub const OPEN_DURATION: Duration = Duration::from_secs(10);

/// State of the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitBreaker {
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
    Requested,
    /// The engine returned a valid response.
    Succeeded,
    /// The engine responded but declined this request, which is not a failure.
    Declined,
    /// The engine did not respond, or its response was invalid.
    Failed,
}

/// Decision for a caller that wants to send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Send the request.
    Send,
    /// Skip the engine for now.
    Skip,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl CircuitBreaker {
    /// Returns the new state, and the decision in response to [`Event::Requested`]; for other events the decision is
    /// meaningless.
    #[must_use]
    pub fn step(self, event: Event, now: Duration) -> (Self, Decision) {
        let until = now.saturating_add(OPEN_DURATION);
        match (self, event) {
            (Self::Closed { .. }, Event::Requested)
            | (Self::Closed { .. } | Self::Open { .. }, Event::Declined) => (self, Decision::Send),
            (Self::Open { until: then } | Self::Probing { until: then }, Event::Requested) => {
                if now >= then {
                    (Self::Probing { until }, Decision::Send)
                } else {
                    (self, Decision::Skip)
                }
            }
            (_, Event::Succeeded) | (Self::Probing { .. }, Event::Declined) => {
                (Self::default(), Decision::Send)
            }
            (Self::Closed { failures }, Event::Failed) => {
                let failures = failures.saturating_add(1);
                if failures >= FAILURE_THRESHOLD {
                    (Self::Open { until }, Decision::Skip)
                } else {
                    (Self::Closed { failures }, Decision::Send)
                }
            }
            // A late failure of an earlier request carries no new information.
            (Self::Open { .. }, Event::Failed) => (self, Decision::Skip),
            (Self::Probing { .. }, Event::Failed) => (Self::Open { until }, Decision::Skip),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events() -> impl Strategy<Value = Vec<(Event, u64)>> {
        let event = prop::sample::select(vec![
            Event::Requested,
            Event::Requested,
            Event::Succeeded,
            Event::Declined,
            Event::Failed,
            Event::Failed,
        ]);
        prop::collection::vec((event, 0..7_000_u64), 0..200)
    }

    proptest! {
        #[test]
        fn dead_engine_is_probed_at_intervals(
            wanted in prop::collection::vec(0..3_000_u64, 1..200),
        ) {
            let (mut breaker, mut now, mut last) = (CircuitBreaker::default(), Duration::ZERO, None);
            let mut requests = 0_u32;
            for pause in wanted {
                now += Duration::from_millis(pause);
                let (next, decision) = breaker.step(Event::Requested, now);
                breaker = next;
                if decision == Decision::Send {
                    requests += 1;
                    if requests > FAILURE_THRESHOLD {
                        prop_assert!(last.is_none_or(|last| now >= last + OPEN_DURATION));
                    }
                    last = Some(now);
                    breaker = breaker.step(Event::Failed, now).0;
                }
                // After the rest time a request always passes.
                prop_assert_eq!(breaker.step(Event::Requested, now + OPEN_DURATION).1, Decision::Send);
            }
        }

        #[test]
        fn success_closes_the_breaker(events in events()) {
            let (mut breaker, mut now) = (CircuitBreaker::default(), Duration::ZERO);
            let mut probes = 0_u32;
            for (event, pause) in events {
                now += Duration::from_millis(pause);
                let before = breaker;
                let (next, decision) = breaker.step(event, now);
                breaker = next;
                match event {
                    Event::Succeeded => prop_assert_eq!(breaker, CircuitBreaker::default()),
                    Event::Declined => prop_assert!(decision == Decision::Send),
                    Event::Failed => {}
                    Event::Requested => {
                        let probing = matches!(breaker, CircuitBreaker::Probing { .. }) && before != breaker;
                        probes += u32::from(probing);
                        prop_assert!(decision == Decision::Send || before == breaker);
                    }
                }
                if let CircuitBreaker::Closed { failures } = breaker {
                    prop_assert!(failures < FAILURE_THRESHOLD);
                }
                if let CircuitBreaker::Open { until } | CircuitBreaker::Probing { until } = breaker {
                    prop_assert!(until <= now + OPEN_DURATION);
                }
            }
            prop_assert!(probes <= u32::try_from(now.as_millis() / OPEN_DURATION.as_millis()).unwrap());
        }
    }
}
