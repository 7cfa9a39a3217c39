//! Writes to a Node, and fields left unchanged.

use super::*;
use crate::label_set::tests_support::label_set;

fn texts_of(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    let labels = labels.iter();
    labels.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A Node with labels, each of one or more owners.
fn node(labels: &[(&str, &str, &[&str])]) -> ObservedNode {
    let mut view = ObservedNode::default();
    for (key, value, owners) in labels {
        view.labels.insert((*key).to_owned(), (*value).to_owned());
        let owners = owners.iter().map(|&owner| owner.to_owned()).collect();
        view.owners.labels.insert((*key).to_owned(), owners);
    }
    view
}

/// An empty desired state that is known to be complete.
fn nothing() -> DesiredNode {
    DesiredNode { uid: Some(String::new()), ..DesiredNode::default() }
}

fn exactly(labels: &[(&str, &str)]) -> DesiredNode {
    DesiredNode { labels: DesiredLabels::Exactly(label_set(labels)), ..nothing() }
}

/// The labels applied by the agent's main manager; `None` if nothing is written.
fn applied(decision: &NodeChanges) -> Option<&BTreeMap<String, String>> {
    decision.writes.iter().find_map(|write| match write {
        NodeWrite::Apply { manager: FIELD_MANAGER, labels, .. } => Some(labels),
        NodeWrite::Apply { .. } | NodeWrite::Taints(_) | NodeWrite::Replace { .. } => None,
    })
}

const OURS: &[&str] = &[FIELD_MANAGER];
const NFD: &[&str] = &["nfd-master"];

#[test]
fn node_in_desired_state_is_not_written() {
    let view = node(&[("a.b/x", "1", OURS), ("kubernetes.io/os", "linux", &["kubelet"])]);
    assert_eq!(diff_node(&view, &exactly(&[("a.b/x", "1")])), NodeChanges::default());
    assert_eq!(diff_node(&ObservedNode::default(), &nothing()), NodeChanges::default());
}

#[test]
fn apply_contains_all_own_fields_without_removed_ones() {
    let view = node(&[("a.b/x", "1", OURS), ("a.b/gone", "1", OURS)]);
    let decision = diff_node(&view, &exactly(&[("a.b/x", "2"), ("a.b/new", "3")]));
    assert_eq!(applied(&decision), Some(&texts_of(&[("a.b/x", "2"), ("a.b/new", "3")])));
    assert_eq!(decision.conflicts, []);
}

#[test]
fn key_of_another_manager_is_left_and_reported_if_different() {
    let view = node(&[("a.b/x", "theirs", NFD), ("a.b/same", "1", NFD)]);
    let decision = diff_node(&view, &exactly(&[("a.b/x", "1"), ("a.b/same", "1"), ("a.b/y", "2")]));
    assert_eq!(applied(&decision), Some(&texts_of(&[("a.b/y", "2")])));
    let yielded = ConflictingKey { key: "a.b/x".to_owned(), owner: "nfd-master".to_owned() };
    assert_eq!(decision.conflicts, [yielded]);
    let view = node(&[("a.b/x", "theirs", NFD), ("a.b/same", "1", NFD), ("a.b/y", "2", OURS)]);
    let decision = diff_node(&view, &exactly(&[("a.b/x", "1"), ("a.b/same", "1"), ("a.b/y", "2")]));
    assert_eq!(decision.writes, []);
}

#[test]
fn co_owned_equal_key_is_retained_until_it_changes() {
    let both: &[&str] = &[FIELD_MANAGER, "nfd-master"];
    let view = node(&[("a.b/x", "1", both)]);
    assert_eq!(diff_node(&view, &exactly(&[("a.b/x", "1")])).writes, []);
    let decision = diff_node(&view, &exactly(&[("a.b/x", "2")]));
    assert_eq!(applied(&decision), Some(&BTreeMap::new()));
    assert_eq!(decision.conflicts.len(), 1);
}

#[test]
fn unread_node_is_not_written_and_stalled_driver_retains_labels() {
    let view = node(&[("a.b/x", "1", OURS)]);
    let wanted = |labels| DesiredNode { labels, ..nothing() };
    let unread = DesiredNode::default();
    assert_eq!(diff_node(&view, &unread).writes, []);
    let of_another = DesiredNode { uid: Some("another".to_owned()), ..DesiredNode::default() };
    assert_eq!(diff_node(&view, &of_another).writes, []);
    let other = label_set(&[("a.b/y", "1")]);
    assert_eq!(diff_node(&view, &wanted(DesiredLabels::IfAbsent(other.clone()))).writes, []);
    let decision = diff_node(&ObservedNode::default(), &wanted(DesiredLabels::IfAbsent(other)));
    assert_eq!(applied(&decision), Some(&texts_of(&[("a.b/y", "1")])));
    // Cleanup applies an empty set.
    let decision = diff_node(&view, &wanted(DesiredLabels::None));
    assert_eq!(applied(&decision), Some(&BTreeMap::new()));
}

#[test]
fn annotations_follow_the_same_rules_as_labels() {
    let wanted = DesiredNode { annotations: texts_of(&[("octavo.dev/status", "{}")]), ..nothing() };
    let mut view = ObservedNode::default();
    assert_eq!(diff_node(&view, &wanted).writes.len(), 1);
    view.annotations = wanted.annotations.clone();
    let ours = [FIELD_MANAGER.to_owned()].into();
    view.owners.annotations.insert("octavo.dev/status".to_owned(), ours);
    assert_eq!(diff_node(&view, &wanted).writes, []);
    assert_eq!(diff_node(&view, &nothing()).writes.len(), 1);
}

#[test]
fn mig_manager_answer_is_taken_over_and_released() {
    let wanted = DesiredNode { mig_config_state: Some("success"), ..nothing() };
    let view = node(&[(MIG_CONFIG_STATE_LABEL, "failed", &["nvidia-mig-manager"])]);
    let decision = diff_node(&view, &wanted);
    let [NodeWrite::Apply { manager, force, labels, .. }] = decision.writes.as_slice() else {
        panic!("{decision:?}");
    };
    assert_eq!((*manager, *force), (COMPAT_FIELD_MANAGER, true));
    assert_eq!(*labels, texts_of(&[(MIG_CONFIG_STATE_LABEL, "success")]));
    let view = node(&[(MIG_CONFIG_STATE_LABEL, "success", &[COMPAT_FIELD_MANAGER])]);
    assert_eq!(diff_node(&view, &wanted).writes, []);
    assert_eq!(diff_node(&view, &nothing()).writes.len(), 1);
}

#[test]
fn own_taint_is_added_and_removed_and_others_are_unchanged() {
    let taint = |key: &str| Taint {
        key: key.to_owned(),
        value: Some("v".to_owned()),
        effect: "NoExecute".to_owned(),
        added: Some("2026-01-01T00:00:00Z".to_owned()),
    };
    let mut view = ObservedNode { taints: vec![taint("b"), taint("a")], ..ObservedNode::default() };
    let wanted = |not_ready| DesiredNode { not_ready, ..nothing() };
    assert_eq!(diff_node(&view, &wanted(false)).writes, []);
    let decision = diff_node(&view, &wanted(true));
    let [NodeWrite::Taints(taints)] = decision.writes.as_slice() else {
        panic!("{decision:?}");
    };
    assert_eq!(taints[..2], [taint("b"), taint("a")]);
    assert_eq!((taints[2].key.as_str(), taints.len()), (NOT_READY_TAINT, 3));
    view.taints.clone_from(taints);
    assert_eq!(diff_node(&view, &wanted(true)).writes, []);
    let back = NodeWrite::Taints(vec![taint("b"), taint("a")]);
    assert_eq!(diff_node(&view, &wanted(false)).writes, std::slice::from_ref(&back));
    // Each taint is independent of the other.
    let both = DesiredNode { repartitioning: true, ..wanted(true) };
    let decision = diff_node(&view, &both);
    let [NodeWrite::Taints(taints)] = decision.writes.as_slice() else {
        panic!("{decision:?}");
    };
    view.taints.clone_from(taints);
    let keys =
        |view: &ObservedNode| view.taints.iter().map(|taint| taint.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&view), ["b", "a", NOT_READY_TAINT, REPARTITIONING_TAINT]);
    assert_eq!(diff_node(&view, &both).writes, []);
    let decision = diff_node(&view, &DesiredNode { not_ready: false, ..both });
    let [NodeWrite::Taints(taints)] = decision.writes.as_slice() else {
        panic!("{decision:?}");
    };
    view.taints.clone_from(taints);
    assert_eq!(keys(&view), ["b", "a", REPARTITIONING_TAINT]);
    assert_eq!(diff_node(&view, &wanted(false)).writes, [back]);
}

