//! Instances for pending pods: modes, limits and withdrawals.

use jiff::ToSpan;
use octavo_node::node_object::demand_layout;
use serde_json::{Value, json};

use super::cluster::{Cluster, Controller, Fate, spec};
use crate::record::LAYOUT_LABEL;
use crate::validation::problems;
use crate::{
    ApprovalError, ChangeEvent, NodeProposal, PolicySpec, PolicyState, approvable, approval,
};

pub(super) const NODE: &str = "node-00";

pub(super) fn demand(mode: &str, rollout: &Value) -> Value {
    json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}},
        "demand": {
            "mode": mode, "hold": "2m", "changesPerHour": 3, "cooldown": "30m", "evictionsPerHour": 2, "reserveAfter": "1h",
        },
        "rollout": rollout,
    })
}

pub(super) fn proposal(instances: &str, pod: &str) -> NodeProposal {
    NodeProposal {
        instances: instances.to_owned(),
        pods: vec![(format!("team/{pod}"), format!("create {instances}"))],
        ..NodeProposal::default()
    }
}

/// A pool whose nodes have the record of the policy, but no layout.
pub(super) fn pool(nodes: u32, mode: &str, rollout: &Value) -> Cluster {
    let mut cluster = Cluster::new(nodes);
    cluster.apply("a", demand(mode, rollout));
    cluster.settle();
    assert_eq!(cluster.state("a"), "Complete");
    assert!(cluster.layouts().iter().all(Option::is_none));
    cluster
}

/// Lets a controller with a current view work for this many minutes.
pub(super) fn run(cluster: &mut Cluster, minutes: u32) {
    for _minute in 0..minutes {
        let mut controller = Controller::new(cluster);
        while controller.work(cluster, u32::MAX) > 0 {
            controller = Controller::new(cluster);
        }
        cluster.tick();
    }
}

/// A pool after this many minutes, in which running pods block the change of a node from its beginning.
pub(super) fn blocked(minutes: u32, rollout: &Value) -> Cluster {
    let mut cluster = pool(2, "Act", rollout);
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Blocks;
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, minutes);
    cluster
}

pub(super) fn layout(cluster: &Cluster, node: &str) -> Option<String> {
    cluster.machines[node].node.labels.get(LAYOUT_LABEL).cloned()
}

#[test]
fn m21_stable_proposal_is_carried_out_after_the_hold() {
    let mut cluster = pool(3, "Act", &json!({}));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 2);
    assert_eq!(layout(&cluster, NODE), None, "it was not stable for 2 minutes");
    let change = cluster.policies["a"].status.changes[0].clone();
    assert_eq!((change.node.as_str(), change.is_in_progress()), (NODE, false));
    run(&mut cluster, 1);
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g")));
    assert_eq!(cluster.machines[NODE].instances.as_deref(), Some("3g"));
    // The pod is placed.
    cluster.proposals.clear();
    run(&mut cluster, 2);
    let status = &cluster.policies["a"].status;
    assert_eq!((status.state, status.changes.len()), (PolicyState::Complete, 0));
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g")), "its instances stay");
    let writes = cluster.writes;
    run(&mut cluster, 90);
    assert_eq!(cluster.writes, writes, "an idle policy is written");
}

#[test]
fn m21_proposal_waits_for_its_approval_and_an_approval_counts_once() {
    let mut cluster = pool(2, "Propose", &json!({}));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 30);
    assert_eq!(layout(&cluster, NODE), None);
    let status = cluster.policies["a"].status.clone();
    assert_eq!(status.state, PolicyState::Waiting);
    let waits_for = status.waits_for.unwrap();
    assert!(waits_for.contains("approval") && waits_for.contains(NODE), "{waits_for}");

    let id = status.changes[0].id.clone();
    cluster.edit("a", |policy| policy.approved = [id].into());
    run(&mut cluster, 2);
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g")));
    // The same instances are proposed again later, after others.
    for (instances, expected) in [("1g", "3g"), ("3g", "3g")] {
        cluster.proposals.insert(NODE.to_owned(), proposal(instances, "other"));
        run(&mut cluster, 10);
        assert_eq!(layout(&cluster, NODE), Some(demand_layout(expected)));
    }
}

