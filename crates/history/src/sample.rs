//! Sample of a device: its metrics at one moment, in one byte each.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::{PciAddress, TypeName};
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MEMORY_SLICES, MemoryUse};
use octavo_node::sharing::usage::{DeviceUsage, UnitUsage, Usage};

use crate::chunk::GAP;
use crate::key::SeriesKey;
use crate::metric::Metric;

/// Values in the order of [`Metric::ALL`], in steps of the metric's precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample(pub(crate) [u8; Metric::ALL.len()]);

/// Sample of a device or partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSample {
    /// The device or partition.
    pub key: SeriesKey,
    /// Type of the device.
    pub type_name: Option<TypeName>,
    /// Its total memory.
    pub memory: Mebibytes,
    /// Its values.
    pub sample: Sample,
}

/// Maximum number of partitions of a device, because agents choose what they report: a GPU has at most 7 GPU instances of 8
/// compute instances each.
const MAX_PARTITIONS: usize = 56;

/// Samples of all devices and partitions of a node. The first of several devices with the same address counts.
pub fn samples(usage: &Usage, types: &BTreeMap<PciAddress, TypeName>) -> Vec<DeviceSample> {
    let is_known = !usage.are_allocations_unknown;
    let mut addresses = BTreeSet::new();
    let devices = usage.devices.iter().filter(|device| addresses.insert(device.pci));
    let samples = devices.flat_map(|device| {
        let sample = |partition, memory: Option<MemoryUse>, sample| DeviceSample {
            key: SeriesKey { device: device.pci, partition },
            type_name: types.get(&device.pci).cloned(),
            memory: memory.map(|memory| memory.total).unwrap_or_default(),
            sample,
        };
        let whole = sample(None, device.memory, Sample::of_device(device, is_known));
        let partitions = device.units.iter().filter(|unit| unit.gpu_instance.is_some());
        let partitions = partitions.take(MAX_PARTITIONS).map(move |unit| {
            sample(
                Some(unit.uuid.as_str().into()),
                unit.memory,
                Sample::of_partition(unit, is_known),
            )
        });
        std::iter::once(whole).chain(partitions)
    });
    samples.collect()
}

impl Sample {
    fn of_device(device: &DeviceUsage, is_known: bool) -> Self {
        Self::new([
            device.utilization.map(|percent| u32::from(percent.0)),
            device.memory.and_then(used_percent),
            device.power_watts,
            device.temperature_celsius,
            allocation(device).filter(|_| is_known),
        ])
    }

    fn of_partition(unit: &UnitUsage, is_known: bool) -> Self {
        Self::new([
            unit.utilization.map(|percent| u32::from(percent.0)),
            unit.memory.and_then(used_percent),
            None,
            None,
            unit_allocation(unit).filter(|_| is_known),
        ])
    }

    /// Creates a sample from values in the metrics' units, in the order of [`Metric::ALL`]. Values that are too large for
    /// a byte become the largest.
    pub fn new(values: [Option<u32>; Metric::ALL.len()]) -> Self {
        let mut bytes = [GAP; Metric::ALL.len()];
        for ((byte, value), metric) in bytes.iter_mut().zip(values).zip(Metric::ALL) {
            if let Some(value) = value {
                let step = metric.precision();
                let steps = value.saturating_add(step / 2) / step;
                *byte = u8::try_from(steps).unwrap_or(GAP).min(GAP - 1);
            }
        }
        Self(bytes)
    }
}

/// Used memory in percent, rounded to the nearest.
fn used_percent(memory: MemoryUse) -> Option<u32> {
    percent(memory.used.get(), memory.total.get())
}

/// Allocated share of a device in percent; `None` if unknown. A partitioned GPU is allocated by the memory slices of its
/// allocated partitions.
fn allocation(device: &DeviceUsage) -> Option<u32> {
    let partitions: Vec<&UnitUsage> =
        device.units.iter().filter(|unit| unit.gpu_instance.is_some()).collect();
    if partitions.is_empty() {
        let mut units = device.units.iter();
        let sum =
            units.try_fold(0_u32, |sum, unit| Some(sum.saturating_add(unit_allocation(unit)?)));
        return sum.map(|sum| sum.min(100));
    }
    let allocated = partitions.into_iter().filter(|unit| allocated_ids(unit) > 0);
    let mut instances = BTreeMap::new();
    for unit in allocated {
        // Compute instances share the memory of their GPU instance.
        instances.insert(unit.gpu_instance, unit.memory?);
    }
    let all = device.memory?;
    let slices = instances
        .into_values()
        .try_fold(0_u64, |sum, memory| Some(sum.saturating_add(memory.slices_of(&all)?)));
    percent(slices?.min(MEMORY_SLICES), MEMORY_SLICES)
}

/// Allocated share of a whole device or of a partition in percent; `None` if its number of replicas is unknown.
fn unit_allocation(unit: &UnitUsage) -> Option<u32> {
    let allocated = allocated_ids(unit);
    if let Some(replicas) = unit.replicas.map(u64::from) {
        return percent(allocated.min(replicas), replicas);
    }
    let mut ids = unit.tenants.iter().flat_map(|tenant| &tenant.ids);
    let is_whole = ids.all(|id| id.number().is_none());
    is_whole.then_some(if allocated > 0 { 100 } else { 0 })
}

/// Number of different ids of a unit that containers hold.
fn allocated_ids(unit: &UnitUsage) -> u64 {
    let ids: BTreeSet<_> = unit.tenants.iter().flat_map(|tenant| &tenant.ids).collect();
    u64::try_from(ids.len()).unwrap_or(u64::MAX)
}

/// Share in percent, rounded to the nearest.
fn percent(part: u64, whole: u64) -> Option<u32> {
    let percent = part.saturating_mul(100).saturating_add(whole / 2).checked_div(whole)?;
    u32::try_from(percent.min(100)).ok()
}
