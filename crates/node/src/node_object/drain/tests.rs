//! Drain scenarios, and random tests.

mod attempts;
mod ends;
mod random;

use octavo_model::claim::ClaimRef;
use octavo_model::holder::{self, Holder, HolderDetails};
use octavo_model::id::PciAddress;
use octavo_model::reason::{Reason, Severity};
use octavo_model::reported::Reported;
use octavo_planner::reconcile::{ApplyState, DeviceLayoutStatus, NodeLayoutStatus};

use super::*;
use crate::node_object::event_deduplicator::Event;

const DEADLINE: Duration = Duration::from_mins(10);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn id(name: &str) -> PodId {
    PodId { namespace: "team-a".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

/// An evictable pod.
fn pod(name: &str) -> Pod {
    Pod { id: id(name), controller: Some("StatefulSet".to_owned()), ..Pod::default() }
}

fn of(name: &str, controller: &str) -> Pod {
    Pod { controller: Some(controller.to_owned()), ..pod(name) }
}

fn holder(who: HolderDetails) -> Holder {
    Holder {
        device: PciAddress::new(0, 7, 0, 0).unwrap(),
        gpu_instance: None,
        compute_instance: None,
        details: who,
    }
}

/// A holder identified by kubelet.
fn held_by(name: &str) -> Holder {
    holder(HolderDetails {
        pod: Some(holder::Pod {
            namespace: Some("team-a".to_owned()),
            name: Some(name.to_owned()),
            ..holder::Pod::default()
        }),
        ..HolderDetails::default()
    })
}

/// A holder identified by its control group.
fn held_by_uid(uid: &str) -> Holder {
    holder(HolderDetails {
        pid: Some(7),
        pod: Some(holder::Pod { uid: Some(uid.to_owned()), ..holder::Pod::default() }),
        ..HolderDetails::default()
    })
}

/// A holder identified by its control group and kubelet.
fn held_by_both(name: &str, uid: &str) -> Holder {
    let mut holder = held_by(name);
    holder.details.pid = Some(7);
    holder.details.pod.as_mut().unwrap().uid = Some(uid.to_owned());
    holder
}

fn held_by_process() -> Holder {
    holder(HolderDetails { pid: Some(7), ..HolderDetails::default() })
}

fn device(state: &'static str, holders: Vec<Holder>) -> DeviceLayoutStatus {
    DeviceLayoutStatus {
        waits_for_holders: !holders.is_empty(),
        holders,
        ..DeviceLayoutStatus::new(
            PciAddress::new(0, 7, 0, 0).unwrap(),
            "GPU 0".to_owned(),
            Reported::parse(state),
        )
    }
}

fn status(devices: Vec<DeviceLayoutStatus>) -> NodeLayoutStatus {
    let states = devices.iter().map(|device| &device.state);
    let worst = states.max_by_key(|state| state.known().and_then(ApplyState::severity));
    NodeLayoutStatus {
        layout: Some("night".to_owned()),
        generation: 1,
        state: worst.cloned(),
        devices,
        ..NodeLayoutStatus::default()
    }
}

fn blocked(holders: Vec<Holder>) -> NodeLayoutStatus {
    status(vec![device("blocked", holders)])
}

fn applied() -> NodeLayoutStatus {
    status(vec![device("applied", Vec::new())])
}

fn observations(pods: &[Pod]) -> PodObservations {
    PodObservations { pods: Some(pods.to_vec()), ..PodObservations::default() }
}

fn affected() -> Drain {
    drain(Scope::Affected)
}

fn drain(scope: Scope) -> Drain {
    let policy = Policy { scope, deadline: DEADLINE };
    Drain::new(policy)
}

fn facts<'a>(
    status: &'a NodeLayoutStatus,
    observations: &'a PodObservations,
    is_tainted: bool,
) -> DrainInputs<'a> {
    DrainInputs {
        status,
        is_current: true,
        pod_observations: observations,
        pauses_operands: false,
        is_tainted,
        evictable: None,
    }
}

fn reconcile(
    drain: &mut Drain,
    now: u64,
    status: &NodeLayoutStatus,
    observations: &PodObservations,
    is_tainted: bool,
) -> DrainOutcome {
    drain.reconcile(at(now), &facts(status, observations, is_tainted))
}

/// Advances a drain on a node whose operands can be paused.
fn reconcile_with_operands(
    drain: &mut Drain,
    now: u64,
    status: &NodeLayoutStatus,
    observations: &PodObservations,
    is_tainted: bool,
) -> DrainOutcome {
    let facts = DrainInputs { pauses_operands: true, ..facts(status, observations, is_tainted) };
    drain.reconcile(at(now), &facts)
}

