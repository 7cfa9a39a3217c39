//! Usage by pod: joins the data of driver, kubelet and kernel, none of which has the others' identifiers.
//!
//! ```text
//!   driver   process -> memory, instance       readings
//!   kernel   process -> UID of its pod         attribution
//!   kubelet  namespace, pod, container -> ids  allocations
//!   kubelet  UID -> ids                        its checkpoint of allocations; allocations[..].uid
//!   layout   unit -> resource, replicas        offers
//! ```
//!
//! * A process belongs to the unit that the driver reports for it: GPU and compute instance, or the whole device.
//! * Its control group contains the UID of its pod, while kubelet's list contains names. Kubelet's checkpoint maps
//!   one to the other. If the checkpoint cannot be read, a UID with a single possible pod is assigned to it (`attribution`).
//! * It belongs to the container of its pod that holds an id of that unit. If several containers of the pod do, they
//!   cannot be distinguished: the tenant is the pod, with all their ids. If none does, the process is a tenant with
//!   the known identity: its UID and its container's id.
//! * A tenant that may own unattributed processes uses an unknown amount, which is not 0. This is the case if a UID
//!   may belong to one of several pods, if the driver does not report all processes (no hostPID), and for a shared
//!   unit if control groups cannot be read; a unit that is not shared is then used by the pod that holds it.
//!   `missing` contains the reason.
//! * The three sources are read one after the other. A process that has ended in between is not attributed; a listed
//!   pod without a process uses nothing; a pod with processes that is no longer listed is a tenant without ids.
//! * A process that computes and renders is in two lists with the same memory, and counts once. If the processes,
//!   read a moment later, use more than the device reported, their sum counts: usage is never less than that of the
//!   tenants.

mod attribution;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use octavo_model::claim::DRIVER;
use octavo_model::holder::DeviceAllocation;
use octavo_model::process_origin::ProcessOrigin;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{Percent, Reading};
use octavo_model::resource::ShareId;

pub use self::attribution::PodAttribution;
use self::attribution::{
    AllocationSite, PodNames, by_uuid, identify, is_usage_known, pod, pods_with_unattributed,
    report_hidden, report_uninspected, sites,
};
use super::offer::Offers;
use super::usage::{DeviceUsage, Tenant, UNASSIGNED, UnitUsage, Usage};

/// Data of a node at one moment.
#[derive(Debug, Clone, Copy)]
pub struct UsageInput<'a> {
    /// Readings of the driver.
    pub readings: &'a [Reading],
    /// The offered resources.
    pub offers: &'a Offers,
    /// Allocations of containers.
    pub allocations: &'a [Allocation],
    /// True if the allocations are current. With older ones, no UID is assigned by elimination: other pods may have
    /// started since.
    pub is_current: bool,
    /// The pod of each process.
    pub attribution: &'a PodAttribution,
}

/// An allocation of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The allocation in kubelet's list.
    pub device: DeviceAllocation,
    /// UID of the pod, if known.
    pub uid: Option<String>,
}

/// Maximum number of lines about missing data.
const MAX_MISSING_LINES: usize = 16;

/// Identity of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TenantKey {
    /// A holder of the unit, by its index.
    Holder(usize),
    /// A container of a pod that does not hold the unit, or whose allocations are unknown.
    Unallocated { uid: String, container: Option<String> },
    /// A process outside any pod.
    NonPodProcess(u32),
}

/// Returns the usage by pod.
pub fn join(input: &UsageInput<'_>) -> Usage {
    let mut missing = Vec::new();
    let allocations = by_uuid(input.allocations);
    let readings = input.readings.iter();
    let sites: Vec<Vec<AllocationSite<'_>>> =
        readings.map(|reading| sites(reading, &allocations)).collect();
    let names = identify(input, &sites);
    report_unknown_allocations(input, &sites, &mut missing);
    let both = input.readings.iter().zip(&sites);
    for (reading, sites) in both.clone() {
        report_missing_data(reading, &mut missing);
        missing.extend(report_uninspected(reading, sites, input.attribution));
    }
    missing.extend(report_hidden(both, input.attribution));
    let both = input.readings.iter().zip(sites);
    let mut devices: Vec<DeviceUsage> =
        both.map(|(reading, sites)| device(reading, sites, input, &names)).collect();
    devices.sort_by_key(|device| device.pci);
    missing.extend(names.unresolved());
    truncate_missing(&mut missing);
    Usage { devices, missing, are_allocations_unknown: false }
}

fn truncate_missing(missing: &mut Vec<String>) {
    let surplus = missing.len().saturating_sub(MAX_MISSING_LINES);
    if surplus > 0 {
        missing.truncate(MAX_MISSING_LINES);
        missing.push(format!("and {surplus} more"));
    }
}

