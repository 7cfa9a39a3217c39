//! The rules of roll-outs, one by one.

use std::collections::BTreeSet;

use octavo_fleet::cluster::Readiness;
use serde_json::json;

use super::cluster::world;
use super::cluster::{Cluster, Controller, Fate, spec};
use crate::record::LAYOUT_LABEL;
use crate::{PolicyPlan, PolicyStatus, plan};

#[test]
fn p5_roll_out_reaches_every_node_within_its_budget() {
    let mut cluster = Cluster::new(7);
    cluster.apply("a", spec("serving", json!({"maxUnavailable": 2})));
    let mut largest = 0;
    for _minute in 0..60 {
        let mut controller = Controller::new(&cluster);
        while controller.work(&mut cluster, 1) > 0 {
            largest = largest.max(cluster.taken_down.len());
        }
        cluster.tick();
    }
    assert_eq!(largest, 2);
    assert_eq!(cluster.layouts(), [Some("serving"); 7]);
    assert_eq!(cluster.state("a"), "Complete");
    let status = &cluster.policies["a"].status;
    assert_eq!((status.nodes.selected, status.nodes.updated, status.nodes.applied), (7, 7, 7));
    let writes = cluster.writes;
    cluster.settle();
    assert_eq!(cluster.writes, writes, "an idle policy is written");
}

#[test]
fn p5_third_failing_node_stops_the_roll_out_and_a_new_spec_continues_it() {
    let mut cluster = Cluster::new(10);
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    for name in ["node-02", "node-04", "node-06"] {
        cluster.machines.get_mut(name).unwrap().fate = Fate::Fails;
    }
    cluster.apply("a", spec("training", json!({"maxUnavailable": 4, "maxFailures": 2})));
    cluster.settle();
    assert_eq!(cluster.state("a"), "Stopped");
    let status = cluster.policies["a"].status.clone();
    assert_eq!(status.failures.len(), 3, "{status:#?}");
    let changed = cluster.layouts().iter().filter(|layout| **layout == Some("training")).count();
    assert!(changed < 10, "{changed} nodes were changed");
    for machine in cluster.machines.values_mut() {
        machine.fate = Fate::Applies(1);
    }
    cluster.apply("a", spec("inference", json!({})));
    cluster.settle();
    assert_eq!(
        (cluster.state("a").as_str(), cluster.layouts()),
        ("Complete", vec![Some("inference"); 10])
    );
}

#[test]
fn p5_failed_roll_out_returns_to_the_previous_revision() {
    let mut cluster = Cluster::new(6);
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    let before: Vec<_> = cluster
        .machines
        .values()
        .map(|machine| (machine.node.labels.clone(), machine.node.taints.clone()))
        .collect();
    cluster.machines.get_mut("node-02").unwrap().fate = Fate::Fails;
    cluster.apply("a", spec("training", json!({"onFailure": "RollBack"})));
    for _minute in 0..10 {
        let mut controller = Controller::new(&cluster);
        while controller.work(&mut cluster, u32::MAX) > 0 {}
        cluster.tick();
        if cluster.policies["a"].status.stop.is_some() {
            cluster.machines.get_mut("node-02").unwrap().fate = Fate::Applies(1);
        }
    }
    cluster.settle();
    let after: Vec<_> = cluster
        .machines
        .values()
        .map(|machine| (machine.node.labels.clone(), machine.node.taints.clone()))
        .collect();
    assert_eq!(before, after);
    assert_eq!(cluster.state("a"), "RolledBack");
}

#[test]
fn p5_first_roll_out_that_fails_is_removed_from_the_nodes() {
    let mut cluster = Cluster::new(4);
    let before = cluster.machines["node-00"].node.clone();
    cluster.machines.get_mut("node-01").unwrap().fate = Fate::Fails;
    cluster.apply("a", spec("serving", json!({"onFailure": "RollBack"})));
    cluster.settle();
    assert_eq!(cluster.state("a"), "RolledBack");
    for machine in cluster.machines.values() {
        assert_eq!((&machine.node.labels, &machine.node.taints), (&before.labels, &before.taints));
        assert_eq!(machine.node.policy_record, None);
    }
}

