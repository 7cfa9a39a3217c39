//! Proposals for nodes whose agents do not report the users of all devices, for example while they restart.

use octavo_fleet::cluster::Readiness;
use octavo_node::node_object::demand_layout;
use serde_json::json;

use super::cluster::Cluster;
use super::demand::{NODE, blocked, demand, layout, pool, proposal, run};
use crate::PolicyState;

#[test]
fn m21_proposal_and_its_approval_stay_while_the_use_of_the_node_is_unknown() {
    let mut cluster = pool(2, "Propose", &json!({}));
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 1);
    let listed = cluster.policies["a"].status.changes.clone();
    // The agent restarts, and has not read the users of its devices yet.
    let proposals = std::mem::take(&mut cluster.proposals);
    cluster.unknown_nodes.insert(NODE.to_owned());
    cluster.edit("a", |policy| policy.approved = [listed[0].id.clone()].into());
    run(&mut cluster, 5);
    let status = &cluster.policies["a"].status;
    assert_eq!((status.state, &status.changes), (PolicyState::Waiting, &listed));
    let waits_for = status.waits_for.as_deref().unwrap();
    assert_eq!(waits_for, "the agents of these nodes to report the use of their devices: node-00");
    assert_eq!(layout(&cluster, NODE), None, "it is changed without a proposal");
    let begun = cluster.clone();
    cluster.unknown_nodes.clear();
    cluster.proposals = proposals;
    run(&mut cluster, 2);
    assert_eq!(layout(&cluster, NODE), Some(demand_layout("3g")));
    // Without a reason, it is withdrawn: its pod runs, gets instances elsewhere, or the node is not ready.
    let reasons: [fn(&mut Cluster); 4] = [
        |cluster| cluster.placed.extend(["team/train".to_owned()]),
        |cluster| drop(cluster.proposals.insert("node-01".to_owned(), proposal("3g", "train"))),
        |cluster| cluster.node(NODE).readiness = Readiness::NotReady,
        |cluster| cluster.apply("a", demand("Observe", &json!({}))),
    ];
    for end in reasons {
        let mut cluster = begun.clone();
        end(&mut cluster);
        run(&mut cluster, 1);
        let changes = &cluster.policies["a"].status.changes;
        assert!(changes.iter().all(|change| change.node != NODE), "{changes:?}");
    }
}

#[test]
fn m21_blocked_change_of_an_unknown_node_is_withdrawn_without_its_pod_or_at_the_deadline() {
    let mut blocked = blocked(5, &json!({"nodeDeadline": "30m"}));
    blocked.proposals.clear();
    blocked.unknown_nodes.insert(NODE.to_owned());
    run(&mut blocked, 5);
    assert_eq!(layout(&blocked, NODE), Some(demand_layout("3g")));
    let reasons: [fn(&mut Cluster); 3] = [
        |cluster| cluster.unknown_nodes.clear(),
        |cluster| cluster.placed.extend(["team/train".to_owned()]),
        |cluster| run(cluster, 30),
    ];
    for end in reasons {
        let mut cluster = blocked.clone();
        end(&mut cluster);
        run(&mut cluster, 5);
        assert_eq!(layout(&cluster, NODE), None);
    }
}

#[test]
fn m21_proposal_of_an_unknown_node_ends_if_another_policy_lists_its_pod() {
    let mut cluster = pool(2, "Propose", &json!({}));
    cluster.label("node-01", "pool", Some("b"));
    let mut other = demand("Propose", &json!({}));
    other["nodeSelector"]["matchLabels"]["pool"] = json!("b");
    cluster.apply("b", other);
    cluster.settle();
    cluster.proposals.insert(NODE.to_owned(), proposal("3g", "train"));
    run(&mut cluster, 1);
    cluster.unknown_nodes.insert(NODE.to_owned());
    cluster.proposals = [("node-01".to_owned(), proposal("3g", "train"))].into();
    run(&mut cluster, 2);
    let listed = |policy: &str| cluster.policies[policy].status.changes.len();
    assert_eq!([listed("a"), listed("b")], [0, 1]);
}
