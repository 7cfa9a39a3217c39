//! What a node gives out: resources, the units of each, and the replicas of each unit.

use std::collections::BTreeMap;

use super::resource::{ResourceName, ShareId};
use crate::domain::id::PciAddress;
use crate::domain::inventory::{
    ComputeInstance, Condition, Device, GpuInstance, Inventory, Vendor,
};
use crate::domain::labels::MigStrategy;
use crate::domain::layout::{Targets, TimeSlicing};
use crate::domain::profile::ProfileName;
use crate::domain::quantity::Mebibytes;

/// All that a node gives out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offers {
    /// Ordered by name, each once.
    pub resources: Vec<Offer>,
}

/// What is given out under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The name.
    pub name: ResourceName,
    /// Whether a container that asks for more than one is refused.
    pub fail_requests_greater_than_one: bool,
    /// Ordered by device, then by the driver's ids of the instances.
    pub units: Vec<Unit>,
}

/// A whole device or a partition: what a container can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// UUID of the device or partition.
    pub uuid: String,
    /// The device, or the one that the partition is of.
    pub pci: PciAddress,
    /// Which partition; `None` for a whole device.
    pub partition: Option<Partition>,
    /// How many have it by turns; `None` where one has it alone.
    pub replicas: Option<u32>,
    /// Its memory, where it is known.
    pub memory: Option<Mebibytes>,
    /// How much of it each shall be content with; `None` where nobody says, and then it is the same for all.
    pub memory_per_replica: Option<Mebibytes>,
    /// The NUMA node of the device's slot.
    pub numa_node: Option<u32>,
}

/// A partition, by the driver's ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    /// The GPU instance.
    pub gpu_instance: u32,
    /// The compute instance within it.
    pub compute_instance: u32,
    /// What NVIDIA's tools call it: `1g.10gb`, `1c.3g.40gb`.
    pub profile: ProfileName,
}

/// What is given out, and what is to be known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    /// What is given out.
    pub offers: Offers,
    /// What is not, and why, in words for a person.
    pub warnings: Vec<String>,
}

impl Unit {
    /// The ids of all that is given out of it.
    pub fn ids(&self) -> Vec<ShareId> {
        match self.replicas {
            None => vec![ShareId::whole(&self.uuid)],
            Some(replicas) => (0..replicas)
                .map(|number| ShareId::replica(&self.uuid, number))
                .collect(),
        }
    }

    /// How much memory each may use, so that all can: nobody enforces it. `None` where one has all of it, or its size is not
    /// known.
    pub fn fair_share(&self) -> Option<Mebibytes> {
        let replicas = self.replicas?;
        let equal = || {
            let memory = self.memory?.get().checked_div(u64::from(replicas))?;
            Some(Mebibytes::new(memory))
        };
        self.memory_per_replica.or_else(equal)
    }
}

impl Offers {
    /// The offer of this name.
    pub fn by_name(&self, name: &ResourceName) -> Option<&Offer> {
        self.resources.iter().find(|offer| offer.name == *name)
    }

    /// Every unit, with what it is given out as.
    pub fn units(&self) -> impl Iterator<Item = (&Offer, &Unit)> {
        let all = self.resources.iter();
        all.flat_map(|offer| offer.units.iter().map(move |unit| (offer, unit)))
    }

    /// The unit with this UUID.
    pub fn unit(&self, uuid: &str) -> Option<(&Offer, &Unit)> {
        self.units().find(|(_, unit)| unit.uuid == uuid)
    }
}

impl Offer {
    /// How many there are of it.
    pub fn count(&self) -> usize {
        self.units.iter().map(|unit| unit.ids().len()).sum()
    }
}

/// What a node with these devices gives out where `targets` are what is asked of them. What nobody asks to be shared is given out
/// whole.
pub fn compile(inventory: &Inventory, targets: &Targets, strategy: MigStrategy) -> Compiled {
    let mut draft = Draft::default();
    for device in &inventory.devices {
        let mut asked = targets.devices.iter();
        let asked = asked.find(|target| target.pci == device.pci);
        let sharing = asked.and_then(|target| target.time_slicing.as_ref());
        draft.device(device, sharing, strategy);
    }
    draft.finish()
}

#[derive(Default)]
struct Draft {
    offers: BTreeMap<ResourceName, Offer>,
    warnings: Vec<String>,
}

impl Draft {
    fn device(&mut self, device: &Device, sharing: Option<&TimeSlicing>, strategy: MigStrategy) {
        if device.vendor != Vendor::Nvidia || device.condition != Condition::Working {
            return;
        }
        if !device.mig.is_enabled() {
            if let Some(uuid) = &device.uuid {
                let unit = unit(device, uuid.as_str(), None, device.memory);
                self.put(ResourceName::gpu(), unit, sharing);
            }
            return;
        }
        if strategy == MigStrategy::None {
            let pci = device.pci;
            self.warnings.push(format!(
                "{pci}: its partitions are given out only with --mig-strategy single or mixed"
            ));
            return;
        }
        let instances = device.mig.state().into_iter();
        for instance in instances.flat_map(|state| &state.gpu_instances) {
            for compute in &instance.compute_instances {
                self.partition(device, (instance, compute), sharing, strategy);
            }
        }
    }

    fn partition(
        &mut self,
        device: &Device,
        (instance, compute): (&GpuInstance, &ComputeInstance),
        sharing: Option<&TimeSlicing>,
        strategy: MigStrategy,
    ) {
        let profile = device.profile_of(instance, compute);
        let Some((uuid, profile)) = compute.uuid.as_ref().zip(profile) else {
            let (pci, gi, ci) = (device.pci, instance.id, compute.id);
            self.warnings.push(format!(
                "{pci}: compute instance {ci} of GPU instance {gi} is not given out: the driver does not tell what it is"
            ));
            return;
        };
        let name = match strategy {
            MigStrategy::Mixed => ResourceName::mig(&profile),
            MigStrategy::None | MigStrategy::Single => ResourceName::gpu(),
        };
        let partition = Partition {
            gpu_instance: instance.id,
            compute_instance: compute.id,
            profile,
        };
        let unit = unit(device, uuid.as_str(), Some(partition), compute.memory);
        self.put(name, unit, sharing);
    }

    fn put(&mut self, name: ResourceName, mut unit: Unit, sharing: Option<&TimeSlicing>) {
        unit.replicas = sharing.map(|sharing| sharing.replicas);
        let is_renamed = sharing.is_some_and(|sharing| sharing.rename);
        let name = if is_renamed { name.shared() } else { name };
        let fail = sharing.is_some_and(|sharing| sharing.fail_requests_greater_than_one);
        let offer = self.offers.entry(name.clone()).or_insert_with(|| Offer {
            name,
            fail_requests_greater_than_one: false,
            units: Vec::new(),
        });
        offer.fail_requests_greater_than_one |= fail;
        offer.units.push(unit);
    }

    fn finish(self) -> Compiled {
        let mut resources: Vec<Offer> = self.offers.into_values().collect();
        for offer in &mut resources {
            offer
                .units
                .sort_by(|a, b| (a.pci, &a.partition).cmp(&(b.pci, &b.partition)));
        }
        Compiled {
            offers: Offers { resources },
            warnings: self.warnings,
        }
    }
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
