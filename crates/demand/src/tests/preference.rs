//! Nodes that are preferred because of their policies.

use std::collections::BTreeSet;

use octavo_fleet::cluster::{ClusterNode, ClusterSnapshot};
use octavo_policy::{DemandMode, PolicyDemand};

use super::proposal::{Known, NOW, device, node, observed, only, pod};
use crate::observed::ObservedNode;
use crate::proposal::propose;
use crate::report::Outcome;

/// Pods of a pool whose policy carries out proposals are not proposed instances elsewhere without a need.
#[test]
fn node_whose_policy_carries_out_proposals_is_preferred_if_an_instance_must_be_created() {
    let modes = [DemandMode::Observe, DemandMode::Propose, DemandMode::Act];
    let with_mode = |(number, mode): (u32, DemandMode), instances: &[(Known, bool)]| ObservedNode {
        demand: PolicyDemand { mode, ..PolicyDemand::default() },
        ..observed(&format!("gpu-{number}"), vec![device(number, instances)])
    };
    let idle = (19, 0, 1);
    for (idle_on, expected, outcome) in
        [(None, "gpu-2", Outcome::Create), (Some(0), "gpu-0", Outcome::Available)]
    {
        let nodes: Vec<ObservedNode> = (0..)
            .zip(modes)
            .map(|node| {
                let has_idle = idle_on == Some(node.0);
                // The last node has the most fragmentation.
                let instances = [(idle, !has_idle), ((19, 2, 1), true)];
                with_mode(node, &instances[..if node.0 == 2 || has_idle { 2 } else { 0 }])
            })
            .collect();
        let cluster = nodes.iter().map(|observed| node(&observed.name));
        let snapshot = ClusterSnapshot::new(cluster, vec![pod("train", 60, &[("1g.10gb", 1)])]);
        let report = propose(&snapshot, &nodes, NOW).report;
        let proposal = only(&report);
        assert_eq!(proposal.node.as_deref(), Some(expected));
        assert_eq!(proposal.outcome, outcome);
    }
}

#[test]
fn pod_stays_with_the_node_whose_change_is_proposed_for_it() {
    let used = |start| ((19, start, 1), true);
    let mut nodes = vec![
        observed("gpu-0", vec![device(0, &[])]),
        observed("gpu-1", vec![device(0, &[used(0), used(2)])]),
    ];
    let cluster: Vec<ClusterNode> = nodes.iter().map(|observed| node(&observed.name)).collect();
    let pods = [pod("old", 60, &[("1g.10gb", 1)]), pod("new", 50, &[("1g.10gb", 1)])];
    let snapshot = ClusterSnapshot::new(cluster, pods);
    let chosen = |nodes: &[ObservedNode]| -> Vec<Option<String>> {
        let report = propose(&snapshot, nodes, NOW).report;
        report.items.iter().map(|one| one.node.clone()).collect()
    };
    let better = Some("gpu-1".to_owned());
    assert_eq!(chosen(&nodes), [better.clone(), better.clone()]);
    nodes[0].changed_for = BTreeSet::from(["team/old".to_owned()]);
    assert_eq!(chosen(&nodes), [Some("gpu-0".to_owned()), better.clone()]);
    let report = propose(&snapshot, &nodes, NOW).report;
    assert_eq!(
        report.items[0].alternatives[0].message,
        "better, but a change of node gpu-0 is already proposed for the pod"
    );
    // An idle instance needs no change.
    nodes[1] = observed("gpu-1", vec![device(0, &[((19, 0, 1), false)])]);
    assert_eq!(chosen(&nodes)[0], better);
}
