//! Tests of the nodes that profiles reach in small clusters, and of the findings about profiles.

mod draft;
mod vendor;

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_model::accelerators::Catalog;

use super::*;
use crate::cluster::{
    ClusterNode, ClusterPod, ClusterSnapshot, Effect, Phase, PodKey, Readiness, Taint,
};

const GPU: &str = "nvidia.com/gpu";
const H200: &str = "nvidia-h200-141gb";
const T4: &str = "nvidia-t4-16gb";

fn taint(key: &str, value: &str) -> Taint {
    Taint { key: key.to_owned(), value: value.to_owned(), effect: Effect::NoSchedule }
}

/// A node with eight devices of a type, and a taint with that type.
fn node(name: &str, type_name: &str) -> ClusterNode {
    let of = [(TYPE_LABEL.to_owned(), type_name.to_owned())];
    let all = Amounts::from_quantities([
        ("cpu", "64".parse().unwrap()),
        ("memory", "512Gi".parse().unwrap()),
        ("pods", "110".parse().unwrap()),
        (GPU, "8".parse().unwrap()),
    ]);
    ClusterNode {
        name: name.to_owned(),
        labels: BTreeMap::from(of),
        taints: vec![taint(GPU, "true")],
        readiness: Readiness::Ready,
        capacity: all.clone(),
        allocatable: all,
        ..ClusterNode::default()
    }
}

fn snapshot(nodes: impl IntoIterator<Item = ClusterNode>) -> ClusterSnapshot {
    let nodes = nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node)));
    ClusterSnapshot::with_nodes(nodes.collect())
}

fn types(snapshot: &ClusterSnapshot) -> BTreeMap<String, DevicesByType> {
    let catalog = Catalog::built_in();
    let nodes = snapshot.nodes.values();
    nodes.map(|node| (node.name.clone(), devices_from_labels(node, &catalog))).collect()
}

/// A profile that requests two H200, selected by Octavo's label.
fn profile() -> HardwareProfile {
    HardwareProfile {
        identifiers: vec![Identifier {
            display_name: "GPU".to_owned(),
            resource: GPU.to_owned(),
            min: Count::whole(1),
            max: Some(Count::whole(8)),
            default: Count::whole(2),
            resource_type: None,
        }],
        scheduling: Scheduling::Node {
            selector: BTreeMap::from([(TYPE_LABEL.to_owned(), H200.to_owned())]),
            tolerations: vec![Toleration::for_key(GPU)],
        },
        ..HardwareProfile::default()
    }
}

fn selecting(key: &str, value: &str) -> HardwareProfile {
    HardwareProfile {
        scheduling: Scheduling::Node {
            selector: BTreeMap::from([(key.to_owned(), value.to_owned())]),
            tolerations: vec![Toleration::for_key(GPU)],
        },
        ..profile()
    }
}

fn check_on(
    profile: &HardwareProfile,
    snapshot: &ClusterSnapshot,
) -> (Option<MatchingNodes>, Vec<Finding>) {
    check_with(profile, snapshot, &LocalQueues::Unknown)
}

fn check_with(
    profile: &HardwareProfile,
    snapshot: &ClusterSnapshot,
    queues: &LocalQueues,
) -> (Option<MatchingNodes>, Vec<Finding>) {
    let types = types(snapshot);
    let all = CandidateNode::all(snapshot, &types);
    let selected = CandidateNode::select(&all, profile.selector());
    check_profile(profile, Some(ClusterContext { snapshot, selected: &selected }), queues)
}

fn words(profile: &HardwareProfile, snapshot: &ClusterSnapshot) -> Vec<(&'static str, String)> {
    let (_, findings) = check_on(profile, snapshot);
    let reported = findings.iter();
    reported.map(|one| (one.name(), format!("{one}. {}", one.remedy()))).collect()
}

