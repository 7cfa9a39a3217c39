//! Tests of types read from labels, and of drafted profiles: contents, exclusions and rejections.

use std::collections::BTreeSet;

use super::*;

#[test]
fn types_are_read_from_own_labels_first_without_sharing_suffix() {
    let catalog = Catalog::built_in();
    let labeled = |all: &[(&str, &str)], count: u64| {
        let labels = all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let node = ClusterNode {
            labels: labels.collect(),
            capacity: Amounts::default().with(GPU, count),
            ..ClusterNode::default()
        };
        let held = devices_from_labels(&node, &catalog);
        held.into_iter()
            .map(|(name, count)| {
                (name.map_or_else(|| "unknown".to_owned(), |name| name.to_string()), count)
            })
            .collect::<Vec<_>>()
    };
    let of = |name: &str, count| vec![(name.to_owned(), count)];
    assert_eq!(labeled(&[("type.octavo.dev/nvidia-t4-16gb", "4")], 0), of(T4, 4));
    assert_eq!(
        labeled(&[("type.octavo.dev/nvidia-t4-16gb", "2"), ("type.octavo.dev/unknown", "1")], 3)
            .len(),
        2
    );
    assert_eq!(labeled(&[(TYPE_LABEL, T4)], 4), of(T4, 4));
    for product in ["NVIDIA-H200", "NVIDIA-H200-SHARED", "NVIDIA-H200-MIG-1g.18gb"] {
        assert_eq!(labeled(&[("nvidia.com/gpu.product", product)], 8), of(H200, 8), "{product}");
    }
    assert_eq!(labeled(&[("nvidia.com/gpu.product", "NVIDIA-X9000")], 8), of("unknown", 8));
    assert_eq!(labeled(&[], 8), of("unknown", 8));
    assert_eq!(labeled(&[("a", "b")], 0), []);
}

pub(super) fn drafted(
    request: &DraftRequest,
    snapshot: &ClusterSnapshot,
) -> Result<Draft, DraftError> {
    draft(request, snapshot, &types(snapshot), &Catalog::built_in())
}

pub(super) fn selection(nodes: &[&str]) -> DraftRequest {
    DraftRequest {
        nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
        ..DraftRequest::default()
    }
}

#[test]
fn ac_002_draft_takes_counts_selector_and_tolerations_from_nodes() {
    let mut second = node("b", H200);
    second.taints.push(taint("team", "research"));
    second.taints.push(taint("octavo.dev/not-ready", ""));
    second.taints.push(taint("node-role.kubernetes.io/control-plane", ""));
    second.allocatable = second.allocatable.with(GPU, 4).with("cpu", 63_500);
    let cluster = snapshot([node("a", H200), second, node("c", T4)]);
    let request =
        DraftRequest { type_name: Some(H200.parse().unwrap()), ..DraftRequest::default() };
    let made = drafted(&request, &cluster).unwrap();
    assert_eq!(made.nodes, ["a", "b"]);
    let profile = &made.profile;
    assert_eq!((profile.key.name.as_str(), profile.shown()), (H200, "NVIDIA H200 141GB"));
    let counts: Vec<String> = profile
        .identifiers
        .iter()
        .map(|one| {
            format!("{} {} {} {}", one.resource, one.min, one.default, one.max.as_ref().unwrap())
        })
        .collect();
    assert_eq!(counts, ["cpu 1 6 64", "memory 1Gi 48Gi 512Gi", "nvidia.com/gpu 1 1 8"]);
    let wants = profile.requirements();
    assert_eq!(wants.selector, BTreeMap::from([(TYPE_LABEL.to_owned(), H200.to_owned())]));
    let tolerated: Vec<(&str, &str)> =
        wants.tolerations.iter().map(|one| (one.key.as_str(), one.value.as_str())).collect();
    assert_eq!(tolerated, [(GPU, "true"), ("team", "research")]);
    let notes: Vec<String> = made.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "the taint node-role.kubernetes.io/control-plane:NoSchedule is not tolerated: it keeps workloads away on purpose"
        ]
    );
    assert_eq!(profile.annotations.types, [H200.parse().unwrap()]);
    assert!(profile.annotations.memory_mib.is_some() && profile.annotations.architecture.is_some());
    // The draft has no findings, and all its devices are usable beside system pods.
    let mut open = cluster;
    for node in open.nodes.values_mut().map(Arc::make_mut) {
        node.taints
            .retain(|taint| !taint.key.contains("octavo.dev") && !taint.key.contains("role"));
    }
    let (reach, findings) = check_on(profile, &open);
    assert_eq!(findings, []);
    assert_eq!(reach.unwrap().free, 8 + 4);
}

