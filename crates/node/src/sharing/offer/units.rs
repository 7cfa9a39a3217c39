//! Units of a node that can be offered, and their resource names before sharing.

use std::collections::BTreeSet;

use octavo_model::id::{GpuUuid, PciAddress};
use octavo_model::inventory::{
    ComputeInstance, Condition, Device, GpuInstance, Inventory, Mig, Vendor,
};
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::ResourceName;
use octavo_planner::layout::DeviceRef;

use super::{Partition, Unit, Warnings};
use crate::mig_strategy::{InvalidMig, MigStrategy};

/// A unit that can be offered.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The unit, not shared yet.
    pub(super) unit: Unit,
    /// Its resource name before renaming.
    pub(super) name: ResourceName,
    /// NVML's index of the device.
    pub(super) index: Option<u32>,
    /// The device's UUID.
    pub(super) gpu: Option<GpuUuid>,
    /// Index of the partition on its device, from zero, in the order of the driver's ids.
    pub(super) ordinal: Option<u32>,
    /// Display name.
    pub(super) display_name: String,
}

/// All units, ordered by device, then by the driver's ids of the instances.
pub(super) fn candidates(
    inventory: &Inventory,
    strategy: MigStrategy,
    warnings: &mut Warnings,
) -> Vec<Candidate> {
    let mut devices: Vec<&Device> = inventory.devices.iter().collect();
    devices.sort_by_key(|device| device.pci);
    devices.retain(|device| device.vendor == Vendor::Nvidia);
    let working: Vec<&Device> =
        devices.iter().filter(|device| can_be_offered(device, warnings)).copied().collect();
    let mut found = Vec::new();
    let mut parts = PartitionCandidates::default();
    for device in &working {
        if device.mig.is_enabled() {
            parts.add(device, strategy, warnings);
        } else {
            parts.whole += 1;
            found.extend(whole(device));
        }
    }
    found.extend(parts.into_offered(strategy, warnings));
    found.sort_by(|a, b| {
        let order = |one: &Candidate| (one.unit.pci, one.unit.partition.clone());
        order(a).cmp(&order(b))
    });
    // If a driver reports one UUID for two devices, one of them is wrong, and kubelet could not distinguish them.
    let mut seen = BTreeSet::new();
    found.retain(|one| {
        let is_new = seen.insert(one.unit.uuid.clone());
        if !is_new {
            let why = "not advertised: another device has the same UUID";
            warnings.add_for(&one.display_name, why);
        }
        is_new
    });
    found
}

/// The whole device or partition with this UUID, offered or not. A partition without a reported profile is not found.
pub fn find(inventory: &Inventory, uuid: &str) -> Option<Unit> {
    inventory.devices.iter().find_map(|device| {
        if device.uuid.as_ref().is_some_and(|one| one.as_str() == uuid) {
            return Some(unit(device, uuid, None, device.memory));
        }
        let mut all = instances(device).into_iter();
        let is_it = |compute: &ComputeInstance| {
            let known = compute.uuid.as_ref();
            known.is_some_and(|one| one.as_str() == uuid)
        };
        let one = all.find(|(_, compute)| is_it(compute))?;
        partition(device, one, (0, MigStrategy::Mixed)).map(|found| found.unit)
    })
}

/// The compute instances of a device with their GPU instances, in the order of the driver's ids.
fn instances(device: &Device) -> Vec<(&GpuInstance, &ComputeInstance)> {
    let mut all: Vec<_> = device.mig.compute_instances().collect();
    all.sort_by_key(|(instance, compute)| (instance.id, compute.id));
    all
}

/// Returns whether enough is known about the device to offer it.
fn can_be_offered(device: &Device, warnings: &mut Warnings) -> bool {
    let why = match (&device.condition, &device.mig, &device.uuid) {
        (Condition::Failing { reason }, ..) => format!("not advertised: it is failing: {reason}"),
        (Condition::PciOnly { .. }, ..) => "not advertised: no driver reports it".to_owned(),
        (Condition::Working, Mig::Unknown, _) => {
            "not advertised: the driver does not report whether MIG mode is on".to_owned()
        }
        (Condition::Working, mig, None) if !mig.is_enabled() => {
            "not advertised: the driver does not report its UUID".to_owned()
        }
        (Condition::Working, ..) => return true,
    };
    warnings.add_for(&display_name(device), &why);
    false
}

