//! Tests of availability on small clusters; waiting times are in `waits.rs`, random clusters in `random.rs`.

mod bounds;
mod demand;
mod incremental;
mod random;
mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_model::accelerators::Catalog;
use octavo_model::quantity::Mebibytes;

use super::*;
use crate::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, Effect, PODS, Phase, PodKey,
    PodRequirements, Readiness, Taint,
};
use crate::type_source::TypeSource;

const GPU: &str = "nvidia.com/gpu";
const TYPE: &str = "octavo.dev/type";
const H200: &str = "nvidia-h200-141gb";

fn node(name: &str, labels: &[(&str, &str)], count: u64) -> ClusterNode {
    let amounts = Amounts::default().with(GPU, count).with(PODS, 110);
    ClusterNode {
        name: name.to_owned(),
        labels: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    }
}

fn taint(key: &str) -> Taint {
    Taint { key: key.to_owned(), value: String::new(), effect: Effect::NoSchedule }
}

fn pod(name: &str, on: Option<&str>, resource: &str, count: u64) -> ClusterPod {
    ClusterPod {
        key: PodKey { namespace: "team-a".to_owned(), name: name.to_owned() },
        node: on.map(str::to_owned),
        phase: match on {
            Some(_) => Phase::Bound,
            None => Phase::Pending,
        },
        requirements: PodRequirements {
            amounts: Amounts::default().with(resource, count),
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    }
}

fn snapshot(nodes: Vec<ClusterNode>, pods: Vec<ClusterPod>) -> ClusterSnapshot {
    ClusterSnapshot::new(nodes, pods)
}

fn counted(agents: &[AgentNode<'_>], snapshot: Option<&ClusterSnapshot>) -> Availability {
    count(agents, snapshot, &mut CountCache::new(Catalog::built_in()), None)
}

/// Formats rows as `H200 nvidia.com/gpu: 8/8 taken 2 free 6`, followed by the unavailable units by reason.
fn lines(availability: &Availability) -> Vec<String> {
    let rows = availability.rows.iter();
    rows.map(|row| {
        let unusable = row.unavailable.iter();
        let unusable: Vec<String> =
            unusable.map(|(why, of)| format!(" {} {}", why.as_str(), of.count)).collect();
        format!(
            "{} {} {}: {}/{} taken {} free {}{}",
            row.key.kind.as_str(),
            row.key.resource,
            row.key.shape,
            row.allocatable,
            row.capacity,
            row.taken,
            row.free,
            unusable.concat()
        )
    })
    .collect()
}

fn seen(units: &[(&str, &str, u64)]) -> Arc<AgentUnits> {
    let units = units.iter().map(|(type_name, resource, total)| UnitCounts {
        type_name: type_name.parse().ok(),
        resource: (*resource).to_owned(),
        shape: Shape::from_resource(resource, None),
        memory: Some(Mebibytes::new(1000)),
        total: *total,
        free: total - 1,
        in_use: 1,
        broken: 0,
        broken_held: 0,
        covered: 0,
        reserved: 0,
    });
    Arc::new(AgentUnits { units: units.collect(), ..AgentUnits::default() })
}

/// The units at this index.
fn unit(seen: &mut Arc<AgentUnits>, index: usize) -> &mut UnitCounts {
    &mut Arc::make_mut(seen).units[index]
}

fn agent<'a>(name: &'a str, seen: &'a Arc<AgentUnits>) -> AgentNode<'a> {
    AgentNode { name, seen, is_stale: false, is_changing: false }
}

#[test]
fn amd_partitions_under_the_name_of_whole_devices_are_partitions() {
    let mut node = node("a", &[], 0);
    node.allocatable = Amounts::default().with("amd.com/gpu", 64).with(PODS, 110);
    node.capacity = node.allocatable.clone();
    let mut units = seen(&[("amd-mi300x-192gb", "amd.com/gpu", 64)]);
    let rows = |units: &Arc<AgentUnits>| {
        lines(&counted(&[agent("a", units)], Some(&snapshot(vec![node.clone()], Vec::new()))))
    };
    let whole = "amd-mi300x-192gb amd.com/gpu device: 64/64 taken 0 free 64";
    assert_eq!(rows(&units), [whole]);
    unit(&mut units, 0).shape = Shape::AmdPartition("cpx_nps4".to_owned());
    assert_eq!(rows(&units), [whole.replace("device", "cpx_nps4")]);
}

#[test]
fn finished_pods_release_their_units() {
    let mut ended = pod("ended", Some("a"), GPU, 1);
    ended.phase = Phase::Finished;
    let all =
        snapshot(vec![node("a", &[(TYPE, H200)], 8)], vec![pod("runs", Some("a"), GPU, 2), ended]);
    let counted = counted(&[], Some(&all));
    assert_eq!(lines(&counted), ["nvidia-h200-141gb nvidia.com/gpu device: 8/8 taken 2 free 6"]);
    assert_eq!(counted.rows[0].wait, Wait::Now);
    assert_eq!(counted.basis, CountBasis::Cluster);
}

#[test]
fn unavailable_units_are_not_free() {
    let base = || node("a", &[(TYPE, H200)], 8);
    let with = |change: fn(&mut ClusterNode)| {
        let mut node = base();
        change(&mut node);
        node
    };
    for (node, expected) in [
        (base(), "free 6"),
        (with(|node| node.taints = vec![taint(GPU)]), "free 6"),
        (with(|node| node.is_cordoned = true), "free 0 cordoned 6"),
        (with(|node| node.readiness = Readiness::Unknown), "free 0 not-ready 6"),
        (
            with(|node| node.taints = vec![taint("node.kubernetes.io/unreachable")]),
            "free 0 not-ready 6",
        ),
        (with(|node| node.taints = vec![taint("team-b")]), "free 0 tainted 6"),
        (
            with(|node| node.taints = vec![taint("octavo.dev/repartitioning")]),
            "free 0 repartitioning 6",
        ),
        (
            with(|node| node.allocatable = node.allocatable.clone().with(GPU, 5)),
            "free 3 unhealthy 3",
        ),
        (
            with(|node| node.allocatable = node.allocatable.clone().with(PODS, 4)),
            "free 3 pods-full 3",
        ),
    ] {
        let all = snapshot(vec![node], vec![pod("runs", Some("a"), GPU, 2)]);
        let line = lines(&counted(&[], Some(&all))).concat();
        assert!(line.ends_with(&format!("taken 2 {expected}")), "{line}");
    }
}

#[test]
fn devices_that_claims_hold_are_not_free() {
    let mut claims = seen(&[(H200, "gpu.octavo.dev", 8)]);
    Arc::make_mut(&mut claims).serves_claims = true;
    let line = |node: ClusterNode| {
        // The unit of a pod that requests an extended resource is that of its claim.
        let all = snapshot(vec![node], vec![pod("runs", Some("a"), GPU, 1)]);
        lines(&counted(&[agent("a", &claims)], Some(&all))).concat()
    };
    assert_eq!(
        line(node("a", &[], 0)),
        "nvidia-h200-141gb gpu.octavo.dev device: 8/8 taken 1 free 7"
    );
    let mut cordoned = node("a", &[], 0);
    cordoned.is_cordoned = true;
    assert_eq!(
        line(cordoned),
        "nvidia-h200-141gb gpu.octavo.dev device: 8/8 taken 1 free 0 cordoned 7"
    );
}

#[test]
fn unoffered_units_of_two_shapes_are_not_both_held() {
    let mut units = seen(&[(H200, GPU, 4), (H200, GPU, 2)]);
    unit(&mut units, 1).shape = Shape::TimeSlice;
    let all = snapshot(vec![node("a", &[], 0)], vec![pod("runs", Some("a"), GPU, 5)]);
    let missing = lines(&counted(&[agent("a", &units)], Some(&all)));
    let of = |line: &String| line.rsplit_once("plugin-missing ").map(|(_, count)| count.to_owned());
    assert_eq!(missing.iter().filter_map(of).collect::<Vec<_>>(), ["1"], "{missing:?}");
}

#[test]
fn agent_distinguishes_missing_plugin_and_stale_node() {
    let seen_all = seen(&[(H200, GPU, 8)]);
    let line = |node: ClusterNode, agents: &[AgentNode<'_>]| {
        lines(&counted(agents, Some(&snapshot(vec![node], Vec::new())))).concat()
    };
    let bare = node("a", &[], 0);
    assert_eq!(
        line(bare.clone(), &[agent("a", &seen_all)]),
        "nvidia-h200-141gb nvidia.com/gpu device: 0/8 taken 0 free 0 plugin-missing 8"
    );
    assert_eq!(line(bare, &[]), "");
    let mut gone = node("a", &[], 8);
    gone.allocatable = gone.allocatable.clone().with(GPU, 0);
    let ends = |text: &str, end: &str| assert!(text.ends_with(end), "{text}");
    ends(&line(gone.clone(), &[agent("a", &seen_all)]), "plugin-missing 8");
    ends(&line(gone, &[]), "unhealthy 8");
    let mut silent = node("a", &[], 8);
    silent.readiness = Readiness::Unknown;
    let mut stale = agent("a", &seen_all);
    stale.is_stale = true;
    ends(&line(silent.clone(), &[stale]), "free 0 stale 8");
    ends(&line(silent, &[agent("a", &seen_all)]), "free 0 not-ready 8");
    let mut changing = agent("a", &seen_all);
    changing.is_changing = true;
    ends(&line(node("a", &[], 8), &[changing]), "free 0 repartitioning 8");
    ends(&line(node("b", &[], 0), &[agent("a", &seen_all)]), "free 0 no-such-node 8");
}

#[test]
fn mixed_node_types_are_separated_by_resource() {
    let mig = "nvidia.com/mig-3g.40gb";
    let seen = seen(&[("nvidia-a100-80gb", mig, 2), ("nvidia-t4-16gb", GPU, 4)]);
    let mut mixed = node("a", &[], 4);
    mixed.allocatable = mixed.allocatable.clone().with(mig, 2);
    let all = snapshot(vec![mixed], Vec::new());
    assert_eq!(
        lines(&counted(&[agent("a", &seen)], Some(&all))),
        [
            "nvidia-a100-80gb nvidia.com/mig-3g.40gb 3g.40gb: 2/2 taken 0 free 2",
            "nvidia-t4-16gb nvidia.com/gpu device: 4/4 taken 0 free 4",
        ]
    );
    // Without the agent the labels only report that there are several types.
    let labeled = snapshot(vec![node("a", &[(TYPE, "mixed")], 4)], Vec::new());
    assert_eq!(
        lines(&counted(&[], Some(&labeled))),
        ["mixed nvidia.com/gpu device: 4/4 taken 0 free 4"]
    );
}

#[test]
fn memory_of_a_resource_with_several_types_is_the_smallest() {
    let mut seen = seen(&[("nvidia-a100-80gb", GPU, 4), ("nvidia-v100-16gb", GPU, 4)]);
    unit(&mut seen, 0).memory = Some(Mebibytes::new(81_920));
    unit(&mut seen, 1).memory = Some(Mebibytes::new(16_384));
    let all = snapshot(vec![node("a", &[], 8)], Vec::new());
    let counted = counted(&[agent("a", &seen)], Some(&all));
    assert_eq!(lines(&counted), ["mixed nvidia.com/gpu device: 8/8 taken 0 free 8"]);
    assert_eq!(counted.rows[0].memory, Some(Mebibytes::new(16_384)));
}

#[test]
fn devices_reserved_for_virtual_machines_are_not_unhealthy() {
    let mut seen = seen(&[(H200, GPU, 4)]);
    let units = unit(&mut seen, 0);
    (units.free, units.in_use, units.reserved) = (0, 0, 4);
    for cluster in [None, Some(snapshot(vec![node("a", &[], 0)], Vec::new()))] {
        let counted = counted(&[agent("a", &seen)], cluster.as_ref());
        assert_eq!(
            lines(&counted),
            ["nvidia-h200-141gb nvidia.com/gpu device: 0/4 taken 0 free 0 passthrough 4"]
        );
    }
}

#[test]
fn unhealthy_devices_that_a_plugin_still_advertises_are_not_free() {
    const NEURON: &str = "aws.amazon.com/neuron";
    let end = |resource: &str, (offered, held): (u64, u64), change: fn(&mut UnitCounts)| {
        let mut seen = seen(&[("aws-trainium2-96gb", NEURON, 4)]);
        let units = unit(&mut seen, 0);
        (units.free, units.in_use, units.broken) = (0, 0, 1);
        change(units);
        let mut node = node("a", &[], 0);
        node.capacity = node.capacity.clone().with(resource, offered);
        node.allocatable = node.allocatable.clone().with(resource, offered);
        let pods = if held > 0 { vec![pod("runs", Some("a"), resource, held)] } else { Vec::new() };
        let counted = counted(&[agent("a", &seen)], Some(&snapshot(vec![node], pods)));
        let line = lines(&counted).concat();
        line.split_once(" free ").unwrap().1.to_owned()
    };
    let unchanged = |_: &mut UnitCounts| {};
    assert_eq!(end(NEURON, (4, 0), unchanged), "3 unhealthy-advertised 1");
    assert_eq!(end(NEURON, (4, 2), unchanged), "1 unhealthy-advertised 1");
    assert_eq!(end(NEURON, (4, 4), unchanged), "0");
    // The plugin withholds it, or a device that is reserved for virtual machines.
    assert_eq!(end(NEURON, (3, 0), unchanged), "3");
    assert_eq!(end(NEURON, (3, 0), |units| units.reserved = 1), "2 unhealthy-advertised 1");
    // A container holds it, so it is one of the allocated ones.
    assert_eq!(end(NEURON, (4, 2), |units| units.broken_held = 1), "2");
    assert_eq!(end("aws.amazon.com/neurondevice", (4, 0), unchanged), "3 unhealthy-advertised 1");
    assert_eq!(end("aws.amazon.com/neuroncore", (32, 0), unchanged), "24 unhealthy-advertised 8");
    assert_eq!(end("aws.amazon.com/neuron", (4, 0), |units| units.broken = 0), "4");
}

#[test]
fn d9_reserved_devices_are_reported_if_kubelet_retains_their_capacity() {
    let end = |passthrough: u64, (allocatable, capacity): (u64, u64)| {
        let mut seen = seen(&[(H200, GPU, 4)]);
        let units = unit(&mut seen, 0);
        (units.free, units.in_use, units.reserved) = (4 - passthrough, 0, passthrough);
        let mut node = node("a", &[], capacity);
        node.allocatable = node.allocatable.clone().with(GPU, allocatable);
        let counted = counted(&[agent("a", &seen)], Some(&snapshot(vec![node], Vec::new())));
        let line = lines(&counted).concat();
        let (_, end) = line.split_once("taken 0 ").unwrap();
        end.to_owned()
    };
    assert_eq!(end(4, (0, 4)), "free 0 passthrough 4");
    assert_eq!(end(2, (2, 4)), "free 2 passthrough 2");
    assert_eq!(end(2, (1, 4)), "free 1 unhealthy 1 passthrough 2");
    assert_eq!(end(2, (0, 4)), "free 0 passthrough 2 plugin-missing 2");
    // The plugin never offered the reserved ones.
    assert_eq!(end(2, (1, 2)), "free 1 unhealthy 1");
}

#[test]
fn ac_003_types_come_from_vendor_labels_with_source() {
    let product = "nvidia.com/gpu.product";
    let all = snapshot(
        vec![
            node("a", &[(product, "NVIDIA-L4-SHARED")], 16),
            node("b", &[("feature.node.kubernetes.io/pci-10de.present", "true")], 1),
        ],
        Vec::new(),
    );
    let counted = counted(&[], Some(&all));
    assert_eq!(
        lines(&counted),
        [
            "nvidia-l4-24gb nvidia.com/gpu time-slice: 16/16 taken 0 free 16",
            "unknown nvidia.com/gpu device: 1/1 taken 0 free 1",
        ]
    );
    let source = counted.rows[0].sources.first().copied();
    assert_eq!(source.map(TypeSource::as_str), Some(product));
}

#[test]
fn without_cluster_free_means_no_process() {
    let seen = seen(&[(H200, GPU, 8)]);
    let counted_fresh = counted(&[agent("a", &seen)], None);
    assert_eq!(
        lines(&counted_fresh),
        ["nvidia-h200-141gb nvidia.com/gpu device: 8/8 taken 1 free 7"]
    );
    assert_eq!(counted_fresh.basis, CountBasis::Agents);
    let mut stale = agent("a", &seen);
    stale.is_stale = true;
    let counted = counted(&[stale], None);
    assert_eq!(
        lines(&counted),
        ["nvidia-h200-141gb nvidia.com/gpu device: 0/8 taken 0 free 0 stale 8"]
    );
    assert_eq!(counted.rows[0].wait, Wait::Unknown(Unknown::NoCluster));
}

#[test]
fn pending_pods_count_for_types_they_accept() {
    let mut picky = pod("picky", None, GPU, 2);
    picky.requirements.selector = BTreeMap::from([(TYPE.to_owned(), H200.to_owned())]);
    let mut elsewhere = pod("elsewhere", None, "nvidia.com/mig-1g.18gb", 1);
    elsewhere.requirements.selector = picky.requirements.selector.clone();
    let mut gated = pod("gated", None, GPU, 1);
    gated.phase = Phase::Gated;
    let all = snapshot(
        vec![node("a", &[(TYPE, H200)], 1), node("b", &[(TYPE, "nvidia-l4-24gb")], 1)],
        vec![picky, elsewhere, gated, pod("any", None, GPU, 1)],
    );
    let counted = counted(&[], Some(&all));
    let pending: Vec<(&str, &str, u64, u64)> = counted
        .rows
        .iter()
        .map(|row| {
            let Pending { pods, units } = row.pending;
            (row.key.kind.as_str(), row.key.resource.as_str(), pods, units)
        })
        .collect();
    assert_eq!(
        pending,
        [(H200, GPU, 2, 3), (H200, "nvidia.com/mig-1g.18gb", 1, 1), ("nvidia-l4-24gb", GPU, 1, 1),]
    );
}
