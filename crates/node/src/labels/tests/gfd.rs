//! NVIDIA's keys, complete sets: nodes with one model under the three strategies.

use super::machines::{A100_80, H100, T4, gpu, hgx, machine, partitioned};
use super::*;

const NODE: &str = "
nvidia.com/gpu.machine=DGXA100-920-23687-2530-000
nvidia.com/gpu.mode=compute
nvidia.com/mig.capable=true
nvidia.com/mps.capable=false
nvidia.com/vgpu.present=false
";

const OUR_A100: &str = "
octavo.dev/architecture=ampere
octavo.dev/count=8
octavo.dev/interconnect-domain=8
octavo.dev/interconnect=nvswitch
octavo.dev/memory-mib=81920
octavo.dev/mig-capable=true
octavo.dev/sku=nvidia-a100-sxm4-80gb
octavo.dev/type=nvidia-a100-80gb
octavo.dev/vendor=nvidia
type.octavo.dev/nvidia-a100-80gb=8
";

const GPU_A100: &str = "
nvidia.com/gpu.compute.major=8
nvidia.com/gpu.compute.minor=0
nvidia.com/gpu.count=8
nvidia.com/gpu.family=ampere
nvidia.com/gpu.memory=81920
nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB
nvidia.com/gpu.sharing-strategy=none
";

const INVALID_A100: &str = "
nvidia.com/gpu.compute.major=8
nvidia.com/gpu.compute.minor=0
nvidia.com/gpu.count=0
nvidia.com/gpu.family=ampere
nvidia.com/gpu.memory=0
nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB-MIG-INVALID
nvidia.com/gpu.replicas=0
nvidia.com/gpu.sharing-strategy=
nvidia.com/mig.strategy=single
";

/// Compares only NVIDIA's keys of a machine.
#[track_caller]
fn check_nvidia(inventory: &Inventory, options: &Options, blocks: &[&str]) {
    let text = compile(inventory, options, None).labels.to_string();
    let ours: Vec<&str> = text.lines().filter(|line| line.contains("octavo.dev/")).collect();
    let ours = ours.join("\n");
    let shared = DRIVER_570.replace("octavo.dev/driver=570.133.20", "");
    let blocks: Vec<&str> = blocks.iter().copied().chain([ours.as_str(), &shared]).collect();
    check(inventory, options, &blocks);
}

#[test]
fn eight_whole_gpus_differ_only_in_the_strategy_label() {
    let node = machine(hgx(|bus| gpu(bus, &A100_80)));
    let whole = "nvidia.com/gpu.replicas=1\noctavo.dev/sharing=exclusive";
    for (strategy, name) in [
        (MigStrategy::None, ""),
        (MigStrategy::Single, "nvidia.com/mig.strategy=single"),
        (MigStrategy::Mixed, "nvidia.com/mig.strategy=mixed"),
    ] {
        check(&node, &options(strategy), &[DRIVER_570, NODE, OUR_A100, GPU_A100, whole, name]);
        assert_eq!(notes(&node, &options(strategy)), [""; 0]);
    }
}

#[test]
fn single_strategy_presents_equal_partitions_as_gpus() {
    let node = machine(hgx(|bus| partitioned(bus, &A100_80, &["1g.10gb"; 7])));
    let partitions = "
        nvidia.com/gpu.compute.major=8
        nvidia.com/gpu.compute.minor=0
        nvidia.com/gpu.count=56
        nvidia.com/gpu.engines.copy=1
        nvidia.com/gpu.engines.decoder=0
        nvidia.com/gpu.engines.encoder=0
        nvidia.com/gpu.engines.jpeg=0
        nvidia.com/gpu.engines.ofa=0
        nvidia.com/gpu.family=ampere
        nvidia.com/gpu.memory=9728
        nvidia.com/gpu.multiprocessors=14
        nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB-MIG-1g.10gb
        nvidia.com/gpu.replicas=1
        nvidia.com/gpu.sharing-strategy=none
        nvidia.com/gpu.slices.ci=1
        nvidia.com/gpu.slices.gi=1
        nvidia.com/mig.strategy=single
        octavo.dev/sharing=mig";
    check(&node, &options(MigStrategy::Single), &[DRIVER_570, NODE, OUR_A100, partitions]);

    let whole = "nvidia.com/gpu.replicas=0\noctavo.dev/sharing=mig";
    check(&node, &options(MigStrategy::None), &[DRIVER_570, NODE, OUR_A100, GPU_A100, whole]);
}