#[test]
fn own_taint_with_another_effect_is_replaced_or_removed() {
    let taint = |effect: &str| Taint {
        key: REPARTITIONING_TAINT.to_owned(),
        value: None,
        effect: effect.to_owned(),
        added: None,
    };
    let wanted = DesiredNode { repartitioning: true, ..nothing() };
    let (right, wrong) = (taint("NoSchedule"), taint("PreferNoSchedule"));
    let writes = |taints: &[&Taint], wanted: &DesiredNode| {
        let view = ObservedNode {
            taints: taints.iter().map(|&taint| taint.clone()).collect(),
            ..ObservedNode::default()
        };
        diff_node(&view, wanted).writes
    };
    let as_wanted = vec![NodeWrite::Taints(vec![right.clone()])];
    assert_eq!(writes(&[&wrong], &wanted), as_wanted);
    assert_eq!(writes(&[&wrong, &right], &wanted), as_wanted);
    assert_eq!(writes(&[&right], &wanted), []);
    assert_eq!(writes(&[&wrong], &nothing()), [NodeWrite::Taints(Vec::new())]);
}

#[test]
fn i11_only_running_operands_are_paused_and_only_own_pauses_are_restored() {
    let mut view = node(&[
        ("nvidia.com/gpu.deploy.dcgm", "true", &["gpu-operator"]),
        ("nvidia.com/gpu.deploy.nvsm", "false", &["gpu-operator"]),
        ("nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade", &["k8s-driver-manager"]),
    ]);
    let all = ["dcgm", "nvsm", "driver", "device-plugin"];
    let paused = DesiredNode {
        paused: all.iter().map(|name| format!("nvidia.com/gpu.deploy.{name}")).collect(),
        ..nothing()
    };
    let replace = |from: &str, to: &str| NodeWrite::Replace {
        key: "nvidia.com/gpu.deploy.dcgm".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
    };
    assert_eq!(diff_node(&view, &paused).writes, [replace(RUNNING, PAUSED)]);
    assert_eq!(diff_node(&view, &nothing()).writes, []);
    view.labels.insert("nvidia.com/gpu.deploy.dcgm".to_owned(), PAUSED.to_owned());
    assert_eq!(diff_node(&view, &paused).writes, []);
    // This includes labels left by an agent that was killed.
    assert_eq!(diff_node(&view, &nothing()).writes, [replace(PAUSED, RUNNING)]);
}

