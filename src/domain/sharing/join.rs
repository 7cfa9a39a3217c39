//! Who uses what: the join of what driver, kubelet and kernel say, none of whom knows the other two.
//!
//! ```text
//!   driver   process -> memory, instance       readings
//!   kernel   process -> UID of its pod         kin
//!   kubelet  namespace, pod, container -> ids  given
//!   kubelet  UID -> ids                        its own record of what it gave; given[..].uid
//!   layout   unit -> resource, replicas        offers
//! ```
//!
//! * A process is of the unit that the driver says it runs in: GPU and compute instance, or the whole device.
//! * Its control group names its pod by UID, where kubelet's list has names. Kubelet's own record leads from one to the other.
//!   Where that cannot be read, who can be no other pod is that one (`kin`).
//! * It is of the container that was given an id of that unit and is of its pod. Where that pod has several such containers
//!   nothing tells them apart: the tenant is the pod, with the ids of them all. Where it has none, the process is a tenant by
//!   what is known: its UID and its container's id.
//! * Who may have processes that are not known to be another's uses an unknown amount, which is not 0. So it is where a UID may
//!   be one of several pods, where the driver does not name all processes (no hostPID), and of a unit that several have where no
//!   control group may be looked at; there one that is not shared is used by the pod that was given it. `missing` says why.
//! * The three are asked one after the other. A process that has ended meanwhile is nobody's; a pod that is listed and has no
//!   process uses nothing; one that has processes and is not listed any more is a tenant without ids.
//! * A process that computes and draws is in two lists with the same memory, and counts once. Where the processes of a moment
//!   later use more than the device said, it is they who are right: what is used is never less than what tenants use.

mod kin;
mod sight;
mod spot;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

pub use self::kin::{Kin, Origin};
use self::kin::{Names, identify};
use self::sight::{is_told, may_have_more, unasked, unseen};
use self::spot::{Spot, by_uuid, pod, spots, uuid_of};
use super::offer::Offers;
use super::resource::ShareId;
use super::usage::{DeviceUsage, Percent, Tenant, UnitUsage, Usage};
use crate::domain::holder::PodDevice;
use crate::domain::quantity::Mebibytes;
use crate::domain::reading::Reading;

/// What a node says at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The driver.
    pub readings: &'a [Reading],
    /// What is given out.
    pub offers: &'a Offers,
    /// Which container was given what.
    pub given: &'a [Given],
    /// Whether that is said of now. By what was said earlier nobody is who he only can be: others may be there meanwhile.
    pub is_current: bool,
    /// Which process is of which pod.
    pub kin: &'a Kin,
}

/// What a container was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// By kubelet's list.
    pub device: PodDevice,
    /// UID of the pod, where it is known.
    pub uid: Option<String>,
}

/// More lines of what is missing nobody reads.
const MOST_MISSING: usize = 16;

/// What a tenant is told from others by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// One of the spot's holders, by its place.
    Holder(usize),
    /// A container of a pod that was not given the spot, or of which it is not known what it was given.
    Stranger {
        uid: String,
        container: Option<String>,
    },
    /// A process of no pod.
    Alone(u32),
}

/// Who has what.
pub fn join(scene: &Scene<'_>) -> Usage {
    let mut missing = Vec::new();
    let given = by_uuid(scene.given);
    let readings = scene.readings.iter();
    let spots: Vec<Vec<Spot<'_>>> = readings.map(|reading| spots(reading, &given)).collect();
    let names = identify(scene, &spots);
    unplaced(scene, &spots, &mut missing);
    let both = scene.readings.iter().zip(&spots);
    for (reading, spots) in both.clone() {
        lacking(reading, &mut missing);
        missing.extend(unasked(reading, spots, scene.kin));
    }
    missing.extend(unseen(both, scene.kin));
    let both = scene.readings.iter().zip(spots);
    let mut devices: Vec<DeviceUsage> = both
        .map(|(reading, spots)| device(reading, spots, scene, &names))
        .collect();
    devices.sort_by_key(|device| device.pci);
    missing.extend(names.untold());
    bound(&mut missing);
    Usage { devices, missing }
}

fn bound(missing: &mut Vec<String>) {
    let surplus = missing.len().saturating_sub(MOST_MISSING);
    if surplus > 0 {
        missing.truncate(MOST_MISSING);
        missing.push(format!("and {surplus} more"));
    }
}

