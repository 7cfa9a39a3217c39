//! Tests of device files, health, partitions, offered devices and labels.

use octavo_model::inventory::{DriverLayout, Neuron};

use super::*;

#[test]
fn what_the_neuron_driver_says_of_a_device_is_its_health() {
    let device = NeuronDevice {
        number: 3,
        ..NeuronDevice::default()
    };
    let unhealthy = NeuronDevice {
        unhealthy: Some(vec!["hbm".to_owned(), "link_host".to_owned()]),
        ..device.clone()
    };
    let errors = NeuronErrors {
        sram_uncorrected: Some(2),
        memory_uncorrected: Some(0),
        ..NeuronErrors::default()
    };
    let counted = NeuronDevice {
        errors,
        ..device.clone()
    };
    let well = NeuronDevice {
        errors: NeuronErrors {
            memory_uncorrected: Some(0),
            ..NeuronErrors::default()
        },
        ..device.clone()
    };
    for (device, verdict, evidence) in [
        (device, Verdict::Unknown, "tells nothing of its health"),
        (well, Verdict::Ok, "no error is counted"),
        (unhealthy, Verdict::Failing, "is unhealthy: link_host"),
        (
            counted,
            Verdict::Warning,
            "uncorrected errors of on-chip memory since the driver was loaded: 2",
        ),
    ] {
        let found = health::health_of_neuron(&device, None);
        assert_eq!(
            (found.verdict, found.subject),
            (verdict, Subject::Neuron(3))
        );
        assert!(found.evidence.contains(evidence), "{}", found.evidence);
    }
}

#[test]
fn kernel_driver_is_reported_and_passthrough_is_ok() {
    use Check::{KernelDriver, NvidiaDriver, NvidiaLibrary};
    let node = |driver| Node::new(vec![on_bus(H100, 0, driver)]);
    node(None).says(KernelDriver, Verdict::Failing, "no kernel driver is bound");
    node(None).says(
        NvidiaDriver,
        Verdict::Failing,
        "there is no /sys/module/nvidia",
    );
    node(None).says(
        NvidiaLibrary,
        Verdict::NotApplicable,
        "it comes with the driver",
    );
    node(Some("nouveau")).says(KernelDriver, Verdict::Failing, "nouveau is bound");
    node(Some("uio")).says(
        KernelDriver,
        Verdict::Warning,
        "uio is bound, and not nvidia",
    );
    node(Some("nvidia")).says(KernelDriver, Verdict::Ok, "nvidia is bound");
    node(Some("nvidia")).says(NvidiaDriver, Verdict::Ok, "bound to 1 of 1");
    node(Some("nvidia")).says(NvidiaLibrary, Verdict::Failing, "no NVML library");
    for driver in ["vfio-pci", "pci-stub", "nvgrace-gpu-vfio-pci"] {
        let passed = node(Some(driver));
        passed.says(KernelDriver, Verdict::Ok, "set aside for a virtual machine");
        passed.says(
            NvidiaDriver,
            Verdict::NotApplicable,
            "for this machine to use",
        );
    }
}

#[test]
fn neuron_devices_that_the_bus_does_not_show_are_examined_all_the_same() {
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
    node.says(NeuronDriver, Verdict::Ok, "it tells of its devices");
    node.says(
        NeuronDevices,
        Verdict::Warning,
        "1 device in /sys/class/neuron_device, 0 functions on the bus",
    );
    node.says(NeuronDeviceFiles, Verdict::Failing, "/dev has no neuron0");
}

#[test]
fn a_bus_that_cannot_be_read_is_not_said_to_be_empty() {
    let mut node = Node::new(vec![]);
    node.inventory.machine.bus_error = Some("Permission denied (os error 13)".to_owned());
    node.says(
        Check::Accelerators,
        Verdict::Unknown,
        "/sys/bus/pci/devices cannot be read: Permission denied",
    );
}

