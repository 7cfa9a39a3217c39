//! Tests of other software's labels against the hardware.

use octavo_model::inventory::PartitioningMode;

use super::*;

const HOST: (&str, &str) = ("kubernetes.io/hostname", "n");

#[test]
fn stale_amd_labels_are_reported() {
    let mode = |current: &str| {
        Some(PartitioningMode { current: current.to_owned(), available: Vec::new() })
    };
    let node = |labels: &[(&str, &str)]| {
        let mut device = on_bus(MI300X, 0, Some("amdgpu"));
        device.amd = Some(Amd {
            driver_version: Some("6.12.12".to_owned()),
            compute: mode("CPX"),
            memory: mode("NPS4"),
            ..Amd::default()
        });
        Node::new(vec![device]).labels(labels)
    };
    let check = Check::VendorLabels;
    node(&[HOST]).expect_finding(check, CheckResult::NotApplicable, "node.json has no label");
    node(&[
        ("amd.com/gpu.compute-memory-partition", "cpx_nps4"),
        ("amd.com/gpu.device-id", "74A1"),
        ("amd.com/gpu.family", "AI"),
    ])
    .expect_finding(check, CheckResult::Ok, "node.json: 2 labels match the hardware");
    let stale = node(&[
        ("amd.com/gpu.compute-memory-partition", "spx_nps1"),
        ("amd.com/gpu.driver-version", "6.10.5"),
    ]);
    stale.expect_finding(
        check,
        CheckResult::Warning,
        "amd.com/gpu.compute-memory-partition=spx_nps1, but the hardware has cpx_nps4, amd.com/gpu.driver-version=6.10.5, but the hardware has 6.12.12",
    );
}

#[test]
fn stale_nvidia_labels_are_reported() {
    let check = Check::VendorLabels;
    let node = |labels: &[(&str, &str)]| {
        let gpu = |gpu: &mut Device| {
            gpu.product_name = Some("NVIDIA A100-SXM4-40GB".to_owned());
            gpu.mig = Mig::Capable(partitioned(MigMode::Disabled, 0, 0));
        };
        gpu_node(gpu).labels(labels)
    };
    let right = [
        ("nvidia.com/gpu.count", "1"),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-SHARED"),
        ("nvidia.com/gpu.replicas", "7"),
        ("nvidia.com/gfd.timestamp", "1"),
        ("nvidia.com/gpu.deploy.driver", "true"),
        ("nvidia.com/mig.capable", "true"),
    ];
    node(&right).expect_finding(check, CheckResult::Ok, "3 labels match");
    node(&[("nvidia.com/gpu.count", "2")]).expect_finding(
        check,
        CheckResult::Warning,
        "nvidia.com/gpu.count=2, but the hardware has 1",
    );
    node(&[("nvidia.com/mig.strategy", "mixed"), ("nvidia.com/mig-1g.5gb.count", "7")])
        .expect_finding(
            check,
            CheckResult::Warning,
            "nvidia.com/mig-1g.5gb.count=7, but there is no such partition",
        );
    // With several models the labels describe an arbitrary one.
    let mut mixed = node(&[("nvidia.com/gpu.count", "5"), ("nvidia.com/cuda.driver.major", "550")]);
    let mut other = answering(gpu(), OTHER_GPU);
    other.product_name = Some("Tesla T4".to_owned());
    mixed.inventory.devices.push(other);
    let finding = mixed.most_severe(check);
    assert!(finding.evidence.contains("cuda.driver.major=550"), "{finding:?}");
    assert!(!finding.evidence.contains("gpu.count"), "{finding:?}");
}

#[test]
fn machine_type_with_more_devices_than_present_is_reported() {
    let check = Check::VendorLabels;
    let count = "karpenter.k8s.aws/instance-accelerator-count";
    let node = |written| trainium(2, None).labels(&[HOST, (count, written)]);
    node("2").expect_finding(check, CheckResult::Ok, "1 label matches");
    node("16").expect_finding(check, CheckResult::Warning, "=16, but the hardware has 2");
    node("0").expect_finding(check, CheckResult::NotApplicable, "no label");
}
