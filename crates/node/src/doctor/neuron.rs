//! Checks of AWS Inferentia and Trainium: driver, devices and device files.
//!
//! The most frequent question about these devices is why a node offers none. There are four causes: none on the bus,
//! no driver, a driver without a device plugin, or a plugin that offers none. The first two are checked here, the
//! others in `kubelet`.

use std::collections::BTreeSet;

use octavo_model::inventory::{DriverLayout, Neuron, Vendor};

use super::drivers::{DriverStatus, VendorDriver};
use super::facts::Facts;
use super::{Check, Finding, Subject, format_count, format_list};

pub(super) const NEURON: VendorDriver = VendorDriver {
    vendor: Vendor::Aws,
    name: "AWS Neuron",
    check: Check::NeuronDriver,
    module: "neuron",
    remedy: "install the package aws-neuronx-dkms for this kernel (images that AWS builds for Neuron have it) and load it with \
             `modprobe neuron`; after a new kernel it has to be built again: `dkms status` says for which it is",
};

/// First-generation Inferentia, which drivers from 2.22 on do not support. Source: AWS Neuron SDK, release notes of
/// 2.26; PCI ids of the driver.
const INF1_DEVICE_IDS: [u16; 4] = [0x7064, 0x7065, 0x7066, 0x7067];
const LAST_RELEASE_WITH_INF1: (u64, u64) = (2, 21);

const DEVICE_CLASS_DIR: &str = "class/neuron_device";

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let standing = NEURON.status(facts);
    let devices = devices(facts, &standing);
    let files = files(facts, &standing);
    let driver = unsupported_device_finding(facts, &standing).unwrap_or(standing.finding);
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
    let remedy = "mend what it names, or have it be read (run as root where it is a matter of rights): until then what depends on it is left out";
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
    let told = facts.inventory.neuron.as_ref();
    let told = told.and_then(|neuron| neuron.driver_version.as_deref());
    let module = || {
        let modules = &facts.traces.as_ref().ok()?.modules;
        modules.get(NEURON.module)?.as_deref()
    };
    told.or_else(module)
}

/// First two numbers of a version.
pub(super) fn release(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split('.').map(str::parse::<u64>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn unsupported_device_finding(facts: &Facts<'_>, standing: &DriverStatus<'_>) -> Option<Finding> {
    let mut first = standing.devices.iter();
    first.find(|device| INF1_DEVICE_IDS.contains(&device.pci_ids.device))?;
    let text = version(facts)?;
    if release(text)? <= LAST_RELEASE_WITH_INF1 {
        return None;
    }
    let evidence =
        format!("driver {text} is loaded, and knows no Inferentia of the first generation (Inf1)");
    let remedy = "install aws-neuronx-dkms 2.21, the last that does";
    Some(Check::NeuronDriver.failing(Subject::Node, evidence, remedy))
}

fn devices(facts: &Facts<'_>, standing: &DriverStatus<'_>) -> Finding {
    let check = Check::NeuronDevices;
    if standing.count == 0 {
        return check.not_applicable(NEURON.no_devices_evidence());
    }
    if !standing.is_working() {
        return check.not_applicable("the driver, which shows them, is not known to be loaded");
    }
    let Some(shown) = driver_device_numbers(facts) else {
        return check.unknown(Subject::Node, "nobody tells what the driver shows");
    };
    let (shown, functions) = (shown.len(), standing.devices.len());
    let folder = format!("{}/{DEVICE_CLASS_DIR}", facts.roots.sys);
    let evidence = format!(
        "{} in {folder}, {} on the bus",
        format_count(shown, "device", "devices"),
        format_count(functions, "function", "functions")
    );
    if shown < functions {
        let remedy = "`dmesg | grep -i neuron` says which one the driver gave up on, and why; if it took none, build it again for this kernel \
                      (reinstall aws-neuronx-dkms) and reboot. A function that stays away is a case for the cloud's support: replace the instance";
        return check.failing(Subject::Node, evidence, remedy);
    }
    if shown > functions {
        let remedy =
            "the bus is not shown whole here: mount the host's /sys, and name it with --sys-root";
        return check.warning(Subject::Node, evidence, remedy);
    }
    let layout = facts.inventory.neuron.as_ref();
    if layout.is_some_and(|neuron| neuron.driver_layout == DriverLayout::Unknown) {
        let version = version(facts).unwrap_or("of an unknown version");
        let evidence = format!(
            "{evidence}; driver {version} has its files elsewhere than those that are known"
        );
        let remedy =
            "what is not found there is left out, and all else holds; report the driver's version";
        return check.warning(Subject::Node, evidence, remedy);
    }
    check.ok(Subject::Node, evidence)
}

fn files(facts: &Facts<'_>, standing: &DriverStatus<'_>) -> Finding {
    let check = Check::NeuronDeviceFiles;
    if standing.count == 0 {
        return check.not_applicable(NEURON.no_devices_evidence());
    }
    let shown =
        driver_device_numbers(facts).filter(|shown| standing.is_working() && !shown.is_empty());
    let Some(shown) = shown else {
        return check.not_applicable("the driver is not known to show a device");
    };
    let files = match &facts.files {
        Ok(files) => files,
        Err(why) => return check.unknown(Subject::Node, why.clone()),
    };
    let wanted = shown.iter().map(|number| format!("neuron{number}"));
    let (there, missing): (Vec<String>, Vec<String>) =
        wanted.partition(|name| files.0.contains(name));
    let dev = &facts.roots.dev;
    if missing.is_empty() {
        return check.ok(Subject::Node, format!("{dev} has {}", format_list(&there)));
    }
    check.failing(
        Subject::Node,
        format!("{dev} has no {}", format_list(&missing)),
        "the kernel makes them with the devices: on the host itself load the driver again (`modprobe -r neuron && modprobe neuron`, while nobody \
         uses them); elsewhere name the host's folder with --dev-root",
    )
}
