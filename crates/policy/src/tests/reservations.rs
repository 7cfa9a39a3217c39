//! GPUs that are reserved until running pods have ended.

use serde_json::json;

use super::cluster::{Cluster, Fate, spec};
use super::demand::{NODE, demand, layout, pool, proposal, run};
use super::evictions::with_evictions;
use crate::NodeProposal;

/// A proposal that waits for the pods of a GPU.
pub(super) fn with_reservation(proposal: NodeProposal) -> NodeProposal {
    NodeProposal { reserved_device: Some("0000:1b:00.0".to_owned()), ..proposal }
}

/// A pool of which one node, whose pods do not end, has a reservation.
fn reserved(nodes: u32) -> Cluster {
    let mut cluster = pool(nodes, "Act", &json!({"nodeDeadline": "15m"}));
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Blocks;
    cluster.proposals.insert(NODE.to_owned(), with_reservation(proposal("7g", "train")));
    run(&mut cluster, 4);
    assert!(layout(&cluster, NODE).is_some());
    cluster
}

#[test]
fn m21_other_nodes_are_changed_while_a_gpu_is_reserved() {
    let mut cluster = reserved(3);
    for node in ["node-01", "node-02"] {
        cluster.proposals.insert(node.to_owned(), proposal("3g", node));
    }
    cluster.machines.get_mut("node-01").unwrap().fate = Fate::Applies(5);
    run(&mut cluster, 4);
    // The reservation does not count, the change of the other node does.
    assert_eq!((layout(&cluster, "node-01").is_some(), layout(&cluster, "node-02")), (true, None));
    // Another reservation waits.
    cluster.proposals.remove("node-01");
    cluster.proposals.insert("node-02".to_owned(), with_reservation(proposal("7g", "other")));
    run(&mut cluster, 5);
    assert_eq!(layout(&cluster, "node-02"), None);
    let status = &cluster.policies["a"].status;
    let waits_for = status.waits_for.as_deref().unwrap_or_default();
    assert_eq!(waits_for, "pods of node-00 to end, where a GPU is reserved");
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Applies(1);
    cluster.proposals.remove(NODE);
    run(&mut cluster, 5);
    assert!(layout(&cluster, "node-02").is_some());
    let events = cluster.events.iter().filter(|event| event.node == NODE);
    let reasons: Vec<&str> = events.map(|event| event.reason).collect();
    assert_eq!(reasons, ["InstancesChanging", "InstancesChanged"]);
}

#[test]
fn m21_reservation_ends_if_its_pod_is_placed_or_other_instances_are_created_for_it() {
    let mut placed = reserved(2);
    placed.placed.insert("team/train".to_owned());
    run(&mut placed, 3);
    assert_eq!(layout(&placed, NODE), None);

    let other = proposal("7g", "train");
    for other in [other.clone(), with_evictions(other, &["a"])] {
        let mut cluster = reserved(2);
        cluster.proposals.insert("node-01".to_owned(), other);
        run(&mut cluster, 2);
        assert!(layout(&cluster, NODE).is_some(), "the other change is held");
        run(&mut cluster, 3);
        assert_eq!((layout(&cluster, NODE), layout(&cluster, "node-01").is_some()), (None, true));
    }
}

#[test]
fn m21_reservation_ends_at_its_deadline_and_begins_again_after_the_cooldown() {
    let mut cluster = reserved(1);
    run(&mut cluster, 10);
    assert!(layout(&cluster, NODE).is_some());
    run(&mut cluster, 10);
    assert_eq!(layout(&cluster, NODE), None);
    run(&mut cluster, 20);
    assert_eq!(layout(&cluster, NODE), None);
    // A change that waits for no pod needs no cooldown.
    let mut other = cluster.clone();
    other.machines.get_mut(NODE).unwrap().fate = Fate::Applies(1);
    other.proposals.insert(NODE.to_owned(), proposal("1g", "small"));
    run(&mut other, 4);
    assert!(layout(&other, NODE).is_some());
    run(&mut cluster, 15);
    assert!(layout(&cluster, NODE).is_some());
}

/// After the status is lost, nothing shows that the layout is a reservation.
#[test]
fn m21_reservation_of_a_lost_status_is_withdrawn() {
    let mut cluster = reserved(2);
    cluster.edit("a", |policy| policy.status = crate::PolicyStatus::default());
    run(&mut cluster, 3);
    assert_eq!(layout(&cluster, NODE), None);
    assert_eq!(cluster.policies["a"].status.failures, []);
}

#[test]
fn m21_no_gpu_is_reserved_by_default() {
    let mut cluster = pool(1, "Act", &json!({}));
    let mut without = demand("Act", &json!({}));
    without["demand"].as_object_mut().unwrap().remove("reserveAfter");
    cluster.apply("a", without);
    cluster.proposals.insert(NODE.to_owned(), with_reservation(proposal("7g", "train")));
    run(&mut cluster, 10);
    assert_eq!((layout(&cluster, NODE), cluster.policies["a"].status.changes.len()), (None, 0));
}

/// A spec with a layout changes nodes within the budget, whatever was reserved before.
#[test]
fn m21_reserved_node_counts_as_unavailable_for_another_layout() {
    let mut cluster = reserved(2);
    cluster.proposals.clear();
    cluster.apply("a", spec("serving", json!({"nodeDeadline": "15m"})));
    run(&mut cluster, 5);
    assert_eq!(layout(&cluster, "node-01"), None);
    run(&mut cluster, 20);
    assert_eq!(cluster.state("a"), "Stopped", "the deadline applies");
}

/// A pause does not keep the GPU from other pods once its pod is placed.
#[test]
fn m21_reservation_ends_while_the_policy_is_paused() {
    let mut cluster = reserved(2);
    cluster.apply("a", demand("Act", &json!({"nodeDeadline": "15m", "paused": true})));
    run(&mut cluster, 2);
    assert!(layout(&cluster, NODE).is_some());
    cluster.placed.insert("team/train".to_owned());
    run(&mut cluster, 3);
    assert_eq!(layout(&cluster, NODE), None);
}

#[test]
fn m21_approval_of_a_reservation_outlives_the_pods_of_its_gpu() {
    let mut cluster = pool(1, "Propose", &json!({}));
    let proposed = |text: &str| {
        let pods = vec![("team/train".to_owned(), text.to_owned())];
        with_reservation(NodeProposal { pods, ..proposal("7g", "train") })
    };
    cluster.proposals.insert(NODE.to_owned(), proposed("create when 2 instances are idle"));
    run(&mut cluster, 2);
    let id = cluster.policies["a"].status.changes[0].id.clone();
    cluster.proposals.insert(NODE.to_owned(), proposed("create when 1 instance is idle"));
    run(&mut cluster, 2);
    cluster.edit("a", |policy| policy.approved = [id].into());
    run(&mut cluster, 2);
    assert!(layout(&cluster, NODE).is_some());
}
