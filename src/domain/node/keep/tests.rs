//! Writes to a Node, and fields left unchanged.

use super::*;
use crate::domain::labels::tests_support::label_set;

fn texts_of(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    let labels = labels.iter();
    labels
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// A Node with labels, each of one or more owners.
fn node(labels: &[(&str, &str, &[&str])]) -> View {
    let mut view = View::default();
    for (key, value, owners) in labels {
        view.labels.insert((*key).to_owned(), (*value).to_owned());
        let owners = owners.iter().map(|&owner| owner.to_owned()).collect();
        view.owners.labels.insert((*key).to_owned(), owners);
    }
    view
}

/// An empty desired state that is known to be complete.
fn nothing() -> Wanted {
    Wanted {
        uid: Some(String::new()),
        ..Wanted::default()
    }
}

fn exactly(labels: &[(&str, &str)]) -> Wanted {
    Wanted {
        labels: Labels::Exactly(label_set(labels)),
        ..nothing()
    }
}

/// The labels applied by the agent's main manager; `None` if nothing is written.
fn applied(decision: &Decision) -> Option<&BTreeMap<String, String>> {
    decision.writes.iter().find_map(|write| match write {
        Write::Apply {
            manager: MANAGER,
            labels,
            ..
        } => Some(labels),
        Write::Apply { .. } | Write::Taints(_) | Write::Replace { .. } => None,
    })
}

const OURS: &[&str] = &[MANAGER];
const NFD: &[&str] = &["nfd-master"];

#[test]
fn a_node_that_says_what_it_shall_say_is_not_written() {
    let view = node(&[
        ("a.b/x", "1", OURS),
        ("kubernetes.io/os", "linux", &["kubelet"]),
    ]);
    assert_eq!(
        decide(&view, &exactly(&[("a.b/x", "1")])),
        Decision::default()
    );
    assert_eq!(decide(&View::default(), &nothing()), Decision::default());
}

#[test]
fn what_differs_is_applied_with_all_that_is_ours_and_what_is_gone_is_left_out() {
    let view = node(&[("a.b/x", "1", OURS), ("a.b/gone", "1", OURS)]);
    let decision = decide(&view, &exactly(&[("a.b/x", "2"), ("a.b/new", "3")]));
    assert_eq!(
        applied(&decision),
        Some(&texts_of(&[("a.b/x", "2"), ("a.b/new", "3")]))
    );
    assert_eq!(decision.yielded, []);
}

#[test]
fn a_key_that_another_has_is_left_to_it_and_named_where_it_says_something_else() {
    let view = node(&[("a.b/x", "theirs", NFD), ("a.b/same", "1", NFD)]);
    let decision = decide(
        &view,
        &exactly(&[("a.b/x", "1"), ("a.b/same", "1"), ("a.b/y", "2")]),
    );
    assert_eq!(applied(&decision), Some(&texts_of(&[("a.b/y", "2")])));
    let yielded = Yielded {
        key: "a.b/x".to_owned(),
        owner: "nfd-master".to_owned(),
    };
    assert_eq!(decision.yielded, [yielded]);
    let view = node(&[
        ("a.b/x", "theirs", NFD),
        ("a.b/same", "1", NFD),
        ("a.b/y", "2", OURS),
    ]);
    let decision = decide(
        &view,
        &exactly(&[("a.b/x", "1"), ("a.b/same", "1"), ("a.b/y", "2")]),
    );
    assert_eq!(decision.writes, []);
}

#[test]
fn what_both_say_stays_ours_until_it_has_to_change() {
    let both: &[&str] = &[MANAGER, "nfd-master"];
    let view = node(&[("a.b/x", "1", both)]);
    assert_eq!(decide(&view, &exactly(&[("a.b/x", "1")])).writes, []);
    let decision = decide(&view, &exactly(&[("a.b/x", "2")]));
    assert_eq!(applied(&decision), Some(&BTreeMap::new()));
    assert_eq!(decision.yielded.len(), 1);
}

#[test]
fn nothing_read_means_nothing_written_and_a_hanging_driver_leaves_what_there_is() {
    let view = node(&[("a.b/x", "1", OURS)]);
    let wanted = |labels| Wanted {
        labels,
        ..nothing()
    };
    let unread = Wanted::default();
    assert_eq!(decide(&view, &unread).writes, []);
    let of_another = Wanted {
        uid: Some("another".to_owned()),
        ..Wanted::default()
    };
    assert_eq!(decide(&view, &of_another).writes, []);
    let other = label_set(&[("a.b/y", "1")]);
    assert_eq!(
        decide(&view, &wanted(Labels::Unless(other.clone()))).writes,
        []
    );
    let decision = decide(&View::default(), &wanted(Labels::Unless(other)));
    assert_eq!(applied(&decision), Some(&texts_of(&[("a.b/y", "1")])));
    // Cleanup applies an empty set.
    let decision = decide(&view, &wanted(Labels::None));
    assert_eq!(applied(&decision), Some(&BTreeMap::new()));
}

#[test]
fn annotations_are_kept_as_labels_are() {
    let wanted = Wanted {
        annotations: texts_of(&[("octavo.dev/status", "{}")]),
        ..nothing()
    };
    let mut view = View::default();
    assert_eq!(decide(&view, &wanted).writes.len(), 1);
    view.annotations = wanted.annotations.clone();
    let ours = [MANAGER.to_owned()].into();
    view.owners
        .annotations
        .insert("octavo.dev/status".to_owned(), ours);
    assert_eq!(decide(&view, &wanted).writes, []);
    assert_eq!(decide(&view, &nothing()).writes.len(), 1);
}

#[test]
fn mig_managers_answer_is_taken_over_and_given_back() {
    let wanted = Wanted {
        mig_config_state: Some("success"),
        ..nothing()
    };
    let view = node(&[(MIG_CONFIG_STATE, "failed", &["nvidia-mig-manager"])]);
    let decision = decide(&view, &wanted);
    let [
        Write::Apply {
            manager,
            force,
            labels,
            ..
        },
    ] = decision.writes.as_slice()
    else {
        panic!("{decision:?}");
    };
    assert_eq!((*manager, *force), (COMPAT_MANAGER, true));
    assert_eq!(*labels, texts_of(&[(MIG_CONFIG_STATE, "success")]));
    let view = node(&[(MIG_CONFIG_STATE, "success", &[COMPAT_MANAGER])]);
    assert_eq!(decide(&view, &wanted).writes, []);
    assert_eq!(decide(&view, &nothing()).writes.len(), 1);
}

#[test]
fn our_taint_comes_and_goes_and_those_of_others_stay_as_they_are() {
    let taint = |key: &str| Taint {
        key: key.to_owned(),
        value: Some("v".to_owned()),
        effect: "NoExecute".to_owned(),
        added: Some("2026-01-01T00:00:00Z".to_owned()),
    };
    let mut view = View {
        taints: vec![taint("b"), taint("a")],
        ..View::default()
    };
    let wanted = |not_ready| Wanted {
        not_ready,
        ..nothing()
    };
    assert_eq!(decide(&view, &wanted(false)).writes, []);
    let decision = decide(&view, &wanted(true));
    let [Write::Taints(taints)] = decision.writes.as_slice() else {
        panic!("{decision:?}");
    };
    assert_eq!(taints[..2], [taint("b"), taint("a")]);
    assert_eq!((taints[2].key.as_str(), taints.len()), (NOT_READY, 3));
    view.taints.clone_from(taints);
    assert_eq!(decide(&view, &wanted(true)).writes, []);
    let back = Write::Taints(vec![taint("b"), taint("a")]);
    assert_eq!(
        decide(&view, &wanted(false)).writes,
        std::slice::from_ref(&back)
    );
    // Each taint is independent of the other.
    let both = Wanted {
        repartitioning: true,
        ..wanted(true)
    };
    let decision = decide(&view, &both);
    let [Write::Taints(taints)] = decision.writes.as_slice() else {
        panic!("{decision:?}");
    };
    view.taints.clone_from(taints);
    let keys = |view: &View| {
        view.taints
            .iter()
            .map(|taint| taint.key.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&view), ["b", "a", NOT_READY, REPARTITIONING]);
    assert_eq!(decide(&view, &both).writes, []);
    let decision = decide(
        &view,
        &Wanted {
            not_ready: false,
            ..both
        },
    );
    let [Write::Taints(taints)] = decision.writes.as_slice() else {
        panic!("{decision:?}");
    };
    view.taints.clone_from(taints);
    assert_eq!(keys(&view), ["b", "a", REPARTITIONING]);
    assert_eq!(decide(&view, &wanted(false)).writes, [back]);
}

#[test]
fn a_taint_of_ours_with_another_effect_is_replaced_and_goes_where_none_is_wanted() {
    let taint = |effect: &str| Taint {
        key: REPARTITIONING.to_owned(),
        value: None,
        effect: effect.to_owned(),
        added: None,
    };
    let wanted = Wanted {
        repartitioning: true,
        ..nothing()
    };
    let (right, wrong) = (taint("NoSchedule"), taint("PreferNoSchedule"));
    let writes = |taints: &[&Taint], wanted: &Wanted| {
        let view = View {
            taints: taints.iter().map(|&taint| taint.clone()).collect(),
            ..View::default()
        };
        decide(&view, wanted).writes
    };
    let as_wanted = vec![Write::Taints(vec![right.clone()])];
    assert_eq!(writes(&[&wrong], &wanted), as_wanted);
    assert_eq!(writes(&[&wrong, &right], &wanted), as_wanted);
    assert_eq!(writes(&[&right], &wanted), []);
    assert_eq!(writes(&[&wrong], &nothing()), [Write::Taints(Vec::new())]);
}

#[test]
fn i11_only_what_runs_is_paused_and_only_what_we_paused_is_put_back() {
    let mut view = node(&[
        ("nvidia.com/gpu.deploy.dcgm", "true", &["gpu-operator"]),
        ("nvidia.com/gpu.deploy.nvsm", "false", &["gpu-operator"]),
        (
            "nvidia.com/gpu.deploy.driver",
            "paused-for-driver-upgrade",
            &["k8s-driver-manager"],
        ),
    ]);
    let all = ["dcgm", "nvsm", "driver", "device-plugin"];
    let paused = Wanted {
        paused: all
            .iter()
            .map(|name| format!("nvidia.com/gpu.deploy.{name}"))
            .collect(),
        ..nothing()
    };
    let replace = |from: &str, to: &str| Write::Replace {
        key: "nvidia.com/gpu.deploy.dcgm".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
    };
    assert_eq!(decide(&view, &paused).writes, [replace(RUNNING, PAUSED)]);
    assert_eq!(decide(&view, &nothing()).writes, []);
    view.labels
        .insert("nvidia.com/gpu.deploy.dcgm".to_owned(), PAUSED.to_owned());
    assert_eq!(decide(&view, &paused).writes, []);
    // This includes labels left by an agent that was killed.
    assert_eq!(decide(&view, &nothing()).writes, [replace(PAUSED, RUNNING)]);
}

#[test]
fn the_plugins_configuration_is_changed_where_there_is_one() {
    let wanted = Wanted {
        plugin_config: Some(("a".to_owned(), "b".to_owned())),
        ..nothing()
    };
    assert_eq!(decide(&View::default(), &wanted).writes, []);
    let view = node(&[(PLUGIN_CONFIG, "a", &["kubectl-label"])]);
    assert_eq!(decide(&view, &wanted).writes.len(), 1);
    // The configuration was switched already, or a user has set a third one.
    for now in ["b", "c"] {
        let view = node(&[(PLUGIN_CONFIG, now, &["kubectl-label"])]);
        assert_eq!(decide(&view, &wanted).writes, []);
    }
}

/// The applied configuration label of NVIDIA's plugin; empty if it is removed.
fn followed(view: &View, wanted: PluginLabel) -> Option<String> {
    let wanted = Wanted {
        plugin_label: wanted,
        ..nothing()
    };
    let decision = decide(view, &wanted);
    decision.writes.into_iter().find_map(|write| match write {
        Write::Apply {
            manager: SHARING_MANAGER,
            force: false,
            mut labels,
            ..
        } => Some(labels.remove(PLUGIN_CONFIG).unwrap_or_default()),
        Write::Apply { .. } | Write::Taints(_) | Write::Replace { .. } => None,
    })
}

#[test]
fn the_plugins_label_is_written_by_a_manager_of_its_own_and_never_over_somebody_elses() {
    let is = |key: &str| PluginLabel::Is(key.to_owned());
    let label = |owners: &[&str]| {
        let mut view = node(&[]);
        view.labels.insert(PLUGIN_CONFIG.to_owned(), "a".to_owned());
        let owners = owners.iter().map(|&owner| owner.to_owned()).collect();
        view.owners.labels.insert(PLUGIN_CONFIG.to_owned(), owners);
        view
    };
    let ours = label(&[SHARING_MANAGER]);
    assert_eq!(followed(&node(&[]), is("a")), Some("a".to_owned()));
    assert_eq!(followed(&ours, is("a")), None);
    assert_eq!(followed(&ours, is("b")), Some("b".to_owned()));
    assert_eq!(followed(&ours, PluginLabel::Leave), None);
    assert_eq!(followed(&ours, PluginLabel::Absent), Some(String::new()));
    let theirs = label(&["kubectl-label"]);
    for wanted in [is("a"), is("b"), PluginLabel::Leave, PluginLabel::Absent] {
        assert_eq!(followed(&theirs, wanted), None);
    }
}
