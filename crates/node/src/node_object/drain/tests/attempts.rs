//! The end of an attempt with remaining blockers, and the start of the next one.

use super::*;

#[test]
fn drain_with_only_daemon_set_pods_ends_refused_and_untainted() {
    let mut drain = affected();
    let pods = observations(&[pod("notebook"), of("monitor", "DaemonSet")]);
    let monitored = device("blocked", vec![held_by("monitor")]);
    let both =
        super::tests::status(vec![monitored.clone(), device("blocked", vec![held_by("notebook")])]);
    reconcile(&mut drain, 1, &both, &pods, false);
    assert_eq!(phase(&reconcile(&mut drain, 2, &both, &pods, true)), "emptying");
    let mut busy = super::tests::status(vec![monitored.clone(), device("applying", Vec::new())]);
    busy.state = Some(Reason::Applying.into());
    assert!(reconcile(&mut drain, 3, &busy, &pods, true).is_tainted);
    let rest = super::tests::status(vec![monitored, device("applied", Vec::new())]);
    let ended = reconcile(&mut drain, 4, &rest, &pods, true);
    assert_eq!((phase(&ended), ended.is_tainted), ("refused", false));
    assert_eq!(reasons(&ended), ["DrainRefused"]);
    let because = "pod team-a/monitor: it belongs to a DaemonSet, whose pods are never evicted";
    assert_eq!(waits(&ended), [because]);
    let later = reconcile(&mut drain, 5, &rest, &pods, false);
    assert_eq!((phase(&later), reasons(&later)), ("refused", vec![]));
}

#[test]
fn transient_process_does_not_end_a_drain() {
    let (mut drain, _, observations) = emptying(Scope::Affected, &[pod("notebook")]);
    let both = blocked(vec![held_by("notebook"), held_by_process()]);
    let ends = 2 + SETTLE_TIMEOUT.as_secs();
    for second in 3..ends {
        let outcome = reconcile(&mut drain, second, &both, &observations, true);
        assert_eq!((outcome.is_tainted, reasons(&outcome)), (true, vec![]));
    }
    let outcome = reconcile(&mut drain, ends, &both, &observations, true);
    assert_eq!((outcome.is_tainted, reasons(&outcome)), (false, vec!["DrainRefused"]));
}

#[test]
fn drain_that_gave_up_names_the_pods_that_block_it_now() {
    let (mut drain, status, mut observations) = emptying(Scope::Affected, &[pod("notebook")]);
    observations.answers.insert(id("notebook"), EvictionResult::Ending);
    let late = 1 + DEADLINE.as_secs();
    let outcome = reconcile(&mut drain, late, &status, &observations, true);
    assert_eq!(reasons(&outcome), ["DrainGaveUp"]);
    assert_eq!(waits(&outcome), ["pod team-a/notebook: is terminating"]);
    assert_eq!(outcome.pod_requests.list, Some(IDLE_LIST_INTERVAL));
    let next = blocked(vec![held_by("successor")]);
    let outcome =
        reconcile(&mut drain, late + 60, &next, &super::observations(&[pod("successor")]), false);
    assert_eq!(phase(&outcome), "gave-up");
    let [one] = &waits(&outcome)[..] else { panic!("{outcome:?}") };
    assert!(one.starts_with("pod team-a/successor: "), "{one}");
}

#[test]
fn successful_drain_waits_for_its_next_attempt() {
    let (mut drain, _, observations) = emptying(Scope::Affected, &[pod("notebook")]);
    let ended = reconcile(&mut drain, 4, &applied(), &observations, true);
    assert_eq!(reasons(&ended), ["DrainEnded"]);
    let late = 2 + DEADLINE.as_secs();
    let blocked = blocked(vec![held_by("notebook")]);
    let outcome = reconcile(&mut drain, late, &blocked, &observations, false);
    assert_eq!((phase(&outcome), reasons(&outcome)), ("waiting", vec![]));
    assert!(!outcome.is_tainted && outcome.again.is_some());
}

#[test]
fn device_blocked_during_the_attempt_is_withheld_too() {
    let (mut drain, _, observations) = emptying(Scope::Affected, &[pod("notebook"), pod("other")]);
    let first = device("blocked", vec![held_by("notebook")]);
    let mut later = device("blocked", vec![held_by("other")]);
    later.pci = PciAddress::new(0, 8, 0, 0).unwrap();
    let both = super::tests::status(vec![first.clone(), later.clone()]);
    let outcome = reconcile(&mut drain, 3, &both, &observations, true);
    assert!(outcome.devices.iter().eq([&first.pci, &later.pci]));
}

#[test]
fn drain_is_retried_with_backoff_while_the_choice_stands() {
    let (mut drain, status, mut observations) = emptying(Scope::Affected, &[pod("notebook")]);
    observations.answers.insert(id("notebook"), EvictionResult::Budget);
    let (mut began, mut ended) = (vec![1], Vec::new());
    let mut tainted = true;
    for second in 3..60_000 {
        let outcome = reconcile(&mut drain, second, &status, &observations, tainted);
        for reason in reasons(&outcome) {
            match reason {
                "DrainBegan" => began.push(second),
                "DrainGaveUp" => ended.push(second),
                other => panic!("{other}"),
            }
        }
        tainted = outcome.is_tainted;
    }
    assert!(began.len() > 5, "{began:?}");
    for (began, ended) in began.iter().zip(&ended) {
        assert_eq!(ended - began, DEADLINE.as_secs());
    }
    let waits: Vec<u64> = ended.iter().zip(&began[1..]).map(|(end, next)| next - end).collect();
    assert!(waits[0] >= DEADLINE.as_secs(), "{waits:?}");
    assert!(waits.is_sorted(), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 3600), "{waits:?}");
}

#[test]
fn retry_evicts_only_the_pods_that_block_the_layout_under_any_policy() {
    let (mut drain, status, observations) = emptying(Scope::Node, &[pod("notebook"), pod("other")]);
    let mut evicted = Vec::new();
    let mut began = 0;
    for second in 3..2 * DEADLINE.as_secs() + 10 {
        let outcome = reconcile(&mut drain, second, &status, &observations, true);
        let begins = reasons(&outcome).contains(&"DrainBegan");
        began += u64::from(begins);
        if began > 0 {
            evicted.extend(outcome.pod_requests.evict);
        }
    }
    evicted.dedup();
    assert_eq!((began, evicted), (1, vec![id("notebook")]));
}
