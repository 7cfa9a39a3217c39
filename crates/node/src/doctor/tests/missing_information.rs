//! Tests of missing information, which counts neither as good nor as bad, and of values that can be right in two
//! ways.

use octavo_model::accelerators::{Catalog, TYPE_OVERRIDE, TypeOverride, identify_devices};
use octavo_model::inventory::{
    Amd, DriverLayout, LogicalCores, LogicalSource, Neuron, ReadProblem,
};

use super::*;
use crate::labels::{Options, compile};

fn problem(what: &str, error: &str) -> ReadProblem {
    ReadProblem { source: what.to_owned(), error: error.to_owned() }
}

fn neuron(logical: Option<LogicalCores>) -> Neuron {
    let device = |number| NeuronDevice { number, cores: Some(8), ..NeuronDevice::default() };
    Neuron {
        driver_version: Some("2.27.1.0".to_owned()),
        driver_layout: DriverLayout::Known,
        logical,
        ultraserver: BTreeMap::new(),
        devices: (0..2).map(device).collect(),
        problems: Vec::new(),
    }
}

#[test]
fn hanging_hardware_is_not_absent() {
    use Check::{Accelerators, NvidiaLibrary};
    let stalled = |call: &str| {
        let mut node = Node::new(Vec::new());
        node.inventory.nvml = NvmlState::Stalled { call: call.to_owned(), driver: None };
        node
    };
    let bus = stalled(NvmlState::READING_SYS);
    bus.expect_finding(Accelerators, CheckResult::Failing, "reading /sys does not return");
    let remedy = bus.most_severe(Accelerators).remedy.unwrap();
    assert!(!remedy.contains("xid"), "{remedy}");
    bus.expect_finding(NvidiaLibrary, CheckResult::NotApplicable, "no usable NVIDIA device");
    let library = stalled("nvmlInit_v2");
    library.expect_finding(Accelerators, CheckResult::Failing, "nvmlInit_v2 does not return");
    library.expect_finding(NvidiaLibrary, CheckResult::Failing, "nvmlInit_v2 does not return");
    let mut node = Node::new(Vec::new());
    node.inventory.nvml = NvmlState::Loading;
    node.expect_finding(Accelerators, CheckResult::Unknown, "initializing");
    // Nothing is known about a machine that could not be read; a recording is complete as of its time.
    let mut node = Node::new(Vec::new());
    node.traces = Err("cannot read /sys: no result after 5 s".to_owned());
    node.expect_finding(Accelerators, CheckResult::Unknown, "no result after 5 s");
    node.is_recorded = true;
    node.expect_finding(Accelerators, CheckResult::NotApplicable, "the recording contains");
}

#[test]
fn unreadable_module_is_not_a_missing_driver() {
    let mut node = Node::new(vec![on_bus(H100, 0, None)]);
    if let Ok(traces) = &mut node.traces {
        let why = "Permission denied (os error 13)".to_owned();
        traces.unknown_modules.insert("nvidia".to_owned(), why);
    }
    node.expect_finding(
        Check::NvidiaDriver,
        CheckResult::Unknown,
        "cannot inspect /sys/module/nvidia: Permission denied",
    );
}

