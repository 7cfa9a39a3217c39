//! Tests of device files, health, partitions, offered devices and labels.

use octavo_model::inventory::{DriverLayout, Neuron};

use super::*;

#[test]
fn neuron_device_health_is_that_of_the_driver() {
    let device = NeuronDevice { number: 3, ..NeuronDevice::default() };
    let unhealthy = NeuronDevice {
        unhealthy: Some(vec!["hbm".to_owned(), "link_host".to_owned()]),
        ..device.clone()
    };
    let errors = NeuronErrors {
        sram_uncorrected: Some(2),
        memory_uncorrected: Some(0),
        ..NeuronErrors::default()
    };
    let counted = NeuronDevice { errors, ..device.clone() };
    let well = NeuronDevice {
        errors: NeuronErrors { memory_uncorrected: Some(0), ..NeuronErrors::default() },
        ..device.clone()
    };
    for (device, verdict, evidence) in [
        (device, CheckResult::Unknown, "does not report health"),
        (well, CheckResult::Ok, "no errors counted"),
        (unhealthy, CheckResult::Failing, "it as unhealthy: link_host"),
        (
            counted,
            CheckResult::Warning,
            "uncorrected errors of on-chip memory since the driver was loaded: 2",
        ),
    ] {
        let found = health::health_of_neuron(&device, None);
        assert_eq!((found.verdict, found.subject), (verdict, Subject::Neuron(3)));
        assert!(found.evidence.contains(evidence), "{}", found.evidence);
    }
}

#[test]
fn kernel_driver_is_reported_and_passthrough_is_ok() {
    use Check::{KernelDriver, NvidiaDriver, NvidiaLibrary};
    let node = |driver| Node::new(vec![on_bus(H100, 0, driver)]);
    node(None).expect_finding(KernelDriver, CheckResult::Failing, "no kernel driver");
    node(None).expect_finding(
        NvidiaDriver,
        CheckResult::Failing,
        "/sys/module/nvidia does not exist",
    );
    node(None).expect_finding(
        NvidiaLibrary,
        CheckResult::NotApplicable,
        "NVML is part of the driver",
    );
    node(Some("nouveau")).expect_finding(KernelDriver, CheckResult::Failing, "nouveau is bound");
    node(Some("uio")).expect_finding(
        KernelDriver,
        CheckResult::Warning,
        "uio is bound instead of nvidia",
    );
    node(Some("nvidia")).expect_finding(KernelDriver, CheckResult::Ok, "nvidia is bound");
    node(Some("nvidia")).expect_finding(NvidiaDriver, CheckResult::Ok, "bound to 1 of 1");
    node(Some("nvidia")).expect_finding(NvidiaLibrary, CheckResult::Failing, "no NVML library");
    for driver in ["vfio-pci", "pci-stub", "nvgrace-gpu-vfio-pci"] {
        let passed = node(Some(driver));
        passed.expect_finding(KernelDriver, CheckResult::Ok, "passed through to a virtual machine");
        passed.expect_finding(NvidiaDriver, CheckResult::NotApplicable, "no usable NVIDIA device");
    }
}

#[test]
fn neuron_devices_absent_from_the_bus_are_examined() {
    use Check::{NeuronDeviceFiles, NeuronDevices, NeuronDriver};
    let mut node = Node::new(vec![]);
    node.inventory.neuron = Some(Neuron {
        driver_version: None,
        driver_layout: DriverLayout::Known,
        logical: None,
        ultraserver: BTreeMap::new(),
        devices: vec![NeuronDevice::default()],
        problems: Vec::new(),
    });
    node.expect_finding(NeuronDriver, CheckResult::Ok, "it reports its devices");
    node.expect_finding(
        NeuronDevices,
        CheckResult::Warning,
        "1 device in /sys/class/neuron_device, 0 functions on the bus",
    );
    node.expect_finding(NeuronDeviceFiles, CheckResult::Failing, "/dev has no neuron0");
}

