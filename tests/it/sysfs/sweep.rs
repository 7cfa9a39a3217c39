//! Every single path of a machine with devices of three vendors is replaced once: it affects only its documented facts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use octavo_hardware::{DriverHandle, Settings};
use octavo_model::inventory::{Device, Inventory, NeuronDevice, NvmlState, ReadProblem, Vendor};
use tempfile::TempDir;

use super::faults::{Fault, paths};
use super::neuron_host::{FileLayout, Host, INFERENTIA2, SETTING, TRAINIUM1, ring};
use super::unprivileged::{acting, give};
use crate::machine::{settings, start};
use crate::tree;

const FUNCTIONS: &str = "sys/bus/pci/devices";

/// Two MI210, two Inferentia2 and two H100 without a driver in one machine.
pub(super) fn machine() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let file = "tests/fixtures/sysfs/mi210x2.tree";
    let amd = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    tree::write_tree(&directory.path().join("sys"), &fs::read_to_string(amd).unwrap());
    let neuron = Host {
        driver: "2.26.5.0",
        chip: INFERENTIA2,
        file_layout: FileLayout::Known,
        links: ring(2),
    };
    tree::write_tree(directory.path(), &neuron.tree());
    for bus in ["3b", "5e"] {
        let at = format!("{FUNCTIONS}/0000:{bus}:00.0");
        let files = format!(
            "{at}/vendor = 0x10de\\n\n{at}/device = 0x2330\\n\n{at}/class = 0x030200\\n\n{at}/numa_node = 1\\n\n\
             {at}/subsystem_vendor = 0x10de\\n\n{at}/subsystem_device = 0x16c1\\n\n"
        );
        tree::write_tree(directory.path(), &files);
        fs::write(directory.path().join(at).join("config"), [0; 256]).unwrap();
    }
    let name = "sys/class/dmi/id/product_name = Server 4U\\n";
    tree::write_tree(directory.path(), name);
    give(directory.path());
    directory
}

pub(super) fn handle(root: &Path) -> DriverHandle {
    start(&Settings {
        neuron_logical_config: root.join(SETTING),
        // Detects a reading that never ends, and is longer than any slow one.
        call_deadline: Duration::from_mins(2),
        // Named explicitly, or the loader returns the simulated library that another test has open.
        ..settings(root.join("no-driver/libnvidia-ml.so.1"), root.join("sys"))
    })
}

/// One reading by a new process without permissions.
pub(super) fn observe(root: &Path) -> Inventory {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    acting(|| runtime.block_on(async { Inventory::clone(&*handle(root).observe().await) }))
}

/// True if a path is one of these, an ancestor or a descendant.
fn concerns(path: &Path, own: &[String]) -> bool {
    own.iter().any(|own| path.starts_with(own) || Path::new(own).starts_with(path))
}

/// Files that a device of the bus is read from.
fn files_of(device: &Device) -> Vec<String> {
    let mut own = vec![format!("{FUNCTIONS}/{}", device.pci)];
    if device.vendor == Vendor::Amd {
        // In the fixture the first device is the last KFD node.
        let node = if device.pci.to_string() == "0000:03:00.0" { 3 } else { 2 };
        own.push(format!("sys/class/kfd/kfd/topology/nodes/{node}"));
        own.push("sys/module/amdgpu".to_owned());
    }
    own
}

fn files_of_neuron(device: &NeuronDevice) -> [String; 2] {
    let number = device.number;
    [
        format!("sys/devices/virtual/neuron_device/neuron{number}"),
        format!("sys/class/neuron_device/neuron{number}"),
    ]
}

/// A value is unchanged or not reported.
#[track_caller]
fn as_before<T: PartialEq + std::fmt::Debug>(now: Option<&T>, before: Option<&T>, place: &str) {
    assert!(now.is_none() || now == before, "{place}: {now:?}, {before:?}");
}

/// Error texts are short and contain no terminal control characters.
#[track_caller]
fn sound(problems: &[ReadProblem], place: &str) {
    assert!(problems.len() < 24, "{place}: {problems:?}");
    for problem in problems {
        let text = format!("{}: {}", problem.source, problem.error);
        assert!(text.len() < 400, "{place}: {text}");
        assert!(!text.contains(char::is_control), "{place}: {text:?}");
    }
}

