//! What devices say of themselves, and whether it can be told who uses them.

use super::facts::{Facts, Processes};
use super::nvidia::NVIDIA;
use super::{Check, Finding, Subject};
use crate::domain::inventory::{
    Complaint, Condition, Device, DeviceState, Gravity, NeuronDevice, NvmlState,
};

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let inventory = facts.inventory;
    let spoken = inventory
        .devices
        .iter()
        .filter(|device| match device.condition {
            Condition::Working | Condition::Failing { .. } => true,
            // Nobody but its binding is known of it, and that is a check of its own.
            Condition::PciOnly { .. } => false,
        });
    let mut all: Vec<Finding> = spoken
        .map(|device| health(device, &inventory.nvml))
        .collect();
    let neuron = inventory.neuron.iter().flat_map(|neuron| &neuron.devices);
    all.extend(neuron.map(health_of_neuron));
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
    let mut said = device.complaints();
    said.sort_by_key(|complaint: &Complaint| std::cmp::Reverse(complaint.gravity));
    let said: Vec<String> = said.into_iter().map(|complaint| complaint.text).collect();
    let said = said.join("; ");
    match (device.gravity(nvml), device.state(nvml)) {
        (Some(Gravity::Bad), state) => check.failing(subject, said, remedy(state)),
        (Some(Gravity::Notice | Gravity::Note), DeviceState::Stale) => check.unknown(
            subject,
            "the driver does not answer any more: what is known was read before",
        ),
        (Some(Gravity::Notice | Gravity::Note), state) => {
            check.warning(subject, said, remedy(state))
        }
        (None, _) if said.is_empty() => check.ok(subject, "it says nothing bad of itself"),
        (None, state) => check.warning(subject, said, remedy(state)),
    }
}

fn remedy(state: DeviceState) -> &'static str {
    match state {
        DeviceState::NeedsReset => {
            "reset it (`nvidia-smi --gpu-reset -i ...` while nobody has it open), or reboot the node"
        }
        DeviceState::NeedsReboot => "drain and reboot the node",
        DeviceState::NeedsDrain => {
            "take the jobs that use it together with other GPUs off the node"
        }
        DeviceState::Replace => "have the board replaced",
        DeviceState::Failing => {
            "look at `dmesg` for an Xid; reboot the node, and have the board looked at if it does not come back"
        }
        DeviceState::NeedsAction => {
            "look up what this driver's version asks for; this version does not know it"
        }
        DeviceState::Ok => {
            "see whether they grow (`octavo inspect`): a reset repairs bad rows of memory, and a board whose errors come again is to be replaced"
        }
        DeviceState::Partial
        | DeviceState::Stale
        | DeviceState::Passthrough
        | DeviceState::Unread
        | DeviceState::NoDriver => {
            "nothing, as long as jobs run: what could not be read is left out"
        }
    }
}

pub(super) fn health_of_neuron(device: &NeuronDevice) -> Finding {
    let check = Check::DeviceHealth;
    let subject = Subject::Neuron(device.number);
    if let Some(parts) = device.unhealthy.as_ref().filter(|parts| !parts.is_empty()) {
        let evidence = format!("the driver says unhealthy: {}", parts.join(", "));
        let remedy = "take the node out of service and replace the instance; a reset (`modprobe -r neuron && modprobe neuron`) mends software only";
        return check.failing(subject, evidence, remedy);
    }
    let errors = device.errors;
    let uncorrected: Vec<String> = [
        ("memory errors", errors.memory_uncorrected),
        (
            "memory errors that a repair may mend",
            errors.memory_repairable,
        ),
        ("errors of on-chip memory", errors.sram_uncorrected),
    ]
    .into_iter()
    .filter_map(|(what, count)| count.filter(|count| *count > 0).map(|count| (what, count)))
    .map(|(what, count)| format!("{count} uncorrected {what} since the driver was loaded"))
    .collect();
    if !uncorrected.is_empty() {
        let remedy = "reboot the node, which repairs rows of memory; replace the instance if they come again";
        return check.warning(subject, uncorrected.join("; "), remedy);
    }
    let problems = device.problems.iter();
    let problems: Vec<String> = problems
        .map(|problem| format!("{}: {}", problem.what, problem.error))
        .collect();
    if !problems.is_empty() {
        let remedy = "run as root where it is a matter of rights: drivers before 2.28 let nobody else read some of it";
        return check.warning(subject, problems.join("; "), remedy);
    }
    match device.unhealthy {
        Some(_) => check.ok(subject, "the driver says no part is unhealthy"),
        None => check.ok(
            subject,
            "no error is counted; this driver does not tell which parts are unhealthy",
        ),
    }
}

fn processes(facts: &Facts<'_>) -> Finding {
    let check = Check::Processes;
    if !NVIDIA.standing(facts).works() {
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