#[test]
fn p5_requested_revision_returns_to_every_changed_node() {
    let mut cluster = Cluster::new(3);
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    let first = cluster.policies["a"].status.revision.clone();
    cluster.apply("a", spec("training", json!({})));
    cluster.settle();
    cluster.edit("a", |policy| policy.rollback_to = Some("unknown".to_owned()));
    cluster.settle();
    let stopped = cluster.policies["a"].status.condition("Stopped").unwrap().clone();
    assert_eq!((stopped.status.as_str(), stopped.reason.as_str()), ("False", "UnknownRevision"));
    cluster.edit("a", |policy| policy.rollback_to = Some(first));
    cluster.settle();
    assert_eq!(
        (cluster.state("a").as_str(), cluster.layouts()),
        ("RolledBack", vec![Some("serving"); 3])
    );
}

#[test]
fn p5_node_with_a_manual_layout_is_left_alone_or_adopted() {
    let mut cluster = Cluster::new(3);
    cluster.label("node-00", LAYOUT_LABEL, Some("mine"));
    cluster.label("node-01", LAYOUT_LABEL, Some("serving"));
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    let status = cluster.policies["a"].status.clone();
    assert_eq!((status.nodes.overridden, status.nodes.applied), (1, 2));
    assert_eq!(cluster.machines["node-00"].node.labels.len(), 2);
    cluster.label("node-02", LAYOUT_LABEL, Some("mine"));
    cluster.settle();
    assert_eq!(cluster.policies["a"].status.nodes.overridden, 2);
    assert_eq!(cluster.layouts(), [Some("mine"), Some("serving"), Some("mine")]);
    // Without the label, the node returns to the policy.
    cluster.label("node-02", LAYOUT_LABEL, None);
    cluster.settle();
    assert_eq!(cluster.layouts(), [Some("mine"), Some("serving"), Some("serving")]);
}

#[test]
fn p5_lost_status_is_followed_by_a_roll_out_with_a_later_number() {
    let mut cluster = Cluster::new(3);
    for layout in ["serving", "training", "serving"] {
        cluster.apply("a", spec(layout, json!({})));
        cluster.settle();
    }
    let status = cluster.policies["a"].status.clone();
    let lose = |cluster: &mut Cluster, status: PolicyStatus| {
        cluster.edit("a", |policy| policy.status = status);
    };
    // In the middle of a roll-out, without any status.
    cluster.apply("a", spec("training", json!({})));
    for _minute in 0..2 {
        while Controller::new(&cluster).work(&mut cluster, 1) > 0 {}
        cluster.tick();
    }
    lose(&mut cluster, PolicyStatus::default());
    cluster.settle();
    assert_eq!(cluster.layouts(), [Some("training"); 3]);
    assert_eq!(cluster.state("a"), "Complete");
    assert!(cluster.policies["a"].status.rollout > status.rollout);
    // A status of an earlier time, and a node that still differs.
    lose(&mut cluster, PolicyStatus { observed_generation: 4, ..status });
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    assert_eq!(cluster.layouts(), [Some("serving"); 3]);
    let old = PolicyStatus { rollout: 1, ..cluster.policies["a"].status.clone() };
    lose(&mut cluster, old);
    cluster.join("node-03", Fate::Applies(1));
    cluster.label("node-00", LAYOUT_LABEL, None);
    cluster.settle();
    assert_eq!(cluster.layouts(), [Some("serving"); 4]);
    assert_eq!(cluster.state("a"), "Complete");
    // Nodes that leave the selector are released, whatever their number.
    lose(&mut cluster, PolicyStatus::default());
    cluster.label("node-01", "pool", Some("b"));
    cluster.settle();
    assert_eq!(cluster.machines["node-01"].node.policy_record, None);
}

#[test]
fn p5_node_of_two_policies_is_changed_by_neither() {
    let mut cluster = Cluster::new(2);
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    cluster.apply("b", spec("training", json!({})));
    cluster.settle();
    assert_eq!(cluster.layouts(), [Some("serving"); 2]);
    for name in ["a", "b"] {
        let conflict = cluster.policies[name].status.condition("Conflict").unwrap().clone();
        let other = if name == "a" { "b" } else { "a" };
        assert_eq!(
            (conflict.status.as_str(), conflict.message.as_str()),
            ("True", format!("node-00, node-01 selected by: {other}").as_str())
        );
    }
    cluster.edit("a", |policy| policy.is_deleting = true);
    cluster.settle();
    assert_eq!((cluster.layouts(), cluster.policies.len()), (vec![Some("training"); 2], 1));
}

