//! Tests of the diagnosis, on constructed nodes with one defect each.

mod devices;
mod label_comparison;
mod missing_information;
mod others;

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::driver_traces::{
    AvailableModules, CgroupVersion, ControlGroups, DeviceFiles, DriverTraces, Observed,
    PodCgroupManager,
};
use octavo_model::examples::{compute_instance, gpu, gpu_instance};
use octavo_model::id::{GpuUuid, MigUuid};
use octavo_model::inventory::{
    Amd, AmdPartition, Completeness, Condition, Device, Driver, Inventory, Mig, MigMode, MigState,
    NeuronDevice, NeuronErrors, NvmlState, PciIds, RecoveryAction,
};

use super::*;
use crate::doctor::{Check, CheckResult, Subject};

const GPU: &str = "GPU-11111111-1111-1111-1111-111111111111";
const OTHER_GPU: &str = "GPU-22222222-2222-2222-2222-222222222222";
const PART: &str = "MIG-33333333-3333-3333-3333-333333333333";

/// Owned facts of a node, which tests can change.
struct Node {
    inventory: Inventory,
    traces: Observed<DriverTraces>,
    files: Observed<DeviceFiles>,
    instance_files: Observed<InstanceFiles>,
    groups: Observed<ControlGroups>,
    processes: Observed<Processes>,
    layout: Observed<Option<LayoutProgress>>,
    kubelet: Observed<Option<Kubelet>>,
    labels: Observed<Option<FeatureLabels>>,
    is_recorded: bool,
}

impl Node {
    fn new(devices: Vec<Device>) -> Self {
        Self {
            inventory: Inventory {
                nvml: NvmlState::Absent { reason: "no NVML library".to_owned() },
                devices,
                ..Inventory::default()
            },
            traces: Ok(DriverTraces { has_bus: true, ..DriverTraces::default() }),
            files: Ok(DeviceFiles::default()),
            instance_files: Ok(BTreeMap::new()),
            groups: Ok(ControlGroups {
                version: CgroupVersion::Two,
                pods: None,
                unlinked: Ok(Vec::new()),
            }),
            processes: Ok(Processes::default()),
            layout: Ok(None),
            kubelet: Ok(None),
            labels: Ok(None),
            is_recorded: false,
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
        self.files = Ok(DeviceFiles(names.iter().map(|name| (*name).to_owned()).collect()));
        self
    }

    fn kubelet(mut self, offered: &[(&str, &[&str])]) -> Self {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let all = offered.iter();
        let all: BTreeMap<String, BTreeSet<String>> =
            all.map(|(name, all)| ((*name).to_owned(), ids(all))).collect();
        self.kubelet = Ok(Some(Kubelet {
            registered: Ok(all.iter().map(|(name, ids)| (name.clone(), ids.len())).collect()),
            allocatable: Ok(Some(all)),
            claim_drivers: Ok(BTreeSet::new()),
            sockets: Ok(BTreeSet::new()),
        }));
        self
    }

    fn sockets(mut self, names: &[&str]) -> Self {
        if let Ok(Some(kubelet)) = &mut self.kubelet {
            kubelet.sockets = Ok(names.iter().map(|name| (*name).to_owned()).collect());
        }
        self
    }

    fn labels(mut self, labels: &[(&str, &str)]) -> Self {
        let labels = labels.iter();
        let labels = labels.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        self.labels = Ok(Some(FeatureLabels {
            place: "node.json".to_owned(),
            labels: labels.collect(),
            gfd: None,
        }));
        self
    }

    fn examine(&self) -> Vec<Finding> {
        run_checks(&Facts {
            inventory: &self.inventory,
            is_recorded: self.is_recorded,
            roots: ExaminedPaths {
                sys: "/sys".to_owned(),
                dev: "/dev".to_owned(),
                proc: "/proc".to_owned(),
                kubelet: "/var/lib/kubelet".to_owned(),
                state: "/var/lib/octavo".to_owned(),
            },
            traces: self.traces.clone(),
            files: self.files.clone(),
            instance_files: self.instance_files.clone(),
            groups: self.groups.clone(),
            processes: self.processes.clone(),
            layout: self.layout.clone(),
            kubelet: self.kubelet.clone(),
            labels: self.labels.clone(),
        })
    }

    /// Most severe finding of a check.
    #[track_caller]
    fn most_severe(&self, check: Check) -> Finding {
        let all = self.examine().into_iter();
        let of_check = all.filter(|finding| finding.check == check);
        of_check.max_by_key(|finding| finding.verdict).unwrap()
    }

    #[track_caller]
    fn expect_finding(&self, check: Check, verdict: CheckResult, evidence: &str) {
        let found = self.most_severe(check);
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.evidence.contains(evidence), "{found:?}");
        if matches!(verdict, CheckResult::Warning | CheckResult::Failing) {
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
    device.condition = Condition::PciOnly { kernel_driver: driver.map(ToOwned::to_owned) };
    device
}

const TRAINIUM2: (u16, u16) = (0x1d0f, 0x7364);
const INFERENTIA: (u16, u16) = (0x1d0f, 0x7064);
const H100: (u16, u16) = (0x10de, 0x2330);
const MI300X: (u16, u16) = (0x1002, 0x74a1);

fn trainium(count: u8, driver: Option<&str>) -> Node {
    Node::new((0..count).map(|slot| on_bus(TRAINIUM2, slot, driver)).collect())
}

fn ready() -> NvmlState {
    NvmlState::Ready(Driver { version: "570.133.20".parse().unwrap(), cuda: None })
}

fn answering(mut device: Device, uuid: &str) -> Device {
    device.uuid = Some(uuid.parse::<GpuUuid>().unwrap());
    device.minor = Some(0);
    device
}

/// A node with one GPU whose driver answers.
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
        catalog: octavo_model::catalog::ProfileCatalog::new(Vec::new()),
        gpu_instances: vec![instance; instances],
        geometry: Completeness::Complete,
    }
}

