//! What is said of nodes, each made by hand and wrong in one way.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::domain::id::{GpuUuid, MigUuid};
use crate::domain::inventory::tests_support::{compute_instance, gpu, gpu_instance};
use crate::domain::inventory::{
    Amd, AmdPartition, Completeness, Condition, Device, Driver, Inventory, Machine, Mig, MigMode,
    MigState, NeuronDevice, NeuronErrors, NvmlState, PciIds, RecoveryAction,
};

const GPU: &str = "GPU-11111111-1111-1111-1111-111111111111";
const OTHER_GPU: &str = "GPU-22222222-2222-2222-2222-222222222222";
const PART: &str = "MIG-33333333-3333-3333-3333-333333333333";

/// A node, owned, so that tests can change it.
struct Node {
    inventory: Inventory,
    traces: Told<Traces>,
    files: Told<Files>,
    instance_files: Told<InstanceFiles>,
    processes: Told<()>,
    kubelet: Told<Option<Kubelet>>,
    labels: Told<Option<FeatureLabels>>,
}

impl Node {
    fn new(devices: Vec<Device>) -> Self {
        Self {
            inventory: Inventory {
                machine: Machine::default(),
                nvml: NvmlState::Absent {
                    reason: "no NVML library".to_owned(),
                },
                neuron: None,
                devices,
            },
            traces: Ok(Traces {
                has_bus: true,
                ..Traces::default()
            }),
            files: Ok(Files::default()),
            instance_files: Ok(BTreeMap::new()),
            processes: Ok(()),
            kubelet: Ok(None),
            labels: Ok(None),
        }
    }

    fn module(mut self, name: &str, version: &str) -> Self {
        if let Ok(traces) = &mut self.traces {
            let version = Some(version.to_owned());
            traces.modules.insert(name.to_owned(), version);
        }
        self
    }

    fn neuron(mut self, numbers: impl IntoIterator<Item = u32>) -> Self {
        if let Ok(traces) = &mut self.traces {
            traces.neuron.extend(numbers);
        }
        self
    }

    fn files(mut self, names: &[&str]) -> Self {
        self.files = Ok(Files(names.iter().map(|name| (*name).to_owned()).collect()));
        self
    }

    fn kubelet(mut self, offered: &[(&str, &[&str])]) -> Self {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let all = offered.iter();
        let all: BTreeMap<String, BTreeSet<String>> = all
            .map(|(name, all)| ((*name).to_owned(), ids(all)))
            .collect();
        self.kubelet = Ok(Some(Kubelet {
            registered: Ok(all
                .iter()
                .map(|(name, ids)| (name.clone(), ids.len()))
                .collect()),
            allocatable: Ok(Some(all)),
            claim_drivers: BTreeSet::new(),
        }));
        self
    }

    fn examine(&self) -> Vec<Finding> {
        examine(&Facts {
            inventory: &self.inventory,
            roots: Roots {
                sys: "/sys".to_owned(),
                dev: "/dev".to_owned(),
                proc: "/proc".to_owned(),
                kubelet: "/var/lib/kubelet".to_owned(),
            },
            traces: self.traces.clone(),
            files: self.files.clone(),
            instance_files: self.instance_files.clone(),
            processes: self.processes.clone(),
            kubelet: self.kubelet.clone(),
            labels: self.labels.clone(),
        })
    }

    /// The gravest finding of a check.
    #[track_caller]
    fn gravest(&self, check: Check) -> Finding {
        let all = self.examine().into_iter();
        let of_check = all.filter(|finding| finding.check == check);
        of_check.max_by_key(|finding| finding.verdict).unwrap()
    }

    #[track_caller]
    fn says(&self, check: Check, verdict: Verdict, evidence: &str) {
        let found = self.gravest(check);
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.evidence.contains(evidence), "{found:?}");
        if matches!(verdict, Verdict::Warning | Verdict::Failing) {
            assert!(found.remedy.is_some(), "{found:?}");
        }
    }
}

fn on_bus(ids: (u16, u16), slot: u8, driver: Option<&str>) -> Device {
    let ids = PciIds {
        vendor: ids.0,
        device: ids.1,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: Some(0x03_0200),
    };
    let mut device = Device::new(PciAddress::new(0, 0, slot, 0).unwrap(), ids);
    device.condition = Condition::PciOnly {
        kernel_driver: driver.map(ToOwned::to_owned),
    };
    device
}

const TRAINIUM2: (u16, u16) = (0x1d0f, 0x7364);
const INFERENTIA: (u16, u16) = (0x1d0f, 0x7064);
const H100: (u16, u16) = (0x10de, 0x2330);
const MI300X: (u16, u16) = (0x1002, 0x74a1);