#[test]
fn single_strategy_is_invalid_with_different_partitions() {
    let single = options(MigStrategy::Single);
    let mig = "octavo.dev/sharing=mig";
    for (profiles, reason) in [
        (&["3g.40gb", "2g.20gb"][..], "the partitions have more than one profile"),
        (&[][..], "a GPU in MIG mode has no partition"),
    ] {
        let node = machine(hgx(|bus| partitioned(bus, &A100_80, profiles)));
        check(&node, &single, &[DRIVER_570, NODE, OUR_A100, INVALID_A100, mig]);
        let expected = format!("nvidia.com/gpu.product is MIG-INVALID: {reason}");
        assert_eq!(notes(&node, &single), [expected]);
    }
    let node = machine(hgx(|bus| match bus {
        1..=4 => partitioned(bus, &A100_80, &["7g.80gb"]),
        _ => gpu(bus, &A100_80),
    }));
    let mixed = "octavo.dev/sharing=mixed";
    check(&node, &single, &[DRIVER_570, NODE, OUR_A100, INVALID_A100, mixed]);
    assert_eq!(
        notes(&node, &single),
        ["nvidia.com/gpu.product is MIG-INVALID: some GPUs are in MIG mode and some are not"]
    );
}

#[test]
fn mixed_strategy_has_keys_for_each_profile() {
    let profiles = ["3g.40gb", "2g.20gb", "2g.20gb", "1g.10gb+me"];
    let node = machine(hgx(|bus| partitioned(bus, &A100_80, &profiles)));
    let partitions = "
        nvidia.com/gpu.replicas=0
        nvidia.com/mig-1g.10gb.me.count=8
        nvidia.com/mig-1g.10gb.me.engines.copy=1
        nvidia.com/mig-1g.10gb.me.engines.decoder=1
        nvidia.com/mig-1g.10gb.me.engines.encoder=0
        nvidia.com/mig-1g.10gb.me.engines.jpeg=1
        nvidia.com/mig-1g.10gb.me.engines.ofa=1
        nvidia.com/mig-1g.10gb.me.memory=9728
        nvidia.com/mig-1g.10gb.me.multiprocessors=14
        nvidia.com/mig-1g.10gb.me.product=NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me
        nvidia.com/mig-1g.10gb.me.replicas=1
        nvidia.com/mig-1g.10gb.me.sharing-strategy=none
        nvidia.com/mig-1g.10gb.me.slices.ci=1
        nvidia.com/mig-1g.10gb.me.slices.gi=1
        nvidia.com/mig-2g.20gb.count=16
        nvidia.com/mig-2g.20gb.engines.copy=2
        nvidia.com/mig-2g.20gb.engines.decoder=1
        nvidia.com/mig-2g.20gb.engines.encoder=0
        nvidia.com/mig-2g.20gb.engines.jpeg=0
        nvidia.com/mig-2g.20gb.engines.ofa=0
        nvidia.com/mig-2g.20gb.memory=19968
        nvidia.com/mig-2g.20gb.multiprocessors=28
        nvidia.com/mig-2g.20gb.product=NVIDIA-A100-SXM4-80GB-MIG-2g.20gb
        nvidia.com/mig-2g.20gb.replicas=1
        nvidia.com/mig-2g.20gb.sharing-strategy=none
        nvidia.com/mig-2g.20gb.slices.ci=2
        nvidia.com/mig-2g.20gb.slices.gi=2
        nvidia.com/mig-3g.40gb.count=8
        nvidia.com/mig-3g.40gb.engines.copy=3
        nvidia.com/mig-3g.40gb.engines.decoder=2
        nvidia.com/mig-3g.40gb.engines.encoder=0
        nvidia.com/mig-3g.40gb.engines.jpeg=0
        nvidia.com/mig-3g.40gb.engines.ofa=0
        nvidia.com/mig-3g.40gb.memory=40192
        nvidia.com/mig-3g.40gb.multiprocessors=42
        nvidia.com/mig-3g.40gb.product=NVIDIA-A100-SXM4-80GB-MIG-3g.40gb
        nvidia.com/mig-3g.40gb.replicas=1
        nvidia.com/mig-3g.40gb.sharing-strategy=none
        nvidia.com/mig-3g.40gb.slices.ci=3
        nvidia.com/mig-3g.40gb.slices.gi=3
        nvidia.com/mig.strategy=mixed
        octavo.dev/sharing=mig";
    check(&node, &options(MigStrategy::Mixed), &[DRIVER_570, NODE, OUR_A100, GPU_A100, partitions]);
}

