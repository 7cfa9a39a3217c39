//! Octavo's own keys: `octavo.dev/*` and `type.octavo.dev/*`.
//!
//! They describe the hardware *in* the node. A device that fails, or that has no driver, is still in the node and is
//! counted. Attributes that only a driver reports (memory, MIG, links) cover the devices that respond, and are omitted
//! if none does. Type, SKU, count and memory therefore do not change when one of eight GPUs falls off the bus, when MIG
//! devices are created, or when a GPU is shared. The sharing and interconnect labels do change, because they describe
//! exactly that.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::TypeName;
use octavo_model::inventory::{
    Amd, Architecture, Condition, Device, Inventory, LogicalSource, Mig, Neuron, NeuronDevice,
    PartitioningMode, Vendor,
};
use octavo_model::quantity::Mebibytes;
use octavo_model::sharing_mode::Sharing;
use octavo_model::{accelerators, interconnect};

use super::Note;
use crate::labels::note::LabelsBuilder;
use crate::labels::{LayoutState, Omission};
use crate::sharing::{Offers, Unit};

/// Adds Octavo's own keys.
pub(super) fn add(
    draft: &mut LabelsBuilder,
    inventory: &Inventory,
    devices: &[&Device],
    offers: Option<&Offers>,
) {
    add_neuron(draft, inventory);
    if devices.is_empty() {
        return;
    }
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    for device in devices {
        *types.entry(type_of(device)).or_default() += 1;
    }
    for (name, count) in &types {
        draft.put(&format!("type.octavo.dev/{name}"), count);
    }
    match types.first_key_value() {
        Some((only, _)) if types.len() == 1 => {
            draft.put("octavo.dev/type", *only);
            add_homogeneous(draft, inventory, devices);
        }
        Some(_) | None => draft.put("octavo.dev/type", "mixed"),
    }
    if devices.iter().any(|device| device.identity.is_manual()) {
        draft.put("octavo.dev/type-source", "manual");
    }
    // Passthrough devices are in the node but unavailable to pods; consumers of `count` can subtract them.
    let passed = devices.iter().filter(|device| device.condition.is_passthrough());
    match passed.count() {
        0 => {}
        count => draft.put("octavo.dev/passthrough", &count),
    }
    add_interconnect(draft, inventory);
    let answering: Vec<&Device> = devices
        .iter()
        .copied()
        .filter(|device| is_working(device) || inventory.is_reported_by_neuron(device))
        .collect();
    add_partitioning(draft, &answering, offers);
    add_amd_partitions(draft, devices);
    add_driver(draft, inventory, devices);
}

fn type_of(device: &Device) -> &str {
    device.identity.type_name().map_or("unknown", TypeName::as_str)
}

fn is_working(device: &Device) -> bool {
    device.condition == Condition::Working
}

/// Adds the keys of a node whose devices all have one type.
fn add_homogeneous(draft: &mut LabelsBuilder, inventory: &Inventory, devices: &[&Device]) {
    draft.put("octavo.dev/count", &devices.len());
    put_if_uniform(
        draft,
        "octavo.dev/vendor",
        devices.iter().map(|device| Some(device.vendor.to_string())),
    );
    let skus = devices.iter().map(|device| device.identity.sku().map(ToString::to_string));
    put_if_uniform(draft, "octavo.dev/sku", skus);
    // The driver's chip family takes precedence over the catalog's, which may be more specific.
    let is_reported = |device: &&&Device| is_working(device) && device.architecture.is_some();
    let answered: Vec<&&Device> = devices.iter().filter(is_reported).collect();
    let families = if answered.is_empty() { devices.iter().collect() } else { answered };
    put_if_uniform(
        draft,
        "octavo.dev/architecture",
        families.into_iter().map(|device| device.architecture.as_ref().map(Architecture::as_str)),
    );
    let memory = devices
        .iter()
        .filter(|device| is_working(device))
        .filter_map(|device| device.memory)
        .filter(|memory| memory.get() > 0)
        .min();
    // The Neuron driver reports the chip name, and the catalog supplies its memory.
    let neuron = inventory.neuron.as_ref();
    let neuron = neuron.filter(|_| devices.iter().all(|device| device.vendor == Vendor::Aws));
    match memory.or_else(|| neuron.and_then(neuron_memory)) {
        // The smallest size: a workload gets at least this much on any device.
        Some(memory) => draft.put("octavo.dev/memory-mib", &memory.get()),
        None => draft.omit("octavo.dev/memory-mib", Omission::MemoryUnknown),
    }
}

/// Sets a label to the value that all devices share. Omits it with a note if values differ or some are missing. If all
/// are missing there is no note: an unknown product has no SKU.
fn put_if_uniform<T: AsRef<str> + PartialEq>(
    draft: &mut LabelsBuilder,
    key: &str,
    mut values: impl Iterator<Item = Option<T>>,
) {
    let Some(first) = values.next() else { return };
    let rest: Vec<Option<T>> = values.collect();
    match first {
        Some(value) if rest.iter().all(|other| other.as_ref() == Some(&value)) => {
            draft.put(key, value.as_ref());
        }
        None if rest.iter().all(Option::is_none) => {}
        Some(_) | None => draft.omit(key, Omission::DevicesDisagree),
    }
}

