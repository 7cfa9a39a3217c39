//! Each cause is distinguished from every other by its evidence.

use std::time::Duration;

use super::*;

const MAP: &str = "gpu-operator/plugin-config";
const KEY: &str = "octavo-a-12345678";

fn map(key: &str, text: &str) -> LookupResult<ConfigMap> {
    LookupResult::Present(ConfigMap {
        keys: [key.to_owned()].into(),
        content: (key == KEY).then(|| text.to_owned()),
        written: None,
    })
}

fn plugin() -> PluginDaemonSet {
    PluginDaemonSet {
        name: "plugin".to_owned(),
        config_maps: ["plugin-config".to_owned()].into(),
        has_config_manager: true,
        mig_strategy: None,
    }
}

fn pod() -> PluginPod {
    PluginPod {
        name: "plugin-x".to_owned(),
        daemon_set: "plugin".to_owned(),
        running_for: Some(Duration::from_hours(3)),
        error: None,
    }
}

/// Evidence without a problem.
fn evidence() -> Evidence {
    Evidence {
        config_map: map(KEY, "text"),
        plugins: LookupResult::Present(vec![plugin()]),
        pods: LookupResult::Present(vec![pod()]),
    }
}

fn gpus(offered: u64, there: u64) -> Mismatch {
    Mismatch { resource: "nvidia.com/gpu".to_owned(), wanted: 8, offered, capacity: there }
}

fn found(evidence: &Evidence, mismatches: &[Mismatch]) -> Vec<Finding> {
    diagnose(&DiagnosisInput {
        config_map: MAP,
        key: (KEY, "text"),
        strategy: MigStrategy::Mixed,
        is_labeled: true,
        mismatches,
        evidence,
    })
}

fn causes(evidence: &Evidence) -> Vec<FindingCause> {
    let all = found(evidence, &[gpus(2, 2)]);
    all.into_iter().map(|one| one.cause).collect()
}

#[test]
fn missing_config_map_missing_key_and_different_content_are_found() {
    let with = |config_map| causes(&Evidence { config_map, ..evidence() });
    assert_eq!(with(LookupResult::Missing), [FindingCause::ConfigMapMissing]);
    assert_eq!(with(map("other", "text")), [FindingCause::KeyMissing]);
    assert_eq!(with(map(KEY, "other")), [FindingCause::KeyDiffers]);
}

#[test]
fn unreferenced_config_map_and_missing_config_manager_are_found() {
    let with = |plugins: Vec<PluginDaemonSet>| {
        causes(&Evidence { plugins: LookupResult::Present(plugins), ..evidence() })
    };
    let unreferenced = PluginDaemonSet { config_maps: ["other".to_owned()].into(), ..plugin() };
    assert_eq!(with(vec![unreferenced.clone()]), [FindingCause::NotReferenced]);
    let unfollowed = PluginDaemonSet { has_config_manager: false, ..plugin() };
    assert_eq!(with(vec![unfollowed]), [FindingCause::ConfigManagerMissing]);
    // One of two plugins is sufficient.
    assert_eq!(with(vec![unreferenced, plugin()]), [FindingCause::NotReloaded]);
    let strategy = PluginDaemonSet { mig_strategy: Some("single".to_owned()), ..plugin() };
    assert_eq!(with(vec![strategy]), [FindingCause::MigStrategyMismatch]);
}

#[test]
fn absent_failing_or_duplicate_plugin_is_found() {
    let with = |pods: Vec<PluginPod>| {
        causes(&Evidence { pods: LookupResult::Present(pods), ..evidence() })
    };
    assert_eq!(with(Vec::new()), [FindingCause::PluginNotRunning]);
    let ill = PluginPod {
        error: Some("its container config-manager does not run: CrashLoopBackOff".to_owned()),
        ..pod()
    };
    assert_eq!(with(vec![ill]), [FindingCause::PluginNotRunning]);
    let young = PluginPod { running_for: None, ..pod() };
    assert_eq!(with(vec![young]), [FindingCause::PluginNotRunning]);
    let second = PluginPod { daemon_set: "second".to_owned(), ..pod() };
    assert_eq!(with(vec![pod(), second]), [FindingCause::DuplicateResource]);
}

