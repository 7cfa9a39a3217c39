//! Drains through whole stories, and at random.

use super::*;
use crate::domain::holder::{self, Holder, Who};
use crate::domain::id::PciAddress;
use crate::domain::node::telling::{Event, Kind};
use crate::domain::reconcile::{DeviceStatus, State};
use proptest::prelude::*;

const DEADLINE: Duration = Duration::from_mins(10);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn id(name: &str) -> PodId {
    PodId {
        namespace: "team-a".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

/// A pod that may be evicted.
fn pod(name: &str) -> Pod {
    Pod {
        id: id(name),
        controller: Some("StatefulSet".to_owned()),
        ..Pod::default()
    }
}

fn of(name: &str, controller: &str) -> Pod {
    Pod {
        controller: Some(controller.to_owned()),
        ..pod(name)
    }
}

fn holder(who: Who) -> Holder {
    Holder {
        device: PciAddress::new(0, 7, 0, 0).unwrap(),
        gpu_instance: None,
        compute_instance: None,
        who,
    }
}

/// As kubelet names it.
fn held_by(name: &str) -> Holder {
    holder(Who {
        pod: Some(holder::Pod {
            namespace: Some("team-a".to_owned()),
            name: Some(name.to_owned()),
            ..holder::Pod::default()
        }),
        ..Who::default()
    })
}

/// As its control group tells it.
fn held_by_uid(uid: &str) -> Holder {
    holder(Who {
        pid: Some(7),
        pod: Some(holder::Pod {
            uid: Some(uid.to_owned()),
            ..holder::Pod::default()
        }),
        ..Who::default()
    })
}

fn held_by_process() -> Holder {
    holder(Who {
        pid: Some(7),
        ..Who::default()
    })
}

fn device(state: &'static str, holders: Vec<Holder>) -> DeviceStatus {
    DeviceStatus {
        pci: PciAddress::new(0, 7, 0, 0).unwrap(),
        name: "GPU 0".to_owned(),
        state,
        message: String::new(),
        is_held: false,
        waits_for_holders: !holders.is_empty(),
        holders,
        progress: None,
    }
}

fn status(devices: Vec<DeviceStatus>) -> Status {
    let gravity = |word: &str| State::WORDS.iter().position(|known| *known == word);
    let words = devices.iter().map(|device| device.state);
    Status {
        layout: Some("night".to_owned()),
        generation: 1,
        state: words.max_by_key(|word| gravity(word)),
        devices,
        ..Status::default()
    }
}

fn blocked(holders: Vec<Holder>) -> Status {
    status(vec![device("blocked", holders)])
}

fn applied() -> Status {
    status(vec![device("applied", Vec::new())])
}

fn heard(pods: &[Pod]) -> Heard {
    Heard {
        pods: Some(pods.to_vec()),
        ..Heard::default()
    }
}

fn affected() -> Drain {
    drain(Scope::Affected, false)
}

fn drain(scope: Scope, pauses_operands: bool) -> Drain {
    let policy = Policy {
        scope,
        deadline: DEADLINE,
    };
    Drain::new(policy, pauses_operands)
}

fn look(drain: &mut Drain, now: u64, status: &Status, heard: &Heard, is_tainted: bool) -> Outcome {
    let facts = Facts {
        status,
        heard,
        is_tainted,
    };
    drain.look(at(now), &facts)
}

fn phase(outcome: &Outcome) -> &'static str {
    outcome
        .standing
        .as_ref()
        .map_or("", |standing| standing.phase)
}

fn waits(outcome: &Outcome) -> Vec<String> {
    let all = outcome.standing.iter().flat_map(|one| &one.waits_for);
    all.map(Waiting::to_string).collect()
}

fn told(outcome: &Outcome) -> Vec<(Kind, &'static str, String)> {
    let events = outcome.news.iter().cloned().map(Event::from);
    events
        .map(|event| (event.kind, event.reason, event.message))
        .collect()
}

fn reasons(outcome: &Outcome) -> Vec<&'static str> {
    told(outcome)
        .into_iter()
        .map(|(_, reason, _)| reason)
        .collect()
}

/// A drain that evicts `notebook` and nothing else, and what it has seen.
fn emptying(scope: Scope, pods: &[Pod]) -> (Drain, Status, Heard) {
    let mut drain = drain(scope, false);
    let (status, heard) = (blocked(vec![held_by("notebook")]), heard(pods));
    look(&mut drain, 0, &status, &Heard::default(), false);
    look(&mut drain, 1, &status, &heard, false);
    let outcome = look(&mut drain, 2, &status, &heard, true);
    assert_eq!(phase(&outcome), "emptying");
    (drain, status, heard)
}