fn add_interconnect(draft: &mut LabelsBuilder, inventory: &Inventory) {
    match interconnect::of_node(inventory) {
        Some(found) => {
            draft.put("octavo.dev/interconnect", &found.kind);
            draft.put("octavo.dev/interconnect-domain", &found.domain_size);
        }
        None if inventory.devices.len() > 1 => {
            draft.omit("octavo.dev/interconnect", Omission::LinksUnknown);
        }
        None => {}
    }
}

/// Adds the partitioning and sharing keys of responding devices. Time-slicing is not a hardware property: it is labeled
/// only where the offers are known.
fn add_partitioning(draft: &mut LabelsBuilder, answering: &[&Device], offers: Option<&Offers>) {
    if answering.is_empty() {
        draft.omit("octavo.dev/mig-capable", Omission::NoDeviceResponds);
        draft.omit("octavo.dev/sharing", Omission::NoDeviceResponds);
        return;
    }
    match Mig::any_capable(answering.iter().map(|device| mig(device))) {
        Some(capable) => draft.put("octavo.dev/mig-capable", &capable),
        None => draft.omit("octavo.dev/mig-capable", Omission::PartitionsUnknown),
    }
    if answering.iter().any(|device| *mig(device) == Mig::Unknown) {
        draft.omit("octavo.dev/sharing", Omission::PartitionsUnknown);
        return;
    }
    let partitioned = answering.iter().filter(|device| mig(device).is_enabled()).count();
    let in_parts = |device: &&&Device| device.amd.as_ref().is_some_and(Amd::is_partitioned);
    let parts = answering.iter().filter(in_parts).count();
    let sharing = match (partitioned, parts) {
        (0, 0) => Sharing::Exclusive,
        (all, 0) if all == answering.len() => Sharing::Mig,
        (0, all) if all == answering.len() => Sharing::Partitioned,
        _ => Sharing::Mixed,
    };
    let sliced = offers.and_then(|offers| time_slicing(offers, answering));
    draft.put("octavo.dev/sharing", sliced.unwrap_or(sharing).as_str());
}

/// Returns the MIG state of a device. MIG exists on NVIDIA GPUs only; other vendors' devices are not capable, even
/// where the state reads as unknown.
fn mig(device: &Device) -> &Mig {
    match device.vendor {
        Vendor::Nvidia => &device.mig,
        Vendor::Amd | Vendor::Aws | Vendor::Other(_) => &Mig::NotCapable,
    }
}

/// Returns `time-slicing` if every unit of every device is time-sliced, `mixed` if some are, and `None` if none is.
fn time_slicing(offers: &Offers, answering: &[&Device]) -> Option<Sharing> {
    let is_shared = |unit: &Unit| unit.replicas.is_some();
    if !offers.units().any(|(_, unit)| is_shared(unit)) {
        return None;
    }
    let mut units = offers.units();
    let all = units.all(|(_, unit)| is_shared(unit))
        && answering.iter().all(|device| {
            let mut units = offers.units();
            units.any(|(_, unit)| unit.pci == device.pci)
        });
    Some(if all { Sharing::TimeSlicing } else { Sharing::Mixed })
}

/// Adds the node's progress towards its layout. A node without devices has none.
pub(super) fn add_layout(
    draft: &mut LabelsBuilder,
    devices: &[&Device],
    layout: Option<LayoutState>,
) {
    if let Some(state) = layout.filter(|_| !devices.is_empty()) {
        draft.put("octavo.dev/layout-state", state.as_str());
    }
}

/// Adds the driver version: NVIDIA's on nodes with NVIDIA devices, as selectors expect, otherwise that of the only
/// driver if there is one version of it.
fn add_driver(draft: &mut LabelsBuilder, inventory: &Inventory, devices: &[&Device]) {
    const KEY: &str = "octavo.dev/driver";
    if devices.iter().any(|device| device.vendor == Vendor::Nvidia) {
        return match inventory.nvml.driver() {
            Some(driver) => draft.put(KEY, &driver.version),
            None => draft.omit(KEY, Omission::DriverNotReady),
        };
    }
    let amd = devices.iter().filter_map(|device| device.amd.as_ref());
    // A driver included in the kernel has no version of its own.
    let amd = amd.map(|amd| ("amdgpu", amd.driver_version.as_deref()));
    let has_neuron = |device: &&Device| device.vendor == Vendor::Aws;
    let neuron = inventory.neuron.iter();
    let neuron = neuron
        .filter(|_| devices.iter().any(has_neuron))
        .map(|neuron| ("neuron", neuron.driver_version.as_deref()));
    let drivers: BTreeSet<(&str, Option<&str>)> = amd.chain(neuron).collect();
    match drivers.first() {
        Some((_, Some(version))) if drivers.len() == 1 => draft.put(KEY, *version),
        Some(_) if drivers.len() > 1 => draft.omit(KEY, Omission::MultipleDrivers),
        Some((_, Some(_) | None)) | None => {}
    }
}

