//! Pods that are evicted to make room for a pending pod.

use jiff::SignedDuration;
use octavo_node::node_object::EvictionPermission;
use serde_json::json;

use super::cluster::{Cluster, Fate};
use super::demand::{NODE, demand, layout, pool, proposal, run};
use crate::{NodeProposal, PodEviction};

/// A proposal that evicts these pods.
pub(super) fn with_evictions(proposal: NodeProposal, pods: &[&str]) -> NodeProposal {
    let evictions = pods
        .iter()
        .map(|pod| PodEviction { pod: format!("other/{pod}"), uid: format!("uid-{pod}") });
    NodeProposal { evictions: evictions.collect(), ..proposal }
}

#[test]
fn m21_pods_are_evicted_within_the_budget_only() {
    let mut cluster = pool(3, "Act", &json!({"maxUnavailable": 3}));
    let proposals =
        [("node-00", vec!["a", "b"]), ("node-01", vec!["c"]), ("node-02", vec!["d", "e", "f"])];
    for (node, pods) in &proposals {
        let evicting = with_evictions(proposal(&format!("{node} 3g"), node), pods);
        cluster.proposals.insert((*node).to_owned(), evicting);
    }
    run(&mut cluster, 4);
    assert_eq!(evicted(&cluster), ["uid-a,uid-b", "", ""]);
    let status = cluster.policies["a"].status.clone();
    assert!(status.waits_for.unwrap().contains("limits of spec.demand"));
    let [waiting] = status.changes.as_slice() else { panic!("{:?}", status.changes) };
    assert_eq!(waiting.lines(), ["team/node-01: create node-01 3g", "evicts other/c"]);
    let of_evicted = cluster.events.iter().flat_map(|event| &event.pods);
    let of_evicted = of_evicted.filter(|(pod, _)| pod == "other/a");
    let texts: Vec<&str> = of_evicted.map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        texts,
        ["policy a: may be evicted, because a pending pod needs its place on node node-00"]
    );
    // The next change has no evictions.
    cluster.proposals.insert(NODE.to_owned(), proposal("2g", "other"));
    run(&mut cluster, 55);
    assert_eq!(evicted(&cluster), [""; 3]);
    run(&mut cluster, 10);
    // The third proposal exceeds the budget of an hour.
    assert_eq!(evicted(&cluster), ["", "uid-c", ""]);
    cluster.edit("a", |policy| policy.is_deleting = true);
    cluster.settle();
    assert_eq!(evicted(&cluster), [""; 3]);
}

/// UIDs of the pods that each agent may evict.
fn evicted(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.machines.values();
    let uids = nodes.map(|machine| {
        let permission = machine.evict.as_deref().map(str::parse::<EvictionPermission>);
        permission.map(|permission| permission.unwrap().uids.join(",")).unwrap_or_default()
    });
    uids.collect()
}

/// A node is tainted while its agent evicts pods, so no proposal contains it.
#[test]
fn m21_change_that_evicts_pods_is_withdrawn_at_its_deadline_or_if_no_pod_waits() {
    let begun = || {
        let mut cluster = pool(1, "Act", &json!({"nodeDeadline": "15m"}));
        cluster.machines.get_mut(NODE).unwrap().fate = Fate::Blocks;
        cluster.proposals.insert(NODE.to_owned(), with_evictions(proposal("3g", "train"), &["a"]));
        run(&mut cluster, 4);
        let permission: EvictionPermission =
            cluster.machines[NODE].evict.as_deref().unwrap().parse().unwrap();
        let begun = cluster.policies["a"].status.changes[0].begun.unwrap();
        assert_eq!(permission.until, begun + SignedDuration::from_mins(15));
        cluster.proposals.clear();
        run(&mut cluster, 8);
        assert_eq!(evicted(&cluster), ["uid-a"]);
        cluster
    };
    let mut cluster = begun();
    run(&mut cluster, 8);
    assert_eq!((layout(&cluster, NODE), &cluster.machines[NODE].evict), (None, &None));
    // The same pods are not named again before the cooldown.
    cluster.policies.get_mut("a").unwrap().status.evictions.clear();
    cluster.proposals.insert(NODE.to_owned(), with_evictions(proposal("3g", "train"), &["a"]));
    run(&mut cluster, 20);
    assert_eq!(evicted(&cluster), [""]);
    run(&mut cluster, 15);
    assert_eq!(evicted(&cluster), ["uid-a"]);

    let mut cluster = begun();
    cluster.placed.insert("team/train".to_owned());
    run(&mut cluster, 2);
    assert_eq!((layout(&cluster, NODE), &cluster.machines[NODE].evict), (None, &None));
}

#[test]
fn m21_no_pod_is_evicted_by_default() {
    let mut cluster = pool(1, "Act", &json!({}));
    let mut without = demand("Act", &json!({}));
    without["demand"].as_object_mut().unwrap().remove("evictionsPerHour");
    cluster.apply("a", without);
    cluster.proposals.insert(NODE.to_owned(), with_evictions(proposal("3g", "train"), &["a"]));
    run(&mut cluster, 10);
    assert_eq!((layout(&cluster, NODE), cluster.policies["a"].status.changes.len()), (None, 0));
}