#[test]
fn every_check_has_unique_name_and_runs_on_every_node() {
    let words: BTreeSet<&str> = Check::ALL.iter().copied().map(Check::as_str).collect();
    assert_eq!(words.len(), Check::ALL.len());
    for &check in Check::ALL {
        assert_eq!(check.as_str().parse(), Ok(check));
    }
    assert!("gpu".parse::<Check>().is_err());
    let capable = gpu_node(|gpu| gpu.mig = Mig::Capable(partitioned(MigMode::Enabled, 1, 1)));
    for node in [Node::new(vec![]), trainium(2, None), capable, trainium(1, Some("neuron"))] {
        let found = node.examine();
        let made: BTreeSet<Check> = found.iter().map(|finding| finding.check).collect();
        assert_eq!(made, Check::ALL.iter().copied().collect());
        assert!(found.is_sorted_by_key(|finding| finding.check));
    }
}

#[test]
fn node_without_accelerators_has_no_failing_check() {
    let node = Node::new(vec![]);
    let evidence = "no PCI function in /sys/bus/pci/devices is an accelerator";
    node.expect_finding(Check::Accelerators, CheckResult::NotApplicable, evidence);
    let found = node.examine();
    assert_eq!(count_verdicts(&found).not_applicable, found.len(), "{found:?}");
    let mut blind = Node::new(vec![]);
    blind.traces = Ok(DriverTraces::default());
    blind.expect_finding(Check::Accelerators, CheckResult::Unknown, "/sys/bus/pci/devices");
}

#[test]
fn f4_neuron_node_reports_which_of_four_parts_is_missing() {
    use Check::{Allocatable, DevicePlugin, NeuronDeviceFiles, NeuronDevices, NeuronDriver};
    // No driver.
    let node = trainium(2, None);
    node.expect_finding(
        NeuronDriver,
        CheckResult::Failing,
        "2 devices of AWS Neuron, but the driver is not loaded: /sys/module/neuron does not exist",
    );
    assert!(node.most_severe(NeuronDriver).remedy.unwrap().contains("aws-neuronx-dkms"));
    node.expect_finding(NeuronDevices, CheckResult::NotApplicable, "not known to be loaded");
    node.expect_finding(DevicePlugin, CheckResult::NotApplicable, "nothing to allocate");
    // A driver that does not drive all devices.
    let node = trainium(2, Some("neuron")).module("neuron", "2.26.5.0").neuron([0]);
    node.expect_finding(NeuronDriver, CheckResult::Ok, "/sys/module/neuron: 2.26.5.0");
    node.expect_finding(
        NeuronDevices,
        CheckResult::Failing,
        "1 device in /sys/class/neuron_device, 2 functions on the bus",
    );
    node.expect_finding(NeuronDeviceFiles, CheckResult::Failing, "/dev has no neuron0");
    // A driver without a device plugin.
    let works = || {
        trainium(2, Some("neuron"))
            .module("neuron", "2.26.5.0")
            .neuron([0, 1])
            .files(&["neuron0", "neuron1"])
    };
    works().expect_finding(NeuronDevices, CheckResult::Ok, "2 devices");
    works().expect_finding(NeuronDeviceFiles, CheckResult::Ok, "neuron0, neuron1");
    works().expect_finding(DevicePlugin, CheckResult::NotApplicable, "no kubelet has run here");
    let node = works().kubelet(&[("nvidia.com/gpu", &[GPU])]);
    node.expect_finding(
        DevicePlugin,
        CheckResult::Failing,
        "no device plugin has registered aws.amazon.com/neuron*",
    );
    node.expect_finding(Allocatable, CheckResult::NotApplicable, "no device plugin allocates");
    // A device plugin that offers no device, or not all.
    let resource = "aws.amazon.com/neuron";
    let node = works().kubelet(&[(resource, &[])]);
    node.expect_finding(DevicePlugin, CheckResult::Ok, resource);
    node.expect_finding(
        Allocatable,
        CheckResult::Failing,
        "the plugin reports no healthy device: aws.amazon.com/neuron",
    );
    let node = works().kubelet(&[(resource, &["0"])]);
    node.expect_finding(
        Allocatable,
        CheckResult::Failing,
        "aws.amazon.com/neuron: 1 offered, 2 present",
    );
    let node = works().kubelet(&[(resource, &["0", "1"])]);
    node.expect_finding(Allocatable, CheckResult::Ok, "2 offered, 2 present");
    assert_eq!(count_verdicts(&node.examine()).failing, 0);
}

