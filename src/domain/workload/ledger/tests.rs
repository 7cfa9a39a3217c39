//! All pods are checked in turn, and written only if they differ.

use proptest::prelude::*;

use super::*;
use crate::domain::workload::{SHARING, TYPE};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn place(name: &str) -> Place {
    Place::new("team", name).unwrap()
}

fn claim(kind: &str, uid: Option<&str>) -> Claim {
    let marks = [(TYPE, kind.to_owned()), (SHARING, "exclusive".to_owned())];
    Claim {
        uids: uid.map(str::to_owned).into_iter().collect(),
        marks: Marks(marks.into()),
    }
}

fn claims(pods: &[&str]) -> Claims {
    let pods = pods.iter();
    pods.map(|pod| (place(pod), claim("a", None))).collect()
}

fn pod(on: &str) -> Pod {
    Pod {
        uid: "1234-5".to_owned(),
        node: Some(on.to_owned()),
        ..Pod::default()
    }
}

fn look(ledger: &mut Ledger, now: Duration) -> Key {
    let next = ledger.next(now);
    let Next::Look(key) = next else {
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
fn a_pod_is_written_once_and_looked_at_again_after_a_while() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.next(at(0)), Next::Nothing);
    ledger.tell(at(1), &node("n"), claims(&["p"]));
    let key = look(&mut ledger, at(1));
    let pod = pod("n");
    let patch = ledger.found(at(1), &key, Some(&pod)).unwrap();
    let after = patched(&pod, &patch);
    ledger.written(at(1), &key);
    // The node repeats its report.
    ledger.tell(at(2), &node("n"), claims(&["p"]));
    assert_eq!(ledger.next(at(2)), Next::Wait(at(599)));
    let key = look(&mut ledger, at(601));
    assert_eq!(ledger.found(at(601), &key, Some(&after)), None);
    assert_eq!(ledger.next(at(601)), Next::Wait(AGAIN));
    // Its allocation changes.
    ledger.tell(at(602), &node("n"), [(place("p"), claim("b", None))].into());
    let key = look(&mut ledger, at(602));
    let patch = ledger.found(at(602), &key, Some(&after)).unwrap();
    assert_eq!(patch.changes, [(TYPE, Some("b".to_owned()))].into());
    ledger.tell(at(603), &node("n"), Claims::new());
    assert!(ledger.is_empty());
    assert_eq!(ledger.next(at(603)), Next::Nothing);
}

#[test]
fn what_is_not_the_pod_that_the_node_means_is_left_alone() {
    let elsewhere = pod("m");
    let unbound = Pod {
        node: None,
        ..pod("n")
    };
    for (uid, found) in [
        (None, None),
        (None, Some(elsewhere)),
        (None, Some(unbound)),
        (Some("9999"), Some(pod("n"))),
    ] {
        let mut ledger = Ledger::default();
        let claims = [(place("p"), claim("a", uid))].into();
        ledger.tell(at(0), &node("n"), claims);
        let key = look(&mut ledger, at(0));
        assert_eq!(ledger.found(at(0), &key, found.as_ref()), None, "{found:?}");
        // It may appear a moment later, and is not requested continuously.
        assert_eq!(ledger.next(at(0)), Next::Wait(at(1)));
        let key = look(&mut ledger, at(1));
        ledger.found(at(1), &key, found.as_ref());
        assert_eq!(ledger.next(at(1)), Next::Wait(at(2)));
    }
    let mut ledger = Ledger::default();
    let claims = [(place("p"), claim("a", Some("1234")))].into();
    ledger.tell(at(0), &node("n"), claims);
    let key = look(&mut ledger, at(0));
    assert!(ledger.found(at(0), &key, Some(&pod("n"))).is_some());
}

#[test]
fn a_pod_that_has_ended_is_not_written() {
    let mut ledger = Ledger::default();
    ledger.tell(at(0), &node("n"), claims(&["p"]));
    let key = look(&mut ledger, at(0));
    let ended = Pod {
        has_ended: true,
        ..pod("n")
    };
    assert_eq!(ledger.found(at(0), &key, Some(&ended)), None);
}

