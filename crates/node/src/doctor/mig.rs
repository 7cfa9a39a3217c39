//! Checks of MIG leftovers: pending modes, unusable partitions, missing device files.

use octavo_model::inventory::{Completeness, Condition, Device, Mig, MigMode, MigState, Vendor};

use super::facts::Facts;
use super::{Check, Finding, Subject, format_count, format_list};

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let working =
        facts.inventory.devices.iter().filter(|device| {
            device.vendor == Vendor::Nvidia && device.condition == Condition::Working
        });
    let mut all = Vec::new();
    for device in working {
        match &device.mig {
            Mig::NotCapable => {}
            Mig::Unknown => {
                let subject = Subject::Device(device.pci);
                let evidence = "the driver does not tell whether it is partitioned";
                all.push(Check::MigInstances.unknown(subject, evidence));
            }
            Mig::Capable(state) => {
                all.push(mode(device, state));
                all.push(instances(device, state));
                all.extend(files(facts, device, state));
            }
        }
    }
    for check in [Check::MigMode, Check::MigInstances, Check::MigDeviceFiles] {
        if !all.iter().any(|finding| finding.check == check) {
            all.push(check.not_applicable("no GPU is known to be partitioned, or to be made so"));
        }
    }
    all
}

fn mode(device: &Device, state: &MigState) -> Finding {
    let check = Check::MigMode;
    let subject = Subject::Device(device.pci);
    let word = |mode| match mode {
        MigMode::Enabled => "on",
        MigMode::Disabled => "off",
    };
    let (current, pending) = (word(state.current), word(state.pending));
    if state.current == state.pending {
        return check.ok(subject, format!("MIG mode is {current}"));
    }
    let evidence = format!("MIG mode is {current}, and {pending} after the next reset");
    let remedy = "reset it while nobody has it open (`nvidia-smi --gpu-reset -i ...`), or reboot the node; or set the mode back";
    check.warning(subject, evidence, remedy)
}

fn instances(device: &Device, state: &MigState) -> Finding {
    let check = Check::MigInstances;
    let subject = Subject::Device(device.pci);
    if state.geometry == Completeness::Partial {
        return check.unknown(subject, "the driver does not tell all of its instances");
    }
    let all = &state.gpu_instances;
    let empty = all
        .iter()
        .filter(|instance| instance.compute_instances.is_empty());
    let empty: Vec<String> = empty
        .map(|instance| format!("gi {}", instance.id))
        .collect();
    if state.current == MigMode::Disabled {
        return check.ok(subject, "it is one whole GPU");
    }
    if all.is_empty() {
        let remedy = "give the node a layout (`octavo plan all-balanced` shows one), or switch MIG off: so the GPU is no use to anybody";
        return check.warning(subject, "MIG mode is on, and it has no instance", remedy);
    }
    if !empty.is_empty() {
        let evidence = format!(
            "without a compute instance, and so of no use: {}",
            format_list(&empty)
        );
        let remedy = "put the node's layout in force again (`octavo plan` shows what goes), or destroy them (`nvidia-smi mig -dgi -gi ...`)";
        return check.warning(subject, evidence, remedy);
    }
    let parts = all.iter().map(|instance| instance.compute_instances.len());
    let (parts, all) = (parts.sum::<usize>(), all.len());
    let parts = format_count(parts, "compute instance", "compute instances");
    check.ok(
        subject,
        format!(
            "{parts} in {}",
            format_count(all, "GPU instance", "GPU instances")
        ),
    )
}

fn files(facts: &Facts<'_>, device: &Device, state: &MigState) -> Option<Finding> {
    let check = Check::MigDeviceFiles;
    let subject = Subject::Device(device.pci);
    if state.gpu_instances.is_empty() {
        return None;
    }
    let (known, there) = match (&facts.instance_files, &facts.files) {
        (Ok(known), Ok(there)) => (known, there),
        (Err(why), _) | (_, Err(why)) => return Some(check.unknown(subject, why.clone())),
    };
    let mut missing = Vec::new();
    for instance in &state.gpu_instances {
        let parts = instance.compute_instances.iter().map(|part| Some(part.id));
        for part in std::iter::once(None).chain(parts) {
            let file = known.get(&(device.pci, instance.id, part));
            missing.extend(file.filter(|file| !there.0.contains(*file)).cloned());
        }
    }
    let dev = &facts.roots.dev;
    Some(if missing.is_empty() {
        check.ok(subject, format!("{dev} has those of its instances"))
    } else {
        // As for GPUs, the container runtime may create them.
        check.warning(
            subject,
            format!("{dev} has no {}", format_list(&missing)),
            "run `nvidia-smi -L` as root, which makes them; a driver in a container has its own below its root: --dev-root",
        )
    })
}
