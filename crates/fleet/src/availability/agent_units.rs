//! Units derived from an agent's inventory, recomputed when the inventory changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_model::claim::DRIVER;
use octavo_model::id::{GpuUuid, MigUuid, PciAddress, TypeName};
use octavo_model::inventory::{Amd, Device, Inventory, Vendor};
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::sharing_status::{DeviceProvider, SharingStatus, UnitStatus};
use octavo_node::sharing::usage::Usage;
use octavo_planner::plan::messages::PlanFormatter;

use super::potential::{FragmentedDevice, IdleDevice, PotentialCache, potential_of};
use super::row::RowKey;
use super::shape::{DeviceResource, Shape};
use crate::summary::{DeviceSummary, Occupancy};

/// Units that an agent reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentUnits {
    /// Ordered by resource, shape and type, each once.
    pub units: Vec<UnitCounts>,
    /// Devices that could be repartitioned: groups of identical devices with their count.
    pub(super) idle: Vec<(Option<TypeName>, Arc<IdleDevice>, u32)>,
    /// Devices whose idle instances prevent a larger one, in the order of the inventory.
    pub fragmented: Vec<Arc<FragmentedDevice>>,
    /// True if the agent allocates the devices to resource claims. The resources are then names of device classes.
    pub serves_claims: bool,
}

/// Devices or partitions of one type and resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitCounts {
    /// Type; `None` if unknown.
    pub type_name: Option<TypeName>,
    /// Resource under which a device plugin usually offers them.
    pub resource: String,
    /// Kind of one unit.
    pub shape: Shape,
    /// Memory of one unit; the minimum if they differ.
    pub memory: Option<Mebibytes>,
    /// Total number.
    pub total: u64,
    /// Units without a process that are not allocated.
    pub free: u64,
    /// Units with a process, or allocated.
    pub in_use: u64,
    /// Units that require intervention before they can be used.
    pub broken: u64,
    /// Broken units that a container holds.
    pub broken_held: u64,
    /// Units that no claim can use, because the layout determines the partitions of their GPUs.
    pub covered: u64,
    /// Units reserved for virtual machines, which are unavailable to pods on purpose.
    pub reserved: u64,
}

/// Equal units, as a count instead of a list: an agent may report any number of time slices.
struct UnitGroup {
    resource: String,
    shape: Shape,
    memory: Option<Mebibytes>,
    unit_state: UnitState,
    count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnitState {
    Free,
    Taken,
    Broken,
    /// Broken and allocated.
    BrokenHeld,
    /// Free, on a GPU of which the layout determines the partitions on a node that serves claims.
    Covered,
    Passthrough,
    Unknown,
}

/// Allocated id of a unit. Several claims can hold the same one: a claim is part of the identity.
type HeldId<'a> = (Option<(&'a str, &'a str)>, &'a ShareId);

/// Agent's report on its node besides the devices.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentReport<'a> {
    /// Devices held by containers, if the agent observes that.
    pub usage: Option<&'a Usage>,
    /// Allocation of devices, if the agent takes part in it.
    pub sharing: Option<&'a SharingStatus>,
}

/// Returns `true` if both reports allocate the same units to the same holders, so that the same inventory has the same
/// units. Nothing else of the usage affects units.
pub fn has_same_allocations(one: Option<&Usage>, other: Option<&Usage>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => allocated_ids(one).eq(allocated_ids(other)),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// UUIDs of allocated units, with their allocated ids.
fn allocated_ids(usage: &Usage) -> impl Iterator<Item = (&str, HeldId<'_>)> {
    let units = usage.devices.iter().flat_map(|device| &device.units);
    units.flat_map(|unit| {
        unit.tenants.iter().flat_map(move |tenant| {
            let claim = tenant.namespace.as_deref().zip(tenant.claim.as_deref());
            tenant.ids.iter().map(move |id| (unit.uuid.as_str(), (claim, id)))
        })
    })
}

/// Allocations of each device or partition, and which of them are time-sliced; by UUID.
#[derive(Debug, Default)]
struct Allocations<'a> {
    held: BTreeMap<&'a str, BTreeSet<HeldId<'a>>>,
    sliced: BTreeMap<&'a str, (&'a str, u32)>,
    /// GPUs that claims cannot use.
    covered: BTreeSet<PciAddress>,
    /// True if the agent allocates the devices to resource claims.
    serves_claims: bool,
    /// True if claims may hold any device, because the agent does not report the use.
    is_use_unknown: bool,
}