#[test]
fn ambiguous_nodes_are_excluded_with_a_note() {
    let mut mixed = node("mixed", "mixed");
    for (name, count) in [(T4, "4"), (H200, "4")] {
        mixed.labels.insert(format!("type.octavo.dev/{name}"), count.to_owned());
    }
    let mut odd = node("odd", "unknown");
    odd.labels.insert("type.octavo.dev/unknown".to_owned(), "8".to_owned());
    let mut unlabeled = node("unlabelled", T4);
    unlabeled.labels =
        BTreeMap::from([("nvidia.com/gpu.product".to_owned(), "Tesla-T4".to_owned())]);
    let bare = ClusterNode { name: "bare".to_owned(), ..ClusterNode::default() };
    let cluster = snapshot([node("a", T4), node("b", T4), mixed, odd, unlabeled, bare]);
    let made = drafted(&selection(&["a", "mixed", "odd", "unlabelled", "bare", "gone"]), &cluster)
        .unwrap();
    assert_eq!(made.nodes, ["a"]);
    let notes: Vec<String> = made.notes.iter().map(ToString::to_string).collect();
    let expected = [
        "gone is excluded: it does not exist in the cluster",
        "bare is excluded: it has no accelerator",
        "mixed is excluded: it is mixed (4x nvidia-h200-141gb, 4x nvidia-t4-16gb)",
        "odd is excluded: the type of its devices is unknown",
        "unlabelled is excluded: it lacks the label octavo.dev/type",
        "one more node has the type nvidia-t4-16gb: the profile also selects it",
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:?}");
    for (note, expected) in notes.iter().zip(expected) {
        assert!(note.starts_with(expected), "{note}");
    }
    // No node is named in the object, which other users can read.
    let shown = format!("{:?}", made.profile);
    assert!(!shown.contains("mixed") && !shown.contains("\"a\""), "{shown}");
}

#[test]
fn infeasible_draft_is_rejected_with_remedy() {
    let mut parts = node("parts", T4);
    parts.allocatable = Amounts::default()
        .with("nvidia.com/mig-1g.18gb", 7)
        .with("nvidia.com/mig-3g.71gb", 2)
        .with("example.com/none", 0);
    parts.labels.insert(TYPE_LABEL.to_owned(), H200.to_owned());
    let cluster = snapshot([node("a", H200), node("b", T4), parts]);
    for (request, expected) in [
        (
            selection(&["a", "b"]),
            "2 types, nvidia-h200-141gb, nvidia-t4-16gb, but a profile can select only one",
        ),
        (selection(&["gone"]), "none of these nodes can be used: gone is excluded"),
        (
            selection(&["parts"]),
            "2 resources, nvidia.com/mig-1g.18gb, nvidia.com/mig-3g.71gb: select one",
        ),
        (
            DraftRequest { resource: Some("amd.com/gpu".to_owned()), ..selection(&["a"]) },
            "none of these nodes has the resource amd.com/gpu",
        ),
    ] {
        let refused = drafted(&request, &cluster).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    let request = DraftRequest {
        resource: Some("nvidia.com/mig-3g.71gb".to_owned()),
        ..selection(&["parts"])
    };
    let made = drafted(&request, &cluster).unwrap();
    assert_eq!(made.profile.key.name, "nvidia-h200-141gb-mig-3g-71gb");
    assert_eq!(made.profile.shown(), "NVIDIA H200 141GB (3g.71gb)");
    let given = made.profile.identifiers.iter().map(|one| one.resource.as_str());
    // CPU and memory are omitted if the node does not report them.
    assert_eq!(given.collect::<BTreeSet<_>>(), BTreeSet::from(["nvidia.com/mig-3g.71gb"]));
}

#[test]
fn req_005_type_specs_contain_what_its_products_agree_on() {
    let catalog = Catalog::built_in();
    let of = |name: &str| Specs::for_type(&name.parse().unwrap(), &catalog);
    let h200 = of(H200);
    assert_eq!(h200.name, "NVIDIA H200 141GB");
    assert_eq!(h200.architecture.as_deref(), Some("Hopper"));
    assert_eq!(h200.compute_capability.as_deref(), Some("9.0"));
    assert!(h200.memory_mib.is_some_and(|memory| memory > 140_000), "{h200:?}");
    assert_eq!(h200.memory_bandwidth_gbs, Some(4800.0));
    // Two products have this type, and one is slower.
    assert_eq!(of("nvidia-a100-80gb").memory_bandwidth_gbs, Some(1935.0));
    let own = of("acme-one-1gb");
    assert_eq!((own.memory_mib, own.architecture), (None, None));
}

fn counts(text: &str) -> CountOverride {
    text.parse().unwrap()
}

#[test]
fn user_counts_and_taints_override_the_draft() {
    let mut research = node("a", H200);
    research.taints.push(taint("team", "research"));
    let control = "node-role.kubernetes.io/control-plane";
    research.taints.push(taint(control, ""));
    let cluster = snapshot([research]);
    let request = DraftRequest {
        counts: vec![counts("nvidia.com/gpu:2:2:4"), counts("memory::16Gi:64Gi")],
        tolerate: Some(BTreeSet::from([format!("{control}:NoSchedule")])),
        ..selection(&["a"])
    };
    let made = drafted(&request, &cluster).unwrap();
    let shown = |one: &Identifier| {
        let max = one.max.clone().unwrap_or_default();
        format!("{} {} {} {max}", one.resource, one.min, one.default)
    };
    let counts: Vec<String> = made.profile.identifiers.iter().map(shown).collect();
    assert_eq!(counts, ["cpu 1 6 64", "memory 1Gi 16Gi 64Gi", "nvidia.com/gpu 2 2 4"]);
    let tolerated = made.profile.requirements().tolerations;
    let tolerated: Vec<&str> = tolerated.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(tolerated, [control]);
    let taints: Vec<String> = made.taints.iter().map(ToString::to_string).collect();
    assert_eq!(taints.len(), 3, "{taints:?}");
    let notes: Vec<String> = made.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "the taint nvidia.com/gpu=true:NoSchedule is not tolerated, as requested: the profile does not match nodes with it",
            "the taint team=research:NoSchedule is not tolerated, as requested: the profile does not match nodes with it",
        ]
    );
    let none =
        DraftRequest { tolerate: Some(BTreeSet::from([NO_TAINT.to_owned()])), ..selection(&["a"]) };
    let made = drafted(&none, &cluster).unwrap();
    assert!(made.profile.requirements().tolerations.is_empty());
}

