//! Checks of NVIDIA's driver, its library and its device files.

use octavo_model::inventory::{NvmlState, Vendor};

use super::drivers::{DriverStatus, VendorDriver};
use super::facts::Facts;
use super::{Check, Finding, Subject, format_list};

pub(super) const NVIDIA: VendorDriver = VendorDriver {
    vendor: Vendor::Nvidia,
    name: "NVIDIA",
    check: Check::NvidiaDriver,
    module: "nvidia",
    remedy: "install NVIDIA's driver for this kernel (or have GPU Operator do it, driver.enabled) and load it with `modprobe nvidia`; \
             `dmesg | grep -i nvrm` says why it does not load",
};

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let standing = NVIDIA.status(facts);
    let library = library(facts, &standing);
    let files = files(facts, &standing);
    vec![standing.finding, library, files]
}

fn library(facts: &Facts<'_>, standing: &DriverStatus<'_>) -> Finding {
    let check = Check::NvidiaLibrary;
    // A library that hangs before reporting a device exists nevertheless.
    let hangs = matches!(&facts.inventory.nvml, NvmlState::Stalled { call, .. } if call != NvmlState::READING_SYS);
    if standing.devices.is_empty() && !hangs {
        return check.not_applicable(NVIDIA.no_devices_evidence());
    }
    match &facts.inventory.nvml {
        NvmlState::Ready(driver) => {
            let cuda = driver.cuda.as_ref();
            let cuda = cuda.map(|cuda| format!(", CUDA {cuda}")).unwrap_or_default();
            let version = &driver.version;
            check.ok(Subject::Node, format!("NVML answers: driver {version}{cuda}"))
        }
        NvmlState::Loading => check.unknown(Subject::Node, "NVML is being initialised"),
        NvmlState::Absent { reason } if standing.is_working() => check.failing(
            Subject::Node,
            reason.clone(),
            "put libnvidia-ml.so.1 of the driver's very version beside it (the driver's package has it); where the driver is a container's, \
             name its root with --driver-root",
        ),
        NvmlState::Absent { reason } => {
            check.not_applicable(format!("it comes with the driver, which is not there: {reason}"))
        }
        NvmlState::Lost { reason } => check.failing(
            Subject::Node,
            format!("NVML answered before: {reason}"),
            "load the driver again; what was read before is what is shown",
        ),
        NvmlState::Stalled { call, .. } => check.failing(
            Subject::Node,
            format!("{call} does not return"),
            NvmlState::remedy_of_stall(call),
        ),
    }
}

fn files(facts: &Facts<'_>, standing: &DriverStatus<'_>) -> Finding {
    let check = Check::NvidiaDeviceFiles;
    if standing.devices.is_empty() {
        return check.not_applicable(NVIDIA.no_devices_evidence());
    }
    if !standing.is_working() {
        return check.not_applicable("the driver, which has them, is not known to be loaded");
    }
    let minors = standing.devices.iter().filter_map(|device| device.minor);
    let wanted: Vec<String> = ["nvidiactl", "nvidia-uvm"]
        .map(ToOwned::to_owned)
        .into_iter()
        .chain(minors.map(|minor| format!("nvidia{minor}")))
        .collect();
    let files = match &facts.files {
        Ok(files) => files,
        Err(why) => return check.unknown(Subject::Node, why.clone()),
    };
    let (there, missing): (Vec<String>, Vec<String>) =
        wanted.into_iter().partition(|name| files.0.contains(name));
    let dev = &facts.roots.dev;
    if missing.is_empty() {
        return check.ok(Subject::Node, format!("{dev} has {}", format_list(&there)));
    }
    // The container runtime creates missing files if it is permitted to, so missing files do not prove a failure.
    check.warning(
        Subject::Node,
        format!("{dev} has no {}", format_list(&missing)),
        "`nvidia-smi` as root makes those of GPUs, `nvidia-modprobe -u` nvidia-uvm; a driver in a container has its own below its root: --dev-root",
    )
}