#[test]
fn assumed_logical_core_size_is_not_compared_with_device_plugin() {
    use LogicalSource::{Default, File};
    let node = |size, source, offered: usize| {
        let mut node = trainium(2, Some("neuron")).module("neuron", "2.27.1.0");
        node.inventory.neuron = Some(neuron(Some(LogicalCores { size, source })));
        let ids: Vec<String> = (0..offered).map(|id| id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        node.kubelet(&[("aws.amazon.com/neuroncore", &ids)])
    };
    let check = Check::Allocatable;
    for (size, source, offered, verdict, expected) in [
        (2, Default, 16, CheckResult::Ok, "16 physical cores present: each is one logical core"),
        (2, Default, 8, CheckResult::Ok, "8 logical cores present with the chip's default"),
        (2, Default, 4, CheckResult::Failing, "16 physical cores"),
        (1, Default, 16, CheckResult::Ok, "16 logical cores present"),
        (1, Default, 8, CheckResult::Failing, "16 logical cores present"),
        (2, File, 8, CheckResult::Ok, "8 logical cores present"),
        (2, File, 16, CheckResult::Failing, "16 offered, 8 logical cores present"),
    ] {
        node(size, source, offered).expect_finding(check, verdict, expected);
    }
}

#[test]
fn all_neuron_device_problems_are_reported_with_remedies() {
    let device = NeuronDevice {
        unhealthy: Some(vec!["hbm".to_owned()]),
        errors: NeuronErrors { memory_uncorrected: Some(3), ..NeuronErrors::default() },
        problems: vec![problem("core_count", "cannot be: \"banana\"")],
        ..NeuronDevice::default()
    };
    let expected = health::health_of_neuron(&device, None).evidence;
    for part in ["unhealthy: hbm", "since the driver was loaded: 3", "banana"] {
        assert!(expected.contains(part), "{expected}");
    }
    let remedy = |error: &str, release| {
        let device = NeuronDevice {
            problems: vec![problem("core_count", error)],
            ..NeuronDevice::default()
        };
        health::health_of_neuron(&device, release).remedy.unwrap()
    };
    let refused = "Permission denied (os error 13)";
    assert!(remedy(refused, Some((2, 27))).contains("before 2.28"));
    let later = remedy(refused, Some((2, 28)));
    assert!(later.contains("as root") && !later.contains("2.28"), "{later}");
    let garbage = remedy("cannot be: \"banana\"", Some((2, 27)));
    assert!(!garbage.contains("root"), "{garbage}");
}

#[test]
fn driver_wide_problem_is_reported_once() {
    let mut node = trainium(2, Some("neuron"));
    let problems = vec![
        problem(Neuron::COUNT_MISMATCH, "the driver has 2, and 3 are on the PCI bus"),
        problem("logical_nc_config", "it is no regular file"),
    ];
    node.inventory.neuron = Some(Neuron { problems, ..neuron(None) });
    let found = node.examine().into_iter();
    let found = found.filter(|one| one.check == Check::NeuronDevices && one.remedy.is_some());
    let expected: Vec<String> = found.map(|one| one.evidence).collect();
    assert_eq!(expected, ["logical_nc_config: it is no regular file"]);
}

#[test]
fn failing_device_remedy_matches_vendor() {
    let remedy = |ids| {
        let mut device = on_bus(ids, 0, None);
        device.condition = Condition::Failing { reason: "it does not answer".to_owned() };
        let found = Node::new(vec![device]).most_severe(Check::DeviceHealth);
        found.remedy.unwrap()
    };
    assert!(remedy(H100).contains("Xid"));
    assert!(remedy(MI300X).contains("grep -i amdgpu"));
    let other = remedy((0x1234, 0xabcd));
    assert!(!other.contains("Xid") && other.contains("dmesg"), "{other}");
}

/// A node with the labels that an agent writes after a manual type override of unidentified devices. `is_node`:
/// whether they include the override itself.
fn labeled(given: &str, devices: Vec<Device>, is_node: bool) -> Node {
    let mut node = Node::new(devices);
    identify_devices(&mut node.inventory, None);
    let mut named = node.inventory.clone();
    identify_devices(&mut named, Some(&TypeOverride::new(given, &Catalog::built_in())));
    let written = compile(&named, &Options::default(), None).labels;
    let mut written: Vec<(&str, &str)> = written.iter().collect();
    assert!(written.contains(&("octavo.dev/type-source", "manual")), "{written:?}");
    if is_node {
        written.push((TYPE_OVERRIDE, given));
    }
    node.labels(&written)
}

#[test]
fn labels_of_manually_typed_devices_match_the_hardware() {
    let unrecognized = || on_bus((0x1234, 0xabcd), 0, Some("xpu"));
    let nvidias = || on_bus((0x10de, 0xffff), 0, None);
    let known = || on_bus(H100, 1, None);
    let check = Check::Labels;
    for is_node in [true, false] {
        // Beside a known device the type is `mixed`, which names no product; a SKU determines more than its type.
        for (given, devices) in [
            ("acme-x9", vec![unrecognized(), known()]),
            ("nvidia-h100-sxm5-80gb", vec![nvidias()]),
            ("nvidia-h100-sxm5-80gb", vec![nvidias(), known()]),
        ] {
            labeled(given, devices, is_node).expect_finding(
                check,
                CheckResult::Ok,
                "matches the hardware",
            );
        }
    }
    // Differences that do not result from the override are still reported.
    let mut node = labeled("acme-x9", vec![unrecognized()], false);
    node.inventory.devices.push(on_bus((0x1234, 0xabcd), 1, None));
    node.expect_finding(check, CheckResult::Warning, "octavo.dev/count=1, +octavo.dev/count=2");
    let remedy = |node: &Node| node.most_severe(check).remedy.unwrap();
    assert!(remedy(&node).contains("Check that it runs"));
    node.layout = Ok(Some(LayoutProgress { is_agent: true, ..LayoutProgress::default() }));
    assert!(!remedy(&node).contains("Check that it runs"));
}

#[test]
fn inaccessible_kfd_topology_is_reported_with_remedy() {
    let node = |files: &[&str]| {
        let mut device = on_bus(MI300X, 0, Some("amdgpu"));
        device.amd = Some(Amd::default());
        let mut node = Node::new(vec![device]).module("amdgpu", "6.12.12").files(files);
        if let Ok(traces) = &mut node.traces {
            traces.kfd_error = Some("Permission denied (os error 13)".to_owned());
        }
        node
    };
    let expected = "/sys/class/kfd: Permission denied";
    for (files, verdict) in [(&[][..], CheckResult::Failing), (&["kfd"], CheckResult::Warning)] {
        let node = node(files);
        node.expect_finding(Check::AmdDeviceFiles, verdict, expected);
        let remedy = node.most_severe(Check::AmdDeviceFiles).remedy.unwrap();
        assert!(remedy.contains("run this command as root"), "{remedy}");
    }
}