#[test]
fn m21_approval_drops_identifiers_of_past_proposals() {
    let mut cluster = pool(3, "Propose", &json!({}));
    let nothing: [String; 0] = [];
    assert_eq!(approvable(&cluster.policies["a"], &nothing), Err(ApprovalError::Nothing));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "a"));
    cluster.proposals.insert("node-01".to_owned(), proposal("2g", "b"));
    run(&mut cluster, 1);
    let policy = &cluster.policies["a"];
    let all = approvable(policy, &nothing).unwrap();
    assert_eq!(all.len(), 2);
    let one = approvable(policy, &["node-01".to_owned()]).unwrap();
    let mut approved = policy.clone();
    approved.approved = ["gone".to_owned(), all[0].id.clone()].into();
    assert_eq!(approval(&approved, &one), format!("{},{}", all[0].id, all[1].id));
    let unknown = approvable(policy, &["node-02".to_owned()]);
    assert_eq!(unknown, Err(ApprovalError::NotProposed("node-02".to_owned())));
    cluster.apply("a", demand("Act", &json!({})));
    let refused = approvable(&cluster.policies["a"], &nothing).unwrap_err();
    assert_eq!(refused.to_string(), "spec.demand.mode is Act; only Propose needs approvals");
}

fn reasons(cluster: &Cluster) -> Vec<&'static str> {
    assert!(cluster.events.iter().all(|event| event.message.contains(NODE)), "{cluster:#?}");
    cluster.events.iter().map(|event| event.reason).collect()
}

#[test]
fn m21_every_change_has_events() {
    for (fate, ending) in [
        (Fate::Applies(2), "InstancesChanged"),
        (Fate::Blocks, "InstancesWithdrawn"),
        (Fate::Fails, "InstancesFailed"),
    ] {
        let mut cluster = pool(2, "Propose", &json!({}));
        cluster.machines.get_mut(NODE).unwrap().fate = fate;
        cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
        run(&mut cluster, 1);
        let id = cluster.policies["a"].status.changes[0].id.clone();
        cluster.edit("a", |policy| policy.approved = [id].into());
        run(&mut cluster, 1);
        cluster.proposals.clear();
        run(&mut cluster, 5);
        assert_eq!(reasons(&cluster), ["InstancesProposed", "InstancesChanging", ending]);
        let pods = cluster.events.iter().flat_map(|event| &event.pods);
        let (pods, texts): (Vec<&str>, Vec<&str>) =
            pods.map(|(pod, text)| (pod.as_str(), text.as_str())).unzip();
        assert_eq!(pods, ["team/train"; 3]);
        assert_eq!(texts[..2], ["policy a: waits for approval: create 3g", "policy a: create 3g"]);
        assert!(texts[2].starts_with("policy a: node node-00: "), "{texts:?}");
    }
}

/// The event of a pod names no pod of another namespace, and a proposal that grows has no second event for a pod.
#[test]
fn m21_pod_has_one_event_for_each_change() {
    let mut cluster = pool(1, "Propose", &json!({}));
    let pod = |number: u32| (format!("team-{number}/train"), format!("create {number}g"));
    for count in [1, 2, 30] {
        let pods = (0..count).map(pod).collect();
        let instances = format!("{count}g");
        cluster
            .proposals
            .insert(NODE.to_owned(), NodeProposal { pods, ..proposal(&instances, "") });
        run(&mut cluster, 1);
    }
    let pods = |event: &ChangeEvent| event.pods.clone();
    let events: Vec<_> = cluster.events.iter().map(pods).collect();
    let text = |number: u32| format!("policy a: waits for approval: create {number}g");
    let expected = |from: u32, to: u32| -> Vec<(String, String)> {
        (from..to).map(|number| (pod(number).0, text(number))).collect()
    };
    assert_eq!(events, [expected(0, 1), expected(1, 2), expected(2, 22)]);
}