#[test]
fn unidentified_device_is_reported_with_ids() {
    let node = Node::new(vec![on_bus((0x1234, 0xabcd), 0, Some("xpu"))]);
    node.says(Check::Accelerators, Verdict::Warning, "1234:abcd");
    node.says(Check::KernelDriver, Verdict::Ok, "xpu is bound");
}

#[test]
fn a_recording_says_what_was_bound_and_no_more() {
    let mut node = trainium(1, None);
    node.traces = Err("a recording does not tell".to_owned());
    node.says(
        Check::NeuronDriver,
        Verdict::Failing,
        "no kernel driver is bound",
    );
    let mut node = trainium(1, Some("neuron"));
    node.traces = Err("a recording does not tell".to_owned());
    node.kubelet = Err("a recording does not tell".to_owned());
    node.says(Check::NeuronDriver, Verdict::Ok, "bound to 1 of 1");
    node.says(Check::NeuronDevices, Verdict::Unknown, "nobody tells");
    node.says(Check::DevicePlugin, Verdict::Unknown, "a recording");
}

#[test]
fn device_files_of_a_gpu_may_be_made_later_and_so_only_warn() {
    let node = gpu_node(|_| {});
    node.says(
        Check::NvidiaDeviceFiles,
        Verdict::Warning,
        "/dev has no nvidiactl, nvidia-uvm, nvidia0",
    );
    let node = node.files(&["nvidiactl", "nvidia-uvm", "nvidia0"]);
    node.says(Check::NvidiaDeviceFiles, Verdict::Ok, "/dev has");
    let mut node = gpu_node(|_| {});
    node.files = Err("/dev is this pod's own".to_owned());
    node.says(Check::NvidiaDeviceFiles, Verdict::Unknown, "this pod's own");
}

#[test]
fn a_broken_link_to_nvml_fails_and_its_devices_are_not_judged() {
    let mut node = gpu_node(|_| {});
    node.inventory.nvml = NvmlState::Stalled {
        call: "nvmlDeviceGetMigMode".to_owned(),
        driver: None,
    };
    node.says(
        Check::NvidiaLibrary,
        Verdict::Failing,
        "nvmlDeviceGetMigMode does not return",
    );
    node.says(Check::DeviceHealth, Verdict::Unknown, "read before");
    node.inventory.nvml = ready();
    node.says(
        Check::NvidiaLibrary,
        Verdict::Ok,
        "NVML answers: driver 570.133.20",
    );
    node.says(Check::DeviceHealth, Verdict::Ok, "nothing bad");
}

#[test]
fn health_fails_where_somebody_has_to_act_and_warns_where_somebody_should_look() {
    let failing = gpu_node(|gpu| {
        gpu.condition = Condition::Failing {
            reason: "GPU is lost".to_owned(),
        };
    });
    failing.says(Check::DeviceHealth, Verdict::Failing, "GPU is lost");
    let reboot = gpu_node(|gpu| gpu.health.recovery_action = Some(RecoveryAction::RebootNode));
    reboot.says(Check::DeviceHealth, Verdict::Failing, "asks for a reboot");
    assert!(
        reboot
            .gravest(Check::DeviceHealth)
            .remedy
            .unwrap()
            .contains("reboot")
    );
    let errors = gpu_node(|gpu| gpu.health.uncorrected_errors = Some(3));
    errors.says(Check::DeviceHealth, Verdict::Warning, "3 uncorrected");
}