/// Adds the compute and memory partition modes of the last scan. Devices that cannot be partitioned do not count.
fn add_amd_partitions(draft: &mut LabelsBuilder, devices: &[&Device]) {
    let reported = || devices.iter().filter_map(|device| device.amd.as_ref());
    put_partition_mode(
        draft,
        "octavo.dev/amd-compute-partition",
        reported().filter_map(|amd| amd.compute.as_ref()),
    );
    put_partition_mode(
        draft,
        "octavo.dev/amd-memory-partition",
        reported().filter_map(|amd| amd.memory.as_ref()),
    );
}

/// Sets the label to the mode that all devices share, in lower case as all Octavo values; `mixed` if they differ.
fn put_partition_mode<'a>(
    draft: &mut LabelsBuilder,
    key: &str,
    modes: impl Iterator<Item = &'a PartitioningMode>,
) {
    let modes: BTreeSet<String> = modes.map(|mode| mode.current.to_ascii_lowercase()).collect();
    match modes.first() {
        Some(only) if modes.len() == 1 => draft.put(key, only),
        Some(_) => draft.put(key, "mixed"),
        None => {}
    }
}

// Labels for what the AWS Neuron driver reports.
//
// Terms: a device has physical cores; one or two of them form a logical core, which is what programs and Kubernetes
// see. Counts are per node. A count is set only if every device reports its own; a sum over only some devices would be
// wrong.

/// Adds the keys of a node whose Neuron driver is loaded.
fn add_neuron(draft: &mut LabelsBuilder, inventory: &Inventory) {
    let is_there = |device: &Device| device.vendor == Vendor::Aws;
    let expected = inventory.devices.iter().any(is_there);
    let Some(neuron) = &inventory.neuron else {
        if expected {
            draft.omit("octavo.dev/neuron-*", Omission::DriverNotReady);
        }
        return;
    };
    if neuron.devices.is_empty() && !expected {
        return;
    }
    draft.put("octavo.dev/neuron-devices", &neuron.devices.len());
    match &neuron.driver_version {
        Some(version) => draft.put("octavo.dev/neuron-driver", version),
        None => draft.omit("octavo.dev/neuron-driver", Omission::DriverVersionUnknown),
    }
    if neuron.devices.is_empty() {
        return;
    }
    add_cores(draft, neuron);
    match neuron_memory(neuron) {
        Some(memory) => draft.put("octavo.dev/neuron-memory-mib", &memory.get()),
        None => draft.omit("octavo.dev/neuron-memory-mib", Omission::NotInCatalog),
    }
}

fn add_cores(draft: &mut LabelsBuilder, neuron: &Neuron) {
    const LOGICAL: &str = "octavo.dev/neuron-logical-cores";
    const SIZE: &str = "octavo.dev/neuron-logical-core-size";
    let sum = |of: &dyn Fn(&NeuronDevice) -> Option<u32>| {
        let each = neuron.devices.iter().map(of);
        each.map(|cores| cores.map(u64::from)).sum::<Option<u64>>()
    };
    match sum(&|device| device.cores) {
        Some(physical) => draft.put("octavo.dev/neuron-cores", &physical),
        None => draft.omit("octavo.dev/neuron-cores", Omission::CoreCountUnknown),
    }
    let Some(logical) = neuron.logical else {
        draft.omit(SIZE, Omission::LogicalCoresUnknown);
        draft.omit(LOGICAL, Omission::LogicalCoresUnknown);
        return;
    };
    draft.put(SIZE, &logical.size);
    draft.put("octavo.dev/neuron-logical-source", logical.source.as_str());
    match sum(&|device| neuron.logical_cores(device)) {
        Some(count) => draft.put(LOGICAL, &count),
        None => draft.omit(LOGICAL, Omission::CoreCountUnknown),
    }
    // With one physical core per logical core there is no setting to choose.
    if logical.source == LogicalSource::Default && logical.size > 1 {
        draft.note(Note::DefaultLogicalCoreSize { size: logical.size });
    }
}

/// Returns the memory of one device by the driver's name for the chip; the smallest if devices differ. `None` if the
/// catalog does not list one of them.
fn neuron_memory(neuron: &Neuron) -> Option<Mebibytes> {
    let each = neuron.devices.iter().map(|device| {
        let name = device.device_name.as_deref()?;
        accelerators::neuron_memory(name)
    });
    let each: Option<Vec<Mebibytes>> = each.collect();
    each?.into_iter().min()
}
