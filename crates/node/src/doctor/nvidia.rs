//! Checks of NVIDIA's driver, its library and its device files.

use octavo_model::inventory::{NvmlState, Vendor};

use super::drivers::{DriverStatus, VendorDriver, device_files};
use super::facts::Facts;
use super::{Check, Finding, Subject};

pub(super) const NVIDIA: VendorDriver = VendorDriver {
    vendor: Vendor::Nvidia,
    name: "NVIDIA",
    check: Check::NvidiaDriver,
    module: "nvidia",
    remedy: "install NVIDIA's driver for this kernel (or let GPU Operator install it, \
             driver.enabled) and load it with `modprobe nvidia`; `dmesg | grep -i nvrm` shows why \
             it does not load",
};

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let status = NVIDIA.status(facts);
    let library = library(facts, &status);
    let files = files(facts, &status);
    vec![status.finding, library, files]
}

fn library(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
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
            check.ok(Subject::Node, format!("NVML responds: driver {version}{cuda}"))
        }
        NvmlState::Loading => check.unknown(Subject::Node, "NVML is initializing"),
        NvmlState::Absent { reason } if status.is_working() => check.failing(
            Subject::Node,
            reason.clone(),
            "install libnvidia-ml.so.1 of exactly the driver's version (part of the driver \
             package); for a driver in a container, set --driver-root to its root directory",
        ),
        NvmlState::Absent { reason } => check.not_applicable(format!(
            "NVML is part of the driver, which is not installed: {reason}"
        )),
        NvmlState::Lost { reason } => check.failing(
            Subject::Node,
            format!("NVML responded before: {reason}"),
            "load the driver again; the last known state is shown",
        ),
        NvmlState::Stalled { call, .. } => check.failing(
            Subject::Node,
            format!("{call} does not return"),
            NvmlState::remedy_of_stall(call),
        ),
    }
}

fn files(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
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
            Subject::Node,
            evidence,
            "run `nvidia-smi` as root to create the files of GPUs, and `nvidia-modprobe -u` to \
             create nvidia-uvm. For a driver in a container, set --dev-root to the /dev of its \
             root directory",
        )
    })
}
