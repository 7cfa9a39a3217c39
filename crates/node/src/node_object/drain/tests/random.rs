//! Random tests of drains.

use proptest::prelude::*;

use super::*;

/// Possible changes between two reconciliations.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent random choice")]
struct RandomStep {
    later: u64,
    turns: bool,
    rests: bool,
    layout: bool,
    devices: Vec<(usize, Vec<usize>)>,
    listed: bool,
    is_tainted: bool,
    answers: Vec<(usize, usize)>,
}

fn moment() -> impl Strategy<Value = RandomStep> {
    let device = (0_usize..6, prop::collection::vec(0_usize..8, 0..4));
    (
        (
            0_u64..60,
            // A choice lasts long enough for its deadline to pass.
            prop::bool::weighted(0.02),
            prop::bool::weighted(0.05),
            prop::bool::weighted(0.95),
        ),
        prop::collection::vec(device, 0..4),
        (prop::bool::weighted(0.9), prop::bool::weighted(0.8)),
        prop::collection::vec((0_usize..6, 0_usize..5), 0..3),
    )
        .prop_map(|((later, turns, rests, layout), devices, (listed, is_tainted), answers)| {
            RandomStep { later, turns, rests, layout, devices, listed, is_tainted, answers }
        })
}

fn all_pods() -> Vec<Pod> {
    let mirror = Pod { mirrors: Some("m".to_owned()), ..of("p4", "Node") };
    let bare = Pod { controller: None, ..pod("p5") };
    let tolerant = Pod { tolerates: true, ..pod("p7") };
    let mut all =
        vec![pod("p0"), pod("p1"), pod("p2"), of("p3", "DaemonSet"), mirror, bare, tolerant];
    all[2].is_ending = true;
    all
}

fn observed(moment: &RandomStep, generation: u64) -> (NodeLayoutStatus, PodObservations) {
    const STATES: [&str; 6] =
        ["blocked", "needs-reset", "applied", "applying", "pending", "failed"];
    let devices = moment.devices.iter().map(|(state, holders)| {
        let holders = holders.iter().map(|number| match number {
            6 => held_by_process(),
            number => held_by(&format!("p{number}")),
        });
        device(STATES[*state], holders.collect())
    });
    let mut status = status(devices.collect());
    status.generation = generation;
    status.layout = moment.layout.then(|| "night".to_owned());
    let answer = |number| match number {
        0 => EvictionResult::Ending,
        1 => EvictionResult::Budget,
        2 => EvictionResult::Gone,
        3 => EvictionResult::Refused("later".to_owned()),
        _ => EvictionResult::Forbidden,
    };
    let answers = moment.answers.iter();
    let observations = PodObservations {
        pods: moment.listed.then(all_pods),
        error: None,
        answers: answers.map(|(pod, number)| (id(&format!("p{pod}")), answer(*number))).collect(),
    };
    (status, observations)
}