fn phase(outcome: &DrainOutcome) -> &'static str {
    outcome.drain_status.as_ref().map_or("", |drain_status| drain_status.phase.as_str())
}

fn waits(outcome: &DrainOutcome) -> Vec<String> {
    let all = outcome.drain_status.iter().flat_map(|one| &one.waits_for);
    all.map(Blocker::to_string).collect()
}

fn events_of(outcome: &DrainOutcome) -> Vec<(Severity, &'static str, String)> {
    let events = outcome.events.iter().cloned().map(Event::from);
    events
        .map(|event| (event.reason.kind(), event.reason.event().unwrap(), event.message))
        .collect()
}

fn reasons(outcome: &DrainOutcome) -> Vec<&'static str> {
    events_of(outcome).into_iter().map(|(_, reason, _)| reason).collect()
}

/// A drain that evicts only `notebook`, with its inputs.
fn emptying(scope: Scope, pods: &[Pod]) -> (Drain, NodeLayoutStatus, PodObservations) {
    let mut drain = drain(scope);
    let (status, observations) = (blocked(vec![held_by("notebook")]), observations(pods));
    reconcile(&mut drain, 0, &status, &PodObservations::default(), false);
    reconcile(&mut drain, 1, &status, &observations, false);
    let outcome = reconcile(&mut drain, 2, &status, &observations, true);
    assert_eq!(phase(&outcome), "emptying");
    (drain, status, observations)
}

#[test]
fn drain_lists_taints_evicts_and_ends_when_layout_is_applied() {
    let mut drain = affected();
    let status = blocked(vec![held_by("notebook")]);
    let pods = observations(&[pod("notebook"), pod("other")]);
    let looking = reconcile(&mut drain, 0, &status, &PodObservations::default(), false);
    assert_eq!((phase(&looking), looking.is_tainted), ("looking", false));
    assert_eq!(looking.pod_requests.list, Some(LIST_INTERVAL));
    let tainting = reconcile(&mut drain, 1, &status, &pods, false);
    assert_eq!((phase(&tainting), tainting.is_tainted), ("tainting", true));
    assert_eq!(tainting.pod_requests.evict, []);
    assert_eq!(
        events_of(&tainting),
        [(
            Severity::Normal,
            "DrainBegan",
            "GPU 0: the blocking pods are evicted: team-a/notebook".to_owned()
        )]
    );
    let emptying = reconcile(&mut drain, 2, &status, &pods, true);
    assert_eq!(emptying.pod_requests.evict, [id("notebook")]);
    assert_eq!(waits(&emptying), ["pod team-a/notebook: will be evicted"]);
    assert!(emptying.again <= Some(at(4)) && emptying.is_tainted);
    let mut ending = pods.clone();
    ending.answers.insert(id("notebook"), EvictionResult::Ending);
    let outcome = reconcile(&mut drain, 3, &status, &ending, true);
    assert_eq!(waits(&outcome), ["pod team-a/notebook: is terminating"]);
    let mut busy = super::tests::status(vec![device("applying", Vec::new())]);
    busy.state = Some(Reason::Applying.into());
    let changing = reconcile(&mut drain, 4, &busy, &observations(&[pod("other")]), true);
    assert!(changing.is_tainted && changing.pod_requests.evict.is_empty());
    let done = reconcile(&mut drain, 5, &applied(), &observations(&[pod("other")]), true);
    assert_eq!((done.is_tainted, reasons(&done)), (false, vec!["DrainEnded"]));
    assert_eq!((done.drain_status, done.pod_requests), (None, PodRequests::default()));
}

#[test]
fn taint_remains_briefly_between_two_steps() {
    let (mut drain, ..) = emptying(Scope::Affected, &[pod("notebook")]);
    let between = super::tests::status(vec![device("needs-reset", Vec::new())]);
    for second in 3..7 {
        let outcome = reconcile(&mut drain, second, &between, &observations(&[]), true);
        assert!(outcome.is_tainted, "{second}");
    }
    let outcome = reconcile(&mut drain, 8, &between, &observations(&[]), true);
    assert_eq!((outcome.is_tainted, reasons(&outcome)), (false, vec!["DrainEnded"]));
}