fn trainium(count: u8, driver: Option<&str>) -> Node {
    Node::new(
        (0..count)
            .map(|slot| on_bus(TRAINIUM2, slot, driver))
            .collect(),
    )
}

fn ready() -> NvmlState {
    NvmlState::Ready(Driver {
        version: "570.133.20".parse().unwrap(),
        cuda: None,
    })
}

fn answering(mut device: Device, uuid: &str) -> Device {
    device.uuid = Some(uuid.parse::<GpuUuid>().unwrap());
    device.minor = Some(0);
    device
}

/// A node with a GPU whose driver answers.
fn gpu_node(change: impl FnOnce(&mut Device)) -> Node {
    let mut device = answering(gpu(), GPU);
    device.mig = Mig::NotCapable;
    change(&mut device);
    let mut node = Node::new(vec![device]);
    node.inventory.nvml = ready();
    node
}

fn partitioned(current: MigMode, instances: usize, parts: usize) -> MigState {
    let mut instance = gpu_instance(1, 0, 1);
    for id in 0..parts {
        let mut part = compute_instance(u32::try_from(id).unwrap());
        part.uuid = Some(PART.parse::<MigUuid>().unwrap());
        instance.compute_instances.push(part);
    }
    MigState {
        current,
        pending: current,
        catalog: crate::domain::catalog::ProfileCatalog::new(Vec::new()),
        gpu_instances: vec![instance; instances],
        geometry: Completeness::Complete,
    }
}

#[test]
fn every_check_has_a_word_of_its_own_and_is_made_on_every_node() {
    let words: BTreeSet<&str> = Check::ALL.into_iter().map(Check::as_str).collect();
    assert_eq!(words.len(), Check::ALL.len());
    for check in Check::ALL {
        assert_eq!(check.as_str().parse(), Ok(check));
    }
    assert!("gpu".parse::<Check>().is_err());
    let capable = gpu_node(|gpu| gpu.mig = Mig::Capable(partitioned(MigMode::Enabled, 1, 1)));
    for node in [
        Node::new(vec![]),
        trainium(2, None),
        capable,
        trainium(1, Some("neuron")),
    ] {
        let found = node.examine();
        let made: BTreeSet<Check> = found.iter().map(|finding| finding.check).collect();
        assert_eq!(made, Check::ALL.into());
        assert!(found.is_sorted_by_key(|finding| finding.check));
    }
}

#[test]
fn a_node_without_accelerators_has_nothing_that_could_fail() {
    let node = Node::new(vec![]);
    let evidence = "no function in /sys/bus/pci/devices is an accelerator";
    node.says(Check::Accelerators, Verdict::NotApplicable, evidence);
    let found = node.examine();
    assert_eq!(tally(&found).not_applicable, found.len(), "{found:?}");
    let mut blind = Node::new(vec![]);
    blind.traces = Ok(Traces::default());
    blind.says(
        Check::Accelerators,
        Verdict::Unknown,
        "/sys/bus/pci/devices",
    );
}

#[test]
fn f4_a_neuron_node_says_which_of_four_things_is_missing() {
    use Check::{Allocatable, DevicePlugin, NeuronDeviceFiles, NeuronDevices, NeuronDriver};
    // No driver.
    let node = trainium(2, None);
    node.says(
        NeuronDriver,
        Verdict::Failing,
        "2 devices of AWS Neuron, and its driver is not loaded: there is no /sys/module/neuron",
    );
    assert!(
        node.gravest(NeuronDriver)
            .remedy
            .unwrap()
            .contains("aws-neuronx-dkms")
    );
    node.says(
        NeuronDevices,
        Verdict::NotApplicable,
        "not known to be loaded",
    );
    node.says(DevicePlugin, Verdict::NotApplicable, "nothing to give out");
    // A driver that does not take all of them.
    let node = trainium(2, Some("neuron"))
        .module("neuron", "2.26.5.0")
        .neuron([0]);
    node.says(NeuronDriver, Verdict::Ok, "/sys/module/neuron: 2.26.5.0");
    node.says(
        NeuronDevices,
        Verdict::Failing,
        "1 device in /sys/class/neuron_device, 2 functions on the bus",
    );
    node.says(NeuronDeviceFiles, Verdict::Failing, "/dev has no neuron0");
    // A driver and no plugin.
    let works = || {
        trainium(2, Some("neuron"))
            .module("neuron", "2.26.5.0")
            .neuron([0, 1])
            .files(&["neuron0", "neuron1"])
    };
    works().says(NeuronDevices, Verdict::Ok, "2 devices");
    works().says(NeuronDeviceFiles, Verdict::Ok, "neuron0, neuron1");
    works().says(
        DevicePlugin,
        Verdict::NotApplicable,
        "no kubelet ever ran here",
    );
    let node = works().kubelet(&[("nvidia.com/gpu", &[GPU])]);
    node.says(
        DevicePlugin,
        Verdict::Failing,
        "no device plugin has registered aws.amazon.com/neuron*",
    );
    node.says(Allocatable, Verdict::NotApplicable, "nobody gives");
    // A plugin that offers none, or not all.
    let resource = "aws.amazon.com/neuron";
    let node = works().kubelet(&[(resource, &[])]);
    node.says(DevicePlugin, Verdict::Ok, resource);
    node.says(
        Allocatable,
        Verdict::Failing,
        "none of it is healthy to its plugin: aws.amazon.com/neuron",
    );
    let node = works().kubelet(&[(resource, &["0"])]);
    node.says(
        Allocatable,
        Verdict::Failing,
        "aws.amazon.com/neuron: 1 offered, 2 there",
    );
    let node = works().kubelet(&[(resource, &["0", "1"])]);
    node.says(Allocatable, Verdict::Ok, "2 offered, 2 there");
    assert_eq!(tally(&node.examine()).failing, 0);
}

