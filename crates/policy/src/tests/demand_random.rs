//! Instances for pending pods with crashes, failures, outdated views and random demand.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use super::cluster::{Cluster, Controller, Fate};
use super::demand::{pool, proposal};
use super::evictions::with_evictions;
use super::reservations::with_reservation;
use crate::PolicyStatus;
use crate::record::LAYOUT_LABEL;

/// A controller that is killed after any write, and whose successor sees older nodes, completes the same change within the limits.
#[test]
fn m21_crash_at_any_write_completes_the_change() {
    for crash_after in 0..30 {
        let mut cluster = pool(3, "Act", &json!({"maxUnavailable": 2}));
        for (node, pod) in [("node-00", "a"), ("node-01", "b"), ("node-02", "c")] {
            cluster.proposals.insert(node.to_owned(), proposal(pod, pod));
        }
        let mut controller = Controller::new(&cluster);
        let mut stale = controller.clone();
        let mut left = crash_after;
        for minute in 0..30 {
            loop {
                if left == 0 {
                    controller = stale.clone();
                    controller.list_policies(&cluster);
                    // The demand that led to the change may be gone.
                    if crash_after % 2 == 0 {
                        cluster.proposals.remove("node-00");
                    }
                    left = u32::MAX;
                }
                let writes = controller.work(&mut cluster, 1);
                left = left.saturating_sub(writes);
                assert!(cluster.taken_down.len() <= 2, "{:?}", cluster.taken_down);
                if writes == 0 {
                    break;
                }
            }
            cluster.tick();
            if minute % 3 == 0 {
                stale = controller.clone();
            }
            controller.see_nodes(&cluster);
        }
        cluster.settle();
        assert_eq!(cluster.state("a"), "Complete", "crash after {crash_after}");
        for node in ["node-01", "node-02"] {
            assert_eq!(cluster.instance_changes[node].len(), 1, "crash after {crash_after}");
        }
        let changes = cluster.instance_changes.get("node-00").map_or(0, Vec::len);
        assert!(changes == 1 || (changes == 0 && crash_after % 2 == 0), "{crash_after}: {changes}");
    }
}

#[derive(Debug, Clone)]
enum Action {
    Propose(u8, u8),
    /// A proposal that evicts this number of pods.
    ProposeEvictions(u8, u8),
    /// A proposal that waits for running pods.
    ProposeReservation(u8),
    Forget(u8),
    /// The use of the node is unknown, so nothing is proposed for it.
    Hide(u8),
    /// The use of all nodes is known.
    Show,
    Work(u32),
    See,
    Switch,
    Tick(u32),
    Fate(u8, Fate),
    LoseStatus,
    Remove(u8),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (0..4_u8, 0..3_u8).prop_map(|(node, text)| Action::Propose(node, text)),
        4 => (0..4_u8, 1..4_u8).prop_map(|(node, count)| Action::ProposeEvictions(node, count)),
        2 => (0..4_u8).prop_map(Action::ProposeReservation),
        2 => (0..4_u8).prop_map(Action::Forget),
        2 => (0..4_u8).prop_map(Action::Hide),
        1 => Just(Action::Show),
        8 => (1..6_u32).prop_map(Action::Work),
        4 => Just(Action::See),
        1 => Just(Action::Switch),
        8 => (1..4_u32).prop_map(Action::Tick),
        2 => (0..4_u8, prop_oneof![Just(Fate::Fails), Just(Fate::Blocks), (1..5_u32).prop_map(Fate::Applies)]).prop_map(|(node, fate)| Action::Fate(node, fate)),
        1 => Just(Action::LoseStatus),
        1 => (0..4_u8).prop_map(Action::Remove),
    ]
}