/// Class of whole GPUs, which has the name of the driver. Source: the chart.
const GPU_CLASS: &str = DRIVER;
/// Class of MIG partitions. Source: the chart.
const MIG_CLASS: &str = "mig.octavo.dev";
/// Class of devices and partitions that several claims share. Source: the chart.
const SHARED_CLASS: &str = "shared.octavo.dev";

/// Resource name of devices without a known device plugin.
const OTHER_RESOURCE: &str = "other";

impl AgentUnits {
    /// Counts the units of a node with these devices, of which `summaries` are the summaries ([`DeviceSummary::all`]). The
    /// potential capacity of idle devices is cached in `known`.
    pub fn new(
        summaries: &[DeviceSummary],
        inventory: &Inventory,
        reported: AgentReport<'_>,
        known: &mut PotentialCache,
    ) -> Self {
        let allocations = Allocations::of(reported);
        let held: BTreeSet<&str> = allocations.held.keys().copied().collect();
        let mut all: BTreeMap<(String, Shape, Option<TypeName>), UnitCounts> = BTreeMap::new();
        let devices = inventory.devices.iter().map(Some);
        // Devices that only the Neuron driver reports come last and are not in `inventory.devices`.
        let devices = devices.chain(std::iter::repeat(None));
        let mut seen = Self { serves_claims: allocations.serves_claims, ..Self::default() };
        for (summary, device) in summaries.iter().zip(devices) {
            for one in units(summary, device, &allocations) {
                let key = (one.resource.clone(), one.shape.clone(), summary.type_name.clone());
                let counts = all.entry(key);
                counts.or_insert_with_key(|(_, _, of)| UnitCounts::new(&one, of.clone())).add(&one);
            }
            // Claims determine the partitions of a device that they are allocated.
            let free = device
                .filter(|device| !allocations.serves_claims && !allocations.is_allocated(device));
            let idle =
                free.and_then(|device| Some((device.pci, potential_of(device, &held, known)?)));
            if let Some((pci, idle)) = idle {
                seen.fragmented.extend(idle.fragmentation.clone().map(|fragmentation| {
                    Arc::new(FragmentedDevice {
                        device: PlanFormatter::new(inventory, pci).device(pci),
                        type_name: summary.type_name.clone(),
                        fragmentation,
                    })
                }));
                seen.add_idle_device(summary.type_name.as_ref(), idle);
            }
        }
        seen.units = all.into_values().collect();
        seen
    }

    fn add_idle_device(&mut self, type_name: Option<&TypeName>, idle: Arc<IdleDevice>) {
        let mut groups = self.idle.iter_mut();
        match groups.find(|(of, one, _)| of.as_ref() == type_name && Arc::ptr_eq(one, &idle)) {
            Some((_, _, count)) => *count = count.saturating_add(1),
            None => self.idle.push((type_name.cloned(), idle, 1)),
        }
    }

    /// Returns `true` if the inventory has no device.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }
}

impl UnitCounts {
    fn new(one: &UnitGroup, type_name: Option<TypeName>) -> Self {
        Self {
            type_name,
            resource: one.resource.clone(),
            shape: one.shape.clone(),
            memory: one.memory,
            total: 0,
            free: 0,
            in_use: 0,
            broken: 0,
            broken_held: 0,
            covered: 0,
            reserved: 0,
        }
    }