/// Says what was given and is nothing of these devices.
fn unplaced(scene: &Scene<'_>, spots: &[Vec<Spot<'_>>], missing: &mut Vec<String>) {
    let known: BTreeSet<(&str, &str)> = spots
        .iter()
        .flatten()
        .flat_map(|spot| &spot.holders)
        .flat_map(|holder| {
            let ids = holder.ids.iter().map(ShareId::uuid);
            ids.chain([uuid_of(&holder.device.device_id)])
                .map(|uuid| (holder.device.pod.as_str(), uuid))
        })
        .collect();
    if scene.readings.is_empty() {
        return;
    }
    for Given { device, .. } in scene.given {
        let place = (device.pod.as_str(), uuid_of(&device.device_id));
        if is_of_gpus(&device.resource) && !known.contains(&place) {
            missing.push(format!(
                "pod {}/{} was given {} {}, and nobody knows what of this node that is",
                device.namespace, device.pod, device.resource, device.device_id
            ));
        }
    }
}

/// Whether a resource is made of GPUs or partitions, by its name: NVIDIA has others, such as network cards.
fn is_of_gpus(resource: &str) -> bool {
    resource == "gpu.nvidia.com"
        || resource.starts_with("nvidia.com/gpu")
        || resource.starts_with("nvidia.com/mig-")
}

/// What the sources do not tell of a device.
fn lacking(reading: &Reading, missing: &mut Vec<String>) {
    let name = name(reading);
    if reading.processes.is_none() {
        missing.push(format!("{name}: the driver does not tell its processes"));
    }
    if reading.memory.is_none() {
        missing.push(format!("{name}: the driver does not tell its memory"));
    }
}

fn name(reading: &Reading) -> String {
    format!("GPU {}", reading.label())
}

fn device(
    reading: &Reading,
    spots: Vec<Spot<'_>>,
    scene: &Scene<'_>,
    names: &Names<'_>,
) -> DeviceUsage {
    let busy: BTreeMap<u32, Percent> = reading
        .busy
        .iter()
        .map(|busy| (busy.pid, busy.compute))
        .collect();
    let mut units: Vec<UnitUsage> = spots
        .into_iter()
        .map(|spot| unit(spot, scene, names, &busy))
        .collect();
    units.sort_by(|a, b| (a.partition, &a.uuid).cmp(&(b.partition, &b.uuid)));
    settle(&mut units);
    let mut memory = reading.memory;
    if let Some(memory) = &mut memory {
        let mut instances = BTreeMap::new();
        for unit in &units {
            let used = unit.memory.map(|memory| memory.used.get());
            instances.insert(unit.partition.map(|(gi, _)| gi), used.unwrap_or_default());
        }
        let least = instances.into_values().fold(0, u64::saturating_add);
        memory.used = memory.used.max(Mebibytes::new(least));
    }
    DeviceUsage {
        pci: reading.pci,
        name: name(reading),
        memory,
        utilization: reading.vitals.compute,
        units,
    }
}

/// What is used and is no tenant's, over all units that share their memory.
fn settle(units: &mut [UnitUsage]) {
    let mut sums: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    let instance = |unit: &UnitUsage| unit.partition.map(|(gi, _)| gi);
    for unit in units.iter() {
        let sum = sums.entry(instance(unit)).or_default();
        let tenants = unit.tenants.iter().filter_map(|tenant| tenant.memory);
        *sum = tenants.fold(*sum, |sum, memory| sum.saturating_add(memory.get()));
    }
    for unit in units {
        let sum = sums.get(&instance(unit)).copied().unwrap_or_default();
        if let Some(memory) = &mut unit.memory {
            memory.used = memory.used.max(Mebibytes::new(sum));
            let rest = memory.used.get().saturating_sub(sum);
            unit.unattributed = Some(Mebibytes::new(rest));
        }
    }
}

fn unit(
    spot: Spot<'_>,
    scene: &Scene<'_>,
    names: &Names<'_>,
    busy: &BTreeMap<u32, Percent>,
) -> UnitUsage {
    let offered = scene.offers.unit(&spot.uuid);
    let tenants = tenants(&spot, scene.kin, names, busy);
    UnitUsage {
        uuid: spot.uuid,
        partition: spot.partition,
        profile: spot.profile,
        resource: offered.map(|(offer, _)| offer.name.clone()),
        replicas: offered.and_then(|(_, unit)| unit.replicas),
        fair_share: offered.and_then(|(_, unit)| unit.fair_share()),
        memory: spot.memory,
        tenants,
        unattributed: None,
        exhausted_in: None,
        is_nearly_exhausted: false,
    }
}

