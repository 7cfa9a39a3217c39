//! This machine, whatever its hardware: the output of the programs is compared with an independent reading of the same
//! files.
//!
//! That reading uses only class and vendor. Its exceptions are common knowledge: consoles of servers and virtual
//! machines and Intel's integrated graphics are no accelerators.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use octavo_files::inventory;
use octavo_model::inventory::{Condition, Inventory};
use octavo_node::doctor::CheckResult::{Failing, NotApplicable, Ok as Fine, Unknown, Warning};
use octavo_node::doctor::Subject;

use super::{Diagnosis, octavo};
use crate::time_limits::Finish;

const BUS: &str = "/sys/bus/pci/devices";
/// Vendors of accelerators with their kernel module and its check.
const MAKERS: [(u32, &str, &str); 3] = [
    (0x10de, "nvidia", "nvidia-driver"),
    (0x1002, "amdgpu", "amd-driver"),
    (0x1d0f, "neuron", "neuron-driver"),
];
/// Drivers that reserve devices for virtual machines.
const SET_ASIDE: [&str; 3] = ["vfio-pci", "pci-stub", "pciback"];

/// A function on the bus.
#[derive(Debug)]
struct Function {
    vendor: u32,
    device: u32,
    class: u32,
    driver: Option<String>,
    is_virtual: bool,
}

fn bus() -> BTreeMap<String, Function> {
    let entries = fs::read_dir(BUS).into_iter().flatten().flatten();
    let all = entries.map(|entry| {
        let hex = |file: &str| {
            let text = fs::read_to_string(entry.path().join(file)).unwrap();
            u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap()
        };
        let driver = fs::read_link(entry.path().join("driver")).ok();
        let function = Function {
            vendor: hex("vendor"),
            device: hex("device"),
            class: hex("class") >> 8,
            driver: driver.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()),
            is_virtual: entry.path().join("physfn").exists(),
        };
        (entry.file_name().into_string().unwrap(), function)
    });
    all.collect()
}

impl Function {
    /// True if it is an accelerator: a processing accelerator or 3D controller of one of these vendors, or a chip of
    /// Amazon.
    fn is_certain(&self) -> bool {
        let is_vendor = MAKERS.iter().any(|(vendor, ..)| *vendor == self.vendor);
        let is_neuron = self.vendor == 0x1d0f && (0x7064..=0x75ff).contains(&self.device);
        let is_class = [0x0302, 0x1200].contains(&self.class) && self.vendor != 0x1d0f;
        !self.is_virtual && (is_neuron || (is_vendor && is_class))
    }

    /// True if it may be an accelerator.
    fn is_possible(&self) -> bool {
        let is_display = [0x0300, 0x0302, 0x0380, 0x1200].contains(&self.class);
        is_display || self.vendor == 0x1d0f
    }

    fn is_set_aside(&self) -> bool {
        let driver = self.driver.as_deref();
        driver.is_some_and(|driver| SET_ASIDE.contains(&driver))
    }
}