#[test]
fn a_refusal_is_waited_for_longer_each_time_and_holds_up_nobody_else() {
    let mut ledger = Ledger::default();
    ledger.tell(at(0), &node("n"), claims(&["p", "q"]));
    let key = look(&mut ledger, at(0));
    assert!(ledger.found(at(0), &key, Some(&pod("n"))).is_some());
    ledger.failed(at(0), &key, None);
    let other = look(&mut ledger, at(0));
    assert_eq!(other.place, place("q"));
    ledger.written(at(0), &other);
    assert_eq!(ledger.next(at(0)), Next::Wait(at(1)));
    assert_eq!(look(&mut ledger, at(1)), key);
    ledger.failed(at(1), &key, Some(at(7)));
    assert_eq!(ledger.next(at(1)), Next::Wait(at(7)));
    ledger.tell(at(1), &node("n"), claims(&["p"]));
    ledger.failed(at(1), &key, Some(Duration::MAX));
    assert_eq!(ledger.next(at(1)), Next::Wait(AGAIN));
    ledger.put_back(at(2), &key);
    assert_eq!(look(&mut ledger, at(2)), key);
}

#[test]
fn nodes_have_their_turns_and_of_one_the_pod_that_waits_longest() {
    let mut ledger = Ledger::default();
    ledger.tell(at(0), &node("m"), claims(&["c"]));
    ledger.tell(at(1), &node("n"), claims(&["d"]));
    // A node with ever more pods delays only itself.
    let many: Vec<String> = (0..1000).map(|number| format!("p{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    ledger.tell(at(1), &node("a"), claims(&many));
    ledger.tell(at(2), &node("m"), claims(&["b", "c"]));
    let seen: Vec<String> = (0..5)
        .map(|_| {
            let key = look(&mut ledger, at(3));
            ledger.written(at(3), &key);
            format!("{} {}", key.node, key.place.name())
        })
        .collect();
    assert_eq!(seen, ["a p0", "m c", "n d", "a p1", "m b"]);
}

proptest! {
    /// Whatever the results of requests and the reports between them, every reported pod is eventually written,
    /// within the rate limit.
    #[test]
    fn nothing_is_lost_and_no_more_is_asked_than_there_is_room_for(
        said in prop::collection::vec((0_u8..4, prop::collection::btree_set(0_u8..6, 0..6)), 1..30),
        fates in prop::collection::vec(0_u8..4, 0..200),
    ) {
        let mut ledger = Ledger::default();
        let mut cluster: BTreeMap<(NodeName, Place), Pod> = BTreeMap::new();
        let mut wanted: BTreeMap<NodeName, Claims> = BTreeMap::new();
        let (mut now, mut requests) = (Duration::ZERO, 0_u32);
        let mut said = said.into_iter();
        let mut fates = fates.into_iter();
        let end = at(2000);
        while now < end {
            if let Some((number, pods)) = said.next() {
                let name = node(&format!("n{number}"));
                let names: Vec<String> = pods.iter().map(|pod| format!("p{number}-{pod}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                ledger.tell(now, &name, claims(&names));
                wanted.insert(name, claims(&names));
            }
            match ledger.next(now) {
                Next::Nothing => now += at(100),
                Next::Wait(wait) => now += wait.min(at(100)),
                Next::Look(key) => {
                    requests += 1;
                    let id = (key.node.clone(), key.place.clone());
                    let known = cluster.entry(id.clone()).or_insert_with(|| pod(key.node.as_str()));
                    match fates.next() {
                        Some(1) => ledger.failed(now, &key, None),
                        Some(2) => ledger.put_back(now, &key),
                        // A request that is never answered.
                        Some(3) => {}
                        _ => if let Some(patch) = ledger.found(now, &key, Some(known)) {
                            requests += 1;
                            let after = patched(known, &patch);
                            cluster.insert(id, after);
                            ledger.written(now, &key);
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
                prop_assert!(claim.marks.changes(&pod.annotations).is_empty());
            }
        }
    }
}