fn tenants(
    spot: &Spot<'_>,
    kin: &Kin,
    names: &Names<'_>,
    busy: &BTreeMap<u32, Percent>,
) -> Vec<Tenant> {
    let mut on: BTreeMap<Key, Vec<u32>> = (0..spot.holders.len())
        .map(|place| (Key::Holder(place), Vec::new()))
        .collect();
    for pid in spot.processes.keys() {
        if let Some(key) = key(spot, *pid, kin, names) {
            on.entry(key).or_default().push(*pid);
        }
    }
    let is_told = is_told(spot, kin);
    let open = may_have_more(spot, kin, names);
    let mut tenants: Vec<Tenant> = on
        .into_iter()
        .map(|(key, processes)| {
            // Who cannot be told from others may use any of it.
            let is_told = match &key {
                Key::Holder(place) => {
                    let mut holder = spot.holders.get(*place).into_iter();
                    is_told && holder.all(|holder| !open.contains(&pod(holder.device)))
                }
                Key::Stranger { .. } | Key::Alone(_) => true,
            };
            let memory = processes
                .iter()
                .map(|pid| spot.processes.get(pid).copied().flatten());
            let memory = memory.collect::<Option<Vec<_>>>().filter(|_| is_told);
            let memory = memory.map(|all| {
                let sum = all.into_iter().map(Mebibytes::get);
                Mebibytes::new(sum.fold(0, u64::saturating_add))
            });
            let shares = processes.iter().filter_map(|pid| busy.get(pid));
            let shares: Vec<u32> = shares.map(|share| u32::from(share.0)).collect();
            Tenant {
                memory,
                utilization: (!shares.is_empty())
                    .then(|| Percent::of(shares.into_iter().fold(0, u32::saturating_add))),
                processes,
                ..who(&key, spot, names)
            }
        })
        .collect();
    tenants.sort_by(|a, b| order(a).cmp(&order(b)));
    tenants
}

/// The largest first, and of those alike by name.
fn order(tenant: &Tenant) -> impl Ord {
    let name = (&tenant.namespace, &tenant.pod, &tenant.container);
    (Reverse(tenant.memory), name, &tenant.uid, &tenant.processes)
}

/// Whose process this is; nobody's where it cannot be told.
fn key(spot: &Spot<'_>, pid: u32, kin: &Kin, names: &Names<'_>) -> Option<Key> {
    match kin.of(pid) {
        None => spot.only().map(Key::Holder),
        Some(Origin::Gone | Origin::Unknown) => None,
        Some(Origin::NoPod) => Some(Key::Alone(pid)),
        Some(Origin::Pod { uid, container }) => {
            let stranger = Key::Stranger {
                uid: uid.clone(),
                container: container.clone(),
            };
            let Some(name) = names.of(uid) else {
                return Some(stranger);
            };
            let place = spot.places.get(&name);
            Some(place.map_or(stranger, |place| Key::Holder(*place)))
        }
    }
}

/// A tenant with all that is known of who it is.
fn who(key: &Key, spot: &Spot<'_>, names: &Names<'_>) -> Tenant {
    match key {
        Key::Holder(place) => spot.holders.get(*place).map(|holder| Tenant {
            namespace: Some(holder.device.namespace.clone()),
            pod: Some(holder.device.pod.clone()),
            uid: holder
                .uid
                .or_else(|| names.uid(pod(holder.device)))
                .map(ToOwned::to_owned),
            container: holder.container.map(ToOwned::to_owned),
            ids: holder.ids.clone(),
            ..Tenant::default()
        }),
        Key::Stranger { uid, container } => {
            let (namespace, pod) = names.of(uid).unzip();
            Some(Tenant {
                namespace: namespace.map(ToOwned::to_owned),
                pod: pod.map(ToOwned::to_owned),
                uid: Some(uid.clone()),
                container: container.clone(),
                ..Tenant::default()
            })
        }
        Key::Alone(_) => None,
    }
    .unwrap_or_default()
}

impl DeviceUsage {
    /// What is used of the device and is no tenant's; `None` where it is not known.
    pub fn unattributed(&self) -> Option<Mebibytes> {
        let used = self.memory?.used;
        let tenants = self.units.iter().flat_map(|unit| &unit.tenants);
        let known = tenants.filter_map(|tenant| tenant.memory);
        Some(Mebibytes::new(known.fold(used.get(), |rest, memory| {
            rest.saturating_sub(memory.get())
        })))
    }
}

#[cfg(test)]
mod tests;