/// The node leaves the policy while it is being changed.
#[test]
fn m21_change_of_a_node_that_leaves_the_policy_is_abandoned() {
    let mut cluster = pool(2, "Act", &json!({}));
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Applies(9);
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 4);
    cluster.label(NODE, "pool", None);
    run(&mut cluster, 4);
    assert_eq!(reasons(&cluster), ["InstancesChanging", "InstancesAbandoned"]);
    assert_eq!((layout(&cluster, NODE), &cluster.machines[NODE].instances), (None, &None));
}

#[test]
fn m21_removed_label_releases_the_instances() {
    let mut cluster = pool(2, "Act", &json!({}));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 5);
    cluster.proposals.clear();
    cluster.label(NODE, LAYOUT_LABEL, None);
    run(&mut cluster, 5);
    assert_eq!((layout(&cluster, NODE), &cluster.machines[NODE].instances), (None, &None));
    assert_eq!(cluster.state("a"), "Complete");
}

#[test]
fn m21_change_that_stays_blocked_is_withdrawn_at_the_deadline() {
    let mut cluster = blocked(10, &json!({"nodeDeadline": "10m"}));
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g")));
    run(&mut cluster, 4);
    assert_eq!(layout(&cluster, NODE), None);
    assert!(cluster.policies["a"].status.failures.is_empty());
}

/// A GPU that the instances name is replaced after they were applied.
#[test]
fn m21_layout_that_fails_later_is_withdrawn() {
    let mut cluster = pool(2, "Act", &json!({}));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 5);
    cluster.proposals.clear();
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Fails;
    run(&mut cluster, 3);
    assert_eq!((layout(&cluster, NODE), &cluster.machines[NODE].instances), (None, &None));
    assert_eq!(cluster.state("a"), "Complete");
}

#[test]
fn m21_new_spec_continues_a_stopped_policy() {
    let mut cluster = pool(2, "Act", &json!({}));
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Fails;
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 6);
    assert_eq!(cluster.state("a"), "Stopped");
    cluster.proposals.clear();
    cluster.apply("a", demand("Act", &json!({"nodeDeadline": "20m"})));
    run(&mut cluster, 4);
    assert_eq!((cluster.state("a").as_str(), layout(&cluster, NODE)), ("Complete", None));
}

#[test]
fn m21_rollback_to_a_layout_ends_changes() {
    let mut cluster = Cluster::new(2);
    cluster.apply("a", spec("serving", json!({})));
    cluster.settle();
    let revision = cluster.policies["a"].status.revision.clone();
    cluster.apply("a", demand("Act", &json!({})));
    cluster.settle();
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 4);
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g")));
    cluster.edit("a", |policy| policy.rollback_to = Some(revision));
    run(&mut cluster, 30);
    assert_eq!(cluster.state("a"), "RolledBack");
    assert_eq!(layout(&cluster, NODE).as_deref(), Some("serving"));
    assert_eq!(cluster.machines[NODE].instances, None);
    assert_eq!(reasons(&cluster).len(), 2, "{:?}", cluster.events);
}

/// A pause that lasts must not carry out an old plan at its end.
#[test]
fn m21_change_that_was_not_written_in_time_is_withdrawn() {
    let mut cluster = pool(2, "Act", &json!({"nodeDeadline": "10m"}));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 2);
    let mut controller = Controller::new(&cluster);
    controller.work(&mut cluster, 1);
    assert!(cluster.policies["a"].status.changes[0].is_in_progress());
    let rollout = json!({"nodeDeadline": "10m", "paused": true});
    cluster.apply("a", demand("Act", &rollout));
    cluster.proposals.clear();
    run(&mut cluster, 20);
    cluster.apply("a", demand("Act", &json!({"nodeDeadline": "10m"})));
    run(&mut cluster, 5);
    assert_eq!(layout(&cluster, NODE), None);
    assert_eq!(cluster.state("a"), "Complete");
}