fn display_name(device: &Device) -> String {
    DeviceRef::from_device(device).to_string()
}

fn whole(device: &Device) -> Option<Candidate> {
    let uuid = device.uuid.as_ref()?;
    let unit = unit(device, uuid.as_str(), None, device.memory);
    Some(Candidate {
        unit,
        name: ResourceName::gpu(),
        index: device.index,
        gpu: device.uuid.clone(),
        ordinal: None,
        display_name: display_name(device),
    })
}

/// Partitions of all devices, and the conditions for offering them as GPUs.
#[derive(Debug, Default)]
struct PartitionCandidates {
    whole: usize,
    found: Vec<Candidate>,
    /// Their devices, with display names.
    devices: Vec<(PciAddress, String)>,
    has_empty: bool,
    has_nameless: bool,
}

impl PartitionCandidates {
    fn add(&mut self, device: &Device, strategy: MigStrategy, warnings: &mut Warnings) {
        let called = display_name(device);
        if strategy == MigStrategy::None {
            let why = "its partitions are advertised only with --mig-strategy single or mixed";
            warnings.unoffered.insert(device.pci);
            return warnings.add_for(&called, why);
        }
        if !device.mig.is_fully_known() {
            let why = "the driver does not report all of its partitions; only the reported ones are advertised";
            warnings.add_for(&called, why);
        }
        let all = instances(device);
        if all.is_empty() {
            self.has_empty = true;
            warnings.add_for(&called, "MIG mode is on, but there is no partition to advertise");
        }
        for (ordinal, one) in (0..).zip(all) {
            let found = partition(device, one, (ordinal, strategy));
            if found.is_none() {
                self.has_nameless = true;
                let (instance, compute) = (one.0.id, one.1.id);
                let who = format!("gi {instance}/{compute} of {called}");
                warnings.add_for(
                    &who,
                    "not advertised: the driver does not report its UUID or profile",
                );
            }
            self.found.extend(found);
        }
        self.devices.push((device.pci, called));
    }

    /// The partitions to offer. They are offered as GPUs only if all are alike, as in NVIDIA's plugin.
    fn into_offered(self, strategy: MigStrategy, warnings: &mut Warnings) -> Vec<Candidate> {
        if strategy != MigStrategy::Single || self.devices.is_empty() {
            return self.found;
        }
        let profiles: BTreeSet<_> = self
            .found
            .iter()
            .filter_map(|one| one.unit.partition.as_ref())
            .map(|partition| &partition.profile)
            .collect();
        let reason = if self.has_empty {
            InvalidMig::EmptyGpu
        } else if self.whole > 0 {
            InvalidMig::MixedMigModes
        } else if self.has_nameless {
            InvalidMig::ProfileUnknown
        } else if profiles.len() > 1 {
            InvalidMig::MultipleProfiles
        } else {
            return self.found;
        };
        for (pci, called) in &self.devices {
            warnings.unoffered.insert(*pci);
            let why = format!(
                "partitions are not advertised, because --mig-strategy single is not possible: {reason}"
            );
            warnings.add_for(called, &why);
        }
        Vec::new()
    }
}

fn partition(
    device: &Device,
    (instance, compute): (&GpuInstance, &ComputeInstance),
    (ordinal, strategy): (u32, MigStrategy),
) -> Option<Candidate> {
    let uuid = compute.uuid.as_ref()?;
    let profile = device.profile_of(instance, compute)?;
    let name = match strategy {
        MigStrategy::Mixed => ResourceName::mig(&profile),
        MigStrategy::None | MigStrategy::Single => ResourceName::gpu(),
    };
    let called = format!("{profile} {}/{} of {}", instance.id, compute.id, display_name(device));
    let partition = Partition { gpu_instance: instance.id, compute_instance: compute.id, profile };
    Some(Candidate {
        unit: unit(device, uuid.as_str(), Some(partition), compute.memory),
        name,
        index: device.index,
        gpu: device.uuid.clone(),
        ordinal: Some(ordinal),
        display_name: called,
    })
}

fn unit(
    device: &Device,
    uuid: &str,
    partition: Option<Partition>,
    memory: Option<Mebibytes>,
) -> Unit {
    Unit {
        uuid: uuid.to_owned(),
        pci: device.pci,
        partition,
        replicas: None,
        memory,
        memory_per_replica: None,
        numa_node: device.numa_node,
    }
}
