//! Ends of drains, their delays, and the scope of evictions.

use super::*;

#[test]
fn drain_gives_up_at_deadline_and_restarts_for_another_choice() {
    let (mut drain, status, mut observations) = emptying(Scope::Affected, &[pod("notebook")]);
    observations.answers.insert(id("notebook"), EvictionResult::Budget);
    let late = 1 + DEADLINE.as_secs();
    let before = reconcile(&mut drain, late - 1, &status, &observations, true);
    assert!(before.is_tainted);
    let outcome = reconcile(&mut drain, late, &status, &observations, true);
    let because = "pod team-a/notebook: its PodDisruptionBudget allows no eviction";
    let (kind, reason, message) = events_of(&outcome).remove(0);
    assert_eq!((kind, reason), (Severity::Warning, "DrainGaveUp"));
    assert!(message.contains(because), "{message}");
    assert_eq!(outcome.pod_requests.evict, []);
    for second in late + 1..late + 500 {
        let outcome = reconcile(&mut drain, second, &status, &observations, false);
        assert!(!outcome.is_tainted && outcome.events.is_empty());
        assert_eq!((phase(&outcome), waits(&outcome)), ("gave-up", vec![because.to_owned()]));
    }
    let again = NodeLayoutStatus { generation: 2, ..status };
    let outcome = reconcile(&mut drain, late + 501, &again, &observations, false);
    assert_eq!((outcome.is_tainted, reasons(&outcome)), (true, vec!["DrainBegan"]));
}

#[test]
fn repeatedly_held_devices_taint_the_node_less_than_half_the_time() {
    let (mut drain, status, observations) = emptying(Scope::Affected, &[pod("notebook")]);
    let mut tainted = 0;
    for second in 3..20_000 {
        let free = second % 20 < 5;
        let status = if free { applied() } else { status.clone() };
        let outcome = reconcile(&mut drain, second, &status, &observations, true);
        tainted += u64::from(outcome.is_tainted);
    }
    assert!(tainted < 20_000 / 2, "{tainted}");
}

#[test]
fn withdrawn_choice_ends_the_drain() {
    let (begun, status, observations) = emptying(Scope::Affected, &[pod("notebook")]);
    let withdrawn = NodeLayoutStatus { layout: None, generation: 2, ..status.clone() };
    let unsettled = NodeLayoutStatus { state: Some(Reason::Pending.into()), ..status.clone() };
    let refused = NodeLayoutStatus { state: Some(Reason::Failed.into()), ..status.clone() };
    let elsewhere = NodeLayoutStatus { state: Some(Reason::Yielded.into()), ..status.clone() };
    let mut impossible = status;
    impossible.devices.push(device("infeasible", Vec::new()));
    impossible.state = Some(Reason::Infeasible.into());
    for other in [withdrawn, unsettled, refused, elsewhere, impossible] {
        let mut drain = begun.clone();
        let outcome = reconcile(&mut drain, 3, &other, &observations, true);
        assert_eq!(outcome.pod_requests.evict, [], "{other:?}");
        assert_eq!((outcome.is_tainted, reasons(&outcome)), (false, vec!["DrainEnded"]));
        let mut idle = affected();
        let outcome = reconcile(&mut idle, 3, &other, &observations, true);
        assert!(!outcome.is_tainted && outcome.events.is_empty(), "{other:?}");
    }
}

#[test]
fn removed_taint_is_restored_before_further_evictions() {
    let (mut drain, status, observations) = emptying(Scope::Affected, &[pod("notebook")]);
    let outcome = reconcile(&mut drain, 3, &status, &observations, false);
    assert_eq!((outcome.is_tainted, outcome.pod_requests.evict.len()), (true, 0));
    let outcome = reconcile(&mut drain, 4, &status, &observations, true);
    assert_eq!(outcome.pod_requests.evict.len(), 1);
}

#[test]
fn missing_permission_is_reported_with_remedy_and_stops_the_drain() {
    let mut drain = affected();
    let status = blocked(vec![held_by("notebook")]);
    let mut observations =
        PodObservations { error: Some(ListError::Forbidden), ..PodObservations::default() };
    let outcome = reconcile(&mut drain, 1, &status, &observations, false);
    assert_eq!((phase(&outcome), outcome.is_tainted), ("refused", false));
    let (kind, reason, message) = events_of(&outcome).remove(0);
    assert_eq!((kind, reason), (Severity::Warning, "DrainRefused"));
    assert!(message.contains("kubectl apply -k deploy/options/drain"));
    // An administrator granted the permission.
    observations = super::observations(&[pod("notebook")]);
    assert!(reconcile(&mut drain, 2, &status, &observations, false).is_tainted);
    observations.answers.insert(id("notebook"), EvictionResult::Forbidden);
    let outcome = reconcile(&mut drain, 3, &status, &observations, true);
    assert_eq!((outcome.is_tainted, reasons(&outcome)), (false, vec!["DrainRefused"]));
    let outcome = reconcile(&mut drain, 4, &status, &observations, false);
    assert!(!outcome.is_tainted && outcome.events.is_empty());
}