#[test]
fn dra_driver_needs_no_device_plugin() {
    let mut node = trainium(1, Some("neuron")).module("neuron", "2.26").neuron([0]).kubelet(&[]);
    node.expect_finding(Check::DevicePlugin, CheckResult::Failing, "aws.amazon.com/neuron*");
    if let Ok(Some(kubelet)) = &mut node.kubelet {
        kubelet.claim_drivers = Ok(["neuron.aws.com".to_owned()].into());
    }
    node.expect_finding(
        Check::DevicePlugin,
        CheckResult::Ok,
        "neuron.aws.com allocates devices to claims: it has a directory in",
    );
}

#[test]
fn first_generation_inferentia_fails_only_with_unsupporting_driver() {
    let node = |version| Node::new(vec![on_bus(INFERENTIA, 0, None)]).module("neuron", version);
    node("2.21.37.0").expect_finding(Check::NeuronDriver, CheckResult::Ok, "2.21");
    node("2.22.2.0").expect_finding(
        Check::NeuronDriver,
        CheckResult::Failing,
        "does not support first-generation Inferentia",
    );
    node("odd").expect_finding(Check::NeuronDriver, CheckResult::Ok, "odd");
    trainium(1, Some("neuron")).module("neuron", "2.22.2.0").expect_finding(
        Check::NeuronDriver,
        CheckResult::Ok,
        "2.22",
    );
}

#[test]
fn json_words_match_displayed_words() {
    for verdict in [
        CheckResult::NotApplicable,
        CheckResult::Ok,
        CheckResult::Unknown,
        CheckResult::Warning,
        CheckResult::Failing,
    ] {
        assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
    }
    for &check in Check::ALL {
        assert_eq!(serde_json::to_value(check).unwrap(), check.as_str());
    }
}

#[test]
fn i12_document_round_trips_and_modified_documents_are_rejected() {
    let finding = |subject| Finding {
        check: Check::NeuronDriver,
        subject,
        verdict: CheckResult::Failing,
        evidence: "e".to_owned(),
        remedy: None,
    };
    for subject in [
        Subject::Device("0000:17:00.0".parse().unwrap()),
        Subject::Resource("nvidia.com/gpu".to_owned()),
    ] {
        let document = Diagnosis::new(vec![finding(subject)]);
        let text = serde_json::to_string(&document).unwrap();
        assert_eq!(serde_json::from_str::<Diagnosis>(&text).unwrap(), document);
    }
    let text = serde_json::to_string(&Diagnosis::new(vec![finding(Subject::Neuron(3))]));
    let text = text.unwrap();
    assert_eq!(
        text,
        r#"{"apiVersion":"octavo.dev/v1","kind":"Diagnosis","findings":[{"check":"neuron-driver","subject":"neuron3","verdict":"failing","evidence":"e"}]}"#
    );
    for (from, to) in [
        ("octavo.dev/v1", "octavo.dev/v2"),
        ("Diagnosis", "Inventory"),
        ("failing", "fails"),
        ("evidence", "proof"),
    ] {
        let text = text.replace(from, to);
        assert!(serde_json::from_str::<Diagnosis>(&text).is_err(), "{to}");
    }
}
