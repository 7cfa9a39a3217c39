//! Each cause is distinguished from every other by its evidence.

use std::time::Duration;

use super::*;

const MAP: &str = "gpu-operator/plugin-config";
const KEY: &str = "octavo-a-12345678";

fn map(key: &str, text: &str) -> Found<ConfigMap> {
    Found::There(ConfigMap {
        keys: [key.to_owned()].into(),
        content: (key == KEY).then(|| text.to_owned()),
        written: None,
    })
}

fn plugin() -> Plugin {
    Plugin {
        name: "plugin".to_owned(),
        config_maps: ["plugin-config".to_owned()].into(),
        follows: true,
        mig_strategy: None,
    }
}

fn pod() -> PluginPod {
    PluginPod {
        name: "plugin-x".to_owned(),
        plugin: "plugin".to_owned(),
        runs: Some(Duration::from_hours(3)),
        trouble: None,
    }
}

/// Evidence without a problem.
fn evidence() -> Evidence {
    Evidence {
        config_map: map(KEY, "text"),
        plugins: Found::There(vec![plugin()]),
        pods: Found::There(vec![pod()]),
    }
}

fn gpus(offered: u64, there: u64) -> Mismatch {
    Mismatch {
        resource: "nvidia.com/gpu".to_owned(),
        wanted: 8,
        offered,
        there,
    }
}

fn found(evidence: &Evidence, mismatches: &[Mismatch]) -> Vec<Finding> {
    diagnose(&Case {
        config_map: MAP,
        key: (KEY, "text"),
        strategy: MigStrategy::Mixed,
        is_labelled: true,
        mismatches,
        evidence,
    })
}

fn causes(evidence: &Evidence) -> Vec<Cause> {
    let all = found(evidence, &[gpus(2, 2)]);
    all.into_iter().map(|one| one.cause).collect()
}

#[test]
fn the_config_map_is_missing_has_no_such_key_or_says_something_else() {
    let with = |config_map| {
        causes(&Evidence {
            config_map,
            ..evidence()
        })
    };
    assert_eq!(with(Found::Missing), [Cause::ConfigMapMissing]);
    assert_eq!(with(map("other", "text")), [Cause::KeyMissing]);
    assert_eq!(with(map(KEY, "other")), [Cause::KeyDiffers]);
}

#[test]
fn the_plugin_is_not_told_of_the_config_map_or_of_the_label() {
    let with = |plugins: Vec<Plugin>| {
        causes(&Evidence {
            plugins: Found::There(plugins),
            ..evidence()
        })
    };
    let unreferenced = Plugin {
        config_maps: ["other".to_owned()].into(),
        ..plugin()
    };
    assert_eq!(with(vec![unreferenced.clone()]), [Cause::NotReferenced]);
    let unfollowed = Plugin {
        follows: false,
        ..plugin()
    };
    assert_eq!(with(vec![unfollowed]), [Cause::NotFollowed]);
    // One of two plugins is sufficient.
    assert_eq!(with(vec![unreferenced, plugin()]), [Cause::NotReloaded]);
    let strategy = Plugin {
        mig_strategy: Some("single".to_owned()),
        ..plugin()
    };
    assert_eq!(with(vec![strategy]), [Cause::MigInTheWay]);
}

#[test]
fn the_plugin_does_not_run_here_or_two_do() {
    let with = |pods: Vec<PluginPod>| {
        causes(&Evidence {
            pods: Found::There(pods),
            ..evidence()
        })
    };
    assert_eq!(with(Vec::new()), [Cause::PluginNotRunning]);
    let ill = PluginPod {
        trouble: Some("its container config-manager does not run: CrashLoopBackOff".to_owned()),
        ..pod()
    };
    assert_eq!(with(vec![ill]), [Cause::PluginNotRunning]);
    let young = PluginPod {
        runs: None,
        ..pod()
    };
    assert_eq!(with(vec![young]), [Cause::PluginNotRunning]);
    let second = PluginPod {
        plugin: "second".to_owned(),
        ..pod()
    };
    assert_eq!(with(vec![pod(), second]), [Cause::ResourceOfAnother]);
}

#[test]
fn nobody_gives_anything_out_where_no_daemon_set_runs_the_plugin() {
    let bare = Evidence {
        plugins: Found::There(Vec::new()),
        pods: Found::There(Vec::new()),
        ..evidence()
    };
    assert_eq!(causes(&bare), [Cause::NobodyGivesOut]);
}

