//! Pods that are evicted to make room for a pending pod.

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
    let evicted = |cluster: &Cluster| -> Vec<Option<String>> {
        cluster.machines.values().map(|machine| machine.evict.clone()).collect()
    };
    assert_eq!(evicted(&cluster), [Some("uid-a,uid-b".to_owned()), None, None]);
    let status = cluster.policies["a"].status.clone();
    assert!(status.waits_for.unwrap().contains("limits of spec.demand"));
    let [waiting] = status.changes.as_slice() else { panic!("{:?}", status.changes) };
    assert_eq!(waiting.lines(), ["team/node-01: create node-01 3g", "evicts other/c"]);
    let of_evicted = cluster.events.iter().flat_map(|event| &event.pods);
    let of_evicted = of_evicted.filter(|(pod, _)| pod == "other/a");
    let texts: Vec<&str> = of_evicted.map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        texts,
        ["policy a: is evicted, because a pending pod needs its place on node node-00"]
    );
    // The next change has no evictions.
    cluster.proposals.insert(NODE.to_owned(), proposal("2g", "other"));
    run(&mut cluster, 55);
    assert_eq!(evicted(&cluster), [const { None }; 3]);
    run(&mut cluster, 10);
    // The third proposal exceeds the budget of an hour.
    assert_eq!(evicted(&cluster), [None, Some("uid-c".to_owned()), None]);
    cluster.edit("a", |policy| policy.is_deleting = true);
    cluster.settle();
    assert_eq!(evicted(&cluster), [const { None }; 3]);
}

/// A node is tainted while its agent evicts pods, so no proposal contains it.
#[test]
fn m21_change_that_evicts_pods_is_withdrawn_at_its_deadline_only() {
    let mut cluster = pool(1, "Act", &json!({"nodeDeadline": "15m"}));
    cluster.machines.get_mut(NODE).unwrap().fate = Fate::Blocks;
    cluster.proposals.insert(NODE.to_owned(), with_evictions(proposal("3g", "train"), &["a"]));
    run(&mut cluster, 4);
    cluster.proposals.clear();
    run(&mut cluster, 8);
    assert_eq!(cluster.machines[NODE].evict.as_deref(), Some("uid-a"));
    run(&mut cluster, 8);
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
