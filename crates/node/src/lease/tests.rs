//! At most one candidate writes despite lost or delayed requests, and one leads once communication recovers.

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[expect(clippy::unnecessary_wraps, reason = "the functions under test take an optional Lease")]
fn observed_lease(holder: &str, version: &str) -> Option<ObservedLease> {
    Some(ObservedLease {
        holder: Some(holder.to_owned()),
        duration: Some(LEASE_DURATION),
        version: version.to_owned(),
    })
}

fn write(version: &str, is_taken: bool) -> Step {
    Step::Write { version: version.to_owned(), is_takeover: is_taken }
}

#[test]
fn missing_lease_is_created_and_renewed_in_time() {
    let mut one = LeaderElector::new("a".to_owned());
    assert_eq!(one.step(at(0)), Step::Read);
    one.record_observation(at(0), None);
    assert_eq!(one.step(at(0)), Step::Create);
    assert_eq!(one.remaining_hold(at(0)), None);
    one.record_write(at(1), "1".to_owned());
    assert_eq!(one.remaining_hold(at(1)), Some(at(10)));
    assert_eq!(one.step(at(1)), Step::Wait(at(4)));
    assert_eq!(one.step(at(5)), write("1", false));
    one.record_write(at(5), "2".to_owned());
    assert_eq!(one.remaining_hold(at(14)), Some(at(1)));
    // Without responses it stops by itself before another candidate can acquire the Lease.
    assert_eq!(one.remaining_hold(at(15)), None);
}

#[test]
fn expired_lease_of_another_holder_is_acquired() {
    let mut two = LeaderElector::new("b".to_owned());
    two.record_observation(at(100), observed_lease("a", "1"));
    assert_eq!(two.step(at(100)), Step::Wait(at(2)));
    two.record_observation(at(110), observed_lease("a", "1"));
    // A renewal restarts the interval.
    two.record_observation(at(112), observed_lease("a", "2"));
    two.record_observation(at(126), observed_lease("a", "2"));
    assert_eq!(two.step(at(128)), Step::Read);
    two.record_observation(at(127), observed_lease("a", "2"));
    assert_eq!(two.step(at(127)), write("2", true));
    assert_eq!(two.remaining_hold(at(127)), None);
    two.record_write(at(127), "3".to_owned());
    assert!(two.remaining_hold(at(127)).is_some());
}

#[test]
fn released_lease_is_acquired_immediately() {
    let mut one = LeaderElector::new("a".to_owned());
    one.record_observation(at(0), None);
    one.record_write(at(0), "1".to_owned());
    assert_eq!(one.resign(), Some("1".to_owned()));
    assert_eq!(one.remaining_hold(at(0)), None);
    assert_eq!(one.resign(), None);
    let mut two = LeaderElector::new("b".to_owned());
    for holder in [None, Some(String::new())] {
        let mut free = observed_lease("a", "2").unwrap();
        free.holder = holder;
        two.record_observation(at(1), Some(free));
        assert_eq!(two.step(at(1)), write("2", true));
    }
}

#[test]
fn lease_of_an_ended_process_is_acquired_immediately() {
    let mut two = LeaderElector::new("pod_2".to_owned()).with_ended("pod_".to_owned());
    two.record_observation(at(0), observed_lease("other_1", "1"));
    assert_eq!(two.step(at(0)), Step::Wait(at(2)));
    two.record_observation(at(2), observed_lease("pod_1", "2"));
    assert_eq!(two.step(at(2)), write("2", true));
    // Without the prefix, the candidate waits for the expiry.
    let mut three = LeaderElector::new("pod_3".to_owned());
    three.record_observation(at(2), observed_lease("pod_1", "2"));
    assert_eq!(three.step(at(2)), Step::Wait(at(2)));
}

#[test]
fn excessive_lease_duration_is_capped() {
    let mut two = LeaderElector::new("b".to_owned());
    let mut absurd = observed_lease("a", "1").unwrap();
    absurd.duration = Some(Duration::MAX);
    two.record_observation(at(0), Some(absurd.clone()));
    two.record_observation(at(600), Some(absurd));
    assert_eq!(two.step(at(600)), write("1", true));
}