fn inspected() -> Inventory {
    let output = octavo(&["inspect", "-o", "json"]).finish();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    inventory::parse(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

fn diagnosis() -> Diagnosis {
    Diagnosis::of(&octavo(&["doctor", "-o", "json"]).finish())
}

#[test]
fn real_machine_inspect_shows_exactly_the_bus_devices() {
    let bus = bus();
    let shown: BTreeMap<String, (u32, u32)> = inspected()
        .devices
        .iter()
        .map(|device| {
            let ids = device.pci_ids;
            (device.pci.to_string(), (ids.vendor.into(), ids.device.into()))
        })
        .collect();
    for (address, ids) in &shown {
        let function = bus.get(address);
        let function = function.unwrap_or_else(|| panic!("{address} is not in {BUS}: {bus:?}"));
        assert_eq!(*ids, (function.vendor, function.device), "{address}");
        assert!(function.is_possible(), "{address}: {function:?}");
    }
    let certain = bus.iter().filter(|(_, function)| function.is_certain());
    for (address, function) in certain {
        assert!(shown.contains_key(address), "{address}: {function:?}");
    }
}

#[test]
fn real_machine_doctor_agrees_with_kernel_about_drivers() {
    let (bus, inventory, reported) = (bus(), inspected(), diagnosis());
    let shown: BTreeSet<String> =
        inventory.devices.iter().map(|device| device.pci.to_string()).collect();
    let accelerators = reported.of_check("accelerators");
    if shown.is_empty() {
        let has_bus = Path::new(BUS).is_dir();
        let expected = if has_bus { NotApplicable } else { Unknown };
        assert_eq!(reported.only("accelerators").verdict, expected);
        assert_eq!(reported.code, Some(0), "{:#?}", reported.findings);
    } else {
        assert_eq!(accelerators[0].verdict, Fine);
    }
    for (vendor, module, check) in MAKERS {
        let functions = bus.iter().filter(|(address, function)| {
            function.vendor == vendor && shown.contains(*address) && !function.is_set_aside()
        });
        let verdict = reported.only(check).verdict;
        let is_loaded = Path::new("/sys/module").join(module).is_dir();
        // A sandbox may hide modules while its driver responds.
        let devices = inventory.devices.iter();
        let mut of_vendor = devices.filter(|device| u32::from(device.pci_ids.vendor) == vendor);
        let answers = of_vendor.any(|device| device.condition == Condition::Working);
        match (functions.count(), is_loaded || answers) {
            (0, _) => assert_eq!(verdict, NotApplicable, "{check}"),
            // A driver that does not support the device fails with that reason.
            (_, true) => assert!([Fine, Failing].contains(&verdict), "{check}"),
            (_, false) => assert_eq!(verdict, Failing, "{check}"),
        }
    }
    let bound = reported.of_check("kernel-driver");
    for finding in bound.iter().filter(|finding| finding.subject != Subject::Node) {
        let function = &bus[&finding.subject.to_string()];
        match &function.driver {
            None => assert!([Warning, Failing].contains(&finding.verdict), "{finding:?}"),
            Some(_) if function.is_set_aside() => assert_eq!(finding.verdict, Fine, "{finding:?}"),
            // Its driver responds or is named.
            Some(driver) => {
                assert!(
                    finding.evidence.contains(driver) || finding.verdict == Fine,
                    "{finding:?}"
                );
            }
        }
    }
    let subjects: BTreeSet<String> =
        bound.iter().map(|finding| finding.subject.to_string()).collect();
    let nothing = BTreeSet::from(["node".to_owned()]);
    assert_eq!(subjects, if shown.is_empty() { nothing } else { shown });
}

#[test]
fn real_machine_reports_no_missing_component_as_healthy() {
    let reported = diagnosis();
    let is_well = |check: &str| reported.of_check(check).iter().any(|one| one.verdict == Fine);
    let is_there = |path: &str| Path::new(path).exists();
    for (check, path) in [
        ("nvidia-device-files", "/dev/nvidiactl"),
        ("neuron-device-files", "/dev/neuron0"),
        ("amd-device-files", "/dev/kfd"),
        ("neuron-devices", "/sys/class/neuron_device"),
        ("device-plugin", "/var/lib/kubelet"),
        ("allocatable", "/var/lib/kubelet"),
        ("control-groups", "/sys/fs/cgroup"),
        ("layout", "/var/lib/octavo"),
    ] {
        assert!(is_there(path) || !is_well(check), "{check}: {:#?}", reported.of_check(check));
    }
}

#[test]
fn real_machine_table_and_document_agree() {
    let reported = diagnosis();
    let table = octavo(&["doctor"]).finish();
    assert_eq!(table.status.code(), reported.code);
    let table = String::from_utf8(table.stdout).unwrap();
    let failing = reported.findings.iter().filter(|one| one.verdict == Failing);
    let sentence = format!("{} findings: {} failing", reported.findings.len(), failing.count());
    assert!(table.contains(&sentence), "{table}");
    let yaml = octavo(&["doctor", "-o", "yaml"]).finish();
    let yaml = String::from_utf8(yaml.stdout).unwrap();
    assert!(yaml.contains("kind: Diagnosis"), "{yaml}");
}