#[test]
fn mig_leftovers_are_reported() {
    use Check::{MigInstances, MigMode as Mode};
    let node = |state: MigState| gpu_node(|gpu| gpu.mig = Mig::Capable(state));
    let on = MigMode::Enabled;
    node(partitioned(on, 0, 0)).says(
        MigInstances,
        Verdict::Warning,
        "MIG mode is on, and it has no instance",
    );
    node(partitioned(on, 1, 0)).says(
        MigInstances,
        Verdict::Warning,
        "without a compute instance, and so of no use: gi 1",
    );
    node(partitioned(on, 1, 2)).says(
        MigInstances,
        Verdict::Ok,
        "2 compute instances in 1 GPU instance",
    );
    node(partitioned(MigMode::Disabled, 0, 0)).says(MigInstances, Verdict::Ok, "one whole GPU");
    let mut waits = partitioned(on, 0, 0);
    waits.pending = MigMode::Disabled;
    node(waits).says(
        Mode,
        Verdict::Warning,
        "MIG mode is on, and off after the next reset",
    );
    let mut partial = partitioned(on, 0, 0);
    partial.geometry = Completeness::Partial;
    node(partial).says(MigInstances, Verdict::Unknown, "does not tell all");
    gpu_node(|gpu| gpu.mig = Mig::Unknown).says(MigInstances, Verdict::Unknown, "does not tell");
    gpu_node(|_| {}).says(Mode, Verdict::NotApplicable, "partitioned");
}

#[test]
fn a_partition_whose_device_file_is_not_there_is_told() {
    let mut node = gpu_node(|gpu| gpu.mig = Mig::Capable(partitioned(MigMode::Enabled, 1, 1)));
    let pci = node.inventory.devices[0].pci;
    let file = |minor: u32| format!("nvidia-caps/nvidia-cap{minor}");
    node.instance_files = Ok([
        ((pci, 1, None), file(12)),
        ((pci, 1, Some(0)), file(13)),
        ((pci, 2, None), file(21)),
    ]
    .into());
    let node = node.files(&["nvidia-caps/nvidia-cap12"]);
    node.says(
        Check::MigDeviceFiles,
        Verdict::Warning,
        "/dev has no nvidia-caps/nvidia-cap13",
    );
    let node = node.files(&["nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13"]);
    node.says(Check::MigDeviceFiles, Verdict::Ok, "those of its instances");
}

#[test]
fn what_kubelet_offers_is_held_against_devices_and_partitions_by_their_uuids() {
    use Check::{Allocatable, ResourceOwners, TimeSlicing};
    let whole = || gpu_node(|_| {});
    let parts = || gpu_node(|gpu| gpu.mig = Mig::Capable(partitioned(MigMode::Enabled, 1, 1)));
    let replica = format!("{GPU}::1");
    whole()
        .kubelet(&[("nvidia.com/gpu", &[GPU])])
        .says(Allocatable, Verdict::Ok, "all 1");
    let shared = whole().kubelet(&[("nvidia.com/gpu.shared", &[&format!("{GPU}::0"), &replica])]);
    shared.says(Allocatable, Verdict::Ok, "all 1");
    shared.says(
        TimeSlicing,
        Verdict::Ok,
        "nvidia.com/gpu.shared: 2 replicas of 1 device",
    );
    shared.says(ResourceOwners, Verdict::Ok, "under two names");
    let twice = whole().kubelet(&[
        ("nvidia.com/gpu", &[GPU]),
        ("nvidia.com/gpu.shared", &[&replica]),
    ]);
    twice.says(
        ResourceOwners,
        Verdict::Failing,
        &format!("{GPU} is nvidia.com/gpu and nvidia.com/gpu.shared"),
    );
    let gone = whole().kubelet(&[("nvidia.com/gpu", &[GPU, OTHER_GPU])]);
    gone.says(
        Allocatable,
        Verdict::Failing,
        &format!("not there (any more): {OTHER_GPU}"),
    );
    let missing = parts().kubelet(&[("nvidia.com/gpu", &["0000:01:00.0"])]);
    missing.says(
        Allocatable,
        Verdict::Failing,
        &format!("there, and not offered: {PART}"),
    );
    parts()
        .kubelet(&[("nvidia.com/mig-1g.5gb", &[PART])])
        .says(Allocatable, Verdict::Ok, "all 1");
    // If the partitions are unknown, the offer may be correct.
    let untold = gpu_node(|gpu| gpu.mig = Mig::Unknown);
    untold.kubelet(&[("nvidia.com/gpu", &[PART])]).says(
        Allocatable,
        Verdict::Unknown,
        "does not tell",
    );
}