#[test]
fn p2_deleted_policy_removes_what_it_set_and_nothing_else() {
    let mut cluster = Cluster::new(2);
    let before = cluster.machines["node-00"].node.clone();
    let labels = json!({"nodeSelector": {"matchLabels": {"pool": "a"}}, "nodeLabels": {"tier": "gold"}, "taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    cluster.apply("a", labels);
    cluster.settle();
    assert_eq!(cluster.state("a"), "Complete");
    cluster.label("node-01", "tier", Some("silver"));
    cluster.edit("a", |policy| policy.is_deleting = true);
    cluster.settle();
    assert!(cluster.policies.is_empty());
    assert_eq!(cluster.machines["node-00"].node, before);
    let node = &cluster.machines["node-01"].node;
    assert_eq!(
        (node.labels.get("tier").map(String::as_str), node.taints.len()),
        (Some("silver"), 0)
    );
}

#[test]
fn p5_drain_is_recorded_changed_and_removed_unless_another_writer_set_it() {
    let mut cluster = Cluster::new(2);
    cluster.node("node-01").drain = Some("never".to_owned());
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    let drains = |cluster: &Cluster| {
        cluster.machines.values().map(|one| one.node.drain.clone()).collect::<Vec<_>>()
    };
    let never = Some("never".to_owned());
    assert_eq!(drains(&cluster), [None, never.clone()]);
    // Only the drain changes, which is a new revision.
    for (timeout, expected) in [("10m", "affected,10m"), ("1h", "affected,1h")] {
        let mut wanted = spec("serving", json!({}));
        wanted["drain"] = json!({"scope": "affected", "timeout": timeout});
        cluster.apply("a", wanted);
        cluster.settle();
        assert_eq!(drains(&cluster), [Some(expected.to_owned()), never.clone()]);
        assert_eq!(cluster.state("a"), "Complete");
    }
    let first = cluster.policies["a"].status.revisions[2].revision.clone();
    cluster.edit("a", |policy| policy.rollback_to = Some(first));
    cluster.settle();
    assert_eq!(drains(&cluster), [None, never]);
}

#[test]
fn p5_node_that_leaves_the_selector_is_released() {
    let mut cluster = Cluster::new(2);
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    cluster.label("node-01", "pool", Some("b"));
    cluster.settle();
    let node = &cluster.machines["node-01"].node;
    assert_eq!((node.labels.len(), node.taints.len(), &node.policy_record), (1, 0, &None));
    // A record of a policy that was deleted without its finalizer is removed too.
    cluster.policies.clear();
    cluster.settle();
    assert_eq!(cluster.machines["node-00"].node.labels.len(), 1);
}

#[test]
fn p5_unavailable_nodes_count_and_nodes_that_are_not_ready_wait() {
    let mut cluster = Cluster::new(3);
    cluster.node("node-02").readiness = Readiness::NotReady;
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    assert_eq!(cluster.layouts(), [None; 3]);
    let waits_for = cluster.policies["a"].status.waits_for.clone().unwrap();
    assert_eq!(waits_for, "the budget of 1 unavailable node; unavailable: node-02");
    cluster.apply("a", spec("serving", json!({"maxUnavailable": 2})));
    cluster.settle();
    assert_eq!(cluster.layouts(), [Some("serving"), Some("serving"), None]);
    assert_eq!(
        cluster.policies["a"].status.waits_for.as_deref(),
        Some("nodes to be ready: node-02")
    );
}

#[test]
fn p5_blocked_node_waits_until_its_deadline() {
    let mut cluster = Cluster::new(1);
    cluster.machines.get_mut("node-00").unwrap().fate = Fate::Blocks;
    cluster.apply("a", spec("serving", json!({"nodeDeadline": "45m"})));
    for _minute in 0..44 {
        let mut controller = Controller::new(&cluster);
        while controller.work(&mut cluster, u32::MAX) > 0 {}
        cluster.tick();
    }
    assert_eq!(cluster.state("a"), "RollingOut");
    assert_eq!(
        cluster.policies["a"].status.waits_for.as_deref(),
        Some("node-00, which is blocked: pod team/train")
    );
    cluster.settle();
    let failures = &cluster.policies["a"].status.failures;
    assert_eq!(
        (cluster.state("a").as_str(), failures[0].reason.as_str()),
        ("Stopped", "deadline-exceeded")
    );
}

#[test]
fn p5_pause_windows_and_paused_delay_waves() {
    let mut cluster = Cluster::new(2);
    let rollout = json!({"pause": "10m", "windows": [{"start": "02:00", "duration": "1h"}]});
    cluster.apply("a", spec("serving", rollout));
    for minute in 0..180 {
        let mut controller = Controller::new(&cluster);
        while controller.work(&mut cluster, u32::MAX) > 0 {}
        let changed = cluster.layouts().iter().flatten().count();
        let expected = if minute < 120 {
            0
        } else if minute < 131 {
            1
        } else {
            2
        };
        assert_eq!(changed, expected, "minute {minute}: {:#?}", cluster.policies["a"].status);
        cluster.tick();
    }
    cluster.apply("a", spec("training", json!({"paused": true})));
    cluster.settle();
    assert_eq!(
        (cluster.state("a").as_str(), cluster.layouts()),
        ("Paused", vec![Some("serving"); 2])
    );
}

#[test]
fn i12_invalid_and_infeasible_policies_change_nothing() {
    let mut cluster = Cluster::new(2);
    cluster.apply("a", json!({"nodeSelector": {"matchLabels": {"pool": "a"}}, "nodeLabels": {"octavo.dev/x": "1"}}));
    cluster.settle();
    assert_eq!((cluster.state("a").as_str(), cluster.layouts()), ("Refused", vec![None; 2]));
    let accepted = cluster.policies["a"].status.condition("Accepted").unwrap().clone();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "Invalid"));
}

