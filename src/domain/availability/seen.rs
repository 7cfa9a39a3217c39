//! What an agent's inventory comes to, made once for each that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::could::{Idle, Possibilities, idle};
use super::kind::Kind;
use super::row::Key;
use super::shape::{Shape, Whole};
use crate::domain::fleet::{DeviceSummary, Occupancy};
use crate::domain::id::TypeName;
use crate::domain::inventory::{Device, Inventory, Vendor};
use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::ResourceName;
use crate::domain::sharing::usage::Usage;

/// What an agent sees, as far as it is counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Ordered by resource, then by type, each once.
    pub units: Vec<SeenUnits>,
    /// Devices that could be given another shape: those alike, and how many there are.
    pub(super) idle: Vec<(Option<TypeName>, Arc<Idle>, u32)>,
}

/// Devices or partitions of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenUnits {
    /// The type; `None` where nobody knows it.
    pub type_name: Option<TypeName>,
    /// The resource by which a plugin would usually offer them.
    pub resource: String,
    /// What one is.
    pub shape: Shape,
    /// Memory of one; the least, should they differ.
    pub memory: Option<Mebibytes>,
    /// How many.
    pub total: u64,
    /// Without a process, and nobody has been given them.
    pub free: u64,
    /// With one, or given to somebody.
    pub in_use: u64,
    /// Of no use until somebody does something.
    pub broken: u64,
}

/// One unit.
struct One {
    resource: String,
    shape: Shape,
    memory: Option<Mebibytes>,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Free,
    Taken,
    Broken,
    Unknown,
}

/// The resource of devices for which there is no plugin that is known here.
const OTHER: &str = "other";

impl Seen {
    /// Of what a node has, and of who was given what of it where that is told. What idle devices could become is looked up in `known`.
    pub fn of(inventory: &Inventory, usage: Option<&Usage>, known: &mut Possibilities) -> Self {
        let given = given(usage);
        let mut all: BTreeMap<(String, Option<TypeName>), SeenUnits> = BTreeMap::new();
        let summaries = DeviceSummary::all(inventory);
        let devices = inventory.devices.iter().map(Some);
        // What only the Neuron driver shows comes last, and has no device.
        let devices = devices.chain(std::iter::repeat(None));
        let mut seen = Self::default();
        for (summary, device) in summaries.iter().zip(devices) {
            for one in units(summary, device, &given) {
                let type_name = summary.type_name.clone();
                let key = (one.resource.clone(), type_name.clone());
                let units = all
                    .entry(key)
                    .or_insert_with(|| SeenUnits::new(&one, type_name));
                units.add(&one);
            }
            let free = device.filter(|device| !is_given(device, &given));
            if let Some(idle) = free.and_then(|device| idle(device, &given, known)) {
                seen.could(summary.type_name.as_ref(), idle);
            }
        }
        seen.units = all.into_values().collect();
        seen
    }

    fn could(&mut self, type_name: Option<&TypeName>, idle: Arc<Idle>) {
        let mut alike = self.idle.iter_mut();
        let alike = alike
            .find(|(known, other, _)| known.as_ref() == type_name && Arc::ptr_eq(other, &idle));
        match alike {
            Some((_, _, count)) => *count = count.saturating_add(1),
            None => self.idle.push((type_name.cloned(), idle, 1)),
        }
    }

    /// Whether it has any device.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }
}

impl SeenUnits {
    fn new(one: &One, type_name: Option<TypeName>) -> Self {
        Self {
            type_name,
            resource: one.resource.clone(),
            shape: one.shape.clone(),
            memory: one.memory,
            total: 0,
            free: 0,
            in_use: 0,
            broken: 0,
        }
    }

    fn add(&mut self, one: &One) {
        self.memory = match (self.memory, one.memory) {
            (Some(known), Some(other)) => Some(known.min(other)),
            (known, other) => known.or(other),
        };
        self.total = self.total.saturating_add(1);
        let place = match one.standing {
            Standing::Free => &mut self.free,
            Standing::Taken => &mut self.in_use,
            Standing::Broken => &mut self.broken,
            Standing::Unknown => return,
        };
        *place = place.saturating_add(1);
    }

    /// Of which nobody tells whether they are in use.
    pub fn unknown(&self) -> u64 {
        let told = [self.free, self.in_use, self.broken];
        let told = told.into_iter().fold(0, u64::saturating_add);
        self.total.saturating_sub(told)
    }
}

/// UUIDs of what containers have been given.
fn given(usage: Option<&Usage>) -> BTreeSet<&str> {
    let devices = usage.into_iter().flat_map(|usage| &usage.devices);
    let units = devices.flat_map(|device| &device.units);
    let had = units.filter(|unit| unit.tenants.iter().any(|tenant| !tenant.ids.is_empty()));
    had.map(|unit| unit.uuid.as_str()).collect()
}

/// Whether the device as a whole was given to somebody.
fn is_given(device: &Device, given: &BTreeSet<&str>) -> bool {
    let uuid = device.uuid.as_ref();
    uuid.is_some_and(|uuid| given.contains(uuid.as_str()))
}

