//! Check that containers retain the device files allocated to them.
//!
//! If systemd manages pods' control groups, it grants a container only the device files that it finds in `/dev/char`,
//! and rewrites these rules at every `systemctl daemon-reload`. The kernel creates the links there for drivers that
//! register their files, as AMD's and Neuron's do. NVIDIA's driver does not, so long-running containers lose their
//! GPU: `Failed to initialize NVML: Unknown Error`. Source: NVIDIA/nvidia-container-toolkit#48.

use octavo_model::driver_traces::{CgroupVersion, PodCgroupManager};

use super::drivers::{AMD, NEURON, NVIDIA};
use super::facts::Facts;
use super::{Check, Finding, format_list};

pub(super) fn finding(facts: &Facts<'_>) -> Finding {
    let check = Check::ControlGroups;
    let works = [NVIDIA, NEURON, AMD].map(|driver| driver.status(facts).is_working());
    if !works.contains(&true) {
        return check.not_applicable("no device files to pass to containers");
    }
    let groups = match &facts.groups {
        Ok(groups) => groups,
        Err(why) => return check.unknown(why.clone()),
    };
    let version = match groups.version {
        CgroupVersion::One => "1",
        CgroupVersion::Two => "2",
    };
    let directory = format!("{}/fs/cgroup", facts.roots.sys);
    let evidence = format!("cgroup version {version} ({directory})");
    let manager = match groups.pods {
        None => return check.not_applicable(format!("{evidence}, without a cgroup of a pod")),
        Some(PodCgroupManager::Runtime) => "the container runtime manages the cgroups of pods",
        Some(PodCgroupManager::Systemd) => "systemd manages the cgroups of pods",
    };
    let evidence = format!("{evidence}; {manager}");
    if groups.pods == Some(PodCgroupManager::Runtime) || works.first() != Some(&true) {
        return check.ok(evidence);
    }
    match &groups.unlinked {
        Err(why) => check.unknown(format!("{evidence}; {why}")),
        Ok(none) if none.is_empty() => {
            let dev = &facts.roots.dev;
            check.ok(format!("{evidence}; {dev}/char has a link to each of NVIDIA's device files"))
        }
        Ok(unlinked) => {
            let dev = &facts.roots.dev;
            let evidence =
                format!("{evidence}; {dev}/char has no link to {}", format_list(unlinked));
            let remedy = "create them at each boot: `nvidia-ctk system create-dev-char-symlinks \
                          --create-all` (GPU Operator does so; CDI does not need them). Until \
                          then, `systemctl daemon-reload` removes GPUs from running containers: \
                          `Failed to initialize NVML: Unknown Error`";
            check.warning(evidence, remedy)
        }
    }
}
