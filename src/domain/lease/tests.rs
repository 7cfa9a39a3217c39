//! At most one candidate writes despite lost or delayed requests, and one leads once communication recovers.

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[expect(clippy::unnecessary_wraps, reason = "a look at a Lease may find none")]
fn sight(holder: &str, version: &str) -> Option<Sight> {
    Some(Sight {
        holder: Some(holder.to_owned()),
        duration: Some(DURATION),
        version: version.to_owned(),
    })
}

fn write(version: &str, is_taken: bool) -> Step {
    Step::Write {
        version: version.to_owned(),
        is_taken,
    }
}

#[test]
fn what_is_not_there_is_made_and_said_again_in_time() {
    let mut one = Election::new("a".to_owned());
    assert_eq!(one.step(at(0)), Step::Read);
    one.saw(at(0), None);
    assert_eq!(one.step(at(0)), Step::Create);
    assert_eq!(one.holds(at(0)), None);
    one.wrote(at(1), "1".to_owned());
    assert_eq!(one.holds(at(1)), Some(at(10)));
    assert_eq!(one.step(at(1)), Step::Wait(at(4)));
    assert_eq!(one.step(at(5)), write("1", false));
    one.wrote(at(5), "2".to_owned());
    assert_eq!(one.holds(at(14)), Some(at(1)));
    // Without responses it stops by itself before another candidate can acquire the Lease.
    assert_eq!(one.holds(at(15)), None);
}

#[test]
fn somebody_elses_is_taken_when_it_was_not_renewed_for_as_long_as_was_promised() {
    let mut two = Election::new("b".to_owned());
    two.saw(at(100), sight("a", "1"));
    assert_eq!(two.step(at(100)), Step::Wait(at(2)));
    two.saw(at(110), sight("a", "1"));
    // A renewal restarts the interval.
    two.saw(at(112), sight("a", "2"));
    two.saw(at(126), sight("a", "2"));
    assert_eq!(two.step(at(128)), Step::Read);
    two.saw(at(127), sight("a", "2"));
    assert_eq!(two.step(at(127)), write("2", true));
    assert_eq!(two.holds(at(127)), None);
    two.wrote(at(127), "3".to_owned());
    assert!(two.holds(at(127)).is_some());
}

#[test]
fn what_was_given_back_is_taken_at_once() {
    let mut one = Election::new("a".to_owned());
    one.saw(at(0), None);
    one.wrote(at(0), "1".to_owned());
    assert_eq!(one.resign(), Some("1".to_owned()));
    assert_eq!(one.holds(at(0)), None);
    assert_eq!(one.resign(), None);
    let mut two = Election::new("b".to_owned());
    for holder in [None, Some(String::new())] {
        let mut free = sight("a", "2").unwrap();
        free.holder = holder;
        two.saw(at(1), Some(free));
        assert_eq!(two.step(at(1)), write("2", true));
    }
}

#[test]
fn a_promise_that_is_absurd_holds_nobody_up_for_ever() {
    let mut two = Election::new("b".to_owned());
    let mut absurd = sight("a", "1").unwrap();
    absurd.duration = Some(Duration::MAX);
    two.saw(at(0), Some(absurd.clone()));
    two.saw(at(600), Some(absurd));
    assert_eq!(two.step(at(600)), write("1", true));
}

#[test]
fn who_learns_that_another_one_holds_it_stops_at_once() {
    let mut one = Election::new("a".to_owned());
    one.saw(at(0), None);
    one.wrote(at(0), "1".to_owned());
    one.outrun(at(4));
    assert_eq!(one.step(at(4)), Step::Read);
    assert!(one.holds(at(4)).is_some(), "nobody else can have it yet");
    one.saw(at(4), sight("b", "2"));
    assert_eq!(one.holds(at(4)), None);
    assert_eq!(one.resign(), None);
}

/// A candidate with a clock of its own and at most one request in flight.
struct Candidate {
    election: Election,
    began: Duration,
    asked: Option<(Duration, Step)>,
}

/// State of the API server.
#[derive(Default)]
struct Server {
    holder: Option<String>,
    writes: u64,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    AnswerLost,
    Lost,
    StillOnItsWay,
}

impl Server {
    fn version(&self) -> String {
        self.writes.to_string()
    }

    fn sight(&self) -> Option<Sight> {
        (self.writes > 0).then(|| Sight {
            holder: self.holder.clone(),
            duration: Some(DURATION),
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
    fn turn(&mut self, server: &mut Server, now: Duration, fate: Fate) {
        let now = now + self.began;
        let (asked, step) = match self.asked.take() {
            Some(earlier) => earlier,
            None => (now, self.election.step(now)),
        };
        match (&step, fate) {
            (Step::Wait(_), _) => {}
            // A request has a deadline.
            (_, Fate::StillOnItsWay) if now.saturating_sub(asked) < at(10) => {
                self.asked = Some((asked, step));
            }
            (_, Fate::Lost | Fate::StillOnItsWay) | (Step::Read, Fate::AnswerLost) => {
                self.election.failed(now);
            }
            (Step::Read, Fate::Answered) => self.election.saw(now, server.sight()),
            (Step::Create | Step::Write { .. }, fate) => {
                let is_written = server.write(&step, self.election.me());
                match (fate, is_written) {
                    (Fate::Answered, true) => self.election.wrote(asked, server.version()),
                    (Fate::Answered, false) => self.election.outrun(now),
                    _ => self.election.failed(now),
                }
            }
        }
    }

    fn holds(&self, now: Duration) -> bool {
        self.election.holds(now + self.began).is_some()
    }
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![
        5 => Just(Fate::Answered),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::Lost),
        2 => Just(Fate::StillOnItsWay),
    ]
}

proptest! {
    #[test]
    fn never_are_two_the_one_and_in_calm_there_is_one(
        began in prop::collection::vec(0_u64..10_000, 3),
        turns in prop::collection::vec((0_usize..3, 0_u64..3000, fates()), 0..300),
    ) {
        let mut server = Server::default();
        let mut all: Vec<Candidate> = began
            .iter()
            .enumerate()
            .map(|(number, began)| Candidate {
                election: Election::new(format!("n{number}")),
                began: at(*began),
                asked: None,
            })
            .collect();
        let mut now = Duration::ZERO;
        let calm = (0..120).map(|number| (number % 3, 500, Fate::Answered));
        for (who, millis, fate) in turns.into_iter().chain(calm) {
            now += Duration::from_millis(millis);
            all[who].turn(&mut server, now, fate);
            let holders = all.iter().filter(|one| one.holds(now)).count();
            prop_assert!(holders <= 1, "{holders} at {now:?}");
        }
        prop_assert_eq!(all.iter().filter(|one| one.holds(now)).count(), 1);
    }
}
