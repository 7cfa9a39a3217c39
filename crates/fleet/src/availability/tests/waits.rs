//! Tests of waiting times: from deadlines, from past holding times, and without either.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

#[test]
fn ac_008_wait_time_comes_from_deadlines() {
    let wait = |pods: Vec<ClusterPod>| {
        let all = snapshot(vec![node("a", &[(TYPE, H200)], 3)], pods);
        counted(&[], Some(&all)).rows[0].wait
    };
    let holds = |name: &str, count, until| ClusterPod { until, ..pod(name, Some("a"), GPU, count) };
    assert_eq!(wait(vec![holds("x", 2, Some(50))]), Wait::Now);
    assert_eq!(wait(vec![holds("x", 3, None)]), Wait::Unknown(Unknown::NoDeadline));
    assert_eq!(
        wait(vec![holds("x", 1, Some(900)), holds("y", 1, None), holds("z", 1, Some(300)),]),
        Wait::Deadlines { earliest: 300, latest: 900, of: 2, holders: 3 }
    );
    let mut cordoned = node("a", &[(TYPE, H200)], 3);
    cordoned.is_cordoned = true;
    let all = snapshot(vec![cordoned], vec![holds("x", 3, Some(50))]);
    assert_eq!(counted(&[], Some(&all)).rows[0].wait, Wait::Unknown(Unknown::NoHolders));
}

/// One node with two devices, observed from second 0.
struct ObservedNode {
    history: HoldingHistory,
    holders: HoldingObserver,
    cache: CountCache,
}

/// Name, namespace, start and deadline of a pod.
type PodFacts<'a> = (&'a str, &'a str, i64, Option<i64>);