#[test]
fn free_counts_workloads_that_fit() {
    let mut snapshot = snapshot([node("a", H200), node("b", H200), node("c", T4)]);
    let key = PodKey { namespace: "team".to_owned(), name: "one".to_owned() };
    let pod = ClusterPod {
        key,
        node: Some("a".to_owned()),
        phase: Phase::Bound,
        requirements: PodRequirements {
            amounts: Amounts::default().with(GPU, 5),
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    };
    snapshot.insert_pod(Arc::new(pod));
    let (reach, findings) = check_on(&profile(), &snapshot);
    let reach = reach.unwrap();
    assert_eq!(findings, []);
    // Three devices are free on one node, and a workload takes two.
    assert_eq!((reach.selected, reach.nodes, reach.free), (2, 2, 1 + 4));
    let [only] = reach.types.as_slice() else {
        panic!("{reach:?}");
    };
    assert_eq!(only.type_name.as_ref().unwrap().as_str(), H200);
    assert_eq!((only.nodes, only.devices, only.free), (2, 16, 5));
}

#[test]
fn unschedulable_node_is_reached_but_not_free() {
    let mut cordoned = node("a", H200);
    cordoned.is_cordoned = true;
    let mut away = node("b", H200);
    away.taints.push(taint("node.kubernetes.io/not-ready", ""));
    let mut changing = node("c", H200);
    changing.taints.push(taint("octavo.dev/repartitioning", ""));
    let (reach, findings) = check_on(&profile(), &snapshot([cordoned, away, changing]));
    let reach = reach.unwrap();
    assert_eq!(findings, []);
    assert_eq!((reach.nodes, reach.unavailable_nodes, reach.free), (3, 3, 0));
}

fn on_nodes(labels: &[(&str, &str)], tolerated: &[&str]) -> Scheduling {
    let labels = labels.iter();
    Scheduling::Node {
        selector: labels.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        tolerations: tolerated.iter().map(|key| Toleration::for_key(key)).collect(),
    }
}

/// Profiles with one defect each on nodes of two types: the name and the text of the finding.
fn wrong() -> Vec<(HardwareProfile, &'static str, &'static str)> {
    let with = |change: fn(&mut HardwareProfile)| {
        let mut changed = profile();
        change(&mut changed);
        changed
    };
    let barred = with(|one| one.scheduling = on_nodes(&[(TYPE_LABEL, H200)], &[]));
    let many = with(|one| {
        one.identifiers[0].default = Count::whole(16);
        one.identifiers[0].max = None;
    });
    let stretched = with(|one| one.identifiers[0].max = Some(Count::whole(16)));
    let other = with(|one| one.identifiers[0].resource = "amd.com/gpu".to_owned());
    let odd = with(|one| one.identifiers[0].min = Count::whole(4));
    let elsewhere = with(|one| one.annotations.types = vec![T4.parse().unwrap()]);
    let off = with(|one| one.is_disabled = true);
    let legacy = with(|one| one.kind = ProfileKind::Accelerator);
    let class = with(|one| one.scheduling = on_nodes(&[("class", "large")], &[GPU]));
    vec![
        (
            selecting(TYPE_LABEL, "nvidia-h200-141"),
            "nothing-selected",
            "no node has the label octavo.dev/type=nvidia-h200-141 ",
        ),
        (
            barred,
            "untolerated-taint",
            "1 of the 1 nodes with the requested resources have the taint nvidia.com/gpu=true:NoSchedule, which it does not tolerate. add a toleration with key nvidia.com/gpu and effect NoSchedule",
        ),
        (
            many,
            "too-many",
            "its default is 16 of nvidia.com/gpu, but no matching node has more than 8. request at most 8",
        ),
        (stretched, "too-many", "its maximum is 16"),
        (other, "nobody-advertises", "no node of the cluster advertises amd.com/gpu"),
        (odd, "counts", "nvidia.com/gpu: the default is below the minimum"),
        (
            elsewhere,
            "other-type",
            "it is declared for nvidia-t4-16gb, but it also matches nodes of nvidia-h200-141gb",
        ),
        (off, "disabled", "users cannot select it"),
        (
            legacy,
            "legacy-kind",
            "its kind is AcceleratorProfile of dashboard.opendatahub.io, which",
        ),
        (
            class,
            "several-types",
            "it matches nodes of 2 types (nvidia-h200-141gb, nvidia-t4-16gb); a workload can be scheduled to any of them",
        ),
    ]
}

#[test]
fn each_defect_has_a_finding_and_remedy() {
    let nodes = [node("a", H200), node("b", T4)].map(|mut node| {
        node.labels.insert("class".to_owned(), "large".to_owned());
        node
    });
    let cluster = snapshot(nodes);
    for (profile, word, expected) in wrong() {
        let reported = words(&profile, &cluster);
        let [(found, text)] = reported.as_slice() else {
            panic!("{word}: {reported:?}");
        };
        assert_eq!(*found, word);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn label_changed_by_sharing_is_found_with_an_alternative() {
    let mut shared = node("a", H200);
    let product = ("nvidia.com/gpu.product", "NVIDIA-H200-SHARED");
    shared.labels.insert(product.0.to_owned(), product.1.to_owned());
    let reported = words(&selecting(product.0, product.1), &snapshot([shared.clone()]));
    let [(word, text)] = reported.as_slice() else {
        panic!("{reported:?}");
    };
    assert_eq!(*word, "changing-label");
    assert!(text.ends_with("select by octavo.dev/type=nvidia-h200-141gb instead"), "{text}");
    // Another value of the same label matches nothing: there are two findings.
    let reported = words(&selecting(product.0, "NVIDIA-H200"), &snapshot([shared]));
    let found: Vec<&str> = reported.iter().map(|(word, _)| *word).collect();
    assert_eq!(found, ["nothing-selected", "changing-label"]);
}

#[test]
fn req_011_profile_annotated_for_several_types_may_reach_them() {
    let mut class = selecting("class", "large");
    class.annotations.types = [H200, T4].map(|name| name.parse().unwrap()).to_vec();
    let nodes = [("a", H200), ("b", T4)].map(|(name, of)| {
        let mut node = node(name, of);
        node.labels.insert("class".to_owned(), "large".to_owned());
        node
    });
    assert_eq!(words(&class, &snapshot(nodes)), []);
}

#[test]
fn ac_011_profile_without_selector_accepts_every_type() {
    let mut generic = profile();
    generic.scheduling = on_nodes(&[], &[GPU]);
    let mut mixed = node("c", "mixed");
    for (key, count) in [(H200, "4"), (T4, "4")] {
        let key = format!("type.octavo.dev/{key}");
        mixed.labels.insert(key, count.to_owned());
    }
    let (reach, findings) = check_on(&generic, &snapshot([node("a", H200), node("b", T4), mixed]));
    assert_eq!(findings, []);
    // Each workload that fits is counted either on nodes of one type or on nodes of several.
    let reach = reach.unwrap();
    let alone: u64 = reach.types.iter().map(|one| one.free).sum();
    assert_eq!((reach.nodes, reach.mixed), (3, 1));
    assert_eq!((reach.free, alone, reach.mixed_free), (12, 8, 4));
    let of = reach.types.iter();
    let of: Vec<_> =
        of.map(|one| (one.nodes, one.mixed_nodes, one.devices, one.mixed_devices)).collect();
    assert_eq!(of, [(2, 1, 12, 4); 2]);
}

#[test]
fn profile_without_devices_has_no_findings() {
    let small = HardwareProfile {
        identifiers: vec![Identifier {
            display_name: "CPU".to_owned(),
            resource: "cpu".to_owned(),
            min: Count::whole(1),
            max: None,
            default: Count::whole(2),
            resource_type: Some("CPU".to_owned()),
        }],
        scheduling: Scheduling::Anywhere,
        ..HardwareProfile::default()
    };
    let mut bare = node("c", H200);
    bare.taints.clear();
    bare.labels.clear();
    let cluster = snapshot([node("a", H200), node("b", T4), bare]);
    let (reach, findings) = check_on(&small, &cluster);
    // The taints keep it off accelerator nodes on purpose; it runs elsewhere.
    let found: Vec<(&str, FindingSeverity)> =
        findings.iter().map(|one| (one.name(), one.severity())).collect();
    assert_eq!(found, []);
    assert_eq!((reach.as_ref().unwrap().nodes, reach.unwrap().free), (1, 32));
    assert_eq!(small.types(None), []);
}

#[test]
fn queue_must_exist_and_decides_placement() {
    let queued = HardwareProfile {
        scheduling: Scheduling::Queue { local_queue: "team".to_owned(), priority_class: None },
        ..profile()
    };
    let cluster = snapshot([node("a", H200)]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (queues, expected) in [
        (LocalQueues::Unknown, None),
        (LocalQueues::Known(names(&["team", "other"])), None),
        (LocalQueues::Known(names(&["other"])), Some("no namespace has the LocalQueue \"team\"")),
        (LocalQueues::NoKueue, Some("Kueue is not installed")),
    ] {
        let (reach, findings) = check_with(&queued, &cluster, &queues);
        assert_eq!(reach, None);
        assert_eq!(findings.len(), usize::from(expected.is_some()));
        for finding in findings {
            assert!(finding.to_string().contains(expected.unwrap()), "{finding}");
        }
    }
}

#[test]
fn only_the_profile_itself_is_checked_without_a_cluster() {
    let (reach, findings) =
        check_profile(&selecting("nvidia.com/gpu.replicas", "4"), None, &LocalQueues::Unknown);
    assert_eq!(reach, None);
    let found: Vec<&str> = findings.iter().map(Finding::name).collect();
    assert_eq!(found, ["changing-label"]);
    assert_eq!(profile().types(None)[0].as_str(), H200);
}