#[test]
fn missing_daemon_set_is_no_device_plugin() {
    let bare = Evidence {
        plugins: LookupResult::Present(Vec::new()),
        pods: LookupResult::Present(Vec::new()),
        ..evidence()
    };
    assert_eq!(causes(&bare), [FindingCause::NoDevicePlugin]);
}

#[test]
fn unoffered_capacity_is_unhealthy_if_plugin_runs() {
    let of = |evidence: &Evidence| {
        let all = found(evidence, &[gpus(0, 8)]);
        all.into_iter().map(|one| one.cause).collect::<Vec<FindingCause>>()
    };
    assert_eq!(of(&evidence()), [FindingCause::NoneHealthy]);
    let down = Evidence { pods: LookupResult::Present(Vec::new()), ..evidence() };
    assert_eq!(of(&down), [FindingCause::PluginNotRunning]);
}

#[test]
fn partitions_under_other_names_are_mig_strategy_mismatch() {
    let parts = Mismatch {
        resource: "nvidia.com/mig-1g.10gb".to_owned(),
        wanted: 0,
        offered: 7,
        capacity: 7,
    };
    let all = found(&evidence(), &[gpus(0, 0), parts]);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].cause, FindingCause::MigStrategyMismatch);
    assert!(all[0].proof.contains("advertises 7 of nvidia.com/mig-1g.10gb"), "{}", all[0]);
}

#[test]
fn partly_unhealthy_gpus_are_not_a_missing_reload() {
    let all = found(&evidence(), &[gpus(6, 8)]);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].cause, FindingCause::SomeUnhealthy);
    let message = all[0].to_string();
    assert!(
        message.starts_with("The plugin reports 2 of 8 of nvidia.com/gpu as unhealthy. Its log"),
        "{message}"
    );
    // If the Node has fewer than requested, the plugin uses a different configuration.
    let fewer = found(&evidence(), &[gpus(2, 4)]);
    assert_eq!(fewer[0].cause, FindingCause::NotReloaded);
}

#[test]
fn correct_setup_with_mismatch_is_not_reloaded() {
    let all = found(&evidence(), &[gpus(2, 2)]);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].cause, FindingCause::NotReloaded);
    let message = all[0].to_string();
    for part in [KEY, "pod plugin-x is running, but", "nvidia.com/gpu: 8 requested, 2 advertised"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let older = PluginPod { running_for: Some(Duration::from_hours(4)), ..pod() };
    let later = Evidence { pods: LookupResult::Present(vec![older]), ..evidence() };
    assert_eq!(found(&later, &[gpus(2, 2)]), all);
}

#[test]
fn missing_evidence_is_reported_and_proves_nothing() {
    let forbidden = || "the API server returned 403".to_owned();
    let blind = Evidence {
        config_map: LookupResult::Unknown(forbidden()),
        plugins: LookupResult::Unknown(forbidden()),
        pods: LookupResult::Unknown(forbidden()),
    };
    let all = found(&blind, &[gpus(2, 2)]);
    let causes: Vec<FindingCause> = all.iter().map(|one| one.cause).collect();
    assert_eq!(
        causes,
        [
            FindingCause::EvidenceUnavailable,
            FindingCause::EvidenceUnavailable,
            FindingCause::EvidenceUnavailable,
            FindingCause::NotReloaded
        ]
    );
    assert!(
        summarize(&all)
            .contains("ConfigMap gpu-operator/plugin-config: the API server returned 403")
    );
}

#[test]
fn missing_and_surplus_resources_are_mismatches() {
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
        differs(&[("nvidia.com/gpu", 8), ("rdma/hca", 3), ("nvidia.com/gds", 1)], &[]).is_empty()
    );
    assert_eq!(
        differs(&[("nvidia.com/gpu.shared", 8)], &[("nvidia.com/gpu", 2)]),
        [
            "nvidia.com/gpu: 8 requested, 0 advertised",
            "nvidia.com/gpu.shared: 0 requested, 8 advertised"
        ]
    );
}
