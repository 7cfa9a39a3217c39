//! MIG devices that the driver does not report: labels are omitted instead of wrong.

use octavo_model::inventory::{Completeness, Mig};

use super::machines::{A100_40, A100_80, L40S, T4, gpu, machine, partitioned};
use super::*;

/// The device with unknown MIG mode.
fn with_unknown_mode(mut device: Device) -> Device {
    device.mig = Mig::Unknown;
    device
}

/// The device in MIG mode with only some of its MIG devices reported.
fn with_partial_geometry(mut device: Device) -> Device {
    if let Mig::Capable(state) = &mut device.mig {
        state.geometry = Completeness::Partial;
    }
    device
}

/// The keys omitted from `node` because MIG devices are unknown, without the end of each note.
fn omitted_keys(node: &Inventory, strategy: MigStrategy) -> Vec<String> {
    let found = notes(node, &options(strategy));
    let end = " is omitted: the driver does not report the partitions";
    let about = found.iter().filter_map(|note| note.strip_suffix(end));
    about.map(str::to_owned).collect()
}

const OWN: [&str; 2] = ["octavo.dev/mig-capable", "octavo.dev/sharing"];
const SINGLE: [&str; 5] = [
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.sharing-strategy",
];

#[test]
fn gpu_with_unknown_mode_is_neither_whole_nor_partitioned() {
    let node =
        machine(vec![with_unknown_mode(gpu(1, &A100_80)), with_unknown_mode(gpu(2, &A100_80))]);
    let common = [&OWN[..], &["nvidia.com/mig.capable", "nvidia.com/gpu.replicas"]].concat();
    assert_eq!(omitted_keys(&node, MigStrategy::None), common);
    let mixed = [&common[..], &["nvidia.com/mig-*"]].concat();
    assert_eq!(omitted_keys(&node, MigStrategy::Mixed), mixed);
    let labels = compile(&node, &options(MigStrategy::Mixed), None).labels;
    assert_eq!(labels.get("nvidia.com/gpu.count"), Some("2"));
    assert_eq!(labels.get("nvidia.com/mig.strategy"), Some("mixed"));
    let labels = compile(&node, &options(MigStrategy::Single), None).labels;
    for key in SINGLE.iter().chain(&OWN).chain(&["nvidia.com/mig.capable"]) {
        assert_eq!(labels.get(key), None, "{key}");
    }
    assert_eq!(labels.get("nvidia.com/gpu.family"), Some("ampere"));
}

#[test]
fn one_known_capable_gpu_makes_the_node_capable() {
    let node = machine(vec![gpu(1, &A100_80), with_unknown_mode(gpu(2, &A100_80))]);
    assert_eq!(omitted_keys(&node, MigStrategy::None), ["octavo.dev/sharing"]);
    let labels = compile(&node, &Options::default(), None).labels;
    for (key, value) in [
        ("octavo.dev/mig-capable", "true"),
        ("nvidia.com/mig.capable", "true"),
        ("nvidia.com/gpu.count", "2"),
        ("nvidia.com/gpu.replicas", "1"),
    ] {
        assert_eq!(labels.get(key), Some(value), "{key}");
    }
}

#[test]
fn partially_reported_partitions_are_not_counted() {
    let node = machine(vec![
        partitioned(1, &A100_80, &["1g.10gb"]),
        with_partial_geometry(partitioned(2, &A100_80, &[])),
    ]);
    assert_eq!(omitted_keys(&node, MigStrategy::None), [""; 0]);
    assert_eq!(omitted_keys(&node, MigStrategy::Single), SINGLE);
    assert_eq!(omitted_keys(&node, MigStrategy::Mixed), ["nvidia.com/mig-*"]);
    for strategy in [MigStrategy::None, MigStrategy::Mixed] {
        let labels = compile(&node, &options(strategy), None).labels;
        assert_eq!(labels.get("octavo.dev/sharing"), Some("mig"));
        assert_eq!(labels.get("nvidia.com/gpu.replicas"), Some("0"));
        assert!(labels.iter().all(|(key, _)| !key.starts_with("nvidia.com/mig-")));
    }
}

#[test]
fn model_is_described_only_if_it_wins_in_either_mode() {
    let product = |devices| {
        let labels = compile(&machine(devices), &Options::default(), None).labels;
        labels.get("nvidia.com/gpu.product").map(str::to_owned)
    };
    let big = Some("NVIDIA-A100-SXM4-80GB".to_owned());
    // Whole, it would win by memory; partitioned, the other model wins.
    assert_eq!(product(vec![gpu(1, &L40S), with_unknown_mode(gpu(2, &A100_80))]), None);
    assert_eq!(product(vec![with_unknown_mode(gpu(1, &L40S)), gpu(2, &A100_80)]), big);
    let both = vec![with_unknown_mode(gpu(1, &A100_40)), with_unknown_mode(gpu(2, &A100_80))];
    assert_eq!(
        omitted_keys(&machine(both.clone()), MigStrategy::None).last(),
        Some(&"nvidia.com/gpu.*".to_owned())
    );
    assert_eq!(product(both), None);
}

#[test]
fn all_possible_representatives_must_agree() {
    let mut small = with_unknown_mode(gpu(2, &T4));
    small.memory = Some(octavo_model::quantity::Mebibytes::new(8_192));
    let labels = compile(&machine(vec![gpu(1, &T4), small]), &Options::default(), None).labels;
    assert_eq!(labels.get("nvidia.com/gpu.memory"), None);
    assert_eq!(labels.get("nvidia.com/gpu.family"), Some("turing"));
}

#[test]
fn unreported_partition_memory_omits_gpu_memory() {
    let mut gpu = partitioned(1, &A100_80, &["1g.10gb"]);
    if let Mig::Capable(state) = &mut gpu.mig {
        state.gpu_instances[0].compute_instances[0].memory = None;
    }
    let labels = compile(&machine(vec![gpu]), &options(MigStrategy::Single), None).labels;
    assert_eq!(labels.get("nvidia.com/gpu.memory"), None);
    assert_eq!(labels.get("nvidia.com/gpu.count"), Some("1"));
}