#[test]
fn unreadable_bus_is_not_reported_as_empty() {
    let mut node = Node::new(vec![]);
    node.inventory.machine.bus_error = Some("Permission denied (os error 13)".to_owned());
    node.expect_finding(
        Check::Accelerators,
        CheckResult::Unknown,
        "cannot read /sys/bus/pci/devices: Permission denied",
    );
}

#[test]
fn unidentified_device_is_reported_with_ids() {
    let node = Node::new(vec![on_bus((0x1234, 0xabcd), 0, Some("xpu"))]);
    node.expect_finding(Check::Accelerators, CheckResult::Warning, "1234:abcd");
    node.expect_finding(Check::KernelDriver, CheckResult::Ok, "xpu is bound");
}

#[test]
fn recording_reports_bound_drivers_only() {
    let mut node = trainium(1, None);
    node.traces = Err("not part of a recording".to_owned());
    node.expect_finding(Check::NeuronDriver, CheckResult::Failing, "no kernel driver");
    let mut node = trainium(1, Some("neuron"));
    node.traces = Err("not part of a recording".to_owned());
    node.kubelet = Err("not part of a recording".to_owned());
    node.expect_finding(Check::NeuronDriver, CheckResult::Ok, "bound to 1 of 1");
    node.expect_finding(
        Check::NeuronDevices,
        CheckResult::Unknown,
        "the devices of the driver are unknown",
    );
    node.expect_finding(Check::DevicePlugin, CheckResult::Unknown, "a recording");
}

#[test]
fn missing_gpu_device_files_are_a_warning() {
    let node = gpu_node(|_| {});
    node.expect_finding(
        Check::NvidiaDeviceFiles,
        CheckResult::Warning,
        "/dev has no nvidiactl, nvidia-uvm, nvidia0",
    );
    let node = node.files(&["nvidiactl", "nvidia-uvm", "nvidia0"]);
    node.expect_finding(Check::NvidiaDeviceFiles, CheckResult::Ok, "/dev has");
    let mut node = gpu_node(|_| {});
    node.files = Err("/dev is the pod's own".to_owned());
    node.expect_finding(Check::NvidiaDeviceFiles, CheckResult::Unknown, "the pod's own");
}

#[test]
fn broken_nvml_link_fails_and_its_devices_are_not_judged() {
    let mut node = gpu_node(|_| {});
    node.inventory.nvml =
        NvmlState::Stalled { call: "nvmlDeviceGetMigMode".to_owned(), driver: None };
    node.expect_finding(
        Check::NvidiaLibrary,
        CheckResult::Failing,
        "nvmlDeviceGetMigMode does not return",
    );
    node.expect_finding(Check::DeviceHealth, CheckResult::Unknown, "last known state");
    node.inventory.nvml = ready();
    node.expect_finding(Check::NvidiaLibrary, CheckResult::Ok, "NVML responds: driver 570.133.20");
    node.expect_finding(Check::DeviceHealth, CheckResult::Ok, "no problems");
}

#[test]
fn health_fails_if_action_is_required_and_otherwise_warns() {
    let failing = gpu_node(|gpu| {
        gpu.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    });
    failing.expect_finding(Check::DeviceHealth, CheckResult::Failing, "GPU is lost");
    let reboot = gpu_node(|gpu| gpu.health.recovery_action = Some(RecoveryAction::RebootNode));
    reboot.expect_finding(Check::DeviceHealth, CheckResult::Failing, "requests a reboot");
    assert!(reboot.most_severe(Check::DeviceHealth).remedy.unwrap().contains("reboot"));
    let errors = gpu_node(|gpu| gpu.health.uncorrected_errors = Some(3));
    errors.expect_finding(Check::DeviceHealth, CheckResult::Warning, "3 uncorrected");
}