/// Reports allocations that do not belong to any of these devices.
fn report_unknown_allocations(
    input: &UsageInput<'_>,
    sites: &[Vec<AllocationSite<'_>>],
    missing: &mut Vec<String>,
) {
    let known: BTreeSet<(&str, &str)> = sites
        .iter()
        .flatten()
        .flat_map(|site| &site.holders)
        .flat_map(|holder| {
            let ids = holder.ids.iter().map(ShareId::uuid);
            ids.chain([ShareId::uuid_part(&holder.device.device_id)])
                .map(|uuid| (holder.device.pod.as_str(), uuid))
        })
        .collect();
    if input.readings.is_empty() {
        return;
    }
    for Allocation { device, .. } in input.allocations {
        let place = (device.pod.as_str(), ShareId::uuid_part(&device.device_id));
        if is_of_gpus(&device.resource) && !known.contains(&place) {
            let holder = match &device.claim {
                Some(claim) if device.pod.is_empty() => format!("resource claim {claim}"),
                Some(_) | None => format!("pod {}/{}", device.namespace, device.pod),
            };
            let (resource, id) = (&device.resource, &device.device_id);
            missing.push(format!("{holder} was allocated {resource} {id}, {UNASSIGNED}"));
        }
    }
}

/// Returns whether a resource consists of GPUs or partitions, by its name: NVIDIA has others, such as network cards.
fn is_of_gpus(resource: &str) -> bool {
    matches!(resource, "gpu.nvidia.com" | DRIVER)
        || resource.starts_with("nvidia.com/gpu")
        || resource.starts_with("nvidia.com/mig-")
}

/// Reports missing driver data of a device.
fn report_missing_data(reading: &Reading, missing: &mut Vec<String>) {
    let name = name(reading);
    if reading.processes.is_none() {
        missing.push(format!("{name}: the driver does not report its processes"));
    }
    if reading.memory.is_none() {
        missing.push(format!("{name}: the driver does not report its memory"));
    }
}

fn name(reading: &Reading) -> String {
    format!("GPU {}", reading.label())
}

fn device(
    reading: &Reading,
    sites: Vec<AllocationSite<'_>>,
    input: &UsageInput<'_>,
    names: &PodNames<'_>,
) -> DeviceUsage {
    let busy: BTreeMap<u32, Percent> =
        reading.process_utilization.iter().map(|busy| (busy.pid, busy.compute)).collect();
    let mut units: Vec<UnitUsage> =
        sites.into_iter().map(|site| unit(site, input, names, &busy)).collect();
    units.sort_by(|a, b| (a.partition(), &a.uuid).cmp(&(b.partition(), &b.uuid)));
    set_unattributed(&mut units);
    let mut memory = reading.memory;
    if let Some(memory) = &mut memory {
        let mut instances = BTreeMap::new();
        for unit in &units {
            let used = unit.memory.map(|memory| memory.used.get());
            instances.insert(unit.gpu_instance, used.unwrap_or_default());
        }
        let least = instances.into_values().fold(0, u64::saturating_add);
        memory.used = memory.used.max(Mebibytes::new(least));
    }
    DeviceUsage {
        pci: reading.pci,
        name: name(reading),
        memory,
        utilization: reading.metrics.compute,
        power_watts: reading.metrics.power_watts(),
        temperature_celsius: reading.metrics.temperature,
        units,
    }
}

/// Sets used memory that belongs to no tenant, over all units that share their memory.
fn set_unattributed(units: &mut [UnitUsage]) {
    let mut sums: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    let instance = |unit: &UnitUsage| unit.gpu_instance;
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
    site: AllocationSite<'_>,
    input: &UsageInput<'_>,
    names: &PodNames<'_>,
    busy: &BTreeMap<u32, Percent>,
) -> UnitUsage {
    let offered = input.offers.unit(&site.uuid);
    let mut tenants = tenants(&site, input.attribution, names, busy);
    if let [only] = tenants.as_mut_slice()
        && !site.is_shared_instance
        && is_usage_known(&site, input.attribution)
    {
        // Nothing else uses the GPU instance.
        only.utilization = only.utilization.or(site.utilization);
    }
    UnitUsage {
        uuid: site.uuid,
        gpu_instance: site.partition.map(|(gpu_instance, _)| gpu_instance),
        compute_instance: site.partition.map(|(_, compute_instance)| compute_instance),
        profile: site.profile,
        resource: offered.map(|(offer, _)| offer.name.clone()),
        replicas: offered.and_then(|(_, unit)| unit.replicas),
        fair_share: offered.and_then(|(_, unit)| unit.fair_share()),
        memory: site.memory,
        utilization: site.utilization,
        tenants,
        unattributed: None,
        exhausted_in: None,
        is_nearly_exhausted: false,
    }
}

fn tenants(
    site: &AllocationSite<'_>,
    attribution: &PodAttribution,
    names: &PodNames<'_>,
    busy: &BTreeMap<u32, Percent>,
) -> Vec<Tenant> {
    let mut on: BTreeMap<TenantKey, Vec<u32>> =
        (0..site.holders.len()).map(|place| (TenantKey::Holder(place), Vec::new())).collect();
    for pid in site.processes.keys() {
        if let Some(key) = key(site, *pid, attribution, names) {
            on.entry(key).or_default().push(*pid);
        }
    }
    let is_known = is_usage_known(site, attribution);
    let open = pods_with_unattributed(site, attribution, names);
    let mut tenants: Vec<Tenant> = on
        .into_iter()
        .map(|(key, processes)| {
            // A tenant that cannot be distinguished from others may use any part of it.
            let is_known = match &key {
                TenantKey::Holder(place) => {
                    let mut holder = site.holders.get(*place).into_iter();
                    is_known && holder.all(|holder| !open.contains(&pod(holder.device)))
                }
                TenantKey::Unallocated { .. } | TenantKey::NonPodProcess(_) => true,
            };
            let memory = processes.iter().map(|pid| site.processes.get(pid).copied().flatten());
            let memory = memory.collect::<Option<Vec<_>>>().filter(|_| is_known);
            let memory = memory.map(|all| {
                let sum = all.into_iter().map(Mebibytes::get);
                Mebibytes::new(sum.fold(0, u64::saturating_add))
            });
            let shares = processes.iter().filter_map(|pid| busy.get(pid));
            let shares: Vec<u32> = shares.map(|share| u32::from(share.0)).collect();
            Tenant {
                memory,
                utilization: (!shares.is_empty()).then(|| {
                    Percent::saturating_from(shares.into_iter().fold(0, u32::saturating_add))
                }),
                processes,
                ..tenant(&key, site, names)
            }
        })
        .collect();
    tenants.sort_by(|a, b| order(a).cmp(&order(b)));
    tenants
}

/// Sorts by memory in descending order, then by name.
fn order(tenant: &Tenant) -> impl Ord {
    let name = (&tenant.namespace, &tenant.pod, &tenant.container);
    (Reverse(tenant.memory), name, &tenant.uid, &tenant.processes)
}

/// The tenant of a process; `None` if it cannot be determined.
fn key(
    site: &AllocationSite<'_>,
    pid: u32,
    attribution: &PodAttribution,
    names: &PodNames<'_>,
) -> Option<TenantKey> {
    match attribution.origin(pid) {
        None => site.sole_holder().map(TenantKey::Holder),
        Some(ProcessOrigin::Gone | ProcessOrigin::Unknown) => None,
        Some(ProcessOrigin::NoPod) => Some(TenantKey::NonPodProcess(pid)),
        Some(ProcessOrigin::Pod { uid, container }) => {
            let unallocated =
                TenantKey::Unallocated { uid: uid.clone(), container: container.clone() };
            let Some(name) = names.name(uid) else {
                return Some(unallocated);
            };
            let place = site.places.get(&name);
            Some(place.map_or(unallocated, |place| TenantKey::Holder(*place)))
        }
    }
}

/// A tenant with everything known about its identity.
fn tenant(key: &TenantKey, site: &AllocationSite<'_>, names: &PodNames<'_>) -> Tenant {
    match key {
        TenantKey::Holder(place) => site.holders.get(*place).map(|holder| {
            Tenant {
                namespace: Some(holder.device.namespace.clone()),
                // A claim has no pod that the kubelet lists yet.
                pod: Some(holder.device.pod.clone()).filter(|name| !name.is_empty()),
                container: holder.container.map(ToOwned::to_owned).filter(|name| !name.is_empty()),
                claim: holder.device.claim.as_ref().map(|claim| claim.name.clone()),
                ids: holder.ids.clone(),
                ..Tenant::default()
            }
            .with_uid(
                { holder.uid.or_else(|| names.uid(pod(holder.device))) }.map(ToOwned::to_owned),
            )
        }),
        TenantKey::Unallocated { uid, container } => {
            let (namespace, pod) = names.name(uid).unzip();
            let tenant = Tenant {
                namespace: namespace.map(ToOwned::to_owned),
                pod: pod.map(ToOwned::to_owned),
                container: container.clone(),
                ..Tenant::default()
            };
            Some(tenant.with_uid(Some(uid.clone())))
        }
        TenantKey::NonPodProcess(_) => None,
    }
    .unwrap_or_default()
}

impl DeviceUsage {
    /// Used memory of the device that belongs to no tenant; `None` if unknown.
    pub fn unattributed(&self) -> Option<Mebibytes> {
        let used = self.memory?.used;
        let tenants = self.units.iter().flat_map(|unit| &unit.tenants);
        let known = tenants.filter_map(|tenant| tenant.memory);
        Some(Mebibytes::new(
            known.fold(used.get(), |rest, memory| rest.saturating_sub(memory.get())),
        ))
    }
}

#[cfg(test)]
mod tests;
