//! Tests of the configuration of NVIDIA's components.

use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{ProfileCount, Selector, TimeSlice, TimeSlicing};

use super::*;
use crate::tests_support::objects;

fn rule(profiles: Option<&[&str]>, shares: Vec<Share>) -> Rule {
    let position = SourcePosition::default();
    let count =
        |profile: &&str| ProfileCount { position, profile: profile.parse().unwrap(), count: 1 };
    Rule {
        position,
        devices: Selector::All,
        mig: profiles.map(|profiles| MigSpec::Enabled(profiles.iter().map(count).collect())),
        time_slicing: Some(TimeSlicing { position, shares, slice: None }),
        claims: false,
    }
}

fn layout(rules: Vec<Rule>) -> Layout {
    Layout { name: "shared".to_owned(), position: SourcePosition::default(), rules }
}

fn resources(config: &PluginConfig) -> Vec<(&str, u32)> {
    config.resources.iter().map(|one| (one.name.as_str(), one.replicas)).collect()
}

#[test]
fn p5_shared_gpus_and_partitions_become_replicas_of_resources() {
    let whole = plugin_config(&layout(vec![rule(None, vec![Share::everything(4)])])).unwrap();
    assert_eq!(resources(&whole), [("nvidia.com/gpu", 4)]);
    assert!(!whole.rename_by_default);
    let large = ShareTarget::Profile("3g.40gb".parse().unwrap());
    let mut shares = vec![Share::everything(2), Share { of: large, ..Share::everything(3) }];
    for share in &mut shares {
        share.rename = ResourceRename::Shared;
        share.fail_requests_greater_than_one = true;
    }
    let mig = plugin_config(&layout(vec![rule(Some(&["1g.10gb", "3g.40gb"]), shares)])).unwrap();
    assert_eq!(resources(&mig), [("nvidia.com/mig-1g.10gb", 2), ("nvidia.com/mig-3g.40gb", 3)]);
    assert!(mig.rename_by_default && mig.fail_requests_greater_than_one);
    let plain = plugin_config(&layout(vec![rule(Some(&["1g.10gb"]), Vec::new())])).unwrap();
    assert_eq!(resources(&plain), []);
}

#[test]
fn i12_sharing_that_the_plugin_cannot_express_is_an_error() {
    let gap = |rules: Vec<Rule>| plugin_config(&layout(rules)).unwrap_err();
    let shared = |replicas| rule(None, vec![Share::everything(replicas)]);
    let gpu = ResourceName::gpu();
    assert_eq!(gap(vec![shared(2), rule(None, Vec::new())]), PluginGap::Differs(gpu.clone()));
    assert_eq!(gap(vec![shared(2), shared(3)]), PluginGap::Differs(gpu.clone()));
    let some = ShareTarget::Resource { name: gpu.clone(), which: UnitSelector::First(2) };
    let some = Share { of: some, ..Share::everything(2) };
    assert_eq!(gap(vec![rule(None, vec![some])]), PluginGap::Selected(gpu));
    let named = ResourceRename::To("nvidia.com/a100".parse().unwrap());
    let named = Share { rename: named, ..Share::everything(2) };
    assert_eq!(gap(vec![rule(None, vec![named])]), PluginGap::Renamed);
    let mut sliced = shared(2);
    sliced.time_slicing.as_mut().unwrap().slice = Some(TimeSlice::Long);
    assert_eq!(gap(vec![sliced]), PluginGap::Length);
    let claims = Rule { claims: true, ..shared(2) };
    assert_eq!(gap(vec![claims]), PluginGap::Claims);
    let strict = Share { fail_requests_greater_than_one: true, ..Share::everything(2) };
    let large = ShareTarget::Profile("3g.40gb".parse().unwrap());
    let large = Share { of: large, ..Share::everything(2) };
    let mixed = rule(Some(&["1g.10gb", "3g.40gb"]), vec![strict, large]);
    assert_eq!(gap(vec![mixed]), PluginGap::Strict);
}

#[test]
fn p5_config_maps_have_the_keys_that_the_operator_reads() {
    let plugin = BTreeMap::from([("a".to_owned(), "version: v1\n".to_owned())]);
    let generated = gpu_operator("gpu-operator", Some("mig".to_owned()), plugin, Vec::new());
    let mig = &objects(&generated, "mig-parted-config.yaml")[0];
    assert_eq!(mig["data"]["config.yaml"], "mig");
    assert_eq!(mig["metadata"]["namespace"], "gpu-operator");
    let plugin = &objects(&generated, "device-plugin-config.yaml")[0];
    assert_eq!(plugin["data"]["a"], "version: v1\n");
    let none = gpu_operator("gpu-operator", None, BTreeMap::new(), Vec::new());
    assert!(none.files.iter().all(|file| file.manifests.is_empty()));
}