/// A device that a cluster monitor also holds open, as `State::is_held` reports.
fn watched(holders: Vec<Holder>) -> NodeLayoutStatus {
    let mut status = blocked(holders);
    status.devices[0].is_held = true;
    status
}

#[test]
fn pausable_operand_pods_do_not_block_a_drain() {
    let mut drain = affected();
    let both = watched(vec![held_by("notebook"), held_by_uid("uid-dcgm")]);
    let pods = observations(&[pod("notebook"), of("dcgm", "DaemonSet")]);
    assert!(
        reconcile_with_operands(&mut drain, 0, &both, &PodObservations::default(), false)
            .waits_for_pods
    );
    assert!(reconcile_with_operands(&mut drain, 1, &both, &pods, false).waits_for_pods);
    let outcome = reconcile_with_operands(&mut drain, 2, &both, &pods, true);
    assert_eq!(outcome.pod_requests.evict, [id("notebook")]);
    assert!(outcome.waits_for_pods);
    let rest = watched(vec![held_by_uid("uid-dcgm")]);
    let outcome = reconcile_with_operands(&mut drain, 3, &rest, &pods, true);
    assert!(outcome.is_tainted && !outcome.waits_for_pods && outcome.pod_requests.evict.is_empty());
    // Operands alone are no reason to drain.
    let mut drain = super::drain(Scope::Node);
    let outcome = reconcile_with_operands(&mut drain, 1, &rest, &pods, false);
    assert!(!outcome.is_tainted && !outcome.waits_for_pods && outcome.events.is_empty());
}

#[test]
fn unpausable_daemon_set_pod_blocks_a_drain() {
    let pods = observations(&[pod("notebook"), of("dcgm", "DaemonSet")]);
    let given = watched(vec![held_by("notebook"), held_by("dcgm")]);
    let unwatched = blocked(vec![held_by("notebook"), held_by_uid("uid-dcgm")]);
    let monitored = watched(vec![held_by("notebook"), held_by_uid("uid-dcgm")]);
    for (status, pauses) in [(&given, true), (&unwatched, true), (&monitored, false)] {
        let facts = DrainInputs { pauses_operands: pauses, ..facts(status, &pods, true) };
        let outcome = affected().reconcile(at(1), &facts);
        assert_eq!((phase(&outcome), outcome.is_tainted), ("refused", false));
        assert_eq!(
            waits(&outcome),
            ["pod team-a/dcgm: it belongs to a DaemonSet, whose pods are never evicted"]
        );
    }
}

#[test]
fn unlisted_pod_is_awaited_for_a_minute_then_polled_rarely() {
    let mut drain = affected();
    let (status, pods) = (blocked(vec![held_by_uid("gone")]), observations(&[]));
    let mut events_of = Vec::new();
    for second in 0..4000 {
        let outcome = reconcile(&mut drain, second, &status, &pods, false);
        events_of.extend(reasons(&outcome));
        let late = second >= UNLISTED_TIMEOUT.as_secs();
        let (word, every) =
            if late { ("refused", IDLE_LIST_INTERVAL) } else { ("looking", LIST_INTERVAL) };
        assert_eq!((phase(&outcome), outcome.pod_requests.list), (word, Some(every)));
        assert_eq!(outcome.again.is_none(), late);
    }
    assert_eq!(events_of, ["DrainRefused"]);
    // The pod is listed late.
    let known =
        observations(&[Pod { id: PodId { uid: "gone".to_owned(), ..id("late") }, ..pod("late") }]);
    let outcome = reconcile(&mut drain, 4001, &status, &known, false);
    assert_eq!(reasons(&outcome), ["DrainBegan"]);
}

#[test]
fn claim_is_awaited_until_the_kubelet_lists_its_pod_which_is_then_evicted() {
    let claim = ClaimRef { namespace: "team-a".to_owned(), name: "train".to_owned() };
    let claimed = |mut holder: Holder| {
        holder.details.claim = Some(claim.clone());
        holder
    };
    let alone = claimed(holder(HolderDetails::default()));
    let pods = observations(&[pod("notebook")]);
    let outcome = reconcile(&mut affected(), 1, &blocked(vec![alone]), &pods, false);
    assert_eq!(phase(&outcome), "looking");
    assert_eq!(
        waits(&outcome),
        [
            "resource claim team-a/train: the kubelet lists no pod of it: it was just created or deleted"
        ]
    );
    let listed = blocked(vec![claimed(held_by("notebook"))]);
    let outcome = reconcile(&mut affected(), 1, &listed, &pods, false);
    assert_eq!(reasons(&outcome), ["DrainBegan"]);
}

