//! Tests of the pools: groups, labels, taints and excluded nodes.

use proptest::prelude::*;

use super::*;
use crate::pool_labels::MAX_LABELS;
use crate::tests_support::{Fleet, GPU, add, mixed, node, row, taint};

fn pools((rows, cluster): &Fleet) -> Pools {
    Pools::new(rows, cluster).unwrap()
}

fn names(pools: &Pools) -> Vec<&str> {
    pools.all.iter().map(|pool| pool.name.as_str()).collect()
}

fn nodes(pool: &NodePool) -> Vec<&str> {
    pool.nodes.iter().map(|node| node.name.as_str()).collect()
}

fn labels(pool: &NodePool) -> Vec<(&str, &str)> {
    pool.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[test]
fn nodes_are_grouped_by_type_and_layout() {
    let pools = pools(&mixed());
    assert_eq!(
        names(&pools),
        [
            "amd-mi300x-192gb-partitioned",
            "aws-inferentia2-32gb",
            "nvidia-a100-80gb-mig-1g.10gb",
            "nvidia-a100-80gb-mig-1g.10gb-3g.40gb",
            "nvidia-h100-80gb",
            "nvidia-t4-16gb-time-slicing",
        ]
    );
    let [.., small, both, h100, _] = pools.all.as_slice() else { panic!("{pools:?}") };
    assert_eq!(nodes(h100), ["h100-a", "h100-b"]);
    let amounts = ["cpu", "memory", GPU].map(|name| h100.allocatable.quantity(name));
    assert_eq!(amounts, ["128", "1Ti", "16"]);
    let base = [("octavo.dev/sharing", "mig"), ("octavo.dev/type", "nvidia-a100-80gb")];
    let with = |label| [&[label][..], &base].concat();
    assert_eq!(labels(small), with(("octavo.dev/layout", "small")));
    assert_eq!(labels(both), with(("nvidia.com/mig-3g.40gb.product", "B")));
}

#[test]
fn excluded_nodes_are_reported_with_reasons() {
    let pools = pools(&mixed());
    let notes: Vec<String> = pools.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "excluded: two-types: has devices of several types; a flavor or quota needs nodes of one type",
            "excluded: unknown: type unknown; label the node with octavo.dev/type-override",
            "excluded: unlabeled: no label names the type; run an agent on the node",
            "excluded: elsewhere: not in the cluster that the aggregator watches",
        ]
    );
    let permanent = pools.notes.iter().filter(|note| note.is_permanent());
    assert_eq!(permanent.count(), 3);
}

#[test]
fn fleet_without_usable_node_is_an_error_with_the_reason() {
    let error = Pools::new(&[row("a", &[""])], &[]).unwrap_err().to_string();
    assert!(error.contains("excluded: a: type unknown"), "{error}");
    let empty = Pools::new(&[], &[]).unwrap_err().to_string();
    assert!(empty.starts_with("no node can be used; check"), "{empty}");
}

#[test]
fn layouts_that_no_label_separates_become_one_pool() {
    let mut fleet = Fleet::default();
    let kind = "nvidia-a100-80gb";
    // Counts select no nodes, because a failed GPU changes them.
    let [seven, two] =
        [("nvidia.com/mig-1g.10gb.count", "7"), ("nvidia.com/mig-3g.40gb.count", "2")];
    add(&mut fleet, ("a", kind, "mig"), &[seven], &[("nvidia.com/mig-1g.10gb", 7)]);
    add(&mut fleet, ("b", kind, "mig"), &[two], &[("nvidia.com/mig-3g.40gb", 2)]);
    let merged = pools(&fleet);
    assert_eq!(names(&merged), ["nvidia-a100-80gb-mig-1g.10gb-3g.40gb"]);
    assert_eq!(merged.all[0].allocatable.get("nvidia.com/mig-1g.10gb"), 7);
    assert_eq!(merged.all[0].allocatable.get("nvidia.com/mig-3g.40gb"), 2);
    let note = Note::Merged { pool: names(&merged)[0].to_owned() };
    assert_eq!(merged.notes, [note]);
    // The layout label separates them.
    for (node, layout) in fleet.1.iter_mut().zip(["small", "large"]) {
        node.labels.insert("octavo.dev/layout".to_owned(), layout.to_owned());
    }
    let separate = pools(&fleet);
    assert_eq!((separate.all.len(), separate.notes.len()), (2, 0));
}

#[test]
fn only_permanent_taints_of_all_nodes_are_tolerated() {
    let mut fleet = Fleet::default();
    for name in ["a", "b"] {
        add(&mut fleet, (name, "nvidia-l4-24gb", "exclusive"), &[], &[(GPU, 1)]);
    }
    let everywhere = [
        taint(GPU, "true"),
        taint("node.kubernetes.io/not-ready", ""),
        taint("node-role.kubernetes.io/control-plane", ""),
    ];
    for node in &mut fleet.1 {
        node.taints.extend(everywhere.clone());
    }
    fleet.1[1].taints.push(taint("team", "a"));
    let pools = pools(&fleet);
    assert_eq!(pools.all[0].taints, [taint(GPU, "true")]);
    let notes: Vec<String> = pools.notes.iter().map(ToString::to_string).collect();
    let control = "node-role.kubernetes.io/control-plane:NoSchedule";
    assert_eq!(
        notes,
        [
            format!("nvidia-l4-24gb does not tolerate the taint {control} of a, b"),
            "nvidia-l4-24gb does not tolerate the taint team=a:NoSchedule of b".to_owned(),
        ]
    );
}

