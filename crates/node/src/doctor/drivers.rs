//! Checks of vendors' kernel drivers.

use std::collections::BTreeSet;

use octavo_model::inventory::{Device, DriverLayout, Neuron, NvmlState, Vendor};

use super::facts::{Facts, ModuleState};
use super::{Check, CheckResult, Finding, count_noun, format_list};

/// Kernel driver of a vendor.
#[derive(Debug, Clone, Copy)]
pub(super) struct VendorDriver {
    pub(super) vendor: Vendor,
    /// Name of the vendor's devices.
    pub(super) name: &'static str,
    pub(super) check: Check,
    /// Kernel module.
    pub(super) module: &'static str,
    /// How to install the driver.
    pub(super) remedy: &'static str,
}

/// State of a vendor's driver on this node.
#[derive(Debug)]
pub(super) struct DriverStatus<'a> {
    /// The vendor's devices on this node.
    pub(super) devices: Vec<&'a Device>,
    /// Number of devices, including those that the driver reports but the bus does not show.
    pub(super) count: usize,
    pub(super) loaded: ModuleState,
    pub(super) finding: Finding,
}

impl VendorDriver {
    /// Determines the state of the driver on this node.
    pub(super) fn status<'a>(&self, facts: &'a Facts<'_>) -> DriverStatus<'a> {
        let devices = facts.usable_devices(self.vendor);
        let reported = facts.driver_device_count(self.vendor);
        let count = devices.len().max(reported);
        let mut loaded = facts.module_state(self.module, &devices);
        if reported > 0 && !matches!(loaded, ModuleState::Yes(_)) {
            loaded = ModuleState::Yes("it reports its devices".to_owned());
        }
        DriverStatus { finding: self.finding(facts, count, &loaded), devices, count, loaded }
    }

    /// Evidence for a node without devices of this vendor.
    pub(super) fn no_devices_evidence(&self) -> String {
        format!("this machine has no usable {} device", self.name)
    }

    fn finding(&self, facts: &Facts<'_>, count: usize, loaded: &ModuleState) -> Finding {
        if count == 0 {
            return self.check.not_applicable(self.no_devices_evidence());
        }
        let devices = count_noun(count, "device", "devices");
        let devices = format!("{devices} of {}", self.name);
        match loaded {
            ModuleState::Yes(how) => self.check.ok(how.clone()),
            ModuleState::No(how) => {
                let evidence = format!("{devices}, but the driver is not loaded: {how}");
                let module = self.module;
                if facts.is_module_available(module) == Some(true) {
                    let remedy = format!(
                        "load it: `modprobe {module}`. If that fails, `dmesg | tail` shows why. \
                         If it succeeds, find out why it was not loaded at boot: `grep -r \
                         {module} /etc/modprobe.d`"
                    );
                    return self.check.failing(evidence, &remedy);
                }
                self.check.failing(evidence, self.remedy)
            }
            ModuleState::Unknown(why) => {
                let evidence = format!("{devices}, but the state of the driver is unknown: {why}");
                self.check.unknown(evidence)
            }
        }
    }
}

impl DriverStatus<'_> {
    /// Returns `true` if there are devices and their driver is certainly loaded.
    pub(super) fn is_working(&self) -> bool {
        self.count > 0 && matches!(self.loaded, ModuleState::Yes(_))
    }
}

/// Compares the device files that a driver's devices need with those that exist. `missing` creates the finding for the
/// evidence that some are missing.
pub(super) fn device_files(
    facts: &Facts<'_>,
    check: Check,
    wanted: impl Iterator<Item = String>,
    missing: impl FnOnce(String) -> Finding,
) -> Finding {
    let files = match &facts.files {
        Ok(files) => files,
        Err(why) => return check.unknown(why.clone()),
    };
    let (present, absent): (Vec<String>, Vec<String>) =
        wanted.partition(|name| files.0.contains(name));
    let dev = &facts.roots.dev;
    if absent.is_empty() {
        return check.ok(format!("{dev} has {}", format_list(&present)));
    }
    missing(format!("{dev} has no {}", format_list(&absent)))
}

pub(super) const NVIDIA: VendorDriver = VendorDriver {
    vendor: Vendor::Nvidia,
    name: "NVIDIA",
    check: Check::NvidiaDriver,
    module: "nvidia",
    remedy: "install NVIDIA's driver for this kernel (or let GPU Operator install it, \
             driver.enabled) and load it with `modprobe nvidia`; `dmesg | grep -i nvrm` shows why \
             it does not load",
};

pub(super) fn nvidia_findings(facts: &Facts<'_>) -> Vec<Finding> {
    let status = NVIDIA.status(facts);
    let library = nvidia_library(facts, &status);
    let files = nvidia_device_files(facts, &status);
    vec![status.finding, library, files]
}