#[test]
fn a_driver_for_claims_needs_no_device_plugin() {
    let mut node = trainium(1, Some("neuron"))
        .module("neuron", "2.26")
        .neuron([0])
        .kubelet(&[]);
    node.says(
        Check::DevicePlugin,
        Verdict::Failing,
        "aws.amazon.com/neuron*",
    );
    if let Ok(Some(kubelet)) = &mut node.kubelet {
        kubelet.claim_drivers.insert("neuron.aws.com".to_owned());
    }
    node.says(
        Check::DevicePlugin,
        Verdict::Ok,
        "neuron.aws.com allocates devices to claims",
    );
}

#[test]
fn inferentia_of_the_first_generation_fails_only_with_a_driver_that_does_not_know_it() {
    let node = |version| Node::new(vec![on_bus(INFERENTIA, 0, None)]).module("neuron", version);
    node("2.21.37.0").says(Check::NeuronDriver, Verdict::Ok, "2.21");
    node("2.22.2.0").says(Check::NeuronDriver, Verdict::Failing, "knows no Inferentia");
    node("odd").says(Check::NeuronDriver, Verdict::Ok, "odd");
    trainium(1, Some("neuron"))
        .module("neuron", "2.22.2.0")
        .says(Check::NeuronDriver, Verdict::Ok, "2.22");
}

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
    for (device, verdict, evidence) in [
        (device, Verdict::Ok, "no error is counted"),
        (unhealthy, Verdict::Failing, "unhealthy: hbm, link_host"),
        (
            counted,
            Verdict::Warning,
            "2 uncorrected errors of on-chip memory since",
        ),
    ] {
        let found = health::health_of_neuron(&device);
        assert_eq!(
            (found.verdict, found.subject),
            (verdict, Subject::Neuron(3))
        );
        assert!(found.evidence.contains(evidence), "{}", found.evidence);
    }
}

#[test]
fn who_holds_a_device_is_told_and_a_virtual_machine_may() {
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
    let passed = node(Some("vfio-pci"));
    passed.says(KernelDriver, Verdict::Ok, "set aside for a virtual machine");
    passed.says(
        NvidiaDriver,
        Verdict::NotApplicable,
        "for this machine to use",
    );
}

#[test]
fn a_stranger_is_told_by_its_id() {
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
fn leftovers_of_mig_are_told() {
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
    // Where nobody tells the partitions, what is offered may be right.
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
    let all = node(&[("amd.com/cpx_nps4", &["0", "1"])]).files(&[
        "kfd",
        "dri/renderD128",
        "dri/renderD129",
    ]);
    all.says(Check::Allocatable, Verdict::Ok, "2 offered");
    all.says(Check::AmdDeviceFiles, Verdict::Ok, "/dev has kfd");
    all.says(Check::AmdDriver, Verdict::Ok, "/sys/module/amdgpu: 6.12.12");
}

#[test]
fn a_kubelet_that_does_not_tell_is_no_verdict() {
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
    node.processes = Err("does not show all processes".to_owned());
    node.says(Check::Processes, Verdict::Warning, "does not show all");
}

#[test]
fn labels_are_held_against_the_hardware_and_what_was_chosen_is_left_out() {
    let mut node = gpu_node(|_| {});
    let options = crate::domain::labels::Options::default();
    let now = crate::domain::labels::compile(&node.inventory, &options, None).labels;
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
    }));
    node.says(Check::Labels, Verdict::Ok, &place);
    labels.insert("octavo.dev/count".to_owned(), "8".to_owned());
    node.labels = Ok(Some(FeatureLabels { place, labels }));
    node.says(
        Check::Labels,
        Verdict::Warning,
        "-octavo.dev/count=8, +octavo.dev/count=1",
    );
}