proptest! {
    #[test]
    fn exempt_pods_are_never_evicted_and_no_taint_outlives_its_reason(
        moments in prop::collection::vec(moment(), 1..60),
        node in any::<bool>(),
        pauses in any::<bool>(),
    ) {
        let scope = if node { Scope::Node } else { Scope::Affected };
        let mut drain = drain(scope);
        let (mut now, mut generation) = (0, 1);
        // Start of the latest attempt by choice, and when it gave up. The state without a layout is another choice.
        let mut since: Option<((u64, bool), u64)> = None;
        let mut gave_up: Option<u64> = None;
        let mut was_tainted = false;
        // When a device was last being changed; a free device that is not done is waited for from then on.
        let mut busy_at = 0;
        for moment in &moments {
            now += moment.later;
            generation += u64::from(moment.turns);
            let choice = (generation, moment.layout);
            if moment.rests {
                let outcome = drain.rest();
                prop_assert!(!outcome.is_tainted && outcome.pod_requests == PodRequests::default());
                was_tainted = false;
                continue;
            }
            if since.is_some_and(|(known, _)| known != choice) {
                since = None;
                gave_up = None;
            }
            let (status, observations) = observed(moment, generation);
            let facts = DrainInputs { pauses_operands: pauses, ..facts(&status, &observations, moment.is_tainted) };
            let outcome = drain.reconcile(at(now), &facts);
            let held = |name: &str| status.devices.iter().any(|device| {
                device.waits_for_holders && matches!(device.state.as_str(), "blocked" | "needs-reset")
                    && device.holders.contains(&held_by(name))
            });
            if !outcome.pod_requests.evict.is_empty() {
                prop_assert!(moment.is_tainted && outcome.is_tainted && was_tainted);
                prop_assert!(moment.layout && moment.listed);
            }
            for id in &outcome.pod_requests.evict {
                prop_assert!(["p0", "p1"].contains(&id.name.as_str()), "{id:?}");
                prop_assert!(node || held(&id.name), "{id:?}");
            }
            if outcome.is_tainted {
                prop_assert!(moment.layout);
                let ended = |from: u64| {
                    let until = from + DEADLINE.as_secs();
                    gave_up.or_else(|| (!was_tainted && now >= until).then_some(until))
                };
                if let Some(end) = since.and_then(|(_, from)| ended(from)) {
                    // A retry respects the backoff.
                    prop_assert!(now - end >= DEADLINE.as_secs(), "{now} {end}");
                    since = None;
                    gave_up = None;
                }
                let (_, from) = *since.get_or_insert((choice, now));
                let spent = now - from;
                prop_assert!(spent < (DEADLINE + STUCK_TIMEOUT).as_secs(), "{now} {from}");
                if status.is_busy() {
                    busy_at = now;
                } else {
                    let calm_from = busy_at.max(from + DEADLINE.as_secs());
                    prop_assert!(now < calm_from + SETTLE_TIMEOUT.as_secs(), "{now} {from} {busy_at}");
                }
                prop_assert!(outcome.pod_requests.evict.is_empty() || spent < DEADLINE.as_secs());
            }
            let is_on = matches!(phase(&outcome), "tainting" | "emptying");
            prop_assert_eq!(outcome.is_tainted, is_on);
            prop_assert!(!(moment.listed && is_blocked_permanently(&status) && outcome.is_tainted));
            if outcome.events.iter().any(|event| matches!(event, DrainEvent::GaveUp { .. }))
                || (phase(&outcome) == "gave-up" && outcome.events.contains(&DrainEvent::Forbidden))
            {
                gave_up = Some(now);
            }
            was_tainted = outcome.is_tainted;
            // An active drain ends with its reason, whatever the state of taint and pods.
            let mut end = drain.clone();
            let done = reconcile(&mut end, now, &applied_of(generation), &observations, moment.is_tainted);
            prop_assert!(!done.is_tainted && done.pod_requests.evict.is_empty());
        }
    }
}

/// Returns true if devices are blocked only by pods that are never evicted.
fn is_blocked_permanently(status: &NodeLayoutStatus) -> bool {
    let stays = |holder: &Holder| ["p3", "p4", "p5", "p7"].map(held_by).contains(holder);
    let blocked = |device: &DeviceLayoutStatus| {
        let is_held = matches!(device.state.as_str(), "blocked" | "needs-reset");
        is_held && device.waits_for_holders
    };
    let mut held = status.devices.iter().filter(|device| blocked(device)).peekable();
    let is_held = held.peek().is_some();
    let only = held.all(|device| device.holders.iter().all(stays));
    let is_settled = status.devices.iter().all(|device| {
        blocked(device) || matches!(device.state.as_str(), "applied" | "failed" | "blocked")
    });
    is_held && only && is_settled
}

fn applied_of(generation: u64) -> NodeLayoutStatus {
    NodeLayoutStatus { generation, ..applied() }
}
