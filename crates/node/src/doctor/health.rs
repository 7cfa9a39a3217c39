//! Checks of device health, and of whether the users of devices can be determined.

use octavo_model::inventory::{
    Condition, Device, DeviceState, Issue, NeuronDevice, NeuronState, NvmlState, Severity, Vendor,
};

use super::facts::{Facts, Processes};
use super::nvidia::NVIDIA;
use super::{Check, Finding, Subject, neuron};

/// First Neuron driver release whose files are all readable without root; earlier ones restrict some of them.
const FIRST_WORLD_READABLE_RELEASE: (u64, u64) = (2, 28);

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let inventory = facts.inventory;
    let spoken = inventory
        .devices
        .iter()
        .filter(|device| match device.condition {
            Condition::Working | Condition::Failing { .. } => true,
            // Only its driver binding is known, which has its own check.
            Condition::PciOnly { .. } => false,
        });
    let mut all: Vec<Finding> = spoken
        .map(|device| health(device, &inventory.nvml))
        .collect();
    let devices = inventory.neuron.iter().flat_map(|neuron| &neuron.devices);
    let release = neuron::version(facts).and_then(neuron::release);
    all.extend(devices.map(|device| health_of_neuron(device, release)));
    if all.is_empty() {
        let evidence = "no driver says anything of a device";
        all.push(Check::DeviceHealth.not_applicable(evidence));
    }
    all.push(processes(facts));
    all
}

fn health(device: &Device, nvml: &NvmlState) -> Finding {
    let check = Check::DeviceHealth;
    let subject = Subject::Device(device.pci);
    let mut said = device.issues();
    said.sort_by_key(|complaint: &Issue| std::cmp::Reverse(complaint.gravity));
    let said: Vec<String> = said.into_iter().map(|complaint| complaint.text).collect();
    let said = said.join("; ");
    match (device.severity(nvml), device.state(nvml)) {
        (Some(Severity::Critical), state) => {
            check.failing(subject, said, remedy(state, device.vendor))
        }
        (Some(Severity::Warning | Severity::Note), DeviceState::Stale) => check.unknown(
            subject,
            "the driver does not answer any more: what is known was read before",
        ),
        (Some(Severity::Warning | Severity::Note), state) => {
            check.warning(subject, said, remedy(state, device.vendor))
        }
        (None, _) if said.is_empty() => check.ok(subject, "it says nothing bad of itself"),
        (None, state) => check.warning(subject, said, remedy(state, device.vendor)),
    }
}

fn remedy(state: DeviceState, vendor: Vendor) -> &'static str {
    match state {
        DeviceState::NeedsReset => {
            "reset it (`nvidia-smi --gpu-reset -i ...` while nobody has it open), or reboot the node"
        }
        DeviceState::NeedsReboot => "drain and reboot the node",
        DeviceState::NeedsDrain => {
            "take the jobs that use it together with other GPUs off the node"
        }
        DeviceState::Replace => "have the board replaced",
        DeviceState::Failing => match vendor {
            Vendor::Nvidia => {
                "look at `dmesg` for an Xid; reboot the node, and have the board looked at if it does not come back"
            }
            Vendor::Amd => {
                "look at `dmesg | grep -i amdgpu`; reboot the node, and have the board looked at if it does not come back"
            }
            Vendor::Aws | Vendor::Other(_) => {
                "look at `dmesg` for what its driver says; reboot the node, and have the board looked at if it does not come back"
            }
        },
        DeviceState::NeedsAction => {
            "look up what this driver's version asks for; this version does not know it"
        }
        DeviceState::Ok => {
            "see whether they grow (`octavo inspect`): a reset repairs bad rows of memory, and a board whose errors come again is to be replaced"
        }
        DeviceState::Partial
        | DeviceState::Stale
        | DeviceState::Passthrough
        | DeviceState::NotRead
        | DeviceState::NoDriver => {
            "nothing, as long as jobs run: what could not be read is left out"
        }
    }
}

/// Uses the same state words and messages as other outputs. `release` is the driver's release, if known.
pub(super) fn health_of_neuron(device: &NeuronDevice, release: Option<(u64, u64)>) -> Finding {
    let check = Check::DeviceHealth;
    let subject = Subject::Neuron(device.number);
    let said = device.issues().into_iter();
    let said: Vec<String> = said.map(|complaint| complaint.text).collect();
    let said = said.join("; ");
    match device.state() {
        NeuronState::Failing => {
            let remedy = "take the node out of service and replace the instance; a reset (`modprobe -r neuron && modprobe neuron`) mends software only";
            check.failing(subject, said, remedy)
        }
        NeuronState::Errors => {
            let remedy = "reboot the node, which repairs rows of memory; replace the instance if they come again";
            check.warning(subject, said, remedy)
        }
        NeuronState::Partial => check.warning(subject, said, remedy_of_partial(device, release)),
        NeuronState::Unknown => check.unknown(subject, "its driver tells nothing of its health"),
        NeuronState::Ok => match device.unhealthy {
            Some(_) => check.ok(subject, "the driver says no part is unhealthy"),
            None => check.ok(
                subject,
                "no error is counted; this driver does not tell which parts are unhealthy",
            ),
        },
    }
}

fn remedy_of_partial(device: &NeuronDevice, release: Option<(u64, u64)>) -> &'static str {
    let mut problems = device.problems.iter();
    let is_refused = problems.any(|problem| problem.error.contains("Permission denied"));
    match (is_refused, release) {
        (true, Some(release)) if release < FIRST_WORLD_READABLE_RELEASE => {
            "run as root: drivers before 2.28 let nobody else read some of it"
        }
        (true, _) => "run as root: nobody else may read some of it",
        (false, _) => {
            "what could not be read is left out, and all else holds; `dmesg | grep -i neuron` may say why"
        }
    }
}

fn processes(facts: &Facts<'_>) -> Finding {
    let check = Check::Processes;
    if !NVIDIA.status(facts).is_working() {
        return check.not_applicable(
            "no NVIDIA driver is known to be loaded, and it is asked for no other",
        );
    }
    match &facts.processes {
        Ok(Processes { hidden: None, .. }) => check.ok(
            Subject::Node,
            format!("{} shows all processes and their control groups", facts.roots.proc),
        ),
        Ok(Processes { hidden: Some(why), .. }) => check.warning(
            Subject::Node,
            why.clone(),
            "run as root and outside of containers, or with the host's /proc (--proc-root, and hostPID for the agent): until then all that \
             is partitioned counts as in use",
        ),
        Err(why) => check.unknown(Subject::Node, why.clone()),
    }
}