#[test]
fn m21_observed_demand_changes_nothing() {
    let mut cluster = pool(2, "Observe", &json!({}));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    let writes = cluster.writes;
    run(&mut cluster, 30);
    assert_eq!((cluster.writes, layout(&cluster, NODE)), (writes, None));
}

#[test]
fn m21_budget_limits_changes_and_each_pod_causes_one() {
    let mut cluster = pool(4, "Act", &json!({"maxUnavailable": 2}));
    for machine in cluster.machines.values_mut() {
        machine.fate = Fate::Applies(5);
    }
    for (node, pod) in [("node-00", "a"), ("node-01", "b"), ("node-02", "c")] {
        cluster.proposals.insert(node.to_owned(), proposal(pod, pod));
    }
    run(&mut cluster, 4);
    assert_eq!(cluster.taken_down.len(), 2);
    let status = &cluster.policies["a"].status;
    assert!(status.waits_for.as_ref().unwrap().contains("being changed"), "{status:#?}");
    // The plan for the pod of a change in progress moves to another node.
    cluster.proposals.remove("node-00");
    cluster.proposals.insert("node-03".to_owned(), proposal("a", "a"));
    run(&mut cluster, 3);
    assert_eq!(layout(&cluster, "node-03"), None);
    cluster.proposals.remove("node-03");
    run(&mut cluster, 10);
    assert_eq!(layout(&cluster, "node-02"), Some(demand_layout("c")));
}

#[test]
fn m21_blocked_change_that_no_pod_needs_is_withdrawn() {
    let mut cluster = blocked(5, &json!({}));
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g")), "the pod still needs it");
    cluster.proposals.clear();
    run(&mut cluster, 2);
    assert_eq!((layout(&cluster, NODE), &cluster.machines[NODE].instances), (None, &None));
    assert_eq!(cluster.state("a"), "Complete");
    assert!(cluster.policies["a"].status.changes.is_empty());
}

#[test]
fn m21_change_that_a_pod_blocks_while_it_ends_is_not_withdrawn() {
    let mut cluster = blocked(3, &json!({}));
    // The pod that is ending uses the instance, so the plan has none for the pending pod.
    cluster.proposals.clear();
    cluster.now -= 55.seconds();
    for expected in [Some(demand_layout("3g")), None] {
        Controller::new(&cluster).work(&mut cluster, u32::MAX);
        Controller::new(&cluster).work(&mut cluster, u32::MAX);
        assert_eq!(layout(&cluster, NODE), expected);
        cluster.now += 10.seconds();
    }
}

#[test]
fn m21_failed_node_stops_the_policy_or_is_changed_again_after_the_cooldown() {
    for allowed in [0, 1] {
        let mut cluster = pool(3, "Act", &json!({"maxFailures": allowed, "maxUnavailable": 2}));
        cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
        cluster.machines.get_mut(NODE).unwrap().fate = Fate::Fails;
        run(&mut cluster, 25);
        assert_eq!(cluster.instance_changes[NODE].len(), 1);
        let status = &cluster.policies["a"].status;
        assert_eq!(status.failures.len(), 1);
        if allowed == 0 {
            assert_eq!(status.state, PolicyState::Stopped);
            continue;
        }
        cluster.machines.get_mut(NODE).unwrap().fate = Fate::Applies(1);
        cluster.proposals.insert(NODE.to_owned(), proposal("3g,1g", "train"));
        run(&mut cluster, 20);
        assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g,1g")));
        assert!(cluster.policies["a"].status.failures.is_empty());
    }
}

