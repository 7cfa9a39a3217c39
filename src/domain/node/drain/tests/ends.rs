//! Ends of drains, their delays, and the scope of evictions.

use super::*;

#[test]
fn drain_gives_up_at_its_deadline_by_name_and_begins_immediately_for_another_choice() {
    let (mut drain, status, mut heard) = emptying(Scope::Affected, &[pod("notebook")]);
    heard.answers.insert(id("notebook"), Answer::Budget);
    let late = 1 + DEADLINE.as_secs();
    let before = look(&mut drain, late - 1, &status, &heard, true);
    assert!(before.is_tainted);
    let outcome = look(&mut drain, late, &status, &heard, true);
    let because = "pod team-a/notebook: its disruption budget allows no eviction";
    let (kind, reason, message) = told(&outcome).remove(0);
    assert_eq!((kind, reason), (Kind::Warning, "DrainGaveUp"));
    assert!(message.contains(because), "{message}");
    assert_eq!(outcome.orders.evict, []);
    for second in late + 1..late + 500 {
        let outcome = look(&mut drain, second, &status, &heard, false);
        assert!(!outcome.is_tainted && outcome.news.is_empty());
        assert_eq!(
            (phase(&outcome), waits(&outcome)),
            ("gave-up", vec![because.to_owned()])
        );
    }
    let again = Status {
        generation: 2,
        ..status
    };
    let outcome = look(&mut drain, late + 501, &again, &heard, false);
    assert_eq!(
        (outcome.is_tainted, reasons(&outcome)),
        (true, vec!["DrainBegan"])
    );
}

#[test]
fn devices_that_are_held_again_and_again_taint_the_node_for_less_than_half_of_the_time() {
    let (mut drain, status, heard) = emptying(Scope::Affected, &[pod("notebook")]);
    let mut tainted = 0;
    for second in 3..20_000 {
        let free = second % 20 < 5;
        let status = if free { applied() } else { status.clone() };
        let outcome = look(&mut drain, second, &status, &heard, true);
        tainted += u64::from(outcome.is_tainted);
    }
    assert!(tainted < 20_000 / 2, "{tainted}");
}

#[test]
fn what_is_asked_no_more_is_drained_for_no_more() {
    let (begun, status, heard) = emptying(Scope::Affected, &[pod("notebook")]);
    let withdrawn = Status {
        layout: None,
        generation: 2,
        ..status.clone()
    };
    let unsettled = Status {
        state: Some("pending"),
        ..status.clone()
    };
    let refused = Status {
        state: Some("failed"),
        ..status.clone()
    };
    let elsewhere = Status {
        state: Some("yielded"),
        ..status.clone()
    };
    let mut impossible = status;
    impossible.devices.push(device("infeasible", Vec::new()));
    impossible.state = Some("infeasible");
    for other in [withdrawn, unsettled, refused, elsewhere, impossible] {
        let mut drain = begun.clone();
        let outcome = look(&mut drain, 3, &other, &heard, true);
        assert_eq!(outcome.orders.evict, [], "{other:?}");
        assert_eq!(
            (outcome.is_tainted, reasons(&outcome)),
            (false, vec!["DrainEnded"])
        );
        let mut idle = affected();
        let outcome = look(&mut idle, 3, &other, &heard, true);
        assert!(!outcome.is_tainted && outcome.news.is_empty(), "{other:?}");
    }
}

#[test]
fn a_taint_that_somebody_takes_off_is_waited_for_again_before_more_is_evicted() {
    let (mut drain, status, heard) = emptying(Scope::Affected, &[pod("notebook")]);
    let outcome = look(&mut drain, 3, &status, &heard, false);
    assert_eq!((outcome.is_tainted, outcome.orders.evict.len()), (true, 0));
    let outcome = look(&mut drain, 4, &status, &heard, true);
    assert_eq!(outcome.orders.evict.len(), 1);
}

#[test]
fn a_missing_permission_is_said_with_what_gives_it_and_nothing_is_begun_or_gone_on_with() {
    let mut drain = affected();
    let status = blocked(vec![held_by("notebook")]);
    let mut heard = Heard {
        trouble: Some(Trouble::Forbidden),
        ..Heard::default()
    };
    let outcome = look(&mut drain, 1, &status, &heard, false);
    assert_eq!((phase(&outcome), outcome.is_tainted), ("refused", false));
    let (kind, reason, message) = told(&outcome).remove(0);
    assert_eq!((kind, reason), (Kind::Warning, "DrainRefused"));
    assert!(message.contains("kubectl apply -k deploy/options/drain"));
    // An administrator granted the permission.
    heard = super::heard(&[pod("notebook")]);
    assert!(look(&mut drain, 2, &status, &heard, false).is_tainted);
    heard.answers.insert(id("notebook"), Answer::Forbidden);
    let outcome = look(&mut drain, 3, &status, &heard, true);
    assert_eq!(
        (outcome.is_tainted, reasons(&outcome)),
        (false, vec!["DrainRefused"])
    );
    let outcome = look(&mut drain, 4, &status, &heard, false);
    assert!(!outcome.is_tainted && outcome.news.is_empty());
}

