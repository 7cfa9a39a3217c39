//! Property tests with random nodes and pods: all units are accounted for, and free units match the scheduler's rule.

use proptest::prelude::*;

use super::{GPU, H200, TYPE, counted, node, pod, snapshot, taint};
use crate::cluster::{
    Amounts, ClusterNode, ClusterPod, PODS, Phase, PodRequirements, Readiness, Toleration,
    free_slots,
};

fn any_node(name: &'static str) -> impl Strategy<Value = ClusterNode> {
    let keys = prop::sample::select(vec![
        None,
        Some(GPU),
        Some("team-b"),
        Some("octavo.dev/repartitioning"),
        Some("node.kubernetes.io/not-ready"),
    ]);
    let ready = prop::sample::select(vec![Readiness::Ready, Readiness::NotReady]);
    (0_u64..9, 0_u64..9, 0_u64..6, keys, any::<bool>(), ready).prop_map(
        move |(capacity, allocatable, pods, key, is_cordoned, readiness)| {
            let mut node = node(name, &[(TYPE, H200)], capacity);
            node.allocatable = Amounts::default().with(GPU, allocatable).with(PODS, pods);
            node.taints = key.map(taint).into_iter().collect();
            node.is_cordoned = is_cordoned;
            node.readiness = readiness;
            node
        },
    )
}

fn any_pods() -> impl Strategy<Value = Vec<ClusterPod>> {
    let on = prop::sample::select(vec![None, Some("a"), Some("b")]);
    let one = (on, 0_u64..4, any::<bool>());
    prop::collection::vec(one, 0..8).prop_map(|all| {
        let pods = all.into_iter().enumerate();
        pods.map(|(number, (on, count, has_ended))| {
            let mut pod = pod(&format!("pod-{number}"), on, GPU, count);
            if has_ended {
                pod.phase = Phase::Finished;
            }
            pod
        })
        .collect()
    })
}

proptest! {
    #[test]
    fn free_units_match_the_scheduler(
        a in any_node("a"),
        b in any_node("b"),
        pods in any_pods(),
    ) {
        let one = PodRequirements {
            amounts: Amounts::default().with(GPU, 1),
            tolerations: vec![Toleration::for_key(GPU)],
            ..PodRequirements::default()
        };
        for node in [a, b] {
            let all = snapshot(vec![node.clone()], pods.clone());
            let counted = counted(&[], Some(&all));
            let held = all.held().get(node.name.as_str()).cloned().unwrap_or_default();
            let room = free_slots(&one, &node, &held);
            let Some(row) = counted.rows.first() else {
                prop_assert_eq!((node.capacity.get(GPU), held.get(GPU), room), (0, 0, 0));
                continue;
            };
            prop_assert!(row.free <= row.allocatable);
            let sum = row.taken + row.free + row.unavailable_units();
            prop_assert_eq!(sum, row.capacity.max(row.taken));
            let is_well = node.readiness == Readiness::Ready;
            prop_assert_eq!(row.free, if is_well { room } else { 0 });
        }
    }
}