#[test]
fn mixed_strategy_ignores_empty_gpus_and_describes_whole_ones() {
    let node = machine(hgx(|bus| match bus {
        1 => partitioned(bus, &A100_80, &[]),
        2 => partitioned(bus, &A100_80, &["1c.3g.40gb"]),
        _ => gpu(bus, &A100_80),
    }));
    let partitions = "
        nvidia.com/gpu.replicas=1
        nvidia.com/mig-1c.3g.40gb.count=1
        nvidia.com/mig-1c.3g.40gb.engines.copy=3
        nvidia.com/mig-1c.3g.40gb.engines.decoder=2
        nvidia.com/mig-1c.3g.40gb.engines.encoder=0
        nvidia.com/mig-1c.3g.40gb.engines.jpeg=0
        nvidia.com/mig-1c.3g.40gb.engines.ofa=0
        nvidia.com/mig-1c.3g.40gb.memory=40192
        nvidia.com/mig-1c.3g.40gb.multiprocessors=14
        nvidia.com/mig-1c.3g.40gb.product=NVIDIA-A100-SXM4-80GB-MIG-1c.3g.40gb
        nvidia.com/mig-1c.3g.40gb.replicas=1
        nvidia.com/mig-1c.3g.40gb.sharing-strategy=none
        nvidia.com/mig-1c.3g.40gb.slices.ci=1
        nvidia.com/mig-1c.3g.40gb.slices.gi=3
        nvidia.com/mig.strategy=mixed
        octavo.dev/sharing=mixed";
    check(&node, &options(MigStrategy::Mixed), &[DRIVER_570, NODE, OUR_A100, GPU_A100, partitions]);
}

#[test]
fn h100_node_and_single_t4_are_labeled() {
    check_nvidia(
        &machine(hgx(|bus| gpu(bus, &H100))),
        &Options::default(),
        &[
            NODE,
            "
            nvidia.com/gpu.compute.major=9
            nvidia.com/gpu.compute.minor=0
            nvidia.com/gpu.count=8
            nvidia.com/gpu.family=hopper
            nvidia.com/gpu.memory=81559
            nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3
            nvidia.com/gpu.replicas=1
            nvidia.com/gpu.sharing-strategy=none",
        ],
    );
    check(
        &machine(vec![gpu(1, &T4)]),
        &Options::default(),
        &[
            DRIVER_570,
            "
            nvidia.com/gpu.compute.major=7
            nvidia.com/gpu.compute.minor=5
            nvidia.com/gpu.count=1
            nvidia.com/gpu.family=turing
            nvidia.com/gpu.machine=DGXA100-920-23687-2530-000
            nvidia.com/gpu.memory=15360
            nvidia.com/gpu.mode=compute
            nvidia.com/gpu.product=Tesla-T4
            nvidia.com/gpu.replicas=1
            nvidia.com/gpu.sharing-strategy=none
            nvidia.com/mig.capable=false
            nvidia.com/mps.capable=false
            nvidia.com/vgpu.present=false
            octavo.dev/architecture=turing
            octavo.dev/count=1
            octavo.dev/memory-mib=15360
            octavo.dev/mig-capable=false
            octavo.dev/sharing=exclusive
            octavo.dev/sku=nvidia-t4
            octavo.dev/type=nvidia-t4-16gb
            octavo.dev/vendor=nvidia
            type.octavo.dev/nvidia-t4-16gb=1",
        ],
    );
}
