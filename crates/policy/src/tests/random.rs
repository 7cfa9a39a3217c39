//! Random failures, users, crashes and outdated views.

use proptest::prelude::*;
use serde_json::json;

use super::cluster::{Cluster, Controller, Fate, spec};
use crate::PolicyStatus;
use crate::record::LAYOUT_LABEL;

#[derive(Debug, Clone)]
enum Act {
    /// The leader makes this many writes.
    Work(u32),
    /// The watch of the leader reports the nodes.
    See,
    /// The other controller becomes the leader.
    Switch,
    Tick,
    Spec(u8),
    Fate(u8, Fate),
    Override(u8, bool),
    Remove(u8),
    Join(u8),
    /// The agent of a node without a layout reports a failure, or that it has recovered.
    Report(u8, bool),
    /// The status is lost, as in a restored backup. Every controller starts again with a current view.
    LoseStatus,
    /// A status of an earlier roll-out is restored. Only a record with a later number shows that.
    RestoreStatus(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (1..6_u32).prop_map(Act::Work),
        4 => Just(Act::See),
        2 => Just(Act::Switch),
        6 => Just(Act::Tick),
        1 => (0..3_u8).prop_map(Act::Spec),
        1 => (0..12_u8, prop_oneof![Just(Fate::Fails), Just(Fate::Blocks), (1..5_u32).prop_map(Fate::Applies)]).prop_map(|(node, fate)| Act::Fate(node, fate)),
        1 => (0..12_u8, any::<bool>()).prop_map(|(node, is_set)| Act::Override(node, is_set)),
        1 => (0..12_u8).prop_map(Act::Remove),
        1 => (0..12_u8).prop_map(Act::Join),
        2 => (0..12_u8, any::<bool>()).prop_map(|(node, is_failed)| Act::Report(node, is_failed)),
        1 => Just(Act::LoseStatus),
        1 => any::<u8>().prop_map(Act::RestoreStatus),
    ]
}

fn run(acts: Vec<Act>, reaction: &str, budget: u32, failures: u32) {
    let specs = |number: u8| {
        let layout = ["serving", "training", "inference"][usize::from(number % 3)];
        spec(
            layout,
            json!({"maxUnavailable": budget, "maxFailures": failures, "onFailure": reaction}),
        )
    };
    let mut cluster = Cluster::new(8);
    cluster.apply("a", specs(0));
    let (mut leader, mut other) = (Controller::new(&cluster), Controller::new(&cluster));
    let mut earlier = Vec::new();
    for act in acts {
        earlier.push(cluster.policies["a"].status.clone());
        match act {
            Act::Work(most) => {
                leader.work(&mut cluster, most);
            }
            Act::See => leader.see_nodes(&cluster),
            Act::Switch => {
                std::mem::swap(&mut leader, &mut other);
                leader.list_policies(&cluster);
            }
            Act::Tick => cluster.tick(),
            Act::Spec(number) => {
                cluster.apply("a", specs(number));
                leader.list_policies(&cluster);
            }
            Act::Fate(node, fate) => {
                if let Some(machine) = cluster.machines.get_mut(&format!("node-{node:02}")) {
                    machine.fate = fate;
                }
            }
            Act::Override(node, is_set) => {
                let name = format!("node-{node:02}");
                if cluster.machines.contains_key(&name) {
                    cluster.label(&name, LAYOUT_LABEL, is_set.then_some("mine"));
                }
            }
            Act::Remove(node) => {
                let name = format!("node-{node:02}");
                cluster.machines.remove(&name);
                cluster.taken_down.remove(&name);
            }
            Act::Join(node) => {
                let name = format!("node-{node:02}");
                if !cluster.machines.contains_key(&name) {
                    cluster.join(&name, Fate::Applies(1));
                }
            }
            Act::Report(node, is_failed) => cluster.report(&format!("node-{node:02}"), is_failed),
            Act::LoseStatus => {
                cluster.edit("a", |policy| policy.status = PolicyStatus::default());
                leader = Controller::new(&cluster);
                other = leader.clone();
            }
            Act::RestoreStatus(number) => {
                let recorded = cluster.last_rollout();
                earlier.retain(|status: &PolicyStatus| status.rollout < recorded);
                if let Some(status) = earlier.get(usize::from(number) % earlier.len().max(1)) {
                    cluster.edit("a", |policy| policy.status = status.clone());
                    leader = Controller::new(&cluster);
                    other = leader.clone();
                }
            }
        }
        assert!(cluster.taken_down.len() <= budget as usize, "{:?}", cluster.taken_down);
    }
    end(cluster);
}

/// Every roll-out ends, and the deletion of the policy removes everything.
fn end(mut cluster: Cluster) {
    cluster.settle();
    assert_ne!(cluster.state("a"), "RollingOut", "{:#?}", cluster.policies);
    cluster.edit("a", |policy| policy.is_deleting = true);
    cluster.settle();
    assert!(cluster.policies.is_empty());
    for machine in cluster.machines.values() {
        assert_eq!(
            (
                machine.node.labels.get("workload"),
                machine.node.taints.len(),
                &machine.node.drain,
                &machine.node.policy_record
            ),
            (None, 0, &None, &None)
        );
    }
}

#[test]
fn p5_nodes_that_become_available_before_their_change_stay_within_the_budget() {
    let mut cluster = Cluster::new(4);
    cluster.machines.get_mut("node-00").unwrap().fate = Fate::Fails;
    cluster.apply("a", spec("serving", json!({"maxUnavailable": 2, "maxFailures": 1})));
    while cluster.layouts()[1].is_none() {
        Controller::new(&cluster).work(&mut cluster, 1);
    }
    cluster.tick();
    // One node has failed. The others are unavailable anyway, so both join the next wave.
    let others = ["node-02", "node-03"];
    for name in others {
        cluster.report(name, true);
    }
    Controller::new(&cluster).work(&mut cluster, 1);
    assert_eq!(cluster.policies["a"].status.updating, others);
    for name in others {
        cluster.report(name, false);
    }
    while Controller::new(&cluster).work(&mut cluster, 1) > 0 {
        assert!(cluster.taken_down.len() <= 2, "{:?}", cluster.taken_down);
    }
    let serving = Some("serving");
    assert_eq!(cluster.layouts(), [serving, serving, serving, None]);
    cluster.settle();
    assert_eq!(cluster.layouts(), [serving; 4]);
}

/// A lost status must not lead to a wave of all nodes that are unavailable then: some are available again when they are changed.
#[test]
fn p5_budget_holds_if_nodes_become_available_after_the_status_was_lost() {
    let acts = vec![
        Act::Work(1),
        Act::Work(1),
        Act::Work(1),
        Act::Tick,
        Act::Tick,
        Act::Fate(0, Fate::Applies(4)),
        Act::See,
        Act::Tick,
        Act::Work(1),
        Act::Work(3),
        Act::Spec(1),
        Act::LoseStatus,
        Act::Tick,
        Act::Work(1),
        Act::Work(4),
    ];
    run(acts, "Pause", 1, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn p5_budget_holds_and_every_roll_out_ends(
        acts in prop::collection::vec(act(), 1..120),
        reaction in prop_oneof![Just("Pause"), Just("RollBack")],
        budget in 1..4_u32,
        failures in 0..3_u32,
    ) {
        run(acts, reaction, budget, failures);
    }
}