#[test]
fn vendor_label_selects_nodes_without_agent_and_is_reported() {
    let product = [("nvidia.com/gpu.product", "NVIDIA-L4")];
    let kind = "nvidia-l4-24gb";
    let mut fleet = (vec![row("a", &[kind])], vec![node("a", &product, &[(GPU, 1)])]);
    let alone = pools(&fleet);
    assert_eq!(labels(&alone.all[0]), product);
    assert!(matches!(alone.notes.as_slice(), [Note::VendorLabel { .. }]), "{alone:?}");
    add(&mut fleet, ("b", kind, "exclusive"), &product, &[(GPU, 1)]);
    let with_agent = pools(&fleet);
    assert_eq!(nodes(&with_agent.all[0]), ["b"]);
    let other = Exclusion::OtherLabel("octavo.dev/type=nvidia-l4-24gb".to_owned());
    assert_eq!(with_agent.notes, [Note::Excluded { why: other, nodes: vec!["a".to_owned()] }]);
}

/// A node of a property test: type, sharing, layout label, profiles with their counts, and taints.
type Draft = (u8, u8, Option<u8>, Vec<(u8, u8)>, Vec<u8>);

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let units = prop::collection::vec((0..3_u8, 0..3_u8), 0..3);
    let taints = prop::collection::vec(0..12_u8, 0..12);
    prop::collection::vec((0..2_u8, 0..3_u8, prop::option::of(0..2_u8), units, taints), 1..9)
}

fn fleet(drafts: &[Draft]) -> Fleet {
    let mut fleet = Fleet::default();
    for (at, (kind, sharing, layout, units, taints)) in drafts.iter().enumerate() {
        let profiles = ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"];
        let units: Vec<(&str, u64)> = units
            .iter()
            .map(|(unit, count)| (profiles[usize::from(*unit)], u64::from(*count)))
            .collect();
        let mut labels: Vec<(String, String)> = units
            .iter()
            .flat_map(|(name, count)| {
                [
                    (format!("{name}.product"), "A".to_owned()),
                    (format!("{name}.count"), count.to_string()),
                ]
            })
            .collect();
        labels.extend(layout.map(|of| ("octavo.dev/layout".to_owned(), format!("layout-{of}"))));
        let labels: Vec<(&str, &str)> =
            labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let kind = ["nvidia-a100-80gb", "nvidia-h100-80gb"][usize::from(*kind)];
        let sharing = ["exclusive", "mig", "mixed"][usize::from(*sharing)];
        add(&mut fleet, (&format!("node-{at}"), kind, sharing), &labels, &units);
        let taints = taints.iter().map(|number| taint(&format!("taint-{number}"), ""));
        fleet.1.last_mut().unwrap().taints = taints.collect();
    }
    fleet
}

proptest! {
    #[test]
    fn labels_of_each_pool_select_exactly_its_nodes(drafts in drafts()) {
        let (rows, cluster) = fleet(&drafts);
        let Ok(pools) = Pools::new(&rows, &cluster) else {
            let is_usable = |node: &ClusterNode| node.allocatable.accelerators().next().is_some();
            prop_assert!(!cluster.iter().any(is_usable));
            return Ok(());
        };
        let counted: Vec<&ClusterNode> = pools.all.iter().flat_map(|pool| &pool.nodes).collect();
        let excluded = pools.notes.iter().map(|note| {
            if let Note::Excluded { nodes, .. } = note { nodes.len() } else { 0 }
        });
        prop_assert_eq!(counted.len() + excluded.sum::<usize>(), rows.len());
        for pool in &pools.all {
            let selected = counted.iter().filter(|node| {
                pool.labels.iter().all(|(key, value)| node.label(key) == Some(value))
            });
            let selected: BTreeSet<&str> = selected.map(|node| node.name.as_str()).collect();
            let own: BTreeSet<&str> = nodes(pool).into_iter().collect();
            prop_assert_eq!(selected, own);
            prop_assert!(pool.labels.len() <= MAX_LABELS);
            prop_assert!(pool.taints.len() <= MAX_TAINTS);
        }
        let names: BTreeSet<&str> = names(&pools).into_iter().collect();
        prop_assert_eq!(names.len(), pools.all.len());
    }

    #[test]
    fn result_does_not_depend_on_the_order_of_rows(
        (drafts, seed) in (drafts(), any::<prop::sample::Index>()),
    ) {
        let (mut rows, mut cluster) = fleet(&drafts);
        let before = Pools::new(&rows, &cluster);
        let at = seed.index(rows.len());
        rows.rotate_left(at);
        cluster.reverse();
        prop_assert_eq!(Pools::new(&rows, &cluster), before);
    }
}