#[test]
fn m21_change_that_has_begun_ends_in_another_mode_and_its_layout_stays() {
    let mut cluster = pool(2, "Act", &json!({}));
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Applies(5);
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 4);
    assert!(cluster.policies["a"].status.changes[0].is_in_progress());
    cluster.apply("a", demand("Observe", &json!({})));
    run(&mut cluster, 30);
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g")));
    let status = &cluster.policies["a"].status;
    assert_eq!((status.state, status.changes.len()), (PolicyState::Complete, 0));
}

#[test]
fn m21_node_with_another_layout_is_left_alone() {
    let mut cluster = pool(2, "Act", &json!({}));
    cluster.label(NODE, LAYOUT_LABEL, Some("mine"));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 5);
    assert_eq!(layout(&cluster, NODE).as_deref(), Some("mine"));
    assert_eq!(cluster.policies["a"].status.nodes.overridden, 1);
}

#[test]
fn m21_layout_is_removed_with_spec_demand_or_the_policy() {
    let mut cluster = pool(2, "Act", &json!({}));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 5);
    let without = json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}}, "nodeLabels": {"workload": "x"},
    });
    let mut other = cluster.clone();
    other.apply("a", without);
    other.edit("a", |policy| policy.status.changes.clear());
    run(&mut other, 5);
    assert_eq!((layout(&other, NODE), &other.machines[NODE].instances), (None, &None));
    cluster.edit("a", |policy| policy.is_deleting = true);
    run(&mut cluster, 5);
    assert_eq!((layout(&cluster, NODE), &cluster.machines[NODE].instances), (None, &None));
    assert!(cluster.policies.is_empty());
}

#[test]
fn i12_demand_is_validated() {
    let fields = |spec: Value| {
        let spec: PolicySpec = serde_json::from_value(spec).unwrap();
        problems(&spec).into_iter().map(|problem| problem.field).collect::<Vec<_>>()
    };
    let mut spec = demand("Act", &json!({"onFailure": "RollBack"}));
    spec["layout"] = json!("serving");
    spec["demand"]["changesPerHour"] = json!(0);
    assert_eq!(
        fields(spec),
        ["spec.demand", "spec.demand.changesPerHour", "spec.rollout.onFailure"]
    );
    assert_eq!(fields(demand("Observe", &json!({}))), [""; 0]);
    let reserved = json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}}, "layout": "demand-cbf29ce484",
    });
    assert_eq!(fields(reserved), ["spec.layout"]);
    serde_json::from_value::<PolicySpec>(demand("Auto", &json!({}))).unwrap_err();
}

/// The record on the node limits a controller with an older view of it.
#[test]
fn m21_outdated_view_does_not_exceed_the_limits() {
    let mut cluster = pool(2, "Act", &json!({}));
    let mut stale = Controller::new(&cluster);
    for instances in ["1g", "2g", "3g"] {
        stale = Controller::new(&cluster);
        cluster.proposals.insert(NODE.to_owned(), proposal(instances, "train"));
        run(&mut cluster, 4);
    }
    assert_eq!(cluster.instance_changes[NODE].len(), 3);
    cluster.proposals.insert(NODE.to_owned(), proposal("4g", "train"));
    for _minute in 0..10 {
        stale.list_policies(&cluster);
        while stale.work(&mut cluster, 1) > 0 {}
        cluster.tick();
    }
    assert_eq!(cluster.instance_changes[NODE].len(), 3);
    run(&mut cluster, 60);
    assert_eq!(cluster.instance_changes[NODE].len(), 4);
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("4g")));
}

/// Pods that arrive one after the other do not delay the change for the first one.
#[test]
fn m21_further_pods_join_a_proposal_without_another_hold() {
    let mut cluster = pool(2, "Act", &json!({}));
    let mut pods = Vec::new();
    for number in 0..3 {
        pods.push((format!("team/{number}"), "create".to_owned()));
        let instances = format!("{number}g");
        let next = NodeProposal { pods: pods.clone(), ..proposal(&instances, "") };
        cluster.proposals.insert(NODE.to_owned(), next);
        run(&mut cluster, 1);
    }
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("2g")));
}