#[test]
fn p5_plan_shows_free_nodes_first_in_waves_of_the_budget() {
    let mut cluster = Cluster::new(5);
    cluster.node("node-03").readiness = Readiness::NotReady;
    cluster.label("node-04", LAYOUT_LABEL, Some("mine"));
    cluster.apply("a", spec("serving", json!({"maxUnavailable": 3})));
    cluster.tick();
    let policies: Vec<_> = cluster.policies.values().cloned().collect();
    let nodes: Vec<_> = cluster.machines.values().map(|machine| machine.node.clone()).collect();
    let mut world = world(&policies, &nodes, cluster.now);
    world.nodes.get_mut("node-00").unwrap().in_use = Some(4);
    let planned = plan(&world, &policies[0]);
    assert_eq!(waves(&planned), [vec!["node-01", "node-02"], vec!["node-00"]]);
    assert_eq!(
        (planned.unavailable, planned.overridden),
        (vec!["node-03".to_owned()], vec!["node-04".to_owned()])
    );
    assert_eq!(planned.waiting[0].name, "node-03");
}

#[test]
fn p5_plan_follows_the_order_and_the_budget_of_the_controller() {
    let mut cluster = Cluster::new(4);
    cluster.machines.get_mut("node-02").unwrap().fate = Fate::Fails;
    cluster.apply("a", spec("serving", json!({"maxFailures": 9})));
    cluster.settle();
    assert!(!cluster.is_available("node-02"));
    // The failed node uses up the budget, so it is changed alone, and first.
    cluster.apply("a", spec("training", json!({})));
    let planned = plan_of(&cluster);
    let all = [vec!["node-02"], vec!["node-00"], vec!["node-01"], vec!["node-03"]];
    assert_eq!((waves(&planned), planned.unavailable.len()), (all.to_vec(), 0));
    cluster.machines.get_mut("node-02").unwrap().fate = Fate::Applies(1);
    let mut changed = Vec::new();
    for _minute in 0..20 {
        while Controller::new(&cluster).work(&mut cluster, 1) > 0 {}
        let updating = cluster.policies["a"].status.updating.clone();
        if changed.last() != Some(&updating) && !updating.is_empty() {
            changed.push(updating);
        }
        cluster.tick();
    }
    assert_eq!(changed, all);
}

#[test]
fn p5_plan_continues_after_the_nodes_that_are_being_changed() {
    let mut cluster = Cluster::new(3);
    cluster.apply("a", spec("serving", json!({})));
    while Controller::new(&cluster).work(&mut cluster, 1) > 0 {}
    let planned = plan_of(&cluster);
    assert_eq!((waves(&planned), planned.unchanged), (vec![vec!["node-01"], vec!["node-02"]], 0));
    assert_eq!((planned.updating, planned.waiting), (vec!["node-00".to_owned()], vec![]));
}