#[test]
fn plugin_configuration_is_switched_if_present() {
    let wanted = DesiredNode { plugin_config: Some(("a".to_owned(), "b".to_owned())), ..nothing() };
    assert_eq!(diff_node(&ObservedNode::default(), &wanted).writes, []);
    let view = node(&[(PLUGIN_CONFIG_LABEL, "a", &["kubectl-label"])]);
    assert_eq!(diff_node(&view, &wanted).writes.len(), 1);
    // The configuration was switched already, or a user has set a third one.
    for now in ["b", "c"] {
        let view = node(&[(PLUGIN_CONFIG_LABEL, now, &["kubectl-label"])]);
        assert_eq!(diff_node(&view, &wanted).writes, []);
    }
}

/// The applied configuration label of NVIDIA's plugin; empty if it is removed.
fn followed(view: &ObservedNode, wanted: PluginLabel) -> Option<String> {
    let wanted = DesiredNode { plugin_label: wanted, ..nothing() };
    let decision = diff_node(view, &wanted);
    decision.writes.into_iter().find_map(|write| match write {
        NodeWrite::Apply { manager: SHARING_FIELD_MANAGER, force: false, mut labels, .. } => {
            Some(labels.remove(PLUGIN_CONFIG_LABEL).unwrap_or_default())
        }
        NodeWrite::Apply { .. } | NodeWrite::Taints(_) | NodeWrite::Replace { .. } => None,
    })
}

#[test]
fn plugin_label_has_its_own_manager_and_never_overrides_others() {
    let is = |key: &str| PluginLabel::Set(key.to_owned());
    let label = |owners: &[&str]| {
        let mut view = node(&[]);
        view.labels.insert(PLUGIN_CONFIG_LABEL.to_owned(), "a".to_owned());
        let owners = owners.iter().map(|&owner| owner.to_owned()).collect();
        view.owners.labels.insert(PLUGIN_CONFIG_LABEL.to_owned(), owners);
        view
    };
    let ours = label(&[SHARING_FIELD_MANAGER]);
    assert_eq!(followed(&node(&[]), is("a")), Some("a".to_owned()));
    assert_eq!(followed(&ours, is("a")), None);
    assert_eq!(followed(&ours, is("b")), Some("b".to_owned()));
    assert_eq!(followed(&ours, PluginLabel::Unchanged), None);
    assert_eq!(followed(&ours, PluginLabel::Absent), Some(String::new()));
    let theirs = label(&["kubectl-label"]);
    for wanted in [is("a"), is("b"), PluginLabel::Unchanged, PluginLabel::Absent] {
        assert_eq!(followed(&theirs, wanted), None);
    }
}
