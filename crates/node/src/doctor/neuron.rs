//! Checks of AWS Inferentia and Trainium: driver, devices and device files.
//!
//! The most frequent question about these devices is why a node offers none. There are four causes: none on the bus,
//! no driver, a driver without a device plugin, or a plugin that offers none. The first two are checked here, the
//! others in `kubelet`.

use std::collections::BTreeSet;

use octavo_model::inventory::{DriverLayout, Neuron, Vendor};

use super::drivers::{DriverStatus, VendorDriver, device_files};
use super::facts::Facts;
use super::{Check, Finding, Subject, count_noun};

pub(super) const NEURON: VendorDriver = VendorDriver {
    vendor: Vendor::Aws,
    name: "AWS Neuron",
    check: Check::NeuronDriver,
    module: "neuron",
    remedy: "install the package aws-neuronx-dkms for this kernel (AWS's Neuron images include \
             it) and load it with `modprobe neuron`. It must be rebuilt for a new kernel; `dkms \
             status` lists the kernels it was built for",
};

/// First-generation Inferentia, which drivers from 2.22 on do not support. Source: AWS Neuron SDK, release notes of
/// 2.26; PCI ids of the driver.
const INF1_DEVICE_IDS: [u16; 4] = [0x7064, 0x7065, 0x7066, 0x7067];
const LAST_RELEASE_WITH_INF1: (u64, u64) = (2, 21);

const DEVICE_CLASS_DIR: &str = "class/neuron_device";

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let status = NEURON.status(facts);
    let devices = devices(facts, &status);
    let files = files(facts, &status);
    let driver = unsupported_device_finding(facts, &status).unwrap_or(status.finding);
    let mut all = vec![driver, devices];
    all.extend(problems(facts));
    all.push(files);
    all
}

/// Problems of the driver that do not concern a single device. The number of devices is compared with the bus above.
fn problems(facts: &Facts<'_>) -> Vec<Finding> {
    let neuron = facts.inventory.neuron.iter();
    let problems = neuron.flat_map(|neuron| &neuron.problems);
    let others = problems.filter(|problem| problem.source != Neuron::COUNT_MISMATCH);
    let remedy = "fix the reported problem, or make the data readable (run as root if permission \
                  is denied). Until then, dependent values are omitted";
    others
        .map(|problem| {
            let evidence = format!("{}: {}", problem.source, problem.error);
            Check::NeuronDevices.warning(Subject::Node, evidence, remedy)
        })
        .collect()
}

/// Numbers of the driver's devices; `None` if unknown.
fn driver_device_numbers(facts: &Facts<'_>) -> Option<BTreeSet<u32>> {
    if let Some(neuron) = &facts.inventory.neuron {
        return Some(neuron.devices.iter().map(|device| device.number).collect());
    }
    let traces = facts.traces.as_ref().ok()?;
    Some(traces.neuron.clone())
}

/// Number of devices that the driver reports; `None` if unknown.
pub(super) fn count(facts: &Facts<'_>) -> Option<usize> {
    driver_device_numbers(facts).map(|shown| shown.len())
}

/// Version of the driver, if known.
pub(super) fn version<'a>(facts: &'a Facts<'_>) -> Option<&'a str> {
    let reported = facts.inventory.neuron.as_ref();
    let reported = reported.and_then(|neuron| neuron.driver_version.as_deref());
    let module = || {
        let modules = &facts.traces.as_ref().ok()?.modules;
        modules.get(NEURON.module)?.as_deref()
    };
    reported.or_else(module)
}

/// First two numbers of a version.
pub(super) fn release(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split('.').map(str::parse::<u64>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn unsupported_device_finding(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Option<Finding> {
    let mut first = status.devices.iter();
    first.find(|device| INF1_DEVICE_IDS.contains(&device.pci_ids.device))?;
    let text = version(facts)?;
    if release(text)? <= LAST_RELEASE_WITH_INF1 {
        return None;
    }
    let evidence = format!(
        "driver {text} is loaded, which does not support first-generation Inferentia \
                 (Inf1)"
    );
    let remedy = "install aws-neuronx-dkms 2.21, the last version that supports it";
    Some(Check::NeuronDriver.failing(Subject::Node, evidence, remedy))
}

fn devices(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
    let check = Check::NeuronDevices;
    if status.count == 0 {
        return check.not_applicable(NEURON.no_devices_evidence());
    }
    if !status.is_working() {
        return check.not_applicable("the driver that reports them is not known to be loaded");
    }
    let Some(shown) = driver_device_numbers(facts) else {
        return check.unknown(Subject::Node, "the devices of the driver are unknown");
    };
    let (shown, functions) = (shown.len(), status.devices.len());
    let directory = format!("{}/{DEVICE_CLASS_DIR}", facts.roots.sys);
    let evidence = format!(
        "{} in {directory}, {} on the bus",
        count_noun(shown, "device", "devices"),
        count_noun(functions, "function", "functions")
    );
    if shown < functions {
        let remedy = "`dmesg | grep -i neuron` shows which device the driver gave up on, and why. \
                      If it found no device, rebuild the driver for this kernel (reinstall \
                      aws-neuronx-dkms) and reboot. If a device stays missing, replace the \
                      instance and contact the cloud provider";
        return check.failing(Subject::Node, evidence, remedy);
    }
    if shown > functions {
        let remedy =
            "the bus is not completely visible here: mount the host's /sys, and set --sys-root";
        return check.warning(Subject::Node, evidence, remedy);
    }
    let layout = facts.inventory.neuron.as_ref();
    if layout.is_some_and(|neuron| neuron.driver_layout == DriverLayout::Unknown) {
        let version = version(facts).unwrap_or("of an unknown version");
        let evidence = format!("{evidence}; driver {version} has files at unknown paths");
        let remedy = "missing values are omitted, and all others are valid; report the driver version to \
             the Octavo project";
        return check.warning(Subject::Node, evidence, remedy);
    }
    check.ok(Subject::Node, evidence)
}

fn files(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
    let check = Check::NeuronDeviceFiles;
    if status.count == 0 {
        return check.not_applicable(NEURON.no_devices_evidence());
    }
    let shown =
        driver_device_numbers(facts).filter(|shown| status.is_working() && !shown.is_empty());
    let Some(shown) = shown else {
        return check.not_applicable("the driver reports no devices, or cannot be read");
    };
    let wanted = shown.iter().map(|number| format!("neuron{number}"));
    device_files(facts, check, wanted, |evidence| {
        check.failing(
            Subject::Node,
            evidence,
            "the kernel creates them with the devices. On the host, reload the driver while no \
             process uses the devices (`modprobe -r neuron && modprobe neuron`). Outside the \
             host, set --dev-root to the host's /dev directory",
        )
    })
}