#[test]
fn mig_leftovers_are_reported() {
    use Check::{MigInstances, MigMode as Mode};
    let node = |state: MigState| gpu_node(|gpu| gpu.mig = Mig::Capable(state));
    let on = MigMode::Enabled;
    node(partitioned(on, 0, 0)).expect_finding(
        MigInstances,
        CheckResult::Warning,
        "MIG mode is on, but there are no instances",
    );
    node(partitioned(on, 1, 0)).expect_finding(
        MigInstances,
        CheckResult::Warning,
        "unusable, because they have no compute instance: gi 1",
    );
    node(partitioned(on, 1, 2)).expect_finding(
        MigInstances,
        CheckResult::Ok,
        "2 compute instances in 1 GPU instance",
    );
    node(partitioned(MigMode::Disabled, 0, 0)).expect_finding(
        MigInstances,
        CheckResult::Ok,
        "not partitioned",
    );
    let mut waits = partitioned(on, 0, 0);
    waits.pending = MigMode::Disabled;
    node(waits).expect_finding(
        Mode,
        CheckResult::Warning,
        "MIG mode is on, and will be off after the next reset",
    );
    let mut partial = partitioned(on, 0, 0);
    partial.geometry = Completeness::Partial;
    node(partial).expect_finding(MigInstances, CheckResult::Unknown, "does not report all");
    gpu_node(|gpu| gpu.mig = Mig::Unknown).expect_finding(
        MigInstances,
        CheckResult::Unknown,
        "does not report",
    );
    gpu_node(|_| {}).expect_finding(Mode, CheckResult::NotApplicable, "partitioned");
}

#[test]
fn missing_device_file_of_partition_is_reported() {
    let mut node = gpu_node(|gpu| gpu.mig = Mig::Capable(partitioned(MigMode::Enabled, 1, 1)));
    let pci = node.inventory.devices[0].pci;
    let file = |minor: u32| format!("nvidia-caps/nvidia-cap{minor}");
    node.instance_files =
        Ok([((pci, 1, None), file(12)), ((pci, 1, Some(0)), file(13)), ((pci, 2, None), file(21))]
            .into());
    let node = node.files(&["nvidia-caps/nvidia-cap12"]);
    node.expect_finding(
        Check::MigDeviceFiles,
        CheckResult::Warning,
        "/dev has no nvidia-caps/nvidia-cap13",
    );
    let node = node.files(&["nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13"]);
    node.expect_finding(
        Check::MigDeviceFiles,
        CheckResult::Ok,
        "the device files of its instances",
    );
}

#[test]
fn advertised_ids_are_compared_with_device_and_partition_uuids() {
    use Check::{Allocatable, ResourceOwners, TimeSlicing};
    let whole = || gpu_node(|_| {});
    let parts = || gpu_node(|gpu| gpu.mig = Mig::Capable(partitioned(MigMode::Enabled, 1, 1)));
    let replica = format!("{GPU}::1");
    whole().kubelet(&[("nvidia.com/gpu", &[GPU])]).expect_finding(
        Allocatable,
        CheckResult::Ok,
        "all 1",
    );
    let shared = whole().kubelet(&[("nvidia.com/gpu.shared", &[&format!("{GPU}::0"), &replica])]);
    shared.expect_finding(Allocatable, CheckResult::Ok, "all 1");
    shared.expect_finding(
        TimeSlicing,
        CheckResult::Ok,
        "nvidia.com/gpu.shared: 2 replicas of 1 device",
    );
    shared.expect_finding(ResourceOwners, CheckResult::Ok, "by two resources");
    let twice =
        whole().kubelet(&[("nvidia.com/gpu", &[GPU]), ("nvidia.com/gpu.shared", &[&replica])]);
    twice.expect_finding(
        ResourceOwners,
        CheckResult::Failing,
        &format!("{GPU} is offered as nvidia.com/gpu and nvidia.com/gpu.shared"),
    );
    let gone = whole().kubelet(&[("nvidia.com/gpu", &[GPU, OTHER_GPU])]);
    gone.expect_finding(
        Allocatable,
        CheckResult::Failing,
        &format!("offered but not present: {OTHER_GPU}"),
    );
    let missing = parts().kubelet(&[("nvidia.com/gpu", &["0000:01:00.0"])]);
    missing.expect_finding(
        Allocatable,
        CheckResult::Failing,
        &format!("present but not offered: {PART}"),
    );
    parts().kubelet(&[("nvidia.com/mig-1g.5gb", &[PART])]).expect_finding(
        Allocatable,
        CheckResult::Ok,
        "all 1",
    );
    // If the partitions are unknown, the offer may be correct.
    let unreported = gpu_node(|gpu| gpu.mig = Mig::Unknown);
    unreported.kubelet(&[("nvidia.com/gpu", &[PART])]).expect_finding(
        Allocatable,
        CheckResult::Unknown,
        "does not report",
    );
}