    fn add(&mut self, one: &UnitGroup) {
        self.memory = [self.memory, one.memory].into_iter().flatten().min();
        self.total = self.total.saturating_add(one.count);
        let place = match one.unit_state {
            UnitState::Free => &mut self.free,
            UnitState::Taken => &mut self.in_use,
            UnitState::Broken => &mut self.broken,
            UnitState::BrokenHeld => {
                self.broken_held = self.broken_held.saturating_add(one.count);
                &mut self.broken
            }
            UnitState::Covered => &mut self.covered,
            UnitState::Passthrough => &mut self.reserved,
            UnitState::Unknown => return,
        };
        *place = place.saturating_add(one.count);
    }

    /// Number of units whose use is unknown.
    pub fn unknown_use(&self) -> u64 {
        let counted = [self.free, self.in_use, self.broken, self.covered, self.reserved];
        let counted = counted.into_iter().fold(0, u64::saturating_add);
        self.total.saturating_sub(counted)
    }
}

impl<'a> Allocations<'a> {
    fn of(reported: AgentReport<'a>) -> Self {
        let is_dra = |sharing: &SharingStatus| sharing.mode == DeviceProvider::Dra;
        let serves_claims = reported.sharing.is_some_and(is_dra);
        let is_use_unknown = serves_claims && reported.usage.is_none();
        let mut all = Self { serves_claims, is_use_unknown, ..Self::default() };
        for (uuid, id) in reported.usage.into_iter().flat_map(allocated_ids) {
            all.held.entry(uuid).or_default().insert(id);
        }
        let units = reported.sharing.into_iter().flat_map(SharingStatus::applied_units);
        let sliced =
            |(name, unit): (_, &'a UnitStatus)| Some((unit.uuid.as_str(), (name, unit.replicas?)));
        let units = units.map(|(name, unit)| (ResourceName::as_str(name), unit));
        all.sliced.extend(units.filter_map(sliced));
        if let Some(sharing) = reported.sharing.filter(|_| serves_claims) {
            let shares = sharing.claim_shares.iter().map(|unit| (SHARED_CLASS, unit));
            all.sliced.extend(shares.filter_map(sliced));
            all.covered.extend(&sharing.covered);
        }
        all
    }

    /// Returns `true` if a container holds the whole device or a time slice of it.
    fn is_allocated(&self, device: &Device) -> bool {
        let uuid = device.uuid.as_ref();
        uuid.is_some_and(|uuid| self.held.contains_key(uuid.as_str()))
    }

    /// Units that pods can request: the device or partition itself, or its time slices.
    fn units(
        &self,
        (pci, uuid): (Option<PciAddress>, Option<&str>),
        mut whole: UnitGroup,
    ) -> Vec<UnitGroup> {
        let is_covered = pci.is_some_and(|pci| self.covered.contains(&pci));
        let is_open = matches!(whole.unit_state, UnitState::Free | UnitState::Unknown);
        if is_open && is_covered {
            whole.unit_state = UnitState::Covered;
        } else if self.is_use_unknown && whole.unit_state == UnitState::Free {
            whole.unit_state = UnitState::Unknown;
        }
        let held = uuid.and_then(|uuid| self.held.get(uuid));
        let held = held.map_or(0, |ids| u64::try_from(ids.len()).unwrap_or(u64::MAX));
        let Some((name, replicas)) = uuid.and_then(|uuid| self.sliced.get(uuid)) else {
            let unit_state = if held > 0 { whole.unit_state.held() } else { whole.unit_state };
            return vec![UnitGroup { unit_state, ..whole }];
        };
        // A process of an unknown container occupies one unit.
        let taken = held.max(u64::from(whole.unit_state == UnitState::Taken));
        let replicas = u64::from(*replicas);
        let taken = taken.min(replicas);
        let is_taken = whole.unit_state == UnitState::Taken;
        let rest = if is_taken { UnitState::Free } else { whole.unit_state };
        let counts = [(whole.unit_state.held(), taken), (rest, replicas.saturating_sub(taken))];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let slices = counts.map(|(unit_state, count)| UnitGroup {
            resource: (*name).to_owned(),
            shape: whole.shape.time_slice(),
            memory: whole.memory,
            unit_state,
            count,
        });
        slices.collect()
    }
}

impl UnitState {
    /// State of a unit that a container holds.
    fn held(self) -> Self {
        match self {
            Self::Free | Self::Taken | Self::Covered | Self::Unknown => Self::Taken,
            Self::Broken | Self::BrokenHeld => Self::BrokenHeld,
            Self::Passthrough => Self::Passthrough,
        }
    }
}

fn units(
    summary: &DeviceSummary,
    device: Option<&Device>,
    allocations: &Allocations<'_>,
) -> Vec<UnitGroup> {
    let vendor = device.map_or(Vendor::Aws, |device| device.vendor);
    if let (Some(device), Occupancy::Partitioned(_)) = (device, summary.occupancy) {
        return partitions(device, allocations);
    }
    let resource = DeviceResource::for_vendor(vendor);
    let uuid = device.and_then(|device| device.uuid.as_ref());
    let resource = if vendor == Vendor::Nvidia && allocations.serves_claims {
        GPU_CLASS
    } else {
        resource.map_or(OTHER_RESOURCE, DeviceResource::as_str)
    };
    let amd = device.and_then(|device| device.amd.as_ref()).filter(|amd| amd.is_partitioned());
    let (shape, memory) = match amd {
        Some(amd) => (amd_shape(amd), amd.partitions.iter().filter_map(|one| one.memory).min()),
        None => (Shape::Device, summary.memory),
    };
    let whole = UnitGroup {
        resource: resource.to_owned(),
        shape,
        memory,
        unit_state: match summary.occupancy {
            Occupancy::Unavailable => UnitState::Broken,
            Occupancy::Passthrough => UnitState::Passthrough,
            Occupancy::Free => UnitState::Free,
            Occupancy::InUse => UnitState::Taken,
            Occupancy::Partitioned(_) | Occupancy::Unknown => UnitState::Unknown,
        },
        // If KFD is unavailable, the number of partitions is unknown.
        count: amd.map_or(1, |amd| amd.partitions.len().max(1).try_into().unwrap_or(u64::MAX)),
    };
    let pci = device.map(|device| device.pci);
    allocations.units((pci, uuid.map(GpuUuid::as_str)), whole)
}

/// Shape of the partitions of a device, named like the resources of AMD's device plugin: `cpx_nps4`. [`Shape::Device`] if
/// no mode can be read.
fn amd_shape(amd: &Amd) -> Shape {
    let modes = [&amd.compute, &amd.memory].into_iter().flatten();
    let modes: Vec<String> = modes.map(|mode| mode.current.to_lowercase()).collect();
    if modes.is_empty() { Shape::Device } else { Shape::AmdPartition(modes.join("_")) }
}

fn partitions(device: &Device, allocations: &Allocations<'_>) -> Vec<UnitGroup> {
    let mut all = Vec::new();
    for instance in device.mig.state().into_iter().flat_map(|state| &state.gpu_instances) {
        for compute in &instance.compute_instances {
            let Some(profile) = device.profile_of(instance, compute) else {
                continue;
            };
            // A process without a reported instance could run in any.
            let is_here = |reported: Option<u32>, id| reported.is_none_or(|one| one == id);
            let mut processes = device.processes.iter();
            let runs = processes.any(|process| {
                is_here(process.gpu_instance, instance.id)
                    && is_here(process.compute_instance, compute.id)
            });
            let resource = ResourceName::mig(&profile);
            let resource = if allocations.serves_claims { MIG_CLASS } else { resource.as_str() };
            let whole = UnitGroup {
                resource: resource.to_owned(),
                shape: Shape::Mig(profile.to_string()),
                memory: compute.memory,
                unit_state: if runs { UnitState::Taken } else { UnitState::Free },
                count: 1,
            };
            let uuid = compute.uuid.as_ref();
            let part = (Some(device.pci), uuid.map(MigUuid::as_str));
            all.extend(allocations.units(part, whole));
        }
    }
    all
}

impl AgentUnits {
    /// Units behind a resource, by type. A node may offer time-sliced ones under another name.
    pub(super) fn units_of_resource(&self, resource: &str) -> impl Iterator<Item = &UnitCounts> {
        let bare = |name: &str| name.strip_suffix(".shared").unwrap_or(name).to_owned();
        let wanted = bare(resource);
        self.units.iter().filter(move |units| bare(&units.resource) == wanted)
    }

