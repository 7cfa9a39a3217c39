//! `ResourceSlices` of a node, from its inventory: which devices the scheduler can allocate, and which it can combine.
//!
//! All GPUs of a node are one pool. A GPU with MIG mode on has a set of shared counters and a slice with a device per
//! profile and placement; the other GPUs share a slice. The counters have slices of their own. Sources: Kubernetes
//! `api/resource/v1/types.go`; KEP-4815.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{
    Counter, CounterSet, Device as ApiDevice, DeviceCounterConsumption, DeviceTaint, ResourcePool,
    ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use octavo_model::digest::Digest;
use octavo_model::id::{NodeName, PciAddress};
use octavo_model::interconnect::{self, InterconnectKind};
use octavo_model::inventory::{Device, Inventory, MigState};
use octavo_model::quantity::Mebibytes;

use crate::attributes::{
    Surroundings, capacities_of_gpu, capacities_of_partition, count_quantity, memory_quantity,
    of_gpu, of_partition, share,
};
use crate::counters::{Counters, MEMORY};
use crate::device::{DeviceName, DraDevice, DraDeviceKind, devices_of};
use crate::occupancy::{
    ForeignPartition, occupied_gpu, occupied_partition, unhealthy, unhealthy_or_faulty,
};
use crate::order::ordered;
use crate::{ClaimRules, DRIVER};

/// Maximum devices of a slice in which one has taints or counters. Source: Kubernetes `api/resource/v1`,
/// `ResourceSliceMaxDevicesWithTaintsOrConsumesCounters`.
const MAX_DEVICES: usize = 64;
/// Maximum counter sets of a slice. Source: Kubernetes `api/resource/v1`, `ResourceSliceMaxCounterSets`.
const MAX_COUNTER_SETS: usize = 8;
/// Maximum length of the name of a pool or an object.
const MAX_NAME: usize = 253;
/// Maximum length of the part of a node name in the names of its slices, if the whole name is too long.
const MAX_NODE_PREFIX: usize = 200;

/// State of a node from which its slices are compiled.
#[derive(Debug, Clone, Copy)]
pub struct NodeDevices<'a> {
    /// The node.
    pub node: &'a NodeName,
    /// Its accelerators.
    pub inventory: &'a Inventory,
    /// The rules of its layout. The GPUs that the layout covers are not published.
    pub rules: &'a ClaimRules,
    /// The devices that prepared claims hold, and those of claims that ended and left an idle partition.
    pub claimed: &'a BTreeSet<DeviceName>,
    /// The devices that reported an error which requires attention.
    pub faulty: &'a BTreeSet<DeviceName>,
    /// PCIe root complex of each GPU, such as `pci0000:15`, where it is known.
    pub pcie_roots: &'a BTreeMap<PciAddress, String>,
}

/// A partitioned GPU.
struct PartitionedGpu {
    counters: CounterSet,
    devices: Vec<ApiDevice>,
}