#[test]
fn a_drain_looks_then_taints_then_evicts_and_ends_when_the_device_has_what_it_shall_have() {
    let mut drain = affected();
    let status = blocked(vec![held_by("notebook")]);
    let pods = heard(&[pod("notebook"), pod("other")]);
    let looking = look(&mut drain, 0, &status, &Heard::default(), false);
    assert_eq!((phase(&looking), looking.is_tainted), ("looking", false));
    assert_eq!(looking.orders.list, Some(LIST));
    let tainting = look(&mut drain, 1, &status, &pods, false);
    assert_eq!((phase(&tainting), tainting.is_tainted), ("tainting", true));
    assert_eq!(tainting.orders.evict, []);
    assert_eq!(
        told(&tainting),
        [(
            Kind::Normal,
            "DrainBegan",
            "GPU 0: the pods in the way are evicted: team-a/notebook".to_owned()
        )]
    );
    let emptying = look(&mut drain, 2, &status, &pods, true);
    assert_eq!(emptying.orders.evict, [id("notebook")]);
    assert_eq!(waits(&emptying), ["pod team-a/notebook: is to be evicted"]);
    assert!(emptying.again <= Some(at(4)) && emptying.is_tainted);
    let mut ending = pods.clone();
    ending.answers.insert(id("notebook"), Answer::Ending);
    let outcome = look(&mut drain, 3, &status, &ending, true);
    assert_eq!(waits(&outcome), ["pod team-a/notebook: is ending"]);
    let mut busy = super::tests::status(vec![device("applying", Vec::new())]);
    busy.state = Some("applying");
    let changing = look(&mut drain, 4, &busy, &heard(&[pod("other")]), true);
    assert!(changing.is_tainted && changing.orders.evict.is_empty());
    let done = look(&mut drain, 5, &applied(), &heard(&[pod("other")]), true);
    assert_eq!(
        (done.is_tainted, reasons(&done)),
        (false, vec!["DrainEnded"])
    );
    assert_eq!((done.standing, done.orders), (None, Orders::default()));
}

#[test]
fn what_is_free_and_between_two_steps_keeps_the_taint_for_a_moment_and_not_for_ever() {
    let (mut drain, ..) = emptying(Scope::Affected, &[pod("notebook")]);
    let between = super::tests::status(vec![device("needs-reset", Vec::new())]);
    for second in 3..7 {
        let outcome = look(&mut drain, second, &between, &heard(&[]), true);
        assert!(outcome.is_tainted, "{second}");
    }
    let outcome = look(&mut drain, 8, &between, &heard(&[]), true);
    assert_eq!(
        (outcome.is_tainted, reasons(&outcome)),
        (false, vec!["DrainEnded"])
    );
}

#[test]
fn a_holder_is_found_by_name_by_its_uid_and_by_the_uid_of_the_static_pod_that_it_is() {
    for (holder, is_evicted) in [
        (held_by("notebook"), true),
        (held_by_uid("uid-notebook"), true),
        (held_by_uid("static"), false),
        (held_by_uid("nobody"), false),
        (held_by("nobody"), false),
        (held_by_process(), false),
    ] {
        let mut drain = affected();
        let image = Pod {
            mirrors: Some("static".to_owned()),
            ..of("image", "Node")
        };
        let pods = heard(&[pod("notebook"), image]);
        let status = blocked(vec![holder.clone()]);
        look(&mut drain, 1, &status, &pods, false);
        let outcome = look(&mut drain, 2, &status, &pods, true);
        assert_eq!(!outcome.orders.evict.is_empty(), is_evicted, "{holder:?}");
        assert_eq!(outcome.is_tainted, is_evicted, "{holder:?}");
    }
}

#[test]
fn a_kind_of_pod_that_is_kept_is_named_with_the_reason_and_nothing_else_is_evicted_for_its_device()
{
    let kept = [
        (
            of("a", "DaemonSet"),
            "it is of a DaemonSet, whose pods are never evicted",
        ),
        (
            Pod {
                mirrors: Some("m".to_owned()),
                ..of("a", "Node")
            },
            "it is a static pod, which is never evicted",
        ),
        (
            Pod {
                priority: 2_000_000_000,
                ..pod("a")
            },
            "it is critical for the cluster and never evicted",
        ),
        (
            Pod {
                priority_class: Some("system-node-critical".to_owned()),
                ..pod("a")
            },
            "it is critical for the cluster and never evicted",
        ),
        (
            Pod {
                controller: None,
                ..pod("a")
            },
            "nothing would make it again, so it is never evicted",
        ),
    ];
    for (kept, reason) in kept {
        for scope in [Scope::Affected, Scope::Node] {
            let mut drain = drain(scope, false);
            let status = blocked(vec![held_by("notebook"), held_by("a")]);
            let pods = heard(&[pod("notebook"), pod("other"), kept.clone()]);
            let refused = look(&mut drain, 1, &status, &pods, true);
            assert_eq!(phase(&refused), "refused", "{kept:?}");
            assert_eq!(waits(&refused), [format!("pod team-a/a: {reason}")]);
            assert_eq!((refused.is_tainted, refused.orders.evict.len()), (false, 0));
            let (kind, word, message) = told(&refused).remove(0);
            assert_eq!((kind, word), (Kind::Warning, "DrainRefused"));
            assert!(message.contains(reason), "{message}");
            let again = look(&mut drain, 2, &status, &pods, true);
            assert_eq!((reasons(&again), phase(&again)), (vec![], "refused"));
        }
    }
}

