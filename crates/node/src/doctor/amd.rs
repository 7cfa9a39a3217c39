//! Checks of AMD's driver and its device files.

use octavo_model::inventory::Vendor;

use super::drivers::{DriverStatus, VendorDriver, device_files};
use super::facts::Facts;
use super::{Check, CheckResult, Finding, Subject};

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

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let status = AMD.status(facts);
    let files = files(facts, &status);
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

fn files(facts: &Facts<'_>, status: &DriverStatus<'_>) -> Finding {
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
        check.failing(
            Subject::Node,
            format!("{evidence}{topology}"),
            &format!("{first}{MISSING_FILES_REMEDY}"),
        )
    });
    match &kfd_error {
        // The KFD topology is unknown, so more files could be missing.
        Some(error) if finding.verdict == CheckResult::Ok => {
            let evidence = format!("{}{error}", finding.evidence);
            check.warning(Subject::Node, evidence, UNREADABLE_TOPOLOGY_REMEDY)
        }
        Some(_) | None => finding,
    }
}
