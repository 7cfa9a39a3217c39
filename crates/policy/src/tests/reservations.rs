//! GPUs that are reserved until running pods have ended.

use serde_json::json;

use super::cluster::{Cluster, Fate};
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
    assert!(waits_for.contains("node-00, which is blocked"), "{waits_for}");
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Applies(1);
    cluster.proposals.remove(NODE);
    run(&mut cluster, 5);
    assert!(layout(&cluster, "node-02").is_some());
    let events = cluster.events.iter().filter(|event| event.node == NODE);
    let reasons: Vec<&str> = events.map(|event| event.reason).collect();
    assert_eq!(reasons, ["InstancesChanging", "InstancesChanged"]);
}

#[test]
fn m21_reservation_ends_if_its_pod_is_placed_or_gets_other_instances() {
    let mut placed = reserved(2);
    placed.placed.insert("team/train".to_owned());
    let mut elsewhere = reserved(2);
    elsewhere.proposals.insert("node-01".to_owned(), proposal("7g", "train"));
    let mut evicting = reserved(2);
    evicting
        .proposals
        .insert("node-01".to_owned(), with_evictions(proposal("7g", "train"), &["a"]));
    for (cluster, ends) in [(&mut placed, true), (&mut elsewhere, true), (&mut evicting, false)] {
        cluster.proposals.remove(NODE);
        run(cluster, 3);
        assert_eq!(layout(cluster, NODE).is_none(), ends);
    }
    run(&mut elsewhere, 3);
    assert!(layout(&elsewhere, "node-01").is_some());
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