#[test]
fn one_device_that_stays_held_does_not_keep_another_from_being_freed() {
    let mut drain = affected();
    let status = status(vec![
        device("blocked", vec![held_by("notebook"), held_by("both")]),
        device(
            "blocked",
            vec![held_by("both"), held_by_process(), held_by("vain")],
        ),
    ]);
    let pods = heard(&[pod("notebook"), pod("both"), pod("vain")]);
    look(&mut drain, 1, &status, &pods, false);
    let outcome = look(&mut drain, 2, &status, &pods, true);
    assert_eq!(outcome.orders.evict, [id("both"), id("notebook")]);
    assert!(
        waits(&outcome).contains(&"pid 7: it is no pod's process".to_owned()),
        "{:?}",
        waits(&outcome)
    );
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
    // Who is in the way first.
    assert_eq!(outcome.orders.evict, [id("notebook"), id("and-another")]);
}

#[test]
fn when_the_deadline_passes_it_is_given_up_by_name_and_begun_again_only_for_another_choice() {
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
    assert_eq!(outcome.orders, Orders::default());
    for second in late + 1..late + 5000 {
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
    let outcome = look(&mut drain, late + 6000, &again, &heard, false);
    assert_eq!(
        (outcome.is_tainted, reasons(&outcome)),
        (true, vec!["DrainBegan"])
    );
}

#[test]
fn one_choice_has_one_deadline_however_often_its_devices_are_held_again() {
    let (mut drain, status, heard) = emptying(Scope::Affected, &[pod("notebook")]);
    let mut tainted = 0;
    for second in 3..20_000 {
        let free = second % 20 < 5;
        let status = if free { applied() } else { status.clone() };
        let outcome = look(&mut drain, second, &status, &heard, true);
        tainted += u64::from(outcome.is_tainted);
    }
    assert!(tainted <= DEADLINE.as_secs(), "{tainted}");
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
    // Somebody gave it.
    heard = super::tests::heard(&[pod("notebook")]);
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

#[test]
fn where_operands_can_be_paused_their_pods_come_after_the_others_and_hinder_nothing() {
    let mut drain = drain(Scope::Affected, true);
    let both = blocked(vec![held_by("notebook"), held_by("dcgm")]);
    let pods = heard(&[pod("notebook"), of("dcgm", "DaemonSet")]);
    assert!(look(&mut drain, 0, &both, &Heard::default(), false).waits_for_pods);
    assert!(look(&mut drain, 1, &both, &pods, false).waits_for_pods);
    let outcome = look(&mut drain, 2, &both, &pods, true);
    assert_eq!(outcome.orders.evict, [id("notebook")]);
    assert!(outcome.waits_for_pods);
    let rest = blocked(vec![held_by("dcgm")]);
    let outcome = look(&mut drain, 3, &rest, &pods, true);
    assert!(outcome.is_tainted && !outcome.waits_for_pods && outcome.orders.evict.is_empty());
    // Alone they are nothing to drain for.
    let mut drain = super::tests::drain(Scope::Node, true);
    let outcome = look(&mut drain, 1, &rest, &pods, false);
    assert!(!outcome.is_tainted && !outcome.waits_for_pods && outcome.news.is_empty());
}

#[test]
fn an_api_server_that_is_away_is_no_reason_to_hold_operands_up() {
    let mut drain = drain(Scope::Affected, true);
    let heard = Heard {
        trouble: Some(Trouble::Other("it is away".to_owned())),
        ..Heard::default()
    };
    let outcome = look(&mut drain, 1, &blocked(vec![held_by("a")]), &heard, false);
    assert!(!outcome.waits_for_pods && !outcome.is_tainted);
    let standing = outcome.standing.unwrap();
    assert_eq!(
        (standing.phase, standing.message.as_deref()),
        ("looking", Some("it is away"))
    );
}

/// What may happen from one look to the next.
#[derive(Debug, Clone)]
struct Moment {
    later: u64,
    generation: u64,
    layout: bool,
    devices: Vec<(usize, Vec<usize>)>,
    listed: bool,
    is_tainted: bool,
    answers: Vec<(usize, usize)>,
}

fn moment() -> impl Strategy<Value = Moment> {
    let device = (0_usize..6, prop::collection::vec(0_usize..7, 0..4));
    (
        (0_u64..60, 1_u64..3, prop::bool::weighted(0.95)),
        prop::collection::vec(device, 0..4),
        (prop::bool::weighted(0.9), prop::bool::weighted(0.8)),
        prop::collection::vec((0_usize..6, 0_usize..5), 0..3),
    )
        .prop_map(
            |((later, generation, layout), devices, (listed, is_tainted), answers)| Moment {
                later,
                generation,
                layout,
                devices,
                listed,
                is_tainted,
                answers,
            },
        )
}

fn all_pods() -> Vec<Pod> {
    let mirror = Pod {
        mirrors: Some("m".to_owned()),
        ..of("p4", "Node")
    };
    let bare = Pod {
        controller: None,
        ..pod("p5")
    };
    let mut all = vec![
        pod("p0"),
        pod("p1"),
        pod("p2"),
        of("p3", "DaemonSet"),
        mirror,
        bare,
    ];
    all[2].is_ending = true;
    all
}

fn scene(moment: &Moment) -> (Status, Heard) {
    const STATES: [&str; 6] = [
        "blocked",
        "needs-reset",
        "applied",
        "applying",
        "pending",
        "failed",
    ];
    let devices = moment.devices.iter().map(|(state, holders)| {
        let holders = holders.iter().map(|number| match number {
            6 => held_by_process(),
            number => held_by(&format!("p{number}")),
        });
        device(STATES[*state], holders.collect())
    });
    let mut status = status(devices.collect());
    status.generation = moment.generation;
    status.layout = moment.layout.then(|| "night".to_owned());
    let answer = |number| match number {
        0 => Answer::Ending,
        1 => Answer::Budget,
        2 => Answer::Gone,
        3 => Answer::Refused("later".to_owned()),
        _ => Answer::Forbidden,
    };
    let answers = moment.answers.iter();
    let heard = Heard {
        pods: moment.listed.then(all_pods),
        trouble: None,
        answers: answers
            .map(|(pod, number)| (id(&format!("p{pod}")), answer(*number)))
            .collect(),
    };
    (status, heard)
}

proptest! {
    #[test]
    fn whatever_happens_nothing_is_evicted_that_must_not_be_and_no_taint_outlives_its_reason(
        moments in prop::collection::vec(moment(), 1..60),
        node in any::<bool>(),
        pauses in any::<bool>(),
    ) {
        let scope = if node { Scope::Node } else { Scope::Affected };
        let mut drain = drain(scope, pauses);
        let mut now = 0;
        // By choice: since when it was drained for.
        let mut since: Option<(u64, u64)> = None;
        let mut was_tainted = false;
        for moment in &moments {
            now += moment.later;
            let (status, heard) = scene(moment);
            let outcome = look(&mut drain, now, &status, &heard, moment.is_tainted);
            let held = |name: &str| status.devices.iter().any(|device| {
                device.waits_for_holders && matches!(device.state, "blocked" | "needs-reset")
                    && device.holders.contains(&held_by(name))
            });
            if !outcome.orders.evict.is_empty() {
                prop_assert!(moment.is_tainted && outcome.is_tainted && was_tainted);
                prop_assert!(moment.layout && moment.listed);
            }
            for id in &outcome.orders.evict {
                prop_assert!(["p0", "p1"].contains(&id.name.as_str()), "{id:?}");
                prop_assert!(node || held(&id.name), "{id:?}");
            }
            if outcome.is_tainted {
                prop_assert!(moment.layout);
                let busy = status.is_busy();
                let (choice, from) = *since.get_or_insert((moment.generation, now));
                let from = if choice == moment.generation { from } else { now };
                since = Some((moment.generation, from));
                let late = now - from >= DEADLINE.as_secs() + CALM.as_secs();
                prop_assert!(busy || !late, "{now} {from}");
            } else if since.is_some_and(|(choice, _)| choice != moment.generation) {
                since = None;
            }
            was_tainted = outcome.is_tainted;
            // A drain that is on ends with its reason, whatever is seen of taint and pods.
            let mut end = drain.clone();
            let done = look(&mut end, now, &applied_of(moment.generation), &heard, moment.is_tainted);
            prop_assert!(!done.is_tainted && done.orders.evict.is_empty());
        }
    }
}

fn applied_of(generation: u64) -> Status {
    Status {
        generation,
        ..applied()
    }
}