fn there(pods: &[PodFacts<'_>]) -> ClusterSnapshot {
    let pods = pods.iter().map(|(name, namespace, began, until)| {
        let mut one = pod(name, Some("a"), GPU, 1);
        (*namespace).clone_into(&mut one.key.namespace);
        (one.started_at, one.until) = (Some(*began), *until);
        one
    });
    snapshot(vec![node("a", &[(TYPE, H200)], 2)], pods.collect())
}

impl ObservedNode {
    fn new() -> Self {
        Self {
            history: HoldingHistory::default(),
            holders: HoldingObserver::default(),
            cache: CountCache::new(Catalog::built_in()),
        }
    }

    /// Observes these pods at `now` and returns the waiting time.
    fn observe(&mut self, pods: &[PodFacts<'_>], now: i64) -> Wait {
        let all = Arc::new(there(pods));
        for shown in self.holders.observe(&all, now) {
            self.history.record(shown);
        }
        let past = HoldingTimes { history: &mut self.history, now };
        let counted = count(&[], Some(&all), &mut self.cache, Some(past));
        counted.rows[0].wait
    }

    /// Observes `count` consecutive one-hour pods of different workloads. Returns the end of the last one.
    fn after(&mut self, count: i64) -> i64 {
        for number in 0..count {
            let name = format!("old-{number}");
            self.observe(&[(&name, "team", number * 3600, None)], number * 3600);
            self.observe(&[], (number + 1) * 3600);
        }
        count * 3600
    }
}

const TWO: [(&str, &str); 2] = [("x", "team-x"), ("y", "team-y")];

#[test]
fn ac_008_wait_time_is_estimated_from_history() {
    let mut watched = ObservedNode::new();
    let now = watched.after(30);
    let holders = TWO.map(|(name, team)| (name, team, now - 600, None));
    let wait = watched.observe(&holders, now + 60);
    let Wait::Likely { from, to, samples, since, of, holders } = wait else { panic!("{wait:?}") };
    // All last an hour, and these started ten minutes before.
    assert_eq!((from, to), (now + 3000, Some(now + 3000)));
    assert_eq!((samples, since, of, holders), (30, 0, 0, 2));
    let second = "by the second";
    assert!(wait.description().unwrap().contains(second), "{wait:?}");
    let one = Wait::Likely { from, to: None, samples, since, of, holders };
    assert!(!one.description().unwrap().contains(second), "{one:?}");
}

#[test]
fn ac_008_deadline_limits_the_estimate() {
    let mut watched = ObservedNode::new();
    let now = watched.after(30);
    let wait = |watched: &mut ObservedNode, until| {
        let holders = [("x", "team-x", now, Some(until)), ("y", "team-y", now, None)];
        let wait = watched.observe(&holders, now + 60);
        let Wait::Likely { from, to, of, .. } = wait else { panic!("{wait:?}") };
        (from, to, of)
    };
    let soon = now + 120;
    assert_eq!(wait(&mut watched, soon), (soon, Some(soon), 1));
    let likely = now + 3600;
    assert_eq!(wait(&mut watched, now + 9000), (likely, Some(likely), 1));
}

#[test]
fn ac_008_insufficient_history_gives_no_estimate() {
    let mut watched = ObservedNode::new();
    let now = watched.after(19);
    let holders = TWO.map(|(name, team)| (name, team, now, None));
    let few = Wait::Unknown(Unknown::TooFew { ended: 19, since: 0 });
    assert_eq!(watched.observe(&holders, now + 60), few);
    assert!(few.description().unwrap().contains("19 of the"), "{few:?}");

    // Two more ends suffice; but nothing is known about holders that have held their units longer.
    watched.observe(&[holders[0]], now + 120);
    let late = now + 100_000;
    let held = TWO.map(|(name, team)| (name, team, now + 200, None));
    watched.observe(&held, now + 240);
    for step in 0..40 {
        watched.observe(&held, now + 240 + step * 3000);
    }
    let longer = Wait::Unknown(Unknown::BeyondObserved { samples: 21, since: 0 });
    assert_eq!(watched.observe(&held, late + 20_240), longer);

    // Another aggregator has observed no end, and does not treat earlier holdings as complete.
    let mut restarted = ObservedNode::new();
    restarted.observe(&held, late);
    restarted.observe(&[held[0]], late + 60);
    let again = ("z", "team-z", late + 60, None);
    assert_eq!(
        restarted.observe(&[held[0], again], late + 120),
        Wait::Unknown(Unknown::TooFew { ended: 1, since: late })
    );
}

#[test]
fn pods_of_one_workload_count_once() {
    let mut watched = ObservedNode::new();
    let names: Vec<String> = (0..40).map(|number| format!("worker-{number}")).collect();
    let gang: Vec<PodFacts<'_>> =
        names.iter().map(|name| (name.as_str(), "team", 30, None)).collect();
    watched.observe(&[], 0);
    watched.observe(&gang, 50);
    watched.observe(&gang[20..], 3000);
    watched.observe(&[], 3030);
    let holders = TWO.map(|(name, team)| (name, team, 3030, None));
    assert_eq!(
        watched.observe(&holders, 3040),
        Wait::Unknown(Unknown::TooFew { ended: 1, since: 0 })
    );
    // They count once however far apart they end, as the pods of an array job do.
    let mut watched = ObservedNode::new();
    let gang = &gang[..24];
    watched.observe(gang, 50);
    for gone in 1..=24_usize {
        let now = 3000 + 120 * i64::try_from(gone).unwrap();
        watched.observe(&gang[gone..], now);
    }
    let holders = TWO.map(|(name, team)| (name, team, 6000, None));
    assert_eq!(
        watched.observe(&holders, 6010),
        Wait::Unknown(Unknown::TooFew { ended: 1, since: 50 })
    );
    // Several pods of one current workload do not end sooner than one of them.
    let mut watched = ObservedNode::new();
    let now = watched.after(30);
    let alone =
        watched.observe(&[("x", "team-x", now, None), ("y", "team-x", now, None)], now + 60);
    let Wait::Likely { from, holders, .. } = alone else { panic!("{alone:?}") };
    assert_eq!((from, holders), (now + 3600, 2));
}

#[test]
fn history_is_bounded_by_window() {
    let mut watched = ObservedNode::new();
    let now = watched.after(1000);
    let holders = TWO.map(|(name, team)| (name, team, now, None));
    let Wait::Likely { samples, since, .. } = watched.observe(&holders, now + 60) else {
        panic!("no estimate")
    };
    // Fourteen days of one-hour pods, not all thousand of them.
    assert_eq!((samples, since), (14 * 24, now + 60 - 14 * 86_400));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever pods come and go, the result is either no estimate or an interval in the future, with its basis.
    #[test]
    fn estimate_is_in_the_future_with_enough_samples(
        lasts in prop::collection::vec(1..20_000_i64, 1..60),
        began in prop::collection::vec(0..20_000_i64, 2),
        deadline in prop::option::of(1..50_000_i64),
    ) {
        let mut watched = ObservedNode::new();
        let mut now = 0;
        watched.observe(&[], now);
        for (number, lasts) in lasts.iter().enumerate() {
            let name = format!("old-{number}");
            watched.observe(&[(&name, "team", now, None)], now);
            let mut gone = 0;
            while gone < *lasts {
                gone = (gone + 3000).min(*lasts);
                watched.observe(&if gone < *lasts { vec![(name.as_str(), "team", now, None)] } else { vec![] }, now + gone);
            }
            now += lasts;
        }
        let until = deadline.map(|seconds| now + seconds);
        let holders = [
            ("x", "team-x", now - began[0], until),
            ("y", "team-y", now - began[1], None),
        ];
        match watched.observe(&holders, now) {
            Wait::Likely { from, to, samples, of, .. } => {
                prop_assert!(from > now && to.is_none_or(|to| to >= from));
                prop_assert!(samples >= 20 && u32::from(until.is_some()) == of);
                prop_assert!(until.is_none_or(|until| to.is_some_and(|to| to <= until)));
            }
            Wait::Deadlines { earliest, .. } => prop_assert_eq!(Some(earliest), until),
            Wait::Unknown(Unknown::TooFew { ended, .. }) => prop_assert!(ended < 20 && until.is_none()),
            Wait::Unknown(Unknown::BeyondObserved { samples, .. }) => prop_assert!(samples >= 20 && until.is_none()),
            Wait::Now | Wait::Unknown(_) => prop_assert!(false, "every pod holds devices, and everything is watched"),
        }
    }
}
