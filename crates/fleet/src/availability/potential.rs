//! Potential capacity of idle devices: the number of instances of each profile that the planner can place beside the
//! instances in use.
//!
//! Identical devices have the same result, and most devices of a fleet are identical, so results are cached. Whether
//! enabling MIG mode requires a reset is not considered here; a plan states that cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_model::catalog::{GpuInstanceProfile, Placement, ProfileCatalog};
use octavo_model::id::TypeName;
use octavo_model::inventory::{
    Device, DeviceProcesses, GpuInstance, InstanceUse, MigState, Vendor,
};
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::ResourceName;
use octavo_planner::layout::{InstanceTarget, MigTarget, current_target};
use octavo_planner::plan::{Feasibility, feasible};

use super::shape::{DeviceResource, Shape};

/// Cache of results by MIG profile catalog and device state.
#[derive(Debug, Default)]
pub struct PotentialCache {
    known: Vec<(ProfileCatalog, PotentialByState)>,
}

/// Potential capacity by device state.
type PotentialByState = BTreeMap<DeviceUseState, Option<Arc<IdleDevice>>>;

/// Maximum number of instances by profile id of the driver.
type MaxInstances = BTreeMap<u32, u32>;

/// Use of a device. Devices with the same use and the same profiles have the same potential capacity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DeviceUseState {
    /// Instances in use with their placements.
    in_use: Vec<InstanceTarget>,
    /// Idle instances with their placements.
    idle: Vec<InstanceTarget>,
    /// Idle units by resource.
    holds: BTreeMap<String, u64>,
}

/// Device that is idle or partly idle; shared by all identical devices.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IdleDevice {
    /// Idle units by resource.
    pub(super) holds: BTreeMap<String, u64>,
    /// Additional units that the device could provide; each entry is an alternative to the others.
    pub(super) could: Vec<PotentialUnits>,
    /// `None` if removing idle instances does not allow a larger one.
    pub(super) fragmentation: Option<Fragmentation>,
}

/// Additional units of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PotentialUnits {
    pub(super) resource: String,
    pub(super) shape: Shape,
    pub(super) memory: Option<Mebibytes>,
    /// Units that fit into slices without an instance.
    pub(super) fits: u64,
    /// Units that the device could provide if its idle instances were removed, in addition to its idle units of this
    /// resource.
    pub(super) more: u64,
}

/// A device whose idle instances prevent a larger one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentedDevice {
    /// Display name: `GPU 3`.
    pub device: String,
    /// Type; `None` if unknown.
    pub type_name: Option<TypeName>,
    /// Largest instances with and without the idle ones.
    pub fragmentation: Fragmentation,
}

/// Largest instances of a device: now, and if its idle instances were removed. The latter is larger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragmentation {
    /// Profile of the largest instance that is idle, or fits into slices without an instance; `None` if there is none.
    pub now: Option<String>,
    /// Profile of the largest instance that fits beside the instances in use.
    pub rearranged: String,
    /// Difference in memory.
    pub gain: Mebibytes,
}

/// Cache limits: number of profile catalogs, and of device states per catalog.
const MAX_CATALOGS: usize = 64;
const MAX_STATES_PER_CATALOG: usize = 1024;

/// Potential capacity of `device`, where `allocated` are the UUIDs of units allocated to containers. `None` if the device
/// cannot be repartitioned or its use is unknown.
pub(super) fn potential_of(
    device: &Device,
    allocated: &BTreeSet<&str>,
    known: &mut PotentialCache,
) -> Option<Arc<IdleDevice>> {
    let state = device.mig.state()?;
    if !device.mig.is_fully_known() || device.usage() == DeviceProcesses::Unknown {
        return None;
    }
    let key = if device.mig.is_enabled() {
        partitioned(device, state, allocated)?
    } else {
        let is_free = device.processes.is_empty();
        let whole = DeviceResource::for_vendor(Vendor::Nvidia)?;
        is_free.then(|| DeviceUseState {
            in_use: Vec::new(),
            idle: Vec::new(),
            holds: BTreeMap::from([(whole.as_str().to_owned(), 1)]),
        })?
    };
    known.of(device, state, key)
}

fn calculate_potential(
    device: &Device,
    state: &MigState,
    of: &DeviceUseState,
) -> Option<Arc<IdleDevice>> {
    let DeviceUseState { in_use, idle, holds } = of;
    let rearranged = max_instances(device, state, in_use);
    let is_enabled = device.mig.is_enabled();
    // Instances fit beside others only in MIG mode.
    let beside = is_enabled.then(|| max_instances(device, state, &[&in_use[..], idle].concat()));
    let fragmentation =
        beside.as_ref().and_then(|beside| fragmentation(state, &rearranged, beside, holds));
    let mut could = additional_units(state, &rearranged, &beside.unwrap_or_default(), holds);
    if is_enabled && in_use.is_empty() {
        could.push(PotentialUnits {
            resource: DeviceResource::for_vendor(Vendor::Nvidia)?.as_str().to_owned(),
            shape: Shape::Device,
            memory: device.memory,
            fits: 0,
            more: 1,
        });
    }
    (!could.is_empty()).then(|| {
        let holds = holds.clone();
        Arc::new(IdleDevice { holds, could, fragmentation })
    })
}