#[test]
fn steady_status_excludes_processes() {
    let pods = observations(&[pod("notebook"), of("dcgm", "DaemonSet")]);
    let drain_status = |pid: u32| {
        let mut process = held_by_process();
        process.details.pid = Some(pid);
        let status = blocked(vec![held_by("dcgm"), process]);
        reconcile(&mut affected(), 1, &status, &pods, false).drain_status.unwrap()
    };
    assert_ne!(drain_status(7), drain_status(8));
    assert_eq!(drain_status(7).without_processes(), drain_status(8).without_processes());
    assert_eq!(drain_status(7).without_processes().waits_for.len(), 1);
}

#[test]
fn unavailable_api_server_does_not_delay_operands() {
    let mut drain = affected();
    let observations = PodObservations {
        error: Some(ListError::Other("it is away".to_owned())),
        ..PodObservations::default()
    };
    let outcome =
        reconcile_with_operands(&mut drain, 1, &blocked(vec![held_by("a")]), &observations, false);
    assert!(!outcome.waits_for_pods && !outcome.is_tainted);
    let drain_status = outcome.drain_status.unwrap();
    assert_eq!(
        (drain_status.phase, drain_status.message.as_deref()),
        (Stage::Listing, Some("it is away"))
    );
}

#[test]
fn suspension_does_not_extend_the_deadline() {
    let (begun, status, observations) = emptying(Scope::Affected, &[pod("notebook")]);
    let late = 1 + DEADLINE.as_secs();
    let mut over = begun.clone();
    let outcome = reconcile(&mut over, late, &status, &observations, true);
    assert_eq!(reasons(&outcome), ["DrainGaveUp"]);
    assert_eq!(over.rest(), DrainOutcome::default());
    let outcome = reconcile(&mut over, late + 1, &status, &observations, false);
    assert_eq!((phase(&outcome), reasons(&outcome)), ("gave-up", vec![]));
    // A suspension ends an active drain without extending its deadline.
    let mut drain = begun;
    let outcome = drain.rest();
    assert_eq!(reasons(&outcome), ["DrainEnded"]);
    assert_eq!((outcome.is_tainted, outcome.pod_requests), (false, PodRequests::default()));
    assert!(reconcile(&mut drain, late - 1, &status, &observations, false).is_tainted);
    let outcome = reconcile(&mut drain, late, &status, &observations, true);
    assert_eq!(reasons(&outcome), ["DrainGaveUp"]);
}

#[test]
fn choice_changes_with_the_layout_meaning_only() {
    let (mut drain, status, observations) = emptying(Scope::Affected, &[pod("notebook")]);
    let late = 1 + DEADLINE.as_secs();
    reconcile(&mut drain, late, &status, &observations, true);
    let edited = NodeLayoutStatus { layouts_version: Some("another file".to_owned()), ..status };
    let outcome = reconcile(&mut drain, late + 1, &edited, &observations, false);
    assert_eq!((phase(&outcome), reasons(&outcome)), ("gave-up", vec![]));
    let meant = NodeLayoutStatus { target_generation: 1, ..edited };
    let outcome = reconcile(&mut drain, late + 2, &meant, &observations, false);
    assert_eq!(reasons(&outcome), ["DrainBegan"]);
}

#[test]
fn no_eviction_after_deadline_or_for_an_outdated_choice() {
    let (mut drain, mut status, observations) = emptying(Scope::Affected, &[pod("notebook")]);
    status.devices.push(device("applying", Vec::new()));
    status.state = Some(Reason::Applying.into());
    let late = 1 + DEADLINE.as_secs();
    let outcome = reconcile(&mut drain, late - 1, &status, &observations, true);
    assert_eq!(outcome.pod_requests.evict, [id("notebook")]);
    let other = DrainInputs { is_current: false, ..facts(&status, &observations, true) };
    assert_eq!(drain.clone().reconcile(at(late - 1), &other).pod_requests.evict, []);
    let outcome = reconcile(&mut drain, late, &status, &observations, true);
    assert_eq!((outcome.is_tainted, outcome.pod_requests.evict.len()), (true, 0));
    // A driver call that never returns keeps the taint for no longer than this.
    let stuck = late + STUCK_TIMEOUT.as_secs();
    assert!(reconcile(&mut drain, stuck - 1, &status, &observations, true).is_tainted);
    let outcome = reconcile(&mut drain, stuck, &status, &observations, true);
    assert_eq!((outcome.is_tainted, reasons(&outcome)), (false, vec!["DrainGaveUp"]));
    let outcome = reconcile(&mut drain, stuck + 1, &status, &observations, true);
    assert!(!outcome.is_tainted && outcome.events.is_empty());
}

#[test]
fn node_scope_evicts_exactly_all_evictable_pods() {
    let finished = Pod { is_finished: true, ..pod("finished") };
    let ending = Pod { is_ending: true, ..pod("ending") };
    let all = [pod("notebook"), pod("and-another"), of("agent", "DaemonSet"), finished, ending];
    let (mut drain, status, observations) = emptying(Scope::Node, &all);
    let outcome = reconcile(&mut drain, 3, &status, &observations, true);
    // Blocking pods come first.
    assert_eq!(outcome.pod_requests.evict, [id("notebook"), id("and-another")]);
}