#[test]
fn devices_that_are_there_and_not_offered_are_not_healthy_unless_the_plugin_is_down() {
    let of = |evidence: &Evidence| {
        let all = found(evidence, &[gpus(0, 8)]);
        all.into_iter().map(|one| one.cause).collect::<Vec<Cause>>()
    };
    assert_eq!(of(&evidence()), [Cause::NoneHealthy]);
    let down = Evidence {
        pods: Found::There(Vec::new()),
        ..evidence()
    };
    assert_eq!(of(&down), [Cause::PluginNotRunning]);
}

#[test]
fn partitions_under_other_names_are_mig_in_the_way() {
    let parts = Mismatch {
        resource: "nvidia.com/mig-1g.10gb".to_owned(),
        wanted: 0,
        offered: 7,
        there: 7,
    };
    let all = found(&evidence(), &[gpus(0, 0), parts]);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].cause, Cause::MigInTheWay);
    assert!(
        all[0].proof.contains("offers 7 of nvidia.com/mig-1g.10gb"),
        "{}",
        all[0]
    );
}

#[test]
fn one_gpu_of_several_that_is_not_healthy_is_no_plugin_that_was_not_told() {
    let all = found(&evidence(), &[gpus(6, 8)]);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].cause, Cause::SomeUnhealthy);
    let said = all[0].to_string();
    assert!(
        said.starts_with("2 of 8 of nvidia.com/gpu are not healthy to the plugin. Its log"),
        "{said}"
    );
    // If the Node has fewer than requested, the plugin uses a different configuration.
    let fewer = found(&evidence(), &[gpus(2, 4)]);
    assert_eq!(fewer[0].cause, Cause::NotReloaded);
}

#[test]
fn where_all_is_as_it_should_be_the_plugin_has_not_been_told_and_that_is_said_without_times() {
    let all = found(&evidence(), &[gpus(2, 2)]);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].cause, Cause::NotReloaded);
    let said = all[0].to_string();
    for part in [
        KEY,
        "pod plugin-x runs, and",
        "nvidia.com/gpu: 8 asked, 2 offered",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let older = PluginPod {
        runs: Some(Duration::from_hours(4)),
        ..pod()
    };
    let later = Evidence {
        pods: Found::There(vec![older]),
        ..evidence()
    };
    assert_eq!(found(&later, &[gpus(2, 2)]), all);
}

#[test]
fn what_may_not_be_looked_at_is_said_and_proves_nothing() {
    let forbidden = || "the API server says 403".to_owned();
    let blind = Evidence {
        config_map: Found::Unknown(forbidden()),
        plugins: Found::Unknown(forbidden()),
        pods: Found::Unknown(forbidden()),
    };
    let all = found(&blind, &[gpus(2, 2)]);
    let causes: Vec<Cause> = all.iter().map(|one| one.cause).collect();
    assert_eq!(
        causes,
        [
            Cause::Unseen,
            Cause::Unseen,
            Cause::Unseen,
            Cause::NotReloaded
        ]
    );
    assert!(said(&all).contains("ConfigMap gpu-operator/plugin-config: the API server says 403"));
}

#[test]
fn a_node_differs_in_what_it_lacks_and_in_what_nobody_asked_for() {
    let of = |all: &[(&str, u64)]| {
        all.iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect::<std::collections::BTreeMap<String, u64>>()
    };
    let wanted = of(&[("nvidia.com/gpu", 8)]);
    let differs = |offered: &[(&str, u64)], there: &[(&str, u64)]| {
        let all = mismatches(&wanted, (&of(offered), &of(there)));
        all.iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    assert!(differs(&[("nvidia.com/gpu", 8), ("nvidia.com/gpu.shared", 0)], &[]).is_empty());
    assert!(
        differs(
            &[
                ("nvidia.com/gpu", 8),
                ("rdma/hca", 3),
                ("nvidia.com/gds", 1)
            ],
            &[]
        )
        .is_empty()
    );
    assert_eq!(
        differs(&[("nvidia.com/gpu.shared", 8)], &[("nvidia.com/gpu", 2)]),
        [
            "nvidia.com/gpu: 8 asked, 0 offered",
            "nvidia.com/gpu.shared: 0 asked, 8 offered"
        ]
    );
}