#[test]
fn holder_stops_when_it_observes_another_holder() {
    let mut one = LeaderElector::new("a".to_owned());
    one.record_observation(at(0), None);
    one.record_write(at(0), "1".to_owned());
    one.record_conflict(at(4));
    assert_eq!(one.step(at(4)), Step::Read);
    assert!(one.remaining_hold(at(4)).is_some(), "the lease is still held");
    one.record_observation(at(4), observed_lease("b", "2"));
    assert_eq!(one.remaining_hold(at(4)), None);
    assert_eq!(one.resign(), None);
}

/// A candidate with a clock of its own and at most one request in flight.
struct Candidate {
    election: LeaderElector,
    began: Duration,
    pending: Option<(Duration, Step)>,
}

/// State of the API server.
#[derive(Default)]
struct Server {
    holder: Option<String>,
    writes: u64,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy)]
enum RequestOutcome {
    Answered,
    AnswerLost,
    Lost,
    StillOnItsWay,
}

impl Server {
    fn version(&self) -> String {
        self.writes.to_string()
    }

    fn observed_lease(&self) -> Option<ObservedLease> {
        (self.writes > 0).then(|| ObservedLease {
            holder: self.holder.clone(),
            duration: Some(LEASE_DURATION),
            version: self.version(),
        })
    }

    /// Applies a write and returns true if it succeeded.
    fn write(&mut self, step: &Step, me: &str) -> bool {
        let fits = match step {
            Step::Create => self.writes == 0,
            Step::Write { version, .. } => *version == self.version(),
            Step::Wait(_) | Step::Read => false,
        };
        if fits {
            self.holder = Some(me.to_owned());
            self.writes += 1;
        }
        fits
    }
}

impl Candidate {
    fn turn(&mut self, server: &mut Server, now: Duration, fate: RequestOutcome) {
        let now = now + self.began;
        let (pending, step) = match self.pending.take() {
            Some(earlier) => earlier,
            None => (now, self.election.step(now)),
        };
        match (&step, fate) {
            (Step::Wait(_), _) => {}
            // A request has a deadline.
            (_, RequestOutcome::StillOnItsWay) if now.saturating_sub(pending) < at(10) => {
                self.pending = Some((pending, step));
            }
            (_, RequestOutcome::Lost | RequestOutcome::StillOnItsWay)
            | (Step::Read, RequestOutcome::AnswerLost) => {
                self.election.record_failure(now);
            }
            (Step::Read, RequestOutcome::Answered) => {
                self.election.record_observation(now, server.observed_lease());
            }
            (Step::Create | Step::Write { .. }, fate) => {
                let is_written = server.write(&step, self.election.identity());
                match (fate, is_written) {
                    (RequestOutcome::Answered, true) => {
                        self.election.record_write(pending, server.version());
                    }
                    (RequestOutcome::Answered, false) => self.election.record_conflict(now),
                    _ => self.election.record_failure(now),
                }
            }
        }
    }

    fn holds(&self, now: Duration) -> bool {
        self.election.remaining_hold(now + self.began).is_some()
    }
}

fn fates() -> impl Strategy<Value = RequestOutcome> {
    prop_oneof![
        5 => Just(RequestOutcome::Answered),
        1 => Just(RequestOutcome::AnswerLost),
        1 => Just(RequestOutcome::Lost),
        2 => Just(RequestOutcome::StillOnItsWay),
    ]
}

proptest! {
    #[test]
    fn at_most_one_leader_and_one_after_recovery(
        began in prop::collection::vec(0_u64..10_000, 3),
        turns in prop::collection::vec((0_usize..3, 0_u64..3000, fates()), 0..300),
    ) {
        let mut server = Server::default();
        let mut all: Vec<Candidate> = began
            .iter()
            .enumerate()
            .map(|(number, began)| Candidate {
                election: LeaderElector::new(format!("n{number}")),
                began: at(*began),
                pending: None,
            })
            .collect();
        let mut now = Duration::ZERO;
        let calm = (0..120).map(|number| (number % 3, 500, RequestOutcome::Answered));
        for (who, millis, fate) in turns.into_iter().chain(calm) {
            now += Duration::from_millis(millis);
            all[who].turn(&mut server, now, fate);
            let holders = all.iter().filter(|one| one.holds(now)).count();
            prop_assert!(holders <= 1, "{holders} at {now:?}");
        }
        prop_assert_eq!(all.iter().filter(|one| one.holds(now)).count(), 1);
    }
}