#[test]
fn settle_timeout_also_applies_after_the_deadline() {
    let (mut drain, ..) = emptying(Scope::Affected, &[pod("notebook")]);
    let mut busy = super::tests::status(vec![device("applying", Vec::new())]);
    busy.state = Some(Reason::Applying.into());
    let between = super::tests::status(vec![device("needs-reset", Vec::new())]);
    let late = DEADLINE.as_secs() + 10;
    reconcile(&mut drain, late, &busy, &observations(&[]), true);
    let calm = SETTLE_TIMEOUT.as_secs();
    for (now, is_tainted) in [(late + calm - 1, true), (late + calm, false)] {
        let outcome = reconcile(&mut drain, now, &between, &observations(&[]), true);
        assert_eq!(outcome.is_tainted, is_tainted, "{now}");
    }
}

#[test]
fn holder_is_found_by_name_uid_or_static_pod_uid() {
    for (holder, is_evicted) in [
        (held_by("notebook"), true),
        (held_by_uid("uid-notebook"), true),
        (held_by_uid("static"), false),
        (held_by_uid("nobody"), false),
        (held_by_both("notebook", "uid-notebook"), true),
        (held_by_both("notebook", "uid-of-the-one-before"), false),
        (held_by_both("image", "static"), false),
        (held_by("nobody"), false),
        (held_by_process(), false),
    ] {
        let mut drain = affected();
        let image = Pod { mirrors: Some("static".to_owned()), ..of("image", "Node") };
        let pods = observations(&[pod("notebook"), image]);
        let status = blocked(vec![holder.clone()]);
        reconcile(&mut drain, 1, &status, &pods, false);
        let outcome = reconcile(&mut drain, 2, &status, &pods, true);
        assert_eq!(!outcome.pod_requests.evict.is_empty(), is_evicted, "{holder:?}");
        assert_eq!(outcome.is_tainted, is_evicted, "{holder:?}");
    }
}

#[test]
fn exempt_pod_is_reported_and_its_device_is_not_drained() {
    let exempt = [
        (of("a", "DaemonSet"), "it belongs to a DaemonSet, whose pods are never evicted"),
        (
            Pod { mirrors: Some("m".to_owned()), ..of("a", "Node") },
            "it is a static pod, which is never evicted",
        ),
        (
            Pod { priority: 2_000_000_000, ..pod("a") },
            "it is critical for the cluster and is never evicted",
        ),
        (
            Pod { priority_class: Some("system-node-critical".to_owned()), ..pod("a") },
            "it is critical for the cluster and is never evicted",
        ),
        (
            Pod { controller: None, ..pod("a") },
            "it has no controller that would recreate it, so it is never evicted",
        ),
        (
            Pod { tolerates: true, is_ending: true, ..pod("a") },
            "it tolerates the taint octavo.dev/repartitioning and could return immediately, so it is never evicted",
        ),
    ];
    for (exempt, reason) in exempt {
        for scope in [Scope::Affected, Scope::Node] {
            let mut drain = drain(scope);
            let status = blocked(vec![held_by("notebook"), held_by("a")]);
            let pods = observations(&[pod("notebook"), pod("other"), exempt.clone()]);
            let refused = reconcile(&mut drain, 1, &status, &pods, true);
            assert_eq!(phase(&refused), "refused", "{exempt:?}");
            assert_eq!(waits(&refused), [format!("pod team-a/a: {reason}")]);
            assert_eq!((refused.is_tainted, refused.pod_requests.evict.len()), (false, 0));
            let (kind, word, message) = events_of(&refused).remove(0);
            assert_eq!((kind, word), (Severity::Warning, "DrainRefused"));
            assert!(message.contains(reason), "{message}");
            let again = reconcile(&mut drain, 2, &status, &pods, true);
            assert_eq!((reasons(&again), phase(&again)), (vec![], "refused"));
        }
    }
}

#[test]
fn permanently_held_device_does_not_prevent_draining_another() {
    let mut drain = affected();
    let status = status(vec![
        device("blocked", vec![held_by("notebook"), held_by("both")]),
        device("blocked", vec![held_by("both"), held_by_process(), held_by("vain")]),
    ]);
    let pods = observations(&[pod("notebook"), pod("both"), pod("vain")]);
    reconcile(&mut drain, 1, &status, &pods, false);
    let outcome = reconcile(&mut drain, 2, &status, &pods, true);
    assert_eq!(outcome.pod_requests.evict, [id("both"), id("notebook")]);
    assert!(
        waits(&outcome).contains(&"pid 7: it does not belong to a pod".to_owned()),
        "{:?}",
        waits(&outcome)
    );
}