fn fragmentation(
    state: &MigState,
    rearranged: &MaxInstances,
    beside: &MaxInstances,
    holds: &BTreeMap<String, u64>,
) -> Option<Fragmentation> {
    let profiles = state.catalog.profiles().iter();
    // On an A100, 3g.20gb and 4g.20gb have the same memory.
    let size = |profile: &&GpuInstanceProfile| (profile.memory, profile.resources.compute_slices);
    let fits = |room: &MaxInstances, id: u32| room.get(&id).is_some_and(|count| *count > 0);
    let now = profiles.clone().filter(|profile| {
        fits(beside, profile.id) || holds.contains_key(ResourceName::mig(&profile.name).as_str())
    });
    let now = now.max_by_key(size);
    let largest = profiles.filter(|profile| fits(rearranged, profile.id));
    let largest = largest.max_by_key(size)?;
    let memory_now = now.map_or(0, |profile| profile.memory.get());
    let gain = largest.memory.get().checked_sub(memory_now).filter(|gain| *gain > 0)?;
    Some(Fragmentation {
        now: now.map(|profile| profile.name.to_string()),
        rearranged: largest.name.to_string(),
        gain: Mebibytes::new(gain),
    })
}

fn partitioned(
    device: &Device,
    state: &MigState,
    allocated: &BTreeSet<&str>,
) -> Option<DeviceUseState> {
    let Some(MigTarget::Enabled(instances)) = current_target(state) else {
        return None;
    };
    let is_idle = |instance: &&GpuInstance| {
        let used = device.usage().of(instance, state);
        let uuids = instance.compute_instances.iter();
        let mut uuids = uuids.filter_map(|compute| compute.uuid.as_ref());
        let is_had = uuids.any(|uuid| allocated.contains(uuid.as_str()));
        !is_had && matches!(used, InstanceUse::Idle | InstanceUse::NoComputeInstance)
    };
    let idle: Vec<&GpuInstance> = state.gpu_instances.iter().filter(is_idle).collect();
    let places: BTreeSet<Placement> = idle.iter().map(|instance| instance.placement).collect();
    let is_removable = |target: &InstanceTarget| {
        target.placement.is_some_and(|placement| places.contains(&placement))
    };
    let (idle_targets, in_use) = instances.into_iter().partition(is_removable);
    let mut holds: BTreeMap<String, u64> = BTreeMap::new();
    for instance in idle {
        for compute in &instance.compute_instances {
            let profile = device.profile_of(instance, compute)?;
            let name = ResourceName::mig(&profile).as_str().to_owned();
            let count = holds.entry(name).or_default();
            *count = count.saturating_add(1);
        }
    }
    Some(DeviceUseState { in_use, idle: idle_targets, holds })
}

/// Additional units by profile: `rearranged` are the maximum numbers without the idle instances, `beside` those with
/// them.
fn additional_units(
    state: &MigState,
    rearranged: &MaxInstances,
    beside: &MaxInstances,
    holds: &BTreeMap<String, u64>,
) -> Vec<PotentialUnits> {
    let profiles = state.catalog.profiles().iter();
    let all = profiles.filter_map(|profile| {
        let resource = ResourceName::mig(&profile.name).as_str().to_owned();
        let now = holds.get(&resource).copied().unwrap_or(0);
        let most = u64::from(rearranged.get(&profile.id).copied()?);
        let more = most.saturating_sub(now);
        (more > 0).then(|| PotentialUnits {
            resource,
            shape: Shape::Mig(profile.name.to_string()),
            memory: Some(profile.memory),
            fits: beside.get(&profile.id).copied().unwrap_or(0).into(),
            more,
        })
    });
    all.collect()
}

impl PotentialCache {
    fn of(
        &mut self,
        device: &Device,
        state: &MigState,
        key: DeviceUseState,
    ) -> Option<Arc<IdleDevice>> {
        let mut places = self.known.iter();
        let place = places.position(|(catalog, _)| *catalog == state.catalog);
        let known = place.and_then(|place| self.known.get(place));
        if let Some(idle) = known.and_then(|(_, states)| states.get(&key)) {
            return idle.clone();
        }
        let idle = calculate_potential(device, state, &key);
        if let Some((_, states)) = place.and_then(|place| self.known.get_mut(place)) {
            if states.len() < MAX_STATES_PER_CATALOG {
                states.insert(key, idle.clone());
            }
        } else if self.known.len() < MAX_CATALOGS {
            let states = BTreeMap::from([(key, idle.clone())]);
            self.known.push((state.catalog.clone(), states));
        }
        idle
    }
}

/// Maximum number of instances of each profile without attributes that fit beside the pinned ones.
fn max_instances(device: &Device, state: &MigState, pinned: &[InstanceTarget]) -> MaxInstances {
    let profiles = state.catalog.profiles().iter();
    let plain = profiles.filter(|profile| profile.name.is_plain());
    let rooms = plain.map(|profile| {
        let one = InstanceTarget {
            profile_id: profile.id,
            compute: vec![profile.resources.gpu_slices],
            placement: None,
        };
        let fits = |count: u32| {
            let more = usize::try_from(count).unwrap_or_default();
            let more = std::iter::repeat_n(one.clone(), more);
            let mut all: Vec<InstanceTarget> = pinned.iter().cloned().chain(more).collect();
            all.sort();
            feasible(device, &all) == Ok(Feasibility::Feasible)
        };
        // If this many fit, fewer fit too; hence the first match is the maximum.
        let mut counts = (1..=profile.max_count.min(MAX_INSTANCES_PER_PROFILE)).rev();
        (profile.id, counts.find(|count| fits(*count)).unwrap_or(0))
    });
    rooms.collect()
}

/// Upper limit on instances per profile, whatever the driver reports: no device has more slices.
const MAX_INSTANCES_PER_PROFILE: u32 = 16;
