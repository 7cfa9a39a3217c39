//! Identity and partitions of a device, for comparison with later reports.

use std::collections::BTreeMap;

use octavo_model::id::{GpuUuid, PciAddress};
use octavo_model::inventory::{Amd, Device, Mig, MigState, NeuronDevice};
use octavo_model::text::join;

/// Identity and partitions of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Place that identifies the device within its node.
    pub place: DevicePlace,
    /// Display name: `GPU 3`, `Neuron 2`, or the PCI address.
    pub name: String,
    /// UUID, if the driver reported it.
    pub uuid: Option<GpuUuid>,
    /// Its partitions: `7x 1g.10gb`, `whole`, or AMD's modes, such as `CPX, NPS4`; `None` if unknown, or if the device
    /// cannot be partitioned.
    pub partitions: Option<String>,
}

/// Place of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DevicePlace {
    /// PCI function.
    Pci(PciAddress),
    /// Number of a device that only the Neuron driver reports.
    Neuron(u32),
}

impl DeviceFacts {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            place: DevicePlace::Pci(device.pci),
            name: match device.index {
                Some(index) => format!("GPU {index}"),
                None => device.pci.to_string(),
            },
            uuid: device.uuid.clone(),
            partitions: match &device.amd {
                Some(amd) => amd_modes(amd),
                None => mig_partitions(device),
            },
        }
    }

    pub(super) fn of_neuron(chip: &NeuronDevice) -> Self {
        Self {
            place: DevicePlace::Neuron(chip.number),
            name: format!("Neuron {}", chip.number),
            uuid: None,
            partitions: None,
        }
    }
}

fn amd_modes(amd: &Amd) -> Option<String> {
    let modes = [amd.compute.as_ref(), amd.memory.as_ref()];
    let modes: Vec<&str> = modes.into_iter().flatten().map(|mode| &*mode.current).collect();
    (!modes.is_empty()).then(|| join(modes, ", "))
}

fn mig_partitions(device: &Device) -> Option<String> {
    let Mig::Capable(state) = &device.mig else {
        return None;
    };
    if !device.mig.is_fully_known() {
        return None;
    }
    if !device.mig.is_enabled() {
        return Some("whole".to_owned());
    }
    let counts = partition_counts(device, state).into_iter();
    let parts: Vec<String> = counts.map(|(name, count)| format!("{count}x {name}")).collect();
    Some(if parts.is_empty() { "no partition".to_owned() } else { parts.join(", ") })
}

fn partition_counts(device: &Device, state: &MigState) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for instance in &state.gpu_instances {
        let name = state.profile_name(instance);
        let computes = instance.compute_instances.iter().map(|compute| {
            let profile = device.profile_of(instance, compute);
            profile.map_or_else(|| name.clone(), |profile| profile.to_string())
        });
        let mut names: Vec<String> = computes.collect();
        if names.is_empty() {
            names.push(format!("{name} without compute instance"));
        }
        for name in names {
            let count = counts.entry(name).or_default();
            *count = count.saturating_add(1);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use octavo_model::catalog::ProfileCatalog;
    use octavo_model::examples::{compute_instance, gpu, gpu_instance};
    use octavo_model::inventory::{Completeness, MigMode, PartitioningMode};

    use super::*;

    fn mig(current: MigMode, geometry: Completeness, instances: usize) -> Device {
        let mut device = gpu();
        device.index = Some(3);
        let mut state = MigState {
            current,
            pending: current,
            gpu_instances: vec![gpu_instance(9, 0, 1)],
            geometry,
            catalog: ProfileCatalog::default(),
        };
        state.gpu_instances.truncate(instances.min(1));
        for instance in &mut state.gpu_instances {
            instance.compute_instances = (1..instances).map(|_| compute_instance(0)).collect();
        }
        device.mig = Mig::Capable(state);
        device
    }

    #[test]
    fn partitions_are_counted_by_profile() {
        let (complete, partial) = (Completeness::Complete, Completeness::Partial);
        let mut amd = gpu();
        let mode = |current: &str| {
            Some(PartitioningMode { current: current.to_owned(), available: Vec::new() })
        };
        amd.amd = Some(Amd { compute: mode("CPX"), memory: mode("NPS4"), ..Amd::default() });
        for (device, name, partitions) in [
            (gpu(), "0000:07:00.0", None),
            (mig(MigMode::Disabled, complete, 0), "GPU 3", Some("whole")),
            (mig(MigMode::Enabled, partial, 3), "GPU 3", None),
            (mig(MigMode::Enabled, complete, 0), "GPU 3", Some("no partition")),
            (
                mig(MigMode::Enabled, complete, 1),
                "GPU 3",
                Some("1x profile 19 without compute instance"),
            ),
            (mig(MigMode::Enabled, complete, 3), "GPU 3", Some("2x profile 19")),
            (amd, "0000:07:00.0", Some("CPX, NPS4")),
        ] {
            let facts = DeviceFacts::new(&device);
            assert_eq!((facts.name.as_str(), facts.partitions.as_deref()), (name, partitions));
        }
    }
}