fn check(now: &Inventory, before: &Inventory, path: &Path, fault: Fault) {
    let place = format!("{fault:?} at {}", path.display());
    // A reading that does not end would be reported as stalled.
    assert!(matches!(now.nvml, NvmlState::Absent { .. }), "{place}: {:?}", now.nvml);
    for known in &before.devices {
        let seen = now.devices.iter().find(|device| device.pci == known.pci);
        if !concerns(path, &files_of(known)) {
            assert_eq!(seen, Some(known), "{place}");
        }
        let Some(seen) = seen else { continue };
        sound(&seen.problems, &place);
        as_before(seen.memory.as_ref(), known.memory.as_ref(), &place);
        as_before(seen.numa_node.as_ref(), known.numa_node.as_ref(), &place);
        as_before(seen.product_name.as_ref(), known.product_name.as_ref(), &place);
    }
    assert!(now.devices.len() <= before.devices.len(), "{place}");
    check_neuron(now, before, path, &place);
    let dmi = ["sys/class/dmi/id/product_name".to_owned()];
    let bus = ["sys/bus/pci/devices/".to_owned()];
    if !concerns(path, &dmi) && !concerns(path, &bus) {
        assert_eq!(now.machine, before.machine, "{place}");
    }
    if let Some(error) = &now.machine.bus_error {
        assert!(concerns(path, &bus), "{place}: {error}");
    }
    as_before(now.machine.product_name.as_ref(), before.machine.product_name.as_ref(), &place);
}

fn check_neuron(now: &Inventory, before: &Inventory, path: &Path, place: &str) {
    let known = before.neuron.as_ref().unwrap();
    let Some(seen) = &now.neuron else {
        // Only the loss of all traces looks like a missing driver.
        assert_eq!(path, Path::new("sys"), "{place}");
        return;
    };
    for known in &known.devices {
        let of_it = |device: &&NeuronDevice| device.number == known.number;
        let seen = seen.devices.iter().find(of_it);
        if !concerns(path, &files_of_neuron(known)) {
            assert_eq!(seen, Some(known), "{place}");
        }
        let Some(seen) = seen else { continue };
        sound(&seen.problems, place);
        as_before(seen.cores.as_ref(), known.cores.as_ref(), place);
        as_before(seen.memory_used.as_ref(), known.memory_used.as_ref(), place);
        as_before(seen.connected.as_ref(), known.connected.as_ref(), place);
        as_before(seen.serial.as_ref(), known.serial.as_ref(), place);
        as_before(seen.device_name.as_ref(), known.device_name.as_ref(), place);
    }
    sound(&seen.problems, place);
    as_before(seen.driver_version.as_ref(), known.driver_version.as_ref(), place);
}

#[track_caller]
fn sweep(directory: &Path, least: usize) {
    let before = observe(directory);
    let of_devices = before.devices.iter().map(|device| &device.problems);
    let neuron = before.neuron.as_ref().unwrap();
    let of_neuron = neuron.devices.iter().map(|device| &device.problems);
    let mut problems = of_devices.chain(of_neuron).chain([&neuron.problems]);
    assert!(problems.all(Vec::is_empty), "{before:?}");
    let all: Vec<PathBuf> = paths(directory).into_iter().collect();
    assert!(all.len() > least, "{} paths", all.len());
    for path in &all {
        for fault in Fault::ALL {
            let Some(guard) = fault.inject(&directory.join(path)) else {
                continue;
            };
            check(&observe(directory), &before, path, fault);
            drop(guard);
        }
    }
    assert_eq!(observe(directory), before);
}

#[test]
fn one_failing_path_affects_only_its_documented_facts() {
    let directory = machine();
    let before = observe(directory.path());
    assert_eq!(before.devices.len(), 6);
    assert_eq!(before.neuron.unwrap().devices.len(), 2);
    sweep(directory.path(), 150);
}

#[test]
fn one_failing_path_affects_only_its_facts_with_moved_files() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host {
        driver: "2.31.7.0",
        chip: TRAINIUM1,
        file_layout: FileLayout::Moved,
        links: ring(2),
    };
    tree::write_tree(directory.path(), &host.tree());
    give(directory.path());
    sweep(directory.path(), 70);
}

#[test]
fn file_without_read_permission_is_reported_by_name() {
    let directory = machine();
    let denied = "Permission denied (os error 13)";
    for (file, of) in [
        ("sys/bus/pci/devices/0000:03:00.0/mem_info_vram_used", "mem_info_vram_used"),
        ("sys/devices/virtual/neuron_device/neuron1/connected_devices", "connected_devices"),
    ] {
        let _fault = Fault::Closed.inject(&directory.path().join(file)).unwrap();
        let found = observe(directory.path());
        let devices = found.devices.iter().map(|device| &device.problems);
        let neuron = found.neuron.iter().flat_map(|neuron| &neuron.devices);
        let all = devices.chain(neuron.map(|device| &device.problems));
        let reported: Vec<(&str, &str)> = all
            .flatten()
            .map(|problem| (problem.source.as_str(), problem.error.as_str()))
            .collect();
        assert_eq!(reported, [(of, denied)]);
    }
}
