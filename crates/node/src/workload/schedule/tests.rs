//! All pods are checked in turn, and written only if they differ.

use proptest::prelude::*;

use super::*;
use crate::workload::{SHARING_ANNOTATION, TYPE_ANNOTATION};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn place(name: &str) -> PodKey {
    PodKey::new("team", name).unwrap()
}

fn claim(kind: &str, uid: Option<&str>) -> AllocationClaim {
    let marks = [(TYPE_ANNOTATION, kind.to_owned()), (SHARING_ANNOTATION, "exclusive".to_owned())];
    AllocationClaim {
        uids: uid.map(str::to_owned).into_iter().collect(),
        annotations: PodAnnotations(marks.into()),
    }
}

fn claims(pods: &[&str]) -> Claims {
    let pods = pods.iter();
    pods.map(|pod| (place(pod), claim("a", None))).collect()
}

fn pod(on: &str) -> Pod {
    Pod { uid: "1234-5".to_owned(), node: Some(on.to_owned()), ..Pod::default() }
}

fn next_read(ledger: &mut AnnotationSchedule, now: Duration) -> PodOnNode {
    let next = ledger.next(now);
    let NextAction::Read(key) = next else {
        panic!("{next:?}");
    };
    key
}

/// The pod after a patch.
fn patched(pod: &Pod, patch: &Patch) -> Pod {
    assert_eq!(pod.uid, patch.uid);
    let mut pod = pod.clone();
    for (key, value) in &patch.changes {
        match value {
            Some(value) => pod.annotations.insert((*key).to_owned(), value.clone()),
            None => pod.annotations.remove(*key),
        };
    }
    pod
}

#[test]
fn pod_is_patched_once_and_rechecked_later() {
    let mut ledger = AnnotationSchedule::default();
    assert_eq!(ledger.next(at(0)), NextAction::Nothing);
    ledger.update(at(1), &node("n"), claims(&["p"]));
    let key = next_read(&mut ledger, at(1));
    let pod = pod("n");
    let patch = ledger.record_pod(at(1), &key, Some(&pod)).unwrap();
    let after = patched(&pod, &patch);
    ledger.record_up_to_date(at(1), &key);
    // The node repeats its report.
    ledger.update(at(2), &node("n"), claims(&["p"]));
    assert_eq!(ledger.next(at(2)), NextAction::Wait(at(599)));
    let key = next_read(&mut ledger, at(601));
    assert_eq!(ledger.record_pod(at(601), &key, Some(&after)), None);
    assert_eq!(ledger.next(at(601)), NextAction::Wait(RECHECK_INTERVAL));
    // Its allocation changes.
    ledger.update(at(602), &node("n"), [(place("p"), claim("b", None))].into());
    let key = next_read(&mut ledger, at(602));
    let patch = ledger.record_pod(at(602), &key, Some(&after)).unwrap();
    assert_eq!(patch.changes, [(TYPE_ANNOTATION, Some("b".to_owned()))].into());
    ledger.update(at(603), &node("n"), Claims::new());
    assert!(ledger.is_empty());
    assert_eq!(ledger.next(at(603)), NextAction::Nothing);
}

#[test]
fn other_pod_of_same_name_is_not_patched() {
    let elsewhere = pod("m");
    let unbound = Pod { node: None, ..pod("n") };
    for (uid, found) in [
        (None, None),
        (None, Some(elsewhere)),
        (None, Some(unbound)),
        (Some("9999"), Some(pod("n"))),
    ] {
        let mut ledger = AnnotationSchedule::default();
        let claims = [(place("p"), claim("a", uid))].into();
        ledger.update(at(0), &node("n"), claims);
        let key = next_read(&mut ledger, at(0));
        assert_eq!(ledger.record_pod(at(0), &key, found.as_ref()), None, "{found:?}");
        // It may appear a moment later, and is not requested continuously.
        assert_eq!(ledger.next(at(0)), NextAction::Wait(at(1)));
        let key = next_read(&mut ledger, at(1));
        ledger.record_pod(at(1), &key, found.as_ref());
        assert_eq!(ledger.next(at(1)), NextAction::Wait(at(2)));
    }
    let mut ledger = AnnotationSchedule::default();
    let claims = [(place("p"), claim("a", Some("1234")))].into();
    ledger.update(at(0), &node("n"), claims);
    let key = next_read(&mut ledger, at(0));
    assert!(ledger.record_pod(at(0), &key, Some(&pod("n"))).is_some());
}

#[test]
fn ended_pod_is_not_patched() {
    let mut ledger = AnnotationSchedule::default();
    ledger.update(at(0), &node("n"), claims(&["p"]));
    let key = next_read(&mut ledger, at(0));
    let ended = Pod { has_ended: true, ..pod("n") };
    assert_eq!(ledger.record_pod(at(0), &key, Some(&ended)), None);
}

