//! Checks of device health, and of whether the users of devices can be determined.

use octavo_model::inventory::{
    Condition, Device, DeviceState, Issue, NeuronDevice, NeuronState, NvmlState, Severity, Vendor,
};

use super::drivers::{NVIDIA, neuron_release, neuron_version};
use super::facts::{Facts, Processes};
use super::{Check, Finding, Subject};

/// First Neuron driver release whose files are all readable without root; earlier ones restrict some of them.
const FIRST_WORLD_READABLE_RELEASE: (u64, u64) = (2, 28);

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let inventory = facts.inventory;
    let spoken = inventory.devices.iter().filter(|device| match device.condition {
        Condition::Working | Condition::Failing { .. } => true,
        // Only its driver binding is known, which has its own check.
        Condition::PciOnly { .. } => false,
    });
    let mut all: Vec<Finding> = spoken.map(|device| health(device, &inventory.nvml)).collect();
    let devices = inventory.neuron.iter().flat_map(|neuron| &neuron.devices);
    let release = neuron_version(facts).and_then(neuron_release);
    all.extend(devices.map(|device| health_of_neuron(device, release)));
    if all.is_empty() {
        let evidence = "no driver reports on a device";
        all.push(Check::DeviceHealth.not_applicable(evidence));
    }
    all.push(processes(facts));
    all
}

fn health(device: &Device, nvml: &NvmlState) -> Finding {
    let check = Check::DeviceHealth;
    let mut evidence = device.issues();
    evidence.sort_by_key(|issue: &Issue| std::cmp::Reverse(issue.severity));
    let evidence: Vec<String> = evidence.into_iter().map(|issue| issue.text).collect();
    let evidence = evidence.join("; ");
    match (device.severity(nvml), device.state(nvml)) {
        (Some(Severity::Critical), state) => check.failing(evidence, remedy(state, device.vendor)),
        (Some(Severity::Warning | Severity::Note), DeviceState::Stale) => {
            check.unknown("the driver no longer responds; the last known state is shown")
        }
        (Some(Severity::Warning | Severity::Note), state) => {
            check.warning(evidence, remedy(state, device.vendor))
        }
        (None, _) if evidence.is_empty() => check.ok("no problems reported"),
        (None, state) => check.warning(evidence, remedy(state, device.vendor)),
    }
    .about(Subject::Device(device.pci))
}

fn remedy(state: DeviceState, vendor: Vendor) -> &'static str {
    match state {
        DeviceState::NeedsReset => {
            "reset it while no process has it open (`nvidia-smi --gpu-reset -i ...`), or reboot \
             the node"
        }
        DeviceState::NeedsReboot => "drain and reboot the node",
        DeviceState::NeedsDrain => "drain the jobs that use it together with other GPUs",
        DeviceState::Replace => "replace the board",
        DeviceState::Failing => match vendor {
            Vendor::Nvidia => {
                "check `dmesg` for an Xid and reboot the node; if the device does not come back, \
                 have the board checked"
            }
            Vendor::Amd => {
                "check `dmesg | grep -i amdgpu` and reboot the node; if the device does not come \
                 back, have the board checked"
            }
            Vendor::Aws | Vendor::Other(_) => {
                "check `dmesg` for messages of the driver and reboot the node; if the device does \
                 not come back, have the board checked"
            }
        },
        DeviceState::NeedsAction => {
            "look up the required action in the documentation of this driver version; this \
             version of Octavo does not know it"
        }
        DeviceState::Ok => {
            "check whether the counts grow (`octavo inspect`). A reset remaps bad memory rows; \
             replace a board whose errors recur"
        }
        DeviceState::Partial
        | DeviceState::Stale
        | DeviceState::Passthrough
        | DeviceState::NotRead
        | DeviceState::NoDriver => {
            "no action is needed while jobs run; unreadable values are omitted"
        }
    }
}

/// Uses the same state words and messages as other outputs. `release` is the driver's release, if known.
pub(super) fn health_of_neuron(device: &NeuronDevice, release: Option<(u64, u64)>) -> Finding {
    let check = Check::DeviceHealth;
    let evidence = device.issues().into_iter();
    let evidence: Vec<String> = evidence.map(|issue| issue.text).collect();
    let evidence = evidence.join("; ");
    match device.state() {
        NeuronState::Failing => {
            let remedy = "take the node out of service and replace the instance; a reset \
                          (`modprobe -r neuron && modprobe neuron`) fixes only software problems";
            check.failing(evidence, remedy)
        }
        NeuronState::Errors => {
            let remedy = "reboot the node, which repairs memory rows; replace the instance if the \
                          errors recur";
            check.warning(evidence, remedy)
        }
        NeuronState::Partial => check.warning(evidence, remedy_of_partial(device, release)),
        NeuronState::Unknown => check.unknown("its driver does not report health"),
        NeuronState::Ok => match device.unhealthy {
            Some(_) => check.ok("the driver reports no unhealthy part"),
            None => check.ok("no errors counted; this driver does not report unhealthy parts"),
        },
    }
    .about(Subject::Neuron(device.number))
}

fn remedy_of_partial(device: &NeuronDevice, release: Option<(u64, u64)>) -> &'static str {
    let mut problems = device.problems.iter();
    let is_refused = problems.any(|problem| problem.error.contains("Permission denied"));
    match (is_refused, release) {
        (true, Some(release)) if release < FIRST_WORLD_READABLE_RELEASE => {
            "run as root: with drivers before 2.28, only root can read some values"
        }
        (true, _) => "run as root: only root can read some values",
        (false, _) => {
            "unreadable values are omitted, and all others are valid; `dmesg | grep -i neuron` \
             might show the reason"
        }
    }
}

fn processes(facts: &Facts<'_>) -> Finding {
    let check = Check::Processes;
    if !NVIDIA.status(facts).is_working() {
        return check.not_applicable(
            "no NVIDIA driver is known to be loaded; process visibility matters only for NVIDIA devices",
        );
    }
    match &facts.processes {
        Ok(Processes { hidden: None, .. }) => {
            check.ok(format!("{} shows all processes and their cgroups", facts.roots.proc))
        }
        Ok(Processes { hidden: Some(why), .. }) => check.warning(
            why.clone(),
            "run as root outside of containers, or with the host's /proc (--proc-root; for the \
             agent also hostPID). Until then, all partitioned devices count as in use",
        ),
        Err(why) => check.unknown(why.clone()),
    }
}
