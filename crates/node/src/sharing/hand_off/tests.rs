//! Configurations of NVIDIA's plugin, and requests that it cannot express.

use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{DeviceTarget, Share, TargetScope, TimeSlicing};

use super::*;
use crate::sharing::offer::Partition;

fn unit(slot: u8, profile: Option<&str>, replicas: Option<u32>) -> Unit {
    Unit {
        uuid: format!("GPU-{slot}"),
        pci: PciAddress::new(0, slot, 0, 0).unwrap(),
        partition: profile.map(|profile| Partition {
            gpu_instance: 1,
            compute_instance: 0,
            profile: profile.parse().unwrap(),
        }),
        replicas,
        memory: None,
        memory_per_replica: None,
        numa_node: None,
    }
}

fn offer(name: &str, is_strict: bool, units: &[Unit]) -> Offer {
    Offer {
        name: name.parse().unwrap(),
        fail_requests_greater_than_one: is_strict,
        units: units.to_vec(),
    }
}

fn rendered(strategy: MigStrategy, offers: &[Offer]) -> Result<PluginConfig, HandOffError> {
    let resources = offers.to_vec();
    render(&Offers { resources }, strategy)
}

fn refused(strategy: MigStrategy, offers: &[Offer]) -> String {
    rendered(strategy, offers).unwrap_err().to_string()
}

const GPU: &str = "nvidia.com/gpu";

#[test]
fn uniform_sharing_is_rendered_under_original_name() {
    let shared =
        offer("nvidia.com/gpu.shared", true, &[unit(1, None, Some(4)), unit(2, None, Some(4))]);
    let parts = offer("nvidia.com/mig-1g.10gb.shared", true, &[unit(3, Some("1g.10gb"), Some(2))]);
    // Units that are not shared may differ.
    let alone = offer("nvidia.com/mig-3g.40gb", false, &[unit(3, Some("3g.40gb"), None)]);
    let config = rendered(MigStrategy::Mixed, &[shared, parts, alone]).unwrap();
    assert!(config.rename_by_default && config.fail_requests_greater_than_one);
    let rendered_replicas: Vec<(&str, u32)> =
        config.resources.iter().map(|one| (one.name.as_str(), one.replicas)).collect();
    assert_eq!(rendered_replicas, [(GPU, 4), ("nvidia.com/mig-1g.10gb", 2)]);
}

#[test]
fn unshared_offers_render_empty_configuration() {
    let whole = offer(GPU, false, &[unit(1, None, None)]);
    let config = rendered(MigStrategy::None, &[whole]).unwrap();
    assert!(config.resources.is_empty() && !config.rename_by_default);
    assert!(rendered(MigStrategy::None, &[]).unwrap().resources.is_empty());
}

#[test]
fn single_strategy_renders_uniform_partitions_as_gpus() {
    let alike =
        offer(GPU, false, &[unit(1, Some("1g.10gb"), Some(3)), unit(2, Some("1g.10gb"), Some(3))]);
    let config = rendered(MigStrategy::Single, &[alike]).unwrap();
    assert_eq!(config.resources.first().unwrap().name.as_str(), GPU);
    let unlike = offer(GPU, false, &[unit(1, Some("1g.10gb"), Some(3)), unit(2, None, Some(3))]);
    let why = refused(MigStrategy::Single, &[unlike]);
    assert!(why.contains("whole GPUs and 1g.10gb"), "{why}");
}

#[test]
fn inexpressible_sharing_is_rejected_with_specific_error() {
    let two = |one, other| offer(GPU, false, &[unit(1, None, one), unit(2, None, other)]);
    let mig = |name: &str, is_strict| offer(name, is_strict, &[unit(3, Some("1g.10gb"), Some(2))]);
    let gpus = offer(GPU, false, &[unit(1, None, Some(2))]);
    let cases: [(Vec<Offer>, &str); 7] = [
        (vec![two(Some(2), Some(4))], "has 2 and 0000:02:00.0 has 4"),
        (vec![two(Some(2), None)], "0000:01:00.0 is shared and 0000:02:00.0 is not"),
        (vec![two(None, Some(2))], "0000:02:00.0 is shared and 0000:01:00.0 is not"),
        (vec![offer("nvidia.com/small", false, &[unit(1, None, Some(2))])], "not nvidia.com/small"),
        (
            vec![offer("nvidia.com/gpu.shared", false, &[unit(1, None, None)])],
            "not nvidia.com/gpu.shared",
        ),
        (
            vec![gpus.clone(), mig("nvidia.com/mig-1g.10gb.shared", false)],
            "nvidia.com/mig-1g.10gb is renamed and nvidia.com/gpu is not",
        ),
        (
            vec![gpus, mig("nvidia.com/mig-1g.10gb", true)],
            "true for nvidia.com/mig-1g.10gb and false for nvidia.com/gpu",
        ),
    ];
    for (offers, expected) in cases {
        let why = refused(MigStrategy::Mixed, &offers);
        assert!(why.contains(expected), "{expected}: {why}");
    }
}

#[test]
fn slice_length_is_rejected_only_if_shared() {
    let targets_with = |shares: &[u32], slice| Targets {
        devices: vec![DeviceTarget {
            pci: PciAddress::new(0, 1, 0, 0).unwrap(),
            rule: SourcePosition::default(),
            mig: None,
            scope: TargetScope::Layout,
            time_slicing: Some(TimeSlicing {
                position: SourcePosition::default(),
                shares: shares.iter().copied().map(Share::everything).collect(),
                slice,
            }),
        }],
        ..Targets::default()
    };
    let why = check_no_slice_length(&targets_with(&[2], Some(TimeSlice::Long))).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("`slice` of 0000:01:00.0 to long"), "{why}");
    assert_eq!(check_no_slice_length(&targets_with(&[2], None)), Ok(()));
    assert_eq!(check_no_slice_length(&targets_with(&[], Some(TimeSlice::Long))), Ok(()));
}