/// A device that a cluster monitor also holds open, as `State::is_held` reports.
fn watched(holders: Vec<Holder>) -> Status {
    let mut status = blocked(holders);
    status.devices[0].is_held = true;
    status
}

#[test]
fn where_operands_can_be_paused_their_pods_come_after_the_others_and_hinder_nothing() {
    let mut drain = affected();
    let both = watched(vec![held_by("notebook"), held_by_uid("uid-dcgm")]);
    let pods = heard(&[pod("notebook"), of("dcgm", "DaemonSet")]);
    assert!(look_too(&mut drain, 0, &both, &Heard::default(), false).waits_for_pods);
    assert!(look_too(&mut drain, 1, &both, &pods, false).waits_for_pods);
    let outcome = look_too(&mut drain, 2, &both, &pods, true);
    assert_eq!(outcome.orders.evict, [id("notebook")]);
    assert!(outcome.waits_for_pods);
    let rest = watched(vec![held_by_uid("uid-dcgm")]);
    let outcome = look_too(&mut drain, 3, &rest, &pods, true);
    assert!(outcome.is_tainted && !outcome.waits_for_pods && outcome.orders.evict.is_empty());
    // Operands alone are no reason to drain.
    let mut drain = super::drain(Scope::Node);
    let outcome = look_too(&mut drain, 1, &rest, &pods, false);
    assert!(!outcome.is_tainted && !outcome.waits_for_pods && outcome.news.is_empty());
}

#[test]
fn a_daemon_sets_pod_that_nobody_pauses_is_in_the_way_whatever_else_is_paused() {
    let pods = heard(&[pod("notebook"), of("dcgm", "DaemonSet")]);
    let given = watched(vec![held_by("notebook"), held_by("dcgm")]);
    let unwatched = blocked(vec![held_by("notebook"), held_by_uid("uid-dcgm")]);
    let monitored = watched(vec![held_by("notebook"), held_by_uid("uid-dcgm")]);
    for (status, pauses) in [(&given, true), (&unwatched, true), (&monitored, false)] {
        let facts = Facts {
            pauses_operands: pauses,
            ..facts(status, &pods, true)
        };
        let outcome = affected().look(at(1), &facts);
        assert_eq!((phase(&outcome), outcome.is_tainted), ("refused", false));
        assert_eq!(
            waits(&outcome),
            ["pod team-a/dcgm: it is of a DaemonSet, whose pods are never evicted"]
        );
    }
}

#[test]
fn a_pod_that_is_not_listed_is_looked_for_for_a_minute_and_then_seldom() {
    let mut drain = affected();
    let (status, pods) = (blocked(vec![held_by_uid("gone")]), heard(&[]));
    let mut told = Vec::new();
    for second in 0..4000 {
        let outcome = look(&mut drain, second, &status, &pods, false);
        told.extend(reasons(&outcome));
        let late = second >= LOOK.as_secs();
        let (word, every) = if late {
            ("refused", LIST_SELDOM)
        } else {
            ("looking", LIST)
        };
        assert_eq!((phase(&outcome), outcome.orders.list), (word, Some(every)));
        assert_eq!(outcome.again.is_none(), late);
    }
    assert_eq!(told, ["DrainRefused"]);
    // The pod is listed late.
    let known = heard(&[Pod {
        id: PodId {
            uid: "gone".to_owned(),
            ..id("late")
        },
        ..pod("late")
    }]);
    let outcome = look(&mut drain, 4001, &status, &known, false);
    assert_eq!(reasons(&outcome), ["DrainBegan"]);
}

#[test]
fn processes_that_come_and_go_are_not_what_a_drain_steadily_waits_for() {
    let pods = heard(&[pod("notebook"), of("dcgm", "DaemonSet")]);
    let standing = |pid: u32| {
        let mut process = held_by_process();
        process.who.pid = Some(pid);
        let status = blocked(vec![held_by("dcgm"), process]);
        look(&mut affected(), 1, &status, &pods, false)
            .standing
            .unwrap()
    };
    assert_ne!(standing(7), standing(8));
    assert_eq!(standing(7).steady(), standing(8).steady());
    assert_eq!(standing(7).steady().waits_for.len(), 1);
}