    /// Types of the units behind a resource; of all units if none is behind it.
    pub(super) fn types(&self, resource: &str) -> BTreeSet<Option<TypeName>> {
        let of = |units: &UnitCounts| units.type_name.clone();
        let found: BTreeSet<_> = self.units_of_resource(resource).map(of).collect();
        if found.is_empty() {
            return self.units.iter().map(of).collect();
        }
        found
    }

    /// Unhealthy units that the node still offers under a resource, of which it offers `allocatable`, and that no
    /// container is known to hold.
    pub(super) fn unhealthy_offered(
        &self,
        resource: &str,
        shape: &Shape,
        (capacity, allocatable): (u64, u64),
    ) -> u64 {
        let mut units: Vec<&UnitCounts> = self.units_of_resource(resource).collect();
        let whole = DeviceResource::for_resource(resource);
        if let (true, Shape::Device | Shape::NeuronCore, Some(whole)) =
            (units.is_empty(), shape, whole)
        {
            // Plugins have several names for the devices of Neuron and their cores.
            units = self.units_of_resource(whole.as_str()).collect();
        }
        let sum = |of: fn(&UnitCounts) -> u64| {
            units.iter().fold(0, |sum, one| of(one).saturating_add(sum))
        };
        let (total, broken): (u64, u64) = (sum(|one| one.total), sum(|one| one.broken));
        let parts = if *shape == Shape::NeuronCore {
            capacity.checked_div(total).unwrap_or(1).max(1)
        } else {
            1
        };
        // A plugin that withholds units withholds the unhealthy ones.
        let withheld = total.saturating_mul(parts).saturating_sub(allocatable);
        let reserved = sum(|one| one.reserved).saturating_mul(parts);
        let offered =
            broken.saturating_mul(parts).saturating_sub(withheld.saturating_sub(reserved));
        let free = broken.saturating_sub(sum(|one| one.broken_held)).saturating_mul(parts);
        offered.min(free)
    }

    /// Reserved units of a resource that the kubelet still counts in its capacity.
    pub(super) fn reserved_in_capacity(&self, resource: &str, capacity: u64) -> u64 {
        let sum = |of: fn(&UnitCounts) -> u64| {
            let counts = self.units_of_resource(resource).map(of);
            counts.fold(0, u64::saturating_add)
        };
        let uncounted = sum(|units| units.total).saturating_sub(capacity);
        sum(|units| units.reserved).saturating_sub(uncounted)
    }
}

impl UnitCounts {
    /// Returns `true` if pods may be allocated any unit.
    pub(super) fn has_usable(&self) -> bool {
        self.sound() > 0
    }

    /// Number of units that are not broken, covered or reserved, and that pods may be allocated.
    pub(super) fn sound(&self) -> u64 {
        let unusable = [self.broken, self.reserved, self.covered];
        self.total.saturating_sub(unusable.into_iter().fold(0, u64::saturating_add))
    }

    pub(super) fn key(&self) -> RowKey {
        RowKey {
            kind: self.type_name.clone().into(),
            resource: self.resource.clone(),
            shape: self.shape.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
