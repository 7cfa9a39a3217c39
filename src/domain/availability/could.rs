//! What idle devices could become: how many instances of each profile the planner finds room for beside what is in use.
//!
//! Devices that are alike have the same answer, and most of a fleet are; so answers are kept. Whether MIG mode can be changed without a
//! reset is not asked here: a plan says what it costs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::shape::{Shape, Whole};
use crate::domain::catalog::{Placement, ProfileCatalog};
use crate::domain::inventory::{Device, GpuInstance, InstanceUse, MigState, Usage, Vendor};
use crate::domain::layout::{InstanceTarget, MigTarget, standing};
use crate::domain::plan::{Feasible, feasible};
use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::ResourceName;

/// Answers for devices that were asked about before.
#[derive(Debug, Default)]
pub struct Possibilities {
    known: Vec<(ProfileCatalog, Answers)>,
}

/// What devices in a state could become.
type Answers = BTreeMap<State, Option<Arc<Idle>>>;

/// How many instances of each profile there can be, by the driver's id.
type Room = BTreeMap<u32, u32>;

/// Instances in use, in their places; and what else of the device is idle now, by resource.
type State = (Vec<InstanceTarget>, BTreeMap<String, u64>);

/// A device that nobody uses, or not all of it: shared by all that are alike.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idle {
    /// What of it is idle now, by resource.
    pub(super) holds: BTreeMap<String, u64>,
    /// What there could be more of, each alone.
    pub(super) could: Vec<Could>,
}

/// More of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Could {
    pub(super) resource: String,
    pub(super) shape: Shape,
    pub(super) memory: Option<Mebibytes>,
    pub(super) more: u64,
}

/// Kinds of devices, and states of one, whose answers are kept.
const MOST_CATALOGS: usize = 64;
const MOST_STATES: usize = 1024;

/// What `device` could become, of which containers have been given the units of these UUIDs; `None` where it can become nothing, or
/// nobody can tell who uses it.
pub(super) fn idle(
    device: &Device,
    given: &BTreeSet<&str>,
    known: &mut Possibilities,
) -> Option<Arc<Idle>> {
    let state = device.mig.state()?;
    if !device.mig.is_told() || device.usage() == Usage::Unknown {
        return None;
    }
    let asked = if device.mig.is_enabled() {
        partitioned(device, state, given)?
    } else {
        let is_free = device.processes.is_empty();
        let whole = Whole::of(Vendor::Nvidia)?;
        is_free.then(|| (Vec::new(), BTreeMap::from([(whole.as_str().to_owned(), 1)])))?
    };
    known.of(device, state, asked)
}

fn become_of(device: &Device, state: &MigState, (pinned, holds): &State) -> Option<Arc<Idle>> {
    let mut could = more(state, &look(device, state, pinned), holds);
    if device.mig.is_enabled() && pinned.is_empty() {
        could.push(Could {
            resource: Whole::of(Vendor::Nvidia)?.as_str().to_owned(),
            shape: Shape::Device,
            memory: device.memory,
            more: 1,
        });
    }
    (!could.is_empty()).then(|| {
        Arc::new(Idle {
            holds: holds.clone(),
            could,
        })
    })
}

/// Instances in use, in their places, and what is idle of the others.
fn partitioned(device: &Device, state: &MigState, given: &BTreeSet<&str>) -> Option<State> {
    let Some(MigTarget::Enabled(mut instances)) = standing(state) else {
        return None;
    };
    let is_idle = |instance: &&GpuInstance| {
        let used = device.usage().of(instance, state);
        let uuids = instance.compute_instances.iter();
        let mut uuids = uuids.filter_map(|compute| compute.uuid.as_ref());
        let is_had = uuids.any(|uuid| given.contains(uuid.as_str()));
        !is_had && matches!(used, InstanceUse::Idle | InstanceUse::NoComputeInstance)
    };
    let idle: Vec<&GpuInstance> = state.gpu_instances.iter().filter(is_idle).collect();
    let places: BTreeSet<Placement> = idle.iter().map(|instance| instance.placement).collect();
    instances.retain(|target| {
        target
            .placement
            .is_none_or(|place| !places.contains(&place))
    });
    let mut holds: BTreeMap<String, u64> = BTreeMap::new();
    for instance in idle {
        for compute in &instance.compute_instances {
            let profile = device.profile_of(instance, compute)?;
            let name = ResourceName::mig(&profile).as_str().to_owned();
            let count = holds.entry(name).or_default();
            *count = count.saturating_add(1);
        }
    }
    Some((instances, holds))
}

fn more(state: &MigState, room: &Room, holds: &BTreeMap<String, u64>) -> Vec<Could> {
    let profiles = state.catalog.profiles().iter();
    let all = profiles.filter_map(|profile| {
        let resource = ResourceName::mig(&profile.name).as_str().to_owned();
        let now = holds.get(&resource).copied().unwrap_or(0);
        let most = u64::from(room.get(&profile.id).copied()?);
        let more = most.saturating_sub(now);
        (more > 0).then(|| Could {
            resource,
            shape: Shape::Mig(profile.name.to_string()),
            memory: Some(profile.memory),
            more,
        })
    });
    all.collect()
}

impl Possibilities {
    fn of(&mut self, device: &Device, state: &MigState, asked: State) -> Option<Arc<Idle>> {
        let mut places = self.known.iter();
        let place = places.position(|(catalog, _)| *catalog == state.catalog);
        let known = place.and_then(|place| self.known.get(place));
        if let Some(idle) = known.and_then(|(_, states)| states.get(&asked)) {
            return idle.clone();
        }
        let idle = become_of(device, state, &asked);
        if let Some((_, states)) = place.and_then(|place| self.known.get_mut(place)) {
            if states.len() < MOST_STATES {
                states.insert(asked, idle.clone());
            }
        } else if self.known.len() < MOST_CATALOGS {
            let states = BTreeMap::from([(asked, idle.clone())]);
            self.known.push((state.catalog.clone(), states));
        }
        idle
    }
}

/// Of each profile without further attributes, the most instances that fit beside those pinned.
fn look(device: &Device, state: &MigState, pinned: &[InstanceTarget]) -> Room {
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
            feasible(device, &all) == Ok(Feasible::Yes)
        };
        // What has room for so many has room for fewer.
        let mut counts = (1..=profile.max_count.min(MOST_OF_PROFILE)).rev();
        (profile.id, counts.find(|count| fits(*count)).unwrap_or(0))
    });
    rooms.collect()
}

/// No device has more slices; a driver that says so is not believed.
const MOST_OF_PROFILE: u32 = 16;
