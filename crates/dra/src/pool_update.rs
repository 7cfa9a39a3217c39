//! Difference between the published and the desired slices of a node.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, ResourceSlice, ResourceSliceSpec};

/// Writes that take a pool from its published to its desired state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolUpdate {
    /// Slices to write, with their generation, in order.
    pub apply: Vec<ResourceSlice>,
    /// Names of slices to delete afterwards.
    pub delete: Vec<String>,
}

impl PoolUpdate {
    /// Compares the published slices of a node, by name, with the desired ones.
    ///
    /// A change of one slice keeps the generation of the pool. Otherwise, all slices get the next one, so that the
    /// scheduler never combines old and new slices: it uses a pool only if all slices of its highest generation exist.
    /// Source: Kubernetes `dynamic-resource-allocation/resourceslice/resourceslicecontroller.go`.
    pub fn new(published: &BTreeMap<String, ResourceSlice>, desired: &[ResourceSlice]) -> Self {
        let find = |slice: &ResourceSlice| published.get(slice.metadata.name.as_deref()?);
        let generation = |slice: &ResourceSlice| slice.spec.pool.generation;
        let newest = published.values().map(generation).max().unwrap_or(0);
        let (same, changed): (Vec<&ResourceSlice>, Vec<&ResourceSlice>) =
            desired.iter().partition(|slice| find(slice).is_some_and(|old| is_same(old, slice)));
        let is_desired =
            |name: &str| desired.iter().any(|slice| slice.metadata.name.as_deref() == Some(name));
        let delete: Vec<String> =
            published.keys().filter(|name| !is_desired(name)).cloned().collect();
        let are_current = same.iter().all(|slice| find(slice).map(generation) == Some(newest));
        let (next, apply) = match changed.as_slice() {
            [] if are_current => (newest, Vec::new()),
            [one] if are_current && delete.is_empty() => (newest.max(1), vec![*one]),
            _ => (newest.saturating_add(1), desired.iter().collect()),
        };
        let with_generation = |slice: &ResourceSlice| {
            let mut slice = slice.clone();
            slice.spec.pool.generation = next;
            slice
        };
        Self { apply: apply.into_iter().map(with_generation).collect(), delete }
    }

    /// Returns whether there is nothing to write.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.apply.is_empty() && self.delete.is_empty()
    }
}

/// Returns whether the API server has the desired content and owner.
fn is_same(published: &ResourceSlice, desired: &ResourceSlice) -> bool {
    let owners =
        |slice: &ResourceSlice| slice.metadata.owner_references.clone().unwrap_or_default();
    let has = owners(published);
    owners(desired).iter().all(|owner| has.iter().any(|found| found.uid == owner.uid))
        && compared(&published.spec) == compared(&desired.spec)
}

/// Returns the part of a slice that is compared. The API server sets the time of taints, and the generation follows from
/// the difference.
fn compared(spec: &ResourceSliceSpec) -> ResourceSliceSpec {
    let mut spec = spec.clone();
    spec.pool.generation = 0;
    let devices = spec.devices.iter_mut().flatten();
    for taint in devices.flat_map(|device| device.taints.iter_mut().flatten()) {
        taint.time_added = None;
    }
    spec
}

/// Returns the fields that the API server dropped from a slice, with the feature gate that each needs; empty if it stored
/// all. A server drops fields of disabled gates without an error.
pub fn dropped_fields(stored: &ResourceSlice, sent: &ResourceSlice) -> Vec<&'static str> {
    if compared(&stored.spec) == compared(&sent.spec) {
        return Vec::new();
    }
    let has = |slice: &ResourceSlice| {
        let devices = slice.spec.devices.as_deref().unwrap_or_default();
        let counters = slice.spec.shared_counters.is_some()
            || devices.iter().any(|device| device.consumes_counters.is_some());
        let taints = devices.iter().any(|device| device.taints.is_some());
        [counters, taints, has_shared_devices(slice)]
    };
    let names = ["shared counters (DRAPartitionableDevices)", "taints (DRADeviceTaints)", SHARES];
    let each = names.into_iter().zip(has(sent)).zip(has(stored));
    let dropped: Vec<&str> =
        each.filter(|((_, sent), stored)| *sent && !stored).map(|((name, _), _)| name).collect();
    if dropped.is_empty() { vec!["unknown fields"] } else { dropped }
}

/// The fields of shared devices, with the feature gate that they need.
pub const SHARES: &str = "shared devices (DRAConsumableCapacity)";

/// Returns whether several claims can share a device of the slice.
pub fn has_shared_devices(slice: &ResourceSlice) -> bool {
    slice.spec.devices.iter().flatten().any(is_shared)
}

/// Returns the slices of a pool without the devices that several claims can share.
#[must_use]
pub fn without_shared_devices(mut slices: Vec<ResourceSlice>) -> Vec<ResourceSlice> {
    for devices in slices.iter_mut().filter_map(|slice| slice.spec.devices.as_mut()) {
        devices.retain(|device| !is_shared(device));
    }
    slices.retain(|slice| slice.spec.devices.as_ref().is_none_or(|devices| !devices.is_empty()));
    let count = i64::try_from(slices.len()).unwrap_or(i64::MAX);
    for slice in &mut slices {
        slice.spec.pool.resource_slice_count = count;
    }
    slices
}