fn units(summary: &DeviceSummary, device: Option<&Device>, given: &BTreeSet<&str>) -> Vec<One> {
    let vendor = device.map_or(Vendor::Aws, |device| device.vendor);
    if let (Some(device), Occupancy::Partitioned(_)) = (device, summary.occupancy) {
        return partitions(device, given);
    }
    let is_given = device.is_some_and(|device| is_given(device, given));
    let resource = Whole::of(vendor).map_or(OTHER, Whole::as_str).to_owned();
    vec![One {
        resource,
        shape: Shape::Device,
        memory: summary.memory,
        standing: match summary.occupancy {
            Occupancy::Unavailable => Standing::Broken,
            _ if is_given => Standing::Taken,
            Occupancy::Free => Standing::Free,
            Occupancy::InUse => Standing::Taken,
            Occupancy::Partitioned(_) | Occupancy::Unknown => Standing::Unknown,
        },
    }]
}

fn partitions(device: &Device, given: &BTreeSet<&str>) -> Vec<One> {
    let Some(state) = device.mig.state() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for instance in &state.gpu_instances {
        for compute in &instance.compute_instances {
            let Some(profile) = device.profile_of(instance, compute) else {
                continue;
            };
            // A process that does not say where it runs may be anywhere.
            let is_here = |told: Option<u32>, id: u32| told.is_none_or(|told| told == id);
            let mut processes = device.processes.iter();
            let runs = processes.any(|process| {
                is_here(process.gpu_instance, instance.id)
                    && is_here(process.compute_instance, compute.id)
            });
            let uuid = compute.uuid.as_ref();
            let had = uuid.is_some_and(|uuid| given.contains(uuid.as_str()));
            all.push(One {
                resource: ResourceName::mig(&profile).as_str().to_owned(),
                shape: Shape::Mig(profile.to_string()),
                memory: compute.memory,
                standing: if runs || had {
                    Standing::Taken
                } else {
                    Standing::Free
                },
            });
        }
    }
    all
}

impl Seen {
    /// Units by the resource that a node offers them as, which has another name where they are given out by turns.
    pub(super) fn of_resource(&self, resource: &str) -> Option<&SeenUnits> {
        let name = resource.strip_suffix(".shared").unwrap_or(resource);
        self.units.iter().find(|units| units.resource == name)
    }
}

impl SeenUnits {
    pub(super) fn key(&self) -> Key {
        let kind = self.type_name.clone();
        Key {
            kind: kind.map_or(Kind::Unknown, Kind::Known),
            resource: self.resource.clone(),
            shape: self.shape.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::inventory::tests_support::{gpu, process};
    use crate::domain::inventory::{Driver, Machine, Mig, NvmlState};
    use crate::domain::sharing::ShareId;
    use crate::domain::sharing::usage::{DeviceUsage, Tenant, UnitUsage};

    const UUID: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    fn seen(device: Device, usage: Option<&Usage>) -> (u64, u64, u64) {
        let inventory = Inventory {
            machine: Machine::default(),
            nvml: NvmlState::Ready(Driver {
                version: "570.133.20".parse().unwrap(),
                cuda: None,
            }),
            neuron: None,
            devices: vec![device],
        };
        let seen = Seen::of(&inventory, usage, &mut Possibilities::default());
        let units = &seen.units[0];
        assert_eq!(
            (units.resource.as_str(), units.total, seen.units.len()),
            ("nvidia.com/gpu", 1, 1)
        );
        (units.free, units.in_use, units.unknown())
    }

    fn device() -> Device {
        Device {
            uuid: Some(UUID.parse().unwrap()),
            mig: Mig::NotCapable,
            ..gpu()
        }
    }

    #[test]
    fn what_was_given_to_a_container_is_in_use_before_it_has_a_process() {
        let usage = Usage {
            devices: vec![DeviceUsage {
                pci: device().pci,
                name: "GPU 0".to_owned(),
                memory: None,
                utilization: None,
                units: vec![UnitUsage {
                    uuid: UUID.to_owned(),
                    partition: None,
                    profile: None,
                    resource: None,
                    replicas: None,
                    fair_share: None,
                    memory: None,
                    tenants: vec![Tenant {
                        ids: vec![ShareId::whole(UUID)],
                        ..Tenant::default()
                    }],
                    unattributed: None,
                    exhausted_in: None,
                    is_nearly_exhausted: false,
                }],
            }],
            missing: Vec::new(),
        };
        assert_eq!(seen(device(), None), (1, 0, 0));
        assert_eq!(seen(device(), Some(&usage)), (0, 1, 0));
    }

    #[test]
    fn a_process_is_use_and_silence_is_not_idleness() {
        let mut busy = device();
        busy.processes = vec![process(7, None, None)];
        assert_eq!(seen(busy, None), (0, 1, 0));
        let mut silent = device();
        silent.users_untold("no permission".to_owned());
        assert_eq!(seen(silent, None), (0, 0, 1));
    }
}
