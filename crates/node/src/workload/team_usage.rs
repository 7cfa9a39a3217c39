//! Usage of a namespace by accelerator type: what its pods have, use, and leave idle.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::{PciAddress, TypeName};
use octavo_model::quantity::Mebibytes;

use super::{HoldingCounts, place};
use crate::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};

/// Allocations and usage of one type by the pods of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TeamUsage {
    /// Allocations, used or not.
    pub held: HoldingCounts,
    /// Allocations of containers without a process, so that nothing uses them.
    pub idle: HoldingCounts,
    /// Number of allocations whose use is unknown, because the driver or the agent does not report it.
    pub unknown: u64,
    /// Memory used by containers that report it, in MiB.
    pub used_mib: u64,
    /// Memory allocated to these containers, in MiB: of the device or partition, or the fair share of the replicas.
    pub memory_mib: u64,
    /// Sum of the utilization of containers that report it, in percent.
    pub utilization: u64,
    /// Number of these containers.
    pub measured: u64,
    /// Number of allocations above their fair share.
    pub over_share: u64,
}

/// Usage by namespace and type; the type is `None` for unknown devices.
pub type TeamUsages = BTreeMap<(String, Option<TypeName>), TeamUsage>;

/// Allocation without a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdleHolder {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Display name of the device: `GPU 3`.
    pub device: String,
    /// Profile of the partition; `None` for a whole device.
    pub profile: Option<String>,
    /// Number of replicas; `None` if it has the device or partition alone.
    pub replicas: Option<u64>,
    /// Type of the device.
    pub type_name: Option<TypeName>,
    /// Memory that it has and does not use, in MiB; 0 if unknown.
    pub memory_mib: u64,
}

/// Returns the usage by the pods of a node, and the allocations without a process, given the types of its devices.
/// A pod with several types counts for each.
pub fn team_usage(
    usage: &Usage,
    types: &BTreeMap<PciAddress, TypeName>,
) -> (TeamUsages, Vec<IdleHolder>) {
    let (mut teams, mut idle) = (TeamUsages::new(), Vec::new());
    let (mut pods, mut idle_pods) = (BTreeSet::new(), BTreeSet::new());
    for device in &usage.devices {
        let kind = types.get(&device.pci);
        for unit in &device.units {
            for tenant in unit.allocated_tenants() {
                let Some(place) = place(tenant) else { continue };
                let group = (place.namespace().to_owned(), kind.cloned());
                let team = teams.entry(group).or_default();
                team.held.pods =
                    team.held.pods.saturating_add(u64::from(pods.insert((place.clone(), kind))));
                team.add(device, unit, tenant);
                if tenant.is_without_process() {
                    let is_another = idle_pods.insert((place.clone(), kind));
                    team.idle.pods = team.idle.pods.saturating_add(u64::from(is_another));
                    idle.push(IdleHolder {
                        namespace: place.namespace().to_owned(),
                        pod: place.name().to_owned(),
                        device: device.name.clone(),
                        profile: unit.profile.clone(),
                        replicas: unit.is_time_sliced(tenant).then(|| count(tenant)),
                        type_name: kind.cloned(),
                        memory_mib: allotted(device, unit, tenant).map_or(0, Mebibytes::get),
                    });
                }
            }
        }
    }
    (teams, idle)
}

fn count(tenant: &Tenant) -> u64 {
    u64::try_from(tenant.ids.len()).unwrap_or(u64::MAX)
}

/// Memory that a tenant can use; `None` if unknown.
fn allotted(device: &DeviceUsage, unit: &UnitUsage, tenant: &Tenant) -> Option<Mebibytes> {
    if unit.is_time_sliced(tenant) {
        let each = unit.fair_share?.get();
        return Some(Mebibytes::new(each.saturating_mul(count(tenant))));
    }
    let memory =
        if unit.gpu_instance.is_some() { unit.memory } else { unit.memory.or(device.memory) };
    memory.map(|memory| memory.total)
}

impl HoldingCounts {
    /// Adds one allocation, without its pod.
    pub(super) fn add_unit(&mut self, unit: &UnitUsage, tenant: &Tenant) {
        let (all, more) = match (unit.is_time_sliced(tenant), unit.gpu_instance) {
            (true, _) => (&mut self.replicas, count(tenant)),
            (false, Some(_)) => (&mut self.partitions, 1),
            (false, None) => (&mut self.devices, 1),
        };
        *all = all.saturating_add(more);
    }

    /// Number of devices, partitions and replicas together.
    pub fn units(&self) -> u64 {
        self.devices.saturating_add(self.partitions).saturating_add(self.replicas)
    }
}

impl TeamUsage {
    fn add(&mut self, device: &DeviceUsage, unit: &UnitUsage, tenant: &Tenant) {
        self.held.add_unit(unit, tenant);
        if tenant.is_without_process() {
            self.idle.add_unit(unit, tenant);
        }
        if let Some(used) = tenant.memory {
            if let Some(memory) = allotted(device, unit, tenant) {
                self.used_mib = self.used_mib.saturating_add(used.get());
                self.memory_mib = self.memory_mib.saturating_add(memory.get());
            }
        } else {
            let mut one = HoldingCounts::default();
            one.add_unit(unit, tenant);
            self.unknown = self.unknown.saturating_add(one.units());
        }
        if let Some(percent) = tenant.utilization {
            self.utilization = self.utilization.saturating_add(percent.0.into());
            self.measured = self.measured.saturating_add(1);
        }
        self.over_share = self.over_share.saturating_add(u64::from(tenant.is_over_share));
    }

    /// Adds `other`.
    pub fn add_all(&mut self, other: &Self) {
        self.held.add(&other.held);
        self.idle.add(&other.idle);
        let sums = [
            (&mut self.unknown, other.unknown),
            (&mut self.used_mib, other.used_mib),
            (&mut self.memory_mib, other.memory_mib),
            (&mut self.utilization, other.utilization),
            (&mut self.measured, other.measured),
            (&mut self.over_share, other.over_share),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }

    /// Mean utilization of the containers that report it, in percent; `None` if none does.
    pub fn mean_utilization(&self) -> Option<u64> {
        self.utilization.saturating_add(self.measured / 2).checked_div(self.measured)
    }
}