impl NodeDevices<'_> {
    /// Returns the slices of the node, in the order of their names, which is the order of allocation: partitioned GPUs
    /// come before whole ones. There are none for a node without devices. Their generation is 0.
    pub fn slices(&self) -> Vec<ResourceSlice> {
        let domains = nvlink_domains(self.inventory);
        let (mut partitioned, mut whole) = (Vec::new(), Vec::new());
        for device in &self.inventory.devices {
            let known = devices_of(device);
            let Some(first) = known.first().filter(|_| !self.rules.covered.contains(&device.pci))
            else {
                continue;
            };
            let around = Surroundings {
                inventory: self.inventory,
                pcie_root: self.pcie_roots.get(&device.pci),
                nvlink_domain: domains.get(&device.pci).copied(),
            };
            match (&first.what, device.mig.state()) {
                (DraDeviceKind::Gpu, _) => whole.push(self.whole_gpu(device, around)),
                (DraDeviceKind::Partition { .. }, Some(state)) => {
                    partitioned.extend(self.partitioned_gpu(device, state, around));
                }
                (DraDeviceKind::Partition { .. }, None) => {}
            }
        }
        let sets: Vec<CounterSet> = partitioned.iter().map(|gpu| gpu.counters.clone()).collect();
        let sets = sets.chunks(MAX_COUNTER_SETS).map(|sets| ResourceSliceSpec {
            shared_counters: Some(sets.to_vec()),
            ..ResourceSliceSpec::default()
        });
        let each = partitioned.iter().map(|gpu| gpu.devices.as_slice()).chain([whole.as_slice()]);
        let devices = each.flat_map(|devices| devices.chunks(MAX_DEVICES)).map(|devices| {
            ResourceSliceSpec { devices: Some(devices.to_vec()), ..ResourceSliceSpec::default() }
        });
        let specs: Vec<ResourceSliceSpec> = sets.chain(devices).collect();
        let count = i64::try_from(specs.len()).unwrap_or(i64::MAX);
        let numbered = specs.into_iter().zip(0..);
        numbered.map(|(spec, number)| self.slice(spec, number, count)).collect()
    }

    fn slice(&self, spec: ResourceSliceSpec, number: usize, count: i64) -> ResourceSlice {
        ResourceSlice {
            metadata: ObjectMeta {
                name: Some(slice_name(self.node, number)),
                ..ObjectMeta::default()
            },
            spec: ResourceSliceSpec {
                driver: DRIVER.to_owned(),
                node_name: Some(self.node.as_str().to_owned()),
                pool: ResourcePool {
                    name: pool_name(self.node),
                    resource_slice_count: count,
                    ..ResourcePool::default()
                },
                ..spec
            },
        }
    }

    fn whole_gpu(&self, device: &Device, around: Surroundings<'_>) -> ApiDevice {
        let name = DraDevice { pci: device.pci, what: DraDeviceKind::Gpu }.name();
        let unhealthy = unhealthy(device, &self.inventory.nvml);
        let gpu = ApiDevice {
            name: name.to_string(),
            attributes: Some(of_gpu(device, around)),
            capacity: Some(capacities_of_gpu(device)).filter(|all| !all.is_empty()),
            taints: taints(
                unhealthy_or_faulty(unhealthy.as_ref(), &name, self.faulty),
                occupied_gpu(device, self.claimed),
            ),
            ..ApiDevice::default()
        };
        share(gpu, self.rules.replicas(device.pci, None))
    }

    /// Returns the devices of a GPU with MIG mode on; `None` if its slices exceed what counters can describe.
    fn partitioned_gpu(
        &self,
        device: &Device,
        state: &MigState,
        around: Surroundings<'_>,
    ) -> Option<PartitionedGpu> {
        let counters = Counters::new(&state.catalog)?;
        let gpu = DraDevice { pci: device.pci, what: DraDeviceKind::Gpu }.name();
        let set = format!("{gpu}-counter-set");
        let foreign = ForeignPartition::all(device, state, &counters, self.claimed);
        let unhealthy = unhealthy(device, &self.inventory.nvml);
        let devices = ordered(&state.catalog, &counters).into_iter().map(|(profile, placement)| {
            let what = DraDeviceKind::Partition {
                profile_id: profile.id,
                profile: profile.name.clone(),
                placement,
            };
            let occupied = occupied_partition(profile.id, placement, &foreign, &counters);
            let name = DraDevice { pci: device.pci, what }.name();
            let partition = ApiDevice {
                name: name.to_string(),
                attributes: Some(of_partition(device, around, profile, placement)),
                capacity: Some(capacities_of_partition(profile)),
                consumes_counters: Some(vec![DeviceCounterConsumption {
                    counter_set: set.clone(),
                    counters: named(&counters, &counters.used_by(profile.id, placement)),
                }]),
                taints: taints(
                    unhealthy_or_faulty(unhealthy.as_ref(), &name, self.faulty),
                    occupied,
                ),
                ..ApiDevice::default()
            };
            share(partition, self.rules.replicas(device.pci, Some(&profile.name)))
        });
        Some(PartitionedGpu {
            devices: devices.collect(),
            counters: CounterSet { counters: named(&counters, counters.totals()), name: set },
        })
    }
}

/// Name of the pool of a node, which is unique across drivers: the allocator of Kubernetes 1.36 looks counters up by the
/// name of the pool alone. Source: Kubernetes issue 140434.
pub fn pool_name(node: &NodeName) -> String {
    let name = format!("{node}/{DRIVER}");
    if name.len() <= MAX_NAME { name } else { node.to_string() }
}

/// Name of the slice with this number. The scheduler orders the slices of a pool by name.
fn slice_name(node: &NodeName, number: usize) -> String {
    let suffix = format!("{DRIVER}-{number:03}");
    let name = format!("{node}-{suffix}");
    if name.len() <= MAX_NAME {
        return name;
    }
    let digest = Digest::from_bytes(node.as_str().as_bytes());
    let prefix: String = node.as_str().chars().take(MAX_NODE_PREFIX).collect();
    format!("{}-{digest:016x}-{suffix}", prefix.trim_end_matches(['-', '.']))
}

fn named(counters: &Counters<'_>, values: &[u64]) -> BTreeMap<String, Counter> {
    let each = counters.named(values).into_iter().map(|(name, value)| {
        let value = match name.as_str() {
            MEMORY => memory_quantity(Mebibytes::new(value)),
            _ => count_quantity(value),
        };
        (name, Counter { value })
    });
    each.collect()
}

fn taints(
    unhealthy: Option<DeviceTaint>,
    occupied: Option<DeviceTaint>,
) -> Option<Vec<DeviceTaint>> {
    let all: Vec<DeviceTaint> = unhealthy.into_iter().chain(occupied).collect();
    (!all.is_empty()).then_some(all)
}

/// Returns the first GPU of the NVLink domain of each GPU that has links.
fn nvlink_domains(inventory: &Inventory) -> BTreeMap<PciAddress, PciAddress> {
    let linked = interconnect::of(&inventory.devices)
        .filter(|one| matches!(one.kind, InterconnectKind::NvLink | InterconnectKind::NvSwitch));
    let domains = linked.into_iter().flat_map(|one| one.domains).filter(|all| all.len() > 1);
    domains
        .flat_map(|all| {
            let first = all.first().copied();
            all.into_iter().filter_map(move |pci| Some((pci, first?)))
        })
        .collect()
}

#[cfg(test)]
mod tests;