#[test]
fn rejected_patch_is_retried_with_backoff_without_delaying_others() {
    let mut ledger = AnnotationSchedule::default();
    ledger.update(at(0), &node("n"), claims(&["p", "q"]));
    let key = next_read(&mut ledger, at(0));
    assert!(ledger.record_pod(at(0), &key, Some(&pod("n"))).is_some());
    ledger.record_failure(at(0), &key, None);
    let other = next_read(&mut ledger, at(0));
    assert_eq!(other.place, place("q"));
    ledger.record_up_to_date(at(0), &other);
    assert_eq!(ledger.next(at(0)), NextAction::Wait(at(1)));
    assert_eq!(next_read(&mut ledger, at(1)), key);
    ledger.record_failure(at(1), &key, Some(at(7)));
    assert_eq!(ledger.next(at(1)), NextAction::Wait(at(7)));
    ledger.update(at(1), &node("n"), claims(&["p"]));
    ledger.record_failure(at(1), &key, Some(Duration::MAX));
    assert_eq!(ledger.next(at(1)), NextAction::Wait(RECHECK_INTERVAL));
    ledger.requeue(at(2), &key);
    assert_eq!(next_read(&mut ledger, at(2)), key);
}

#[test]
fn nodes_are_served_in_turn_longest_waiting_pod_first() {
    let mut ledger = AnnotationSchedule::default();
    ledger.update(at(0), &node("m"), claims(&["c"]));
    ledger.update(at(1), &node("n"), claims(&["d"]));
    // A node with ever more pods delays only itself.
    let many: Vec<String> = (0..1000).map(|number| format!("p{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    ledger.update(at(1), &node("a"), claims(&many));
    ledger.update(at(2), &node("m"), claims(&["b", "c"]));
    let seen: Vec<String> = (0..5)
        .map(|_| {
            let key = next_read(&mut ledger, at(3));
            ledger.record_up_to_date(at(3), &key);
            format!("{} {}", key.node, key.place.name())
        })
        .collect();
    assert_eq!(seen, ["a p0", "m c", "n d", "a p1", "m b"]);
}

proptest! {
    /// Whatever the results of requests and the reports between them, every reported pod is eventually written,
    /// within the rate limit.
    #[test]
    fn all_claims_are_written_within_rate_limit(
        updates in prop::collection::vec((0_u8..4, prop::collection::btree_set(0_u8..6, 0..6)), 1..30),
        fates in prop::collection::vec(0_u8..4, 0..200),
    ) {
        let mut ledger = AnnotationSchedule::default();
        let mut cluster: BTreeMap<(NodeName, PodKey), Pod> = BTreeMap::new();
        let mut wanted: BTreeMap<NodeName, Claims> = BTreeMap::new();
        let (mut now, mut requests) = (Duration::ZERO, 0_u32);
        let mut updates = updates.into_iter();
        let mut fates = fates.into_iter();
        // Long enough after the last failed request for the longest delay.
        let mut end = at(2000);
        while now < end {
            if let Some((number, pods)) = updates.next() {
                let name = node(&format!("n{number}"));
                let names: Vec<String> = pods.iter().map(|pod| format!("p{number}-{pod}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                ledger.update(now, &name, claims(&names));
                wanted.insert(name, claims(&names));
            }
            match ledger.next(now) {
                NextAction::Nothing => now += at(100),
                NextAction::Wait(wait) => now += wait.min(at(100)),
                NextAction::Read(key) => {
                    requests += 1;
                    let id = (key.node.clone(), key.place.clone());
                    let known = cluster.entry(id.clone()).or_insert_with(|| pod(key.node.as_str()));
                    let fate = fates.next();
                    if fate.is_some() {
                        end = now + at(2000);
                    }
                    match fate {
                        Some(1) => ledger.record_failure(now, &key, None),
                        Some(2) => ledger.requeue(now, &key),
                        // A request that is never answered.
                        Some(3) => {}
                        _ => if let Some(patch) = ledger.record_pod(now, &key, Some(known)) {
                            requests += 1;
                            let after = patched(known, &patch);
                            cluster.insert(id, after);
                            ledger.record_up_to_date(now, &key);
                        },
                    }
                }
            }
            let room = 22.0 + now.as_secs_f64() * 20.0;
            prop_assert!(f64::from(requests) <= room, "{requests} until {now:?}");
        }
        for (name, claims) in wanted {
            for (place, claim) in claims {
                let pod = &cluster[&(name.clone(), place)];
                prop_assert!(claim.annotations.changes(&pod.annotations).is_empty());
            }
        }
    }
}
