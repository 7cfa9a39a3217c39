//! Checks of AMD's driver and its device files.

use super::drivers::{Maker, Standing};
use super::facts::Facts;
use super::{Check, Finding, Subject, listed};
use crate::domain::inventory::Vendor;

pub(super) const AMD: Maker = Maker {
    vendor: Vendor::Amd,
    name: "AMD",
    check: Check::AmdDriver,
    module: "amdgpu",
    remedy: "load it with `modprobe amdgpu`, or install amdgpu-dkms (AMD's GPU Operator does it with spec.driver.enable); a `blacklist amdgpu` in \
             modprobe.d, which that operator asks for, keeps the one of the kernel away",
};

/// Device file of compute access; without it `ROCm` does not work.
const KFD: &str = "kfd";

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let standing = AMD.standing(facts);
    let files = files(facts, &standing);
    vec![standing.finding, files]
}

/// Remedy for missing device files.
const MISSING: &str = "the kernel makes them with the devices: it needs CONFIG_HSA_AMD for kfd (some systems for containers lack it); elsewhere than on \
                       the host name the host's folder with --dev-root";
/// Remedy for an unreadable KFD topology.
const UNREADABLE: &str = "its files are everybody's to read: run this as root, or see who has changed their mode, or what keeps this program from \
                          sysfs (SELinux, AppArmor, a mount of the container that hides it)";

/// Reason why the KFD topology is unknown.
fn untold<'a>(facts: &'a Facts<'_>) -> Option<&'a str> {
    facts.traces.as_ref().ok()?.kfd_untold.as_deref()
}

fn files(facts: &Facts<'_>, standing: &Standing<'_>) -> Finding {
    let check = Check::AmdDeviceFiles;
    if standing.devices.is_empty() {
        return check.not_applicable(AMD.nothing());
    }
    if !standing.works() {
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
    let wanted: Vec<String> = [KFD.to_owned()].into_iter().chain(renders).collect();
    let (there, missing): (Vec<String>, Vec<String>) =
        wanted.into_iter().partition(|name| files.0.contains(name));
    if missing.is_empty() {
        return match untold(facts) {
            // The KFD topology is unknown, so more files could be missing.
            Some(why) => check.warning(
                Subject::Node,
                format!(
                    "{dev} has {}; {}/class/kfd cannot be read: {why}",
                    listed(&there),
                    facts.roots.sys
                ),
                UNREADABLE,
            ),
            None => check.ok(Subject::Node, format!("{dev} has {}", listed(&there))),
        };
    }
    let sys = &facts.roots.sys;
    let nodes = facts.traces.as_ref().map(|traces| traces.kfd_nodes);
    let (topology, first) = match (untold(facts), nodes) {
        (Some(why), _) => (
            format!("; {sys}/class/kfd cannot be read: {why}"),
            format!("{UNREADABLE}. Then: "),
        ),
        (None, Ok(0)) => (
            format!("; {sys}/class/kfd shows no topology"),
            String::new(),
        ),
        (None, Ok(_) | Err(_)) => (String::new(), String::new()),
    };
    check.failing(
        Subject::Node,
        format!("{dev} has no {}{topology}", listed(&missing)),
        &format!("{first}{MISSING}"),
    )
}
