//! Checks of MIG leftovers: pending modes, unusable partitions, missing device files.

use octavo_model::inventory::{Completeness, Condition, Device, Mig, MigMode, MigState, Vendor};

use super::facts::Facts;
use super::{Check, Finding, Subject, count_noun, format_list};

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let working =
        facts.inventory.devices.iter().filter(|device| {
            device.vendor == Vendor::Nvidia && device.condition == Condition::Working
        });
    let mut all = Vec::new();
    for device in working {
        let found = match &device.mig {
            Mig::NotCapable => Vec::new(),
            Mig::Unknown => {
                let evidence = "the driver does not report whether it is partitioned";
                vec![Check::MigInstances.unknown(evidence)]
            }
            Mig::Capable(state) => {
                let mut found = vec![mode(state), instances(state)];
                found.extend(files(facts, device, state));
                found
            }
        };
        all.extend(found.into_iter().map(|finding| finding.about(Subject::Device(device.pci))));
    }
    for check in [Check::MigMode, Check::MigInstances, Check::MigDeviceFiles] {
        if !all.iter().any(|finding| finding.check == check) {
            all.push(
                check.not_applicable("no GPU is known to be partitioned, now or after a reset"),
            );
        }
    }
    all
}

fn mode(state: &MigState) -> Finding {
    let check = Check::MigMode;
    let word = |mode| match mode {
        MigMode::Enabled => "on",
        MigMode::Disabled => "off",
    };
    let (current, pending) = (word(state.current), word(state.pending));
    if state.current == state.pending {
        return check.ok(format!("MIG mode is {current}"));
    }
    let evidence = format!("MIG mode is {current}, and will be {pending} after the next reset");
    let remedy = "reset it while no process has it open (`nvidia-smi --gpu-reset -i ...`), reboot \
                  the node, or revert the MIG mode";
    check.warning(evidence, remedy)
}

fn instances(state: &MigState) -> Finding {
    let check = Check::MigInstances;
    if state.geometry == Completeness::Partial {
        return check.unknown("the driver does not report all of its instances");
    }
    let all = &state.gpu_instances;
    let empty = all.iter().filter(|instance| instance.compute_instances.is_empty());
    let empty: Vec<String> = empty.map(|instance| format!("gi {}", instance.id)).collect();
    if state.current == MigMode::Disabled {
        return check.ok("not partitioned");
    }
    if all.is_empty() {
        let remedy = "apply a layout (preview one with `octavo plan all-balanced`) or turn MIG \
                      off; without instances, the GPU is unusable";
        return check.warning("MIG mode is on, but there are no instances", remedy);
    }
    if !empty.is_empty() {
        let evidence =
            format!("unusable, because they have no compute instance: {}", format_list(&empty));
        let remedy = "apply the node's layout again (`octavo plan` shows what would be \
                      destroyed), or destroy them (`nvidia-smi mig -dgi -gi ...`)";
        return check.warning(evidence, remedy);
    }
    let parts = all.iter().map(|instance| instance.compute_instances.len());
    let (parts, all) = (parts.sum::<usize>(), all.len());
    let parts = count_noun(parts, "compute instance", "compute instances");
    check.ok(format!("{parts} in {}", count_noun(all, "GPU instance", "GPU instances")))
}

fn files(facts: &Facts<'_>, device: &Device, state: &MigState) -> Option<Finding> {
    let check = Check::MigDeviceFiles;
    if state.gpu_instances.is_empty() {
        return None;
    }
    let (known, there) = match (&facts.instance_files, &facts.files) {
        (Ok(known), Ok(there)) => (known, there),
        (Err(why), _) | (_, Err(why)) => return Some(check.unknown(why.clone())),
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
        check.ok(format!("{dev} has the device files of its instances"))
    } else {
        // As for GPUs, the container runtime may create them.
        check.warning(
            format!("{dev} has no {}", format_list(&missing)),
            "run `nvidia-smi -L` as root to create them. For a driver in a container, set \
             --dev-root to the /dev of its root directory",
        )
    })
}