#[test]
fn amds_partitions_are_counted_whatever_their_resource_is_called() {
    let part = |render_minor| AmdPartition {
        render_minor,
        compute_units: None,
        memory: None,
    };
    let node = |resources: &[(&str, &[&str])]| {
        let mut device = on_bus(MI300X, 0, Some("amdgpu"));
        device.amd = Some(Amd {
            partitions: vec![part(128), part(129)],
            ..Amd::default()
        });
        Node::new(vec![device])
            .module("amdgpu", "6.12.12")
            .kubelet(resources)
    };
    let stale = node(&[("amd.com/gpu", &["0"])]);
    stale.says(
        Check::Allocatable,
        Verdict::Failing,
        "amd.com/gpu: 1 offered, 2 devices and partitions there",
    );
    stale.says(
        Check::AmdDeviceFiles,
        Verdict::Failing,
        "/dev has no kfd, dri/renderD128, dri/renderD129; /sys/class/kfd shows no topology",
    );
    let files = ["kfd", "dri/renderD128", "dri/renderD129"];
    let all = node(&[("amd.com/cpx_nps4", &["0", "1"])]).files(&files);
    all.says(Check::Allocatable, Verdict::Ok, "2 offered");
    all.says(Check::AmdDeviceFiles, Verdict::Ok, "/dev has kfd");
    all.says(Check::AmdDriver, Verdict::Ok, "/sys/module/amdgpu: 6.12.12");
}

#[test]
fn missing_kubelet_data_is_unknown() {
    let mut node = gpu_node(|_| {}).kubelet(&[]);
    if let Ok(Some(kubelet)) = &mut node.kubelet {
        kubelet.registered = Err("cannot read the record: permission denied".to_owned());
        kubelet.allocatable = Err("cannot connect to kubelet".to_owned());
    }
    node.says(
        Check::DevicePlugin,
        Verdict::Unknown,
        "permission denied; cannot connect",
    );
    node.says(Check::Allocatable, Verdict::Unknown, "permission denied");
    node.says(Check::ResourceOwners, Verdict::Unknown, "permission denied");
    node.processes = Ok(Processes {
        hidden: Some("does not show all processes".to_owned()),
        ..Processes::default()
    });
    node.says(Check::Processes, Verdict::Warning, "does not show all");
    node.processes = Err("a recording does not tell".to_owned());
    node.says(Check::Processes, Verdict::Unknown, "a recording");
}

#[test]
fn labels_are_held_against_the_hardware_and_what_was_chosen_is_left_out() {
    let mut node = gpu_node(|_| {});
    let options = crate::labels::Options::default();
    let now = crate::labels::compile(&node.inventory, &options, None).labels;
    let now = now
        .iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut labels: BTreeMap<String, String> = now.collect();
    assert!(labels.contains_key("octavo.dev/count"), "{labels:?}");
    let mut put = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    put("octavo.dev/layout-state", "applied");
    put("octavo.dev/sharing", "time-slicing");
    put("kubernetes.io/arch", "amd64");
    let place = "/etc/features.d/octavo".to_owned();
    node.labels = Ok(Some(FeatureLabels {
        place: place.clone(),
        labels: labels.clone(),
        gfd: None,
    }));
    node.says(Check::Labels, Verdict::Ok, &place);
    labels.insert("octavo.dev/count".to_owned(), "8".to_owned());
    node.labels = Ok(Some(FeatureLabels {
        place,
        labels,
        gfd: None,
    }));
    node.says(
        Check::Labels,
        Verdict::Warning,
        "-octavo.dev/count=8, +octavo.dev/count=1",
    );
}