#[test]
fn invalid_counts_and_taints_are_rejected_with_position() {
    let cluster = snapshot([node("a", H200)]);
    for (expected, at, part, words) in [
        (&["a.b/c:1:1:1"][..], 0, "identifier", "it requests cpu, memory, nvidia.com/gpu"),
        (&["cpu:1:1:1", "cpu:1:1:1"], 1, "identifier", "specified twice"),
        (&["cpu:1::", "nvidia.com/gpu::x:"], 1, "default", "\"x\" is not an amount"),
        (&["nvidia.com/gpu::500m:"], 0, "default", "only whole devices"),
        (&["nvidia.com/gpu:0::"], 0, "min", "greater than 0"),
        (&["nvidia.com/gpu:::9"], 0, "max", "none of these nodes has more than 8"),
        (&["memory::1Ti:"], 0, "default", "more than 512Gi"),
        (&["nvidia.com/gpu:3:2:4"], 0, "default", "2 is less than the minimum, which is 3"),
        (&["nvidia.com/gpu:2::"], 0, "min", "1 is less than the minimum, which is 2"),
        (&["nvidia.com/gpu::4:2"], 0, "max", "2 is less than the default, which is 4"),
        (&["cpu:-1::"], 0, "min", "greater than 0"),
    ] {
        let request = DraftRequest {
            counts: expected.iter().map(|text| counts(text)).collect(),
            ..selection(&["a"])
        };
        let DraftError::Counts(error) = drafted(&request, &cluster).unwrap_err() else {
            panic!("{expected:?}");
        };
        assert_eq!((error.at, error.part.word()), (at, part), "{expected:?}: {error}");
        assert!(error.to_string().contains(words), "{expected:?}: {error}");
    }
}

#[test]
fn unknown_taint_and_invalid_counts_are_rejected() {
    let cluster = snapshot([node("a", H200)]);
    let request = DraftRequest {
        tolerate: Some(BTreeSet::from(["x:NoSchedule".to_owned()])),
        ..selection(&["a"])
    };
    let error = drafted(&request, &cluster).unwrap_err().to_string();
    assert_eq!(
        error,
        "none of these nodes has the taint \"x:NoSchedule\"; they have nvidia.com/gpu=true:NoSchedule"
    );
    for text in ["", ":1:1:1", "cpu", "cpu:1:1", "cpu:1:1:1:1"] {
        assert!(text.parse::<CountOverride>().is_err(), "{text:?}");
    }
    assert_eq!(counts("cpu:1::2").to_string(), "cpu:1::2");
}