/// Every hour has at most three changes of a node and two evictions, and two changes of a node are at least two minutes apart.
fn check_limits(cluster: &Cluster) {
    let mut evictions: Vec<Timestamp> = cluster.evictions.values().flatten().copied().collect();
    evictions.sort_unstable();
    for three in evictions.windows(3) {
        let hour = SignedDuration::from_hours(1);
        assert!(three[2].duration_since(three[0]) >= hour, "{:?}", cluster.evictions);
    }
    for (node, times) in &cluster.instance_changes {
        for pair in times.windows(2) {
            assert!(
                pair[1].duration_since(pair[0]) >= SignedDuration::from_mins(2),
                "{node}: {times:?}"
            );
        }
        for four in times.windows(4) {
            assert!(
                four[3].duration_since(four[0]) >= SignedDuration::from_hours(1),
                "{node}: {times:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Demand that alternates in any way, with crashes, failures and outdated views, causes no more changes than the limits permit.
    #[test]
    fn m21_alternating_demand_does_not_exceed_the_limits(
        actions in prop::collection::vec(action(), 1..200),
        budget in 1..3_u32,
    ) {
        let mut cluster = pool(4, "Act", &json!({"maxUnavailable": budget, "maxFailures": 100}));
        let (mut leader, mut other) = (Controller::new(&cluster), Controller::new(&cluster));
        let mut is_status_lost = false;
        let mut reserved = BTreeSet::new();
        for action in actions {
            let name = |node: u8| format!("node-{node:02}");
            match action {
                Action::Propose(node, text) => {
                    let text = ["1g", "2g", "3g"][usize::from(text)];
                    cluster.proposals.insert(name(node), proposal(text, &name(node)));
                }
                Action::ProposeEvictions(node, count) => {
                    let pods = ["a", "b", "c"];
                    let evicting = with_evictions(proposal(&format!("{count}g"), &name(node)), &pods[..usize::from(count)]);
                    cluster.proposals.insert(name(node), evicting);
                }
                Action::ProposeReservation(node) => {
                    let reserving = with_reservation(proposal("7g", &name(node)));
                    cluster.proposals.insert(name(node), reserving);
                }
                Action::Forget(node) => drop(cluster.proposals.remove(&name(node))),
                Action::Hide(node) => {
                    cluster.proposals.remove(&name(node));
                    cluster.unknown_nodes.insert(name(node));
                }
                Action::Show => cluster.unknown_nodes.clear(),
                Action::Work(most) => drop(leader.work(&mut cluster, most)),
                Action::See => leader.see_nodes(&cluster),
                Action::Switch => {
                    std::mem::swap(&mut leader, &mut other);
                    leader.list_policies(&cluster);
                }
                Action::Tick(minutes) => (0..minutes).for_each(|_minute| cluster.tick()),
                Action::Fate(node, fate) => {
                    if let Some(machine) = cluster.machines.get_mut(&name(node)) {
                        machine.fate = fate;
                    }
                }
                Action::LoseStatus => {
                    cluster.edit("a", |policy| policy.status = PolicyStatus::default());
                    // The records of deleted nodes are lost too.
                    is_status_lost = true;
                    let machines = &cluster.machines;
                    cluster.evictions.retain(|node, _| machines.contains_key(node));
                    leader = Controller::new(&cluster);
                    other = leader.clone();
                }
                Action::Remove(node) => {
                    cluster.machines.remove(&name(node));
                    if is_status_lost {
                        cluster.evictions.remove(&name(node));
                    }
                    cluster.taken_down.remove(&name(node));
                }
            }
            check_limits(&cluster);
            // A node with a reserved GPU does not count, even if the change fails later.
            let changes = &cluster.policies["a"].status.changes;
            let reserving = changes.iter().filter(|change| change.is_reservation());
            let reserving: Vec<String> = reserving.map(|change| change.node.clone()).collect();
            prop_assert!(reserving.len() <= 1, "{reserving:?}");
            reserved.retain(|node| cluster.taken_down.contains(node));
            reserved.extend(reserving);
            let counted = cluster.taken_down.difference(&reserved).count();
            prop_assert!(counted <= budget as usize, "{:?}, {reserved:?}", cluster.taken_down);
        }
        cluster.proposals.clear();
        cluster.unknown_nodes.clear();
        for machine in cluster.machines.values_mut() {
            machine.fate = Fate::Applies(1);
        }
        cluster.settle();
        check_limits(&cluster);
        prop_assert!(cluster.policies["a"].status.changes.is_empty());
        cluster.edit("a", |policy| policy.is_deleting = true);
        cluster.settle();
        for machine in cluster.machines.values() {
            prop_assert_eq!((&machine.instances, machine.node.labels.get(LAYOUT_LABEL)), (&None, None));
        }
    }
}