#[test]
fn p5_planned_wave_joins_the_current_one_unless_there_is_a_pause() {
    let mut cluster = Cluster::new(3);
    cluster.apply("a", spec("serving", json!({})));
    while Controller::new(&cluster).work(&mut cluster, 1) > 0 {}
    let rollouts = [json!({"maxUnavailable": 3}), json!({"maxUnavailable": 3, "pause": "10m"})];
    for (rollout, most) in rollouts.iter().zip([3, 2]) {
        cluster.apply("a", spec("serving", rollout.clone()));
        let planned = plan_of(&cluster);
        assert_eq!(waves(&planned), [["node-01", "node-02"]]);
        assert_eq!(planned.unavailable_by_step.iter().map(BTreeSet::len).max(), Some(most));
        assert_eq!(planned.unavailable_by_step[0].len(), 1);
    }
}

#[test]
fn p5_failure_of_one_node_does_not_remove_a_complete_revision_from_the_others() {
    let mut cluster = Cluster::new(2);
    cluster.apply("a", spec("serving", json!({"onFailure": "RollBack"})));
    cluster.settle();
    cluster.join("node-02", Fate::Fails);
    cluster.settle();
    assert_eq!(cluster.state("a"), "Stopped");
    assert_eq!(cluster.layouts(), [Some("serving"); 3]);
}

#[test]
fn p5_plan_shows_a_pause_and_the_next_window() {
    let mut cluster = Cluster::new(2);
    let windows = json!([{"start": "22:00", "duration": "6h", "timeZone": "Europe/Berlin"}]);
    for (rollout, paused, opens) in [
        (json!({}), false, None),
        (json!({"paused": true}), true, None),
        (json!({"windows": windows}), false, Some("2026-07-06T20:00:00Z")),
    ] {
        cluster.apply("a", spec("serving", rollout));
        cluster.now = "2026-07-06T12:00:00Z".parse().unwrap();
        let planned = plan_of(&cluster);
        let shown = planned.window_opens.map(|at| at.to_string());
        assert_eq!((planned.paused, shown.as_deref()), (paused, opens));
        assert_eq!(planned.waves.len(), 2);
    }
    cluster.now = "2026-07-06T20:00:00Z".parse().unwrap();
    assert_eq!(plan_of(&cluster).window_opens, None);
}

#[test]
fn p5_plan_of_a_stopped_policy_has_the_reason_and_no_wave() {
    let mut cluster = Cluster::new(3);
    cluster.machines.get_mut("node-00").unwrap().fate = Fate::Fails;
    cluster.apply("a", spec("serving", json!({"maxUnavailable": 2})));
    for _minute in 0..3 {
        while Controller::new(&cluster).work(&mut cluster, 1) > 0 {}
        cluster.tick();
    }
    assert_eq!(cluster.state("a"), "Stopped");
    let waits_for = cluster.policies["a"].status.waits_for.clone();
    assert_eq!(waits_for.as_deref(), Some("a new spec, because too many nodes failed"));
    let planned = plan_of(&cluster);
    let stop = planned.stop.as_ref().unwrap();
    assert!(stop.message.starts_with("1 node failed; node-00"), "{stop:?}");
    assert_eq!((waves(&planned).len(), planned.waiting[0].name.as_str()), (0, "node-02"));
    // A changed spec ends the stop.
    cluster.apply("a", spec("training", json!({"maxUnavailable": 2})));
    let planned = plan_of(&cluster);
    assert_eq!((planned.stop, planned.waves.len()), (None, 2));
}

fn plan_of(cluster: &Cluster) -> PolicyPlan {
    let policies: Vec<_> = cluster.policies.values().cloned().collect();
    let nodes: Vec<_> = cluster.machines.values().map(|machine| machine.node.clone()).collect();
    plan(&world(&policies, &nodes, cluster.now), &policies[0])
}

fn waves(plan: &PolicyPlan) -> Vec<Vec<&str>> {
    let names = plan.waves.iter().map(|wave| wave.iter().map(|node| node.name.as_str()));
    names.map(Iterator::collect).collect()
}