#[test]
fn an_api_server_that_is_away_is_no_reason_to_hold_operands_up() {
    let mut drain = affected();
    let heard = Heard {
        trouble: Some(Trouble::Other("it is away".to_owned())),
        ..Heard::default()
    };
    let outcome = look_too(&mut drain, 1, &blocked(vec![held_by("a")]), &heard, false);
    assert!(!outcome.waits_for_pods && !outcome.is_tainted);
    let standing = outcome.standing.unwrap();
    assert_eq!(
        (standing.phase, standing.message.as_deref()),
        (Stage::Looking, Some("it is away"))
    );
}

#[test]
fn a_moment_in_which_nothing_can_be_done_gives_no_choice_its_deadline_again() {
    let (begun, status, heard) = emptying(Scope::Affected, &[pod("notebook")]);
    let late = 1 + DEADLINE.as_secs();
    let mut over = begun.clone();
    let outcome = look(&mut over, late, &status, &heard, true);
    assert_eq!(reasons(&outcome), ["DrainGaveUp"]);
    assert_eq!(over.rest(), Outcome::default());
    let outcome = look(&mut over, late + 1, &status, &heard, false);
    assert_eq!((phase(&outcome), reasons(&outcome)), ("gave-up", vec![]));
    // A suspension ends an active drain without extending its deadline.
    let mut drain = begun;
    let outcome = drain.rest();
    assert_eq!(reasons(&outcome), ["DrainEnded"]);
    assert_eq!(
        (outcome.is_tainted, outcome.orders),
        (false, Orders::default())
    );
    assert!(look(&mut drain, late - 1, &status, &heard, false).is_tainted);
    let outcome = look(&mut drain, late, &status, &heard, true);
    assert_eq!(reasons(&outcome), ["DrainGaveUp"]);
}

#[test]
fn another_layout_of_the_same_file_is_no_other_choice_and_another_meaning_is() {
    let (mut drain, status, heard) = emptying(Scope::Affected, &[pod("notebook")]);
    let late = 1 + DEADLINE.as_secs();
    look(&mut drain, late, &status, &heard, true);
    let edited = Status {
        layouts: Some("another file".to_owned()),
        ..status
    };
    let outcome = look(&mut drain, late + 1, &edited, &heard, false);
    assert_eq!((phase(&outcome), reasons(&outcome)), ("gave-up", vec![]));
    let meant = Status {
        meaning: 1,
        ..edited
    };
    let outcome = look(&mut drain, late + 2, &meant, &heard, false);
    assert_eq!(reasons(&outcome), ["DrainBegan"]);
}

#[test]
fn while_another_device_is_changed_nobody_is_evicted_too_late_or_for_what_is_asked_no_more() {
    let (mut drain, mut status, heard) = emptying(Scope::Affected, &[pod("notebook")]);
    status.devices.push(device("applying", Vec::new()));
    status.state = Some("applying");
    let late = 1 + DEADLINE.as_secs();
    let outcome = look(&mut drain, late - 1, &status, &heard, true);
    assert_eq!(outcome.orders.evict, [id("notebook")]);
    let other = Facts {
        is_current: false,
        ..facts(&status, &heard, true)
    };
    assert_eq!(drain.clone().look(at(late - 1), &other).orders.evict, []);
    let outcome = look(&mut drain, late, &status, &heard, true);
    assert_eq!((outcome.is_tainted, outcome.orders.evict.len()), (true, 0));
    // A driver call that never returns keeps the taint for no longer than this.
    let stuck = late + STUCK.as_secs();
    assert!(look(&mut drain, stuck - 1, &status, &heard, true).is_tainted);
    let outcome = look(&mut drain, stuck, &status, &heard, true);
    assert_eq!(
        (outcome.is_tainted, reasons(&outcome)),
        (false, vec!["DrainGaveUp"])
    );
    let outcome = look(&mut drain, stuck + 1, &status, &heard, true);
    assert!(!outcome.is_tainted && outcome.news.is_empty());
}

#[test]
fn of_the_whole_node_all_that_may_be_evicted_goes_and_nothing_else() {
    let finished = Pod {
        is_finished: true,
        ..pod("finished")
    };
    let ending = Pod {
        is_ending: true,
        ..pod("ending")
    };
    let all = [
        pod("notebook"),
        pod("and-another"),
        of("agent", "DaemonSet"),
        finished,
        ending,
    ];
    let (mut drain, status, heard) = emptying(Scope::Node, &all);
    let outcome = look(&mut drain, 3, &status, &heard, true);
    // Blocking pods come first.
    assert_eq!(outcome.orders.evict, [id("notebook"), id("and-another")]);
}