fn nvidia_library(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
    let check = Check::NvidiaLibrary;
    // A library that hangs before reporting a device exists nevertheless.
    let hangs = matches!(&facts.inventory.nvml, NvmlState::Stalled { call, .. } if call != NvmlState::READING_SYS);
    if status.devices.is_empty() && !hangs {
        return check.not_applicable(NVIDIA.no_devices_evidence());
    }
    match &facts.inventory.nvml {
        NvmlState::Ready(driver) => {
            let cuda = driver.cuda.as_ref();
            let cuda = cuda.map(|cuda| format!(", CUDA {cuda}")).unwrap_or_default();
            let version = &driver.version;
            check.ok(format!("NVML responds: driver {version}{cuda}"))
        }
        NvmlState::Loading => check.unknown("NVML is initializing"),
        NvmlState::Absent { reason } if status.is_working() => check.failing(
            reason.clone(),
            "install libnvidia-ml.so.1 of exactly the driver's version (part of the driver \
             package); for a driver in a container, set --driver-root to its root directory",
        ),
        NvmlState::Absent { reason } => check.not_applicable(format!(
            "NVML is part of the driver, which is not installed: {reason}"
        )),
        NvmlState::Lost { reason } => check.failing(
            format!("NVML responded before: {reason}"),
            "load the driver again; the last known state is shown",
        ),
        NvmlState::Stalled { call, .. } => {
            check.failing(format!("{call} does not return"), NvmlState::remedy_of_stall(call))
        }
    }
}

fn nvidia_device_files(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
    let check = Check::NvidiaDeviceFiles;
    if status.devices.is_empty() {
        return check.not_applicable(NVIDIA.no_devices_evidence());
    }
    if !status.is_working() {
        return check.not_applicable("the driver that creates them is not known to be loaded");
    }
    let minors = status.devices.iter().filter_map(|device| device.minor);
    let wanted = ["nvidiactl", "nvidia-uvm"].map(ToOwned::to_owned).into_iter();
    let wanted = wanted.chain(minors.map(|minor| format!("nvidia{minor}")));
    // The container runtime creates missing files if it is permitted to, so missing files do not prove a failure.
    device_files(facts, check, wanted, |evidence| {
        check.warning(
            evidence,
            "run `nvidia-smi` as root to create the files of GPUs, and `nvidia-modprobe -u` to \
             create nvidia-uvm. For a driver in a container, set --dev-root to the /dev of its \
             root directory",
        )
    })
}

pub(super) const AMD: VendorDriver = VendorDriver {
    vendor: Vendor::Amd,
    name: "AMD",
    check: Check::AmdDriver,
    module: "amdgpu",
    remedy: "load it with `modprobe amdgpu`, or install amdgpu-dkms (AMD's GPU Operator does so \
             with spec.driver.enable). A `blacklist amdgpu` in modprobe.d, which that operator \
             requires, prevents the kernel's own driver from loading",
};

/// Device file of compute access; without it `ROCm` does not work.
const KFD_DEVICE_FILE: &str = "kfd";

pub(super) fn amd_findings(facts: &Facts<'_>) -> Vec<Finding> {
    let status = AMD.status(facts);
    let files = amd_device_files(facts, &status);
    vec![status.finding, files]
}

/// Remedy for missing device files.
const MISSING_FILES_REMEDY: &str = "the kernel creates them with the devices. kfd needs CONFIG_HSA_AMD, which some container \
     operating systems lack. Outside the host, set --dev-root to the host's /dev directory";
/// Remedy for an unreadable KFD topology.
const UNREADABLE_TOPOLOGY_REMEDY: &str = "its files are normally world-readable: run this command as root, and check the file modes \
     and what blocks access to sysfs (SELinux, AppArmor, a mount of the container that hides it)";

/// Reason why the KFD topology is unknown.
fn kfd_error<'a>(facts: &'a Facts<'_>) -> Option<&'a str> {
    facts.traces.as_ref().ok()?.kfd_error.as_deref()
}

fn amd_device_files(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
    let check = Check::AmdDeviceFiles;
    if status.devices.is_empty() {
        return check.not_applicable(AMD.no_devices_evidence());
    }
    if !status.is_working() {
        return check.not_applicable("the driver that creates them is not known to be loaded");
    }
    let sys = &facts.roots.sys;
    let kfd_error = kfd_error(facts).map(|why| format!("; cannot read {sys}/class/kfd: {why}"));
    let partitions = status.devices.iter().filter_map(|device| device.amd.as_ref());
    let partitions = partitions.flat_map(|amd| &amd.partitions);
    let renders = partitions.map(|part| format!("dri/renderD{}", part.render_minor));
    let wanted = [KFD_DEVICE_FILE.to_owned()].into_iter().chain(renders);
    let finding = device_files(facts, check, wanted, |evidence| {
        let nodes = facts.traces.as_ref().map(|traces| traces.kfd_nodes);
        let (topology, first) = match (&kfd_error, nodes) {
            (Some(error), _) => (error.clone(), format!("{UNREADABLE_TOPOLOGY_REMEDY}. Then: ")),
            (None, Ok(0)) => (format!("; {sys}/class/kfd shows no topology"), String::new()),
            (None, Ok(_) | Err(_)) => (String::new(), String::new()),
        };
        check.failing(format!("{evidence}{topology}"), &format!("{first}{MISSING_FILES_REMEDY}"))
    });
    match &kfd_error {
        // The KFD topology is unknown, so more files could be missing.
        Some(error) if finding.verdict == CheckResult::Ok => {
            let evidence = format!("{}{error}", finding.evidence);
            check.warning(evidence, UNREADABLE_TOPOLOGY_REMEDY)
        }
        Some(_) | None => finding,
    }
}

