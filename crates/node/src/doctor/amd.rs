//! Checks of AMD's driver and its device files.

use octavo_model::inventory::Vendor;

use super::drivers::{DriverStatus, VendorDriver};
use super::facts::Facts;
use super::{Check, Finding, Subject, format_list};

pub(super) const AMD: VendorDriver = VendorDriver {
    vendor: Vendor::Amd,
    name: "AMD",
    check: Check::AmdDriver,
    module: "amdgpu",
    remedy: "load it with `modprobe amdgpu`, or install amdgpu-dkms (AMD's GPU Operator does it with spec.driver.enable); a `blacklist amdgpu` in \
             modprobe.d, which that operator asks for, keeps the one of the kernel away",
};

/// Device file of compute access; without it `ROCm` does not work.
const KFD_DEVICE_FILE: &str = "kfd";

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let standing = AMD.status(facts);
    let files = files(facts, &standing);
    vec![standing.finding, files]
}

/// Remedy for missing device files.
const MISSING_FILES_REMEDY: &str = "the kernel makes them with the devices: it needs CONFIG_HSA_AMD for kfd (some systems for containers lack it); elsewhere than on \
                       the host name the host's folder with --dev-root";
/// Remedy for an unreadable KFD topology.
const UNREADABLE_TOPOLOGY_REMEDY: &str = "its files are everybody's to read: run this as root, or see who has changed their mode, or what keeps this program from \
                          sysfs (SELinux, AppArmor, a mount of the container that hides it)";

/// Reason why the KFD topology is unknown.
fn kfd_error<'a>(facts: &'a Facts<'_>) -> Option<&'a str> {
    facts.traces.as_ref().ok()?.kfd_error.as_deref()
}

fn files(facts: &Facts<'_>, standing: &DriverStatus<'_>) -> Finding {
    let check = Check::AmdDeviceFiles;
    if standing.devices.is_empty() {
        return check.not_applicable(AMD.no_devices_evidence());
    }
    if !standing.is_working() {
        return check.not_applicable("the driver, which has them, is not known to be loaded");
    }
    let files = match &facts.files {
        Ok(files) => files,
        Err(why) => return check.unknown(Subject::Node, why.clone()),
    };
    let dev = &facts.roots.dev;
    let told = standing
        .devices
        .iter()
        .filter_map(|device| device.amd.as_ref());
    let parts = told.flat_map(|amd| &amd.partitions);
    let renders = parts.map(|part| format!("dri/renderD{}", part.render_minor));
    let wanted: Vec<String> = [KFD_DEVICE_FILE.to_owned()]
        .into_iter()
        .chain(renders)
        .collect();
    let (there, missing): (Vec<String>, Vec<String>) =
        wanted.into_iter().partition(|name| files.0.contains(name));
    if missing.is_empty() {
        return match kfd_error(facts) {
            // The KFD topology is unknown, so more files could be missing.
            Some(why) => check.warning(
                Subject::Node,
                format!(
                    "{dev} has {}; {}/class/kfd cannot be read: {why}",
                    format_list(&there),
                    facts.roots.sys
                ),
                UNREADABLE_TOPOLOGY_REMEDY,
            ),
            None => check.ok(Subject::Node, format!("{dev} has {}", format_list(&there))),
        };
    }
    let sys = &facts.roots.sys;
    let nodes = facts.traces.as_ref().map(|traces| traces.kfd_nodes);
    let (topology, first) = match (kfd_error(facts), nodes) {
        (Some(why), _) => (
            format!("; {sys}/class/kfd cannot be read: {why}"),
            format!("{UNREADABLE_TOPOLOGY_REMEDY}. Then: "),
        ),
        (None, Ok(0)) => (
            format!("; {sys}/class/kfd shows no topology"),
            String::new(),
        ),
        (None, Ok(_) | Err(_)) => (String::new(), String::new()),
    };
    check.failing(
        Subject::Node,
        format!("{dev} has no {}{topology}", format_list(&missing)),
        &format!("{first}{MISSING_FILES_REMEDY}"),
    )
}