fn is_shared(device: &Device) -> bool {
    device.allow_multiple_allocations == Some(true)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
    use octavo_model::inventory::{Condition, Device};

    use super::{PoolUpdate, ResourceSlice, dropped_fields};
    use crate::ClaimRules;
    use crate::slices::NodeDevices;
    use crate::tests_support::{gpu, node, partitioned};

    fn desired(devices: &[Device]) -> Vec<ResourceSlice> {
        let inventory = node(devices.to_vec());
        let mut slices = NodeDevices {
            node: &"node-1".parse().unwrap(),
            inventory: &inventory,
            rules: &ClaimRules::default(),
            claimed: &BTreeSet::new(),
            faulty: &BTreeSet::new(),
            pcie_roots: &BTreeMap::new(),
        }
        .slices();
        for slice in &mut slices {
            let owner = OwnerReference { uid: "u".to_owned(), ..OwnerReference::default() };
            slice.metadata.owner_references = Some(vec![owner]);
        }
        slices
    }

    fn publish(published: &mut BTreeMap<String, ResourceSlice>, update: PoolUpdate) {
        for mut slice in update.apply {
            // As the API server does.
            for taint in slice
                .spec
                .devices
                .iter_mut()
                .flatten()
                .flat_map(|one| one.taints.iter_mut().flatten())
            {
                taint.time_added = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
            }
            published.insert(slice.metadata.name.clone().unwrap(), slice);
        }
        published.retain(|name, _| !update.delete.contains(name));
    }

    /// Names and generations of the writes.
    fn writes(update: &PoolUpdate) -> (Vec<i64>, usize) {
        let generations = update.apply.iter().map(|slice| slice.spec.pool.generation).collect();
        (generations, update.delete.len())
    }

    #[test]
    fn nothing_is_written_if_nothing_differs() {
        let mut failing = partitioned("0000:01:00.0", "A30_24GB", &[]);
        failing.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
        let all = desired(&[failing, gpu("0000:02:00.0")]);
        let mut published = BTreeMap::new();
        let first = PoolUpdate::new(&published, &all);
        assert_eq!(writes(&first), (vec![1, 1, 1], 0));
        publish(&mut published, first);
        assert!(PoolUpdate::new(&published, &all).is_empty());
    }

    #[test]
    fn one_changed_or_missing_slice_keeps_the_generation_and_more_get_the_next() {
        let (one, other) = (partitioned("0000:01:00.0", "A30_24GB", &[]), gpu("0000:02:00.0"));
        let mut published = BTreeMap::new();
        let all = desired(&[one.clone(), other.clone()]);
        let first = PoolUpdate::new(&published, &all);
        publish(&mut published, first);
        let mut numa = other.clone();
        numa.numa_node = Some(1);
        let changed = desired(&[one, numa]);
        let update = PoolUpdate::new(&published, &changed);
        assert_eq!(writes(&update), (vec![1], 0));
        publish(&mut published, update);
        published.pop_first();
        assert_eq!(writes(&PoolUpdate::new(&published, &changed)), (vec![1], 0));
        published.pop_first();
        assert_eq!(writes(&PoolUpdate::new(&published, &changed)), (vec![2, 2, 2], 0));
        let fewer = desired(&[other]);
        let update = PoolUpdate::new(&published, &fewer);
        assert_eq!(writes(&update), (vec![2], 1));
        publish(&mut published, update);
        assert_eq!(writes(&PoolUpdate::new(&published, &[])), (vec![], 1));
    }

    #[test]
    fn interrupted_update_and_another_owner_are_completed() {
        let all = desired(&[partitioned("0000:01:00.0", "A30_24GB", &[]), gpu("0000:02:00.0")]);
        let mut published = BTreeMap::new();
        let first = PoolUpdate::new(&published, &all);
        publish(&mut published, first);
        // Only the first slice of the next generation was written.
        published.values_mut().next().unwrap().spec.pool.generation = 2;
        assert_eq!(writes(&PoolUpdate::new(&published, &all)), (vec![3, 3, 3], 0));
        for slice in published.values_mut() {
            slice.spec.pool.generation = 2;
        }
        assert!(PoolUpdate::new(&published, &all).is_empty());
        for slice in published.values_mut() {
            slice.metadata.owner_references = None;
        }
        assert_eq!(writes(&PoolUpdate::new(&published, &all)), (vec![3, 3, 3], 0));
    }

    #[test]
    fn dropped_fields_are_named_with_their_gate() {
        let mut failing = partitioned("0000:01:00.0", "A30_24GB", &[]);
        failing.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
        let all = desired(&[failing]);
        let mut stored = all.clone();
        assert!(dropped_fields(&stored[0], &all[0]).is_empty());
        stored[0].spec.shared_counters = None;
        assert_eq!(
            dropped_fields(&stored[0], &all[0]),
            ["shared counters (DRAPartitionableDevices)"]
        );
        for device in stored[1].spec.devices.as_mut().unwrap() {
            device.taints = None;
        }
        assert_eq!(dropped_fields(&stored[1], &all[1]), ["taints (DRADeviceTaints)"]);
        stored[1].spec.devices.as_mut().unwrap()[0].name = "x".to_owned();
        assert!(!dropped_fields(&stored[1], &all[1]).is_empty());
    }
}