// Checks of AWS Inferentia and Trainium: driver, devices and device files.
//
// The most frequent question about these devices is why a node offers none. There are four causes: none on the bus,
// no driver, a driver without a device plugin, or a plugin that offers none. The first two are checked here, the
// others in `kubelet`.

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

pub(super) fn neuron_findings(facts: &Facts<'_>) -> Vec<Finding> {
    let status = NEURON.status(facts);
    let devices = neuron_devices_finding(facts, &status);
    let files = neuron_device_files(facts, &status);
    let driver = unsupported_device_finding(facts, &status).unwrap_or(status.finding);
    let mut all = vec![driver, devices];
    all.extend(neuron_problems(facts));
    all.push(files);
    all
}

/// Problems of the driver that do not concern a single device. The number of devices is compared with the bus above.
fn neuron_problems(facts: &Facts<'_>) -> Vec<Finding> {
    let neuron = facts.inventory.neuron.iter();
    let problems = neuron.flat_map(|neuron| &neuron.problems);
    let others = problems.filter(|problem| problem.source != Neuron::COUNT_MISMATCH);
    let remedy = "fix the reported problem, or make the data readable (run as root if permission \
                  is denied). Until then, dependent values are omitted";
    others
        .map(|problem| {
            let evidence = format!("{}: {}", problem.source, problem.error);
            Check::NeuronDevices.warning(evidence, remedy)
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
pub(super) fn neuron_count(facts: &Facts<'_>) -> Option<usize> {
    driver_device_numbers(facts).map(|shown| shown.len())
}

/// Version of the driver, if known.
pub(super) fn neuron_version<'a>(facts: &'a Facts<'_>) -> Option<&'a str> {
    let reported = facts.inventory.neuron.as_ref();
    let reported = reported.and_then(|neuron| neuron.driver_version.as_deref());
    let module = || {
        let modules = &facts.traces.as_ref().ok()?.modules;
        modules.get(NEURON.module)?.as_deref()
    };
    reported.or_else(module)
}

/// First two numbers of a version.
pub(super) fn neuron_release(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split('.').map(str::parse::<u64>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn unsupported_device_finding(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Option<Finding> {
    let mut first = status.devices.iter();
    first.find(|device| INF1_DEVICE_IDS.contains(&device.pci_ids.device))?;
    let text = neuron_version(facts)?;
    if neuron_release(text)? <= LAST_RELEASE_WITH_INF1 {
        return None;
    }
    let evidence = format!(
        "driver {text} is loaded, which does not support first-generation Inferentia \
                 (Inf1)"
    );
    let remedy = "install aws-neuronx-dkms 2.21, the last version that supports it";
    Some(Check::NeuronDriver.failing(evidence, remedy))
}

fn neuron_devices_finding(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
    let check = Check::NeuronDevices;
    if status.count == 0 {
        return check.not_applicable(NEURON.no_devices_evidence());
    }
    if !status.is_working() {
        return check.not_applicable("the driver that reports them is not known to be loaded");
    }
    let Some(shown) = driver_device_numbers(facts) else {
        return check.unknown("the devices of the driver are unknown");
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
        return check.failing(evidence, remedy);
    }
    if shown > functions {
        let remedy =
            "the bus is not completely visible here: mount the host's /sys, and set --sys-root";
        return check.warning(evidence, remedy);
    }
    let layout = facts.inventory.neuron.as_ref();
    if layout.is_some_and(|neuron| neuron.driver_layout == DriverLayout::Unknown) {
        let version = neuron_version(facts).unwrap_or("of an unknown version");
        let evidence = format!("{evidence}; driver {version} has files at unknown paths");
        let remedy = "missing values are omitted, and all others are valid; report the driver version to \
             the Octavo project";
        return check.warning(evidence, remedy);
    }
    check.ok(evidence)
}

fn neuron_device_files(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
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
            evidence,
            "the kernel creates them with the devices. On the host, reload the driver while no \
             process uses the devices (`modprobe -r neuron && modprobe neuron`). Outside the \
             host, set --dev-root to the host's /dev directory",
        )
    })
}