#[test]
fn amd_partitions_are_counted_under_any_resource_name() {
    let part = |render_minor| AmdPartition { render_minor, compute_units: None, memory: None };
    let node = |resources: &[(&str, &[&str])]| {
        let mut device = on_bus(MI300X, 0, Some("amdgpu"));
        device.amd = Some(Amd { partitions: vec![part(128), part(129)], ..Amd::default() });
        Node::new(vec![device]).module("amdgpu", "6.12.12").kubelet(resources)
    };
    let stale = node(&[("amd.com/gpu", &["0"])]);
    stale.expect_finding(
        Check::Allocatable,
        CheckResult::Failing,
        "amd.com/gpu: 1 offered, 2 devices and partitions present",
    );
    stale.expect_finding(
        Check::AmdDeviceFiles,
        CheckResult::Failing,
        "/dev has no kfd, dri/renderD128, dri/renderD129; /sys/class/kfd shows no topology",
    );
    let files = ["kfd", "dri/renderD128", "dri/renderD129"];
    let all = node(&[("amd.com/cpx_nps4", &["0", "1"])]).files(&files);
    all.expect_finding(Check::Allocatable, CheckResult::Ok, "2 offered");
    all.expect_finding(Check::AmdDeviceFiles, CheckResult::Ok, "/dev has kfd");
    all.expect_finding(Check::AmdDriver, CheckResult::Ok, "/sys/module/amdgpu: 6.12.12");
}

#[test]
fn missing_kubelet_data_is_unknown() {
    let mut node = gpu_node(|_| {}).kubelet(&[]);
    if let Ok(Some(kubelet)) = &mut node.kubelet {
        kubelet.registered = Err("cannot read the record: permission denied".to_owned());
        kubelet.allocatable = Err("cannot connect to kubelet".to_owned());
    }
    node.expect_finding(
        Check::DevicePlugin,
        CheckResult::Unknown,
        "permission denied; cannot connect",
    );
    node.expect_finding(Check::Allocatable, CheckResult::Unknown, "permission denied");
    node.expect_finding(Check::ResourceOwners, CheckResult::Unknown, "permission denied");
    node.processes = Ok(Processes {
        hidden: Some("does not show all processes".to_owned()),
        ..Processes::default()
    });
    node.expect_finding(Check::Processes, CheckResult::Warning, "does not show all");
    node.processes = Err("not part of a recording".to_owned());
    node.expect_finding(Check::Processes, CheckResult::Unknown, "a recording");
}

#[test]
fn labels_are_compared_with_hardware_except_configured_ones() {
    let mut node = gpu_node(|_| {});
    let options = crate::labels::Options::default();
    let now = crate::labels::compile(&node.inventory, &options, None).labels;
    let now = now.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut labels: BTreeMap<String, String> = now.collect();
    assert!(labels.contains_key("octavo.dev/count"), "{labels:?}");
    let mut put = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    put("octavo.dev/layout-state", "applied");
    put("octavo.dev/sharing", "time-slicing");
    put("kubernetes.io/arch", "amd64");
    let place = "/etc/features.d/octavo".to_owned();
    node.labels =
        Ok(Some(FeatureLabels { place: place.clone(), labels: labels.clone(), gfd: None }));
    node.expect_finding(Check::Labels, CheckResult::Ok, &place);
    labels.insert("octavo.dev/count".to_owned(), "8".to_owned());
    node.labels = Ok(Some(FeatureLabels { place, labels, gfd: None }));
    node.expect_finding(
        Check::Labels,
        CheckResult::Warning,
        "-octavo.dev/count=8, +octavo.dev/count=1",
    );
}
